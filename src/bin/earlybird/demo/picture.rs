//! The picture of the demonstration: one call as a line for each rank around its last arrival, and below it the tails of all calls.
//!
//! Written by hand, because half of it is hatching, brackets and labels, which the plotting crate does not draw.

use super::straggler::{Comparison, MeasuredAlgorithm};
use crate::bench::{Sample, last_arrival, last_exit, quantile};
use crate::chart::in_bytes;
use earlybird::pattern::mix;
use itertools::Itertools;
use std::fmt::Write;

const WIDTH: f64 = 1000.0;
/// The plots lie between these.
const LEFT: f64 = 200.0;
const RIGHT: f64 = 970.0;
const LINE: f64 = 20.0;
/// Height of the dots of one algorithm.
const STRIP: f64 = 44.0;
/// The part of a line's plot that lies before the last arrival.
const BEFORE: f64 = 0.3;

const HEAD: &str = r##"<style>text{font-family:system-ui,sans-serif;font-size:13px;fill:#222}.title{font-size:17px;font-weight:600}
.name{font-weight:600}.small{font-size:12px;fill:#555}.classic{fill:#d55e00}.auto{fill:#0072b2}.computes{fill:#d5dae0}
.waits{fill:none;stroke:#999}.works{fill:url(#hatch);stroke:#0072b2}.arrival{stroke:#222;stroke-dasharray:4 3}
.axis{stroke:#999}.bracket{stroke:#222;fill:none}.box{fill:none;stroke:#222}.median{stroke:#222;stroke-width:3}</style>
<defs><pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
<rect width="6" height="6" fill="#fff"/><line x1="0" y1="0" x2="0" y2="6" stroke="#0072b2" stroke-width="4"/></pattern></defs>
<rect width="100%" height="100%" fill="#fff"/>
"##;

/// A picture that grows downwards.
struct Picture {
    body: String,
    y: f64,
}

impl Picture {
    fn add(&mut self, element: std::fmt::Arguments) {
        writeln!(self.body, "{element}").expect("strings take everything");
    }

    /// A text; `anchor` is start, middle or end.
    fn text(&mut self, class: &str, anchor: &str, x: f64, y: f64, text: &str) {
        self.add(format_args!(r#"<text class="{class}" text-anchor="{anchor}" x="{x:.1}" y="{y:.1}">{text}</text>"#));
    }

    fn bar(&mut self, class: &str, from: f64, to: f64, y: f64, height: f64) {
        let width = (to - from).max(0.0);
        self.add(format_args!(
            r#"<rect class="{class}" x="{from:.1}" y="{y:.1}" width="{width:.1}" height="{height:.1}"/>"#
        ));
    }

    fn line(&mut self, class: &str, from: (f64, f64), to: (f64, f64)) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.add(format_args!(r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#));
    }
}

/// The picture of these comparisons; the lines are of a call on the largest vectors.
pub fn draw(comparisons: &[Comparison], ranks: usize, cpus: usize, delay_ms: f64) -> String {
    let mut picture = Picture { body: String::new(), y: 34.0 };
    if let Some(comparison) = comparisons.iter().max_by_key(|comparison| comparison.bytes) {
        timelines(&mut picture, comparison, ranks, cpus, delay_ms);
    }
    tails(&mut picture, comparisons);
    let height = picture.y;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" height=\"{height:.0}\">\n\
         {HEAD}{}</svg>\n",
        picture.body
    )
}

/// One call of each algorithm from the same round, of which both tails are as near their medians as in any.
fn timelines(picture: &mut Picture, comparison: &Comparison, ranks: usize, cpus: usize, delay_ms: f64) {
    let both = [&comparison.classic, &comparison.auto];
    let medians = both.map(|algorithm| quantile(&algorithm.tails_us, 0.5));
    let distance = |call: &usize| -> f64 {
        both.iter().zip(medians).map(|(algorithm, median)| (algorithm.tails_us[*call] / median).ln().abs()).sum()
    };
    let Some(call) = (0..comparison.classic.calls.len()).min_by(|a, b| distance(a).total_cmp(&distance(b))) else {
        return;
    };
    let longest_us = both.iter().map(|algorithm| algorithm.tails_us[call]).fold(0.0, f64::max);
    let us_wide = longest_us * 1.15 / (1.0 - BEFORE);
    let x = |us: f64| (LEFT + (RIGHT - LEFT) * (BEFORE + us / us_wide)).clamp(LEFT, RIGHT);

    let size = in_bytes(comparison.bytes as f64);
    let title =
        format!("One allreduce of {size} bytes of f32 on {ranks} ranks and {cpus} CPUs, one rank {delay_ms} ms late");
    picture.text("title", "start", 24.0, picture.y, &title);
    picture.y += 26.0;
    legend(picture, ranks);
    let top = picture.y + 8.0;
    picture.y += 16.0;
    for (algorithm, class) in both.into_iter().zip(["classic", "auto"]) {
        group(picture, algorithm, class, call, &x);
    }
    picture.line("arrival", (x(0.0), top), (x(0.0), picture.y));
    picture.text("small", "middle", x(0.0), picture.y + 14.0, "last arrival");
    let step_us = round_step(us_wide);
    for tick in (1..).map(|tick| f64::from(tick) * step_us).take_while(|us| x(*us) < RIGHT) {
        picture.text("small", "middle", x(tick), picture.y + 14.0, &format!("+{}", in_time(tick)));
    }
    picture.y += 60.0;
}

/// The meaning of the bars, in one line.
fn legend(picture: &mut Picture, ranks: usize) {
    let entries = [
        ("computes", "not there yet", 130.0),
        ("waits", "waits for the last rank", 190.0),
        ("works", "reduces what has come, before the last rank", 310.0),
        ("classic", "", 24.0),
        ("auto", "reduces after it", 130.0),
    ];
    let mut at = LEFT;
    for (class, text, width) in entries.into_iter().filter(|(class, ..)| ranks > 2 || *class != "works") {
        picture.bar(class, at, at + 18.0, picture.y - 10.0, 12.0);
        picture.text("small", "start", at + 24.0, picture.y, text);
        at += width;
    }
}

/// The lines of one algorithm: one for each rank, and the tail below them.
fn group(picture: &mut Picture, algorithm: &MeasuredAlgorithm, class: &str, call: usize, x: &impl Fn(f64) -> f64) {
    let samples: &[Sample] = &algorithm.calls[call];
    let zero_ns = last_arrival(samples);
    let us = |ns: i64| (ns - zero_ns) as f64 / 1e3;
    // Two ranks have nothing to reduce before both are there.
    let before = if class == "auto" && samples.len() > 2 { "works" } else { "waits" };
    picture.text("name", "start", 24.0, picture.y + 14.0, &algorithm.name);
    for (rank, sample) in samples.iter().enumerate() {
        let y = picture.y;
        picture.text("small", "end", LEFT - 8.0, y + 14.0, &format!("rank {rank}"));
        let (arrived, left) = (us(sample.arrival_ns), us(sample.exit_ns));
        picture.bar("computes", LEFT, x(arrived), y + 3.0, LINE - 6.0);
        picture.bar(before, x(arrived), x(left.min(0.0)), y + 3.0, LINE - 6.0);
        picture.bar(class, x(arrived.max(0.0)), x(left), y + 3.0, LINE - 6.0);
        picture.y += LINE;
    }
    let (tail_us, y) = (us(last_exit(samples)), picture.y + 5.0);
    let (from, to) = (x(0.0), x(tail_us));
    picture.add(format_args!(
        r#"<path class="bracket" d="M{from:.1} {:.1}V{:.1}H{to:.1}V{:.1}"/>"#,
        y - 3.0,
        y + 3.0,
        y - 3.0
    ));
    picture.text("name", "middle", (from + to) / 2.0, y + 18.0, &format!("tail {tail_us:.0} µs"));
    picture.y += 34.0;
}

/// A dot for each call's tail, a strip for each algorithm and size, with quartiles and median.
fn tails(picture: &mut Picture, comparisons: &[Comparison]) {
    let all =
        comparisons.iter().flat_map(|comparison| comparison.classic.tails_us.iter().chain(&comparison.auto.tails_us));
    let all = all.copied().filter(|us| *us > 0.0);
    let Some((low, high)) = all.minmax_by(f64::total_cmp).into_option() else { return };
    let (low, high) = (low.ln() - 0.05, high.ln() + 0.05);
    let x = |us: f64| LEFT + (RIGHT - LEFT) * ((us.ln() - low) / (high - low)).clamp(0.0, 1.0);
    let calls = comparisons.iter().map(|comparison| comparison.auto.tails_us.len()).max().unwrap_or(0);
    let title = format!("The tails of all calls, {calls} of each: last exit - last arrival");
    picture.text("title", "start", 24.0, picture.y, &title);
    picture.y += 20.0;
    for comparison in comparisons {
        picture.text("small", "start", 24.0, picture.y + 14.0, &comparison.verdict());
        picture.y += 26.0;
        for (algorithm, class) in [(&comparison.classic, "classic"), (&comparison.auto, "auto")] {
            let middle = picture.y + STRIP / 2.0;
            picture.text("name", "end", LEFT - 12.0, middle + 4.0, &algorithm.name);
            for (call, us) in algorithm.tails_us.iter().enumerate() {
                // Dots are spread upwards and downwards so that equal tails are seen apart.
                let spread = (mix(call as u64) >> 40) as f64 / (1 << 24) as f64 - 0.5;
                let (at, y) = (x(*us), middle + spread * (STRIP - 12.0));
                picture
                    .add(format_args!(r#"<circle class="{class}" opacity=".45" cx="{at:.1}" cy="{y:.1}" r="2.5"/>"#));
            }
            let [first, median, third] = [0.25, 0.5, 0.75].map(|part| x(quantile(&algorithm.tails_us, part)));
            picture.bar("box", first, third, picture.y + 4.0, STRIP - 8.0);
            picture.line("median", (median, picture.y + 2.0), (median, picture.y + STRIP - 2.0));
            picture.y += STRIP;
        }
        picture.y += 8.0;
    }
    picture.line("axis", (LEFT, picture.y), (RIGHT, picture.y));
    let decades = (0..7).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    for tick in decades.filter(|us| (low..=high).contains(&us.ln())) {
        picture.line("axis", (x(tick), picture.y), (x(tick), picture.y + 4.0));
        picture.text("small", "middle", x(tick), picture.y + 18.0, &in_time(tick));
    }
    picture.text("small", "start", LEFT, picture.y + 38.0, "boxes: quartiles; bars: medians; the axis is logarithmic");
    picture.y += 56.0;
}

/// Microseconds as a reader likes them.
fn in_time(us: f64) -> String {
    if us < 1000.0 { format!("{us} µs") } else { format!("{} ms", us / 1000.0) }
}

/// About a sixth of a width, with a first digit of 1, 2 or 5.
fn round_step(width: f64) -> f64 {
    let power = 10f64.powf((width / 6.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power).into_iter().find(|step| width / step <= 6.0).unwrap_or(width)
}

#[cfg(test)]
mod tests {
    use super::super::straggler::tests::comparison;
    use super::*;

    #[test]
    fn a_call_has_its_timelines_and_every_tail_its_dot() {
        let svg = draw(&[comparison(0.5)], 3, 4, 5.0);
        let picture = roxmltree::Document::parse(&svg).expect("well-formed");
        let of_class = |class| picture.descendants().filter(move |node| node.attribute("class") == Some(class));
        let texts: Vec<&str> =
            picture.descendants().filter(|node| node.is_text()).filter_map(|node| node.text()).collect();
        assert_eq!(texts.iter().filter(|text| text.starts_with("rank ")).count(), 6, "three lanes for each algorithm");
        assert_eq!(of_class("auto").filter(|node| node.has_tag_name("circle")).count(), 30);
        assert_eq!(of_class("bracket").count(), 2);
        assert!(texts.contains(&"auto (chain)") && texts.iter().any(|text| text.starts_with("tail ")), "{texts:?}");
        let widths = of_class("works").filter_map(|node| node.attribute("width")?.parse::<f64>().ok());
        assert!(widths.sum::<f64>() > 100.0, "the early rank works before the last arrival");
    }

    #[test]
    fn nothing_is_left_of_the_plot_or_right_of_it() {
        let svg = draw(&[comparison(0.1), comparison(3.0)], 3, 4, 5.0);
        let picture = roxmltree::Document::parse(&svg).expect("well-formed");
        let places = picture.descendants().filter_map(|node| node.attribute("cx")?.parse::<f64>().ok());
        assert!(places.into_iter().all(|x| (LEFT..=RIGHT).contains(&x)));
    }

    #[test]
    fn ticks_are_round() {
        assert_eq!([1.0, 61.0, 900.0].map(round_step), [0.2, 20.0, 200.0]);
    }
}
