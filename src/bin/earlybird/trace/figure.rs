//! Pictures of a trace: the lateness of each rank over time, and the call that kept the ranks waiting longest.

use super::study::{Study, us};
use crate::chart::{Chart, picture, plot};
use earlybird::Error;
use earlybird::trace::TracedCall;
use plotters::prelude::*;

/// Dots of a rank.
const DOTS: i64 = 150;
/// Ranks that are drawn: those with the largest lateness.
const RANKS: usize = 12;

/// The microseconds of each rank behind the first arrival, as means over equal stretches of time.
pub fn lateness(study: &Study) -> Chart {
    let (begin, length) = (study.begin(), study.length().max(1));
    let mut sums = vec![vec![(0i64, 0i64); DOTS as usize]; study.trace.ranks.len()];
    for call in study.shared_calls() {
        let first = call.ends().0.arrival;
        let at = (i128::from(first - begin) * i128::from(DOTS) / i128::from(length)) as usize;
        for part in &call.parts {
            let (late, calls) = &mut sums[part.file][at.min(DOTS as usize - 1)];
            *late += part.arrival - first;
            *calls += 1;
        }
    }
    let mut files: Vec<usize> = (0..sums.len()).collect();
    files.sort_by_key(|file| std::cmp::Reverse(sums[*file].iter().map(|(late, _)| *late).sum::<i64>()));
    files.truncate(RANKS);
    let dots = files.iter().flat_map(|file| {
        let of_rank = sums[*file].iter().enumerate().filter(|(_, (_, calls))| *calls > 0);
        of_rank.map(|(at, (late, calls))| {
            let x = length as f64 / DOTS as f64 * (at as f64 + 0.5) / 1e9;
            (format!("rank {}", study.rank(*file)), x, *late as f64 / *calls as f64 / 1e3)
        })
    });
    Chart {
        title: format!("lateness of {} of {} ranks", files.len(), study.trace.size),
        bytes: false,
        dots: true,
        x_name: "time (s)",
        y_name: "behind the first arrival (us)",
        points: dots.collect(),
    }
}

/// The call in which the ranks waited longest for the last one, a line for each of the [`RANKS`] that came last: when it came, what it
/// waited, and what was left to do when all had arrived. Nothing if no call kept anybody waiting.
///
/// # Errors
/// [`Error::System`] if it cannot be drawn.
pub fn longest_wait(study: &Study) -> Result<Option<String>, Error> {
    let ended = study.shared_calls().filter(|call| call.tail().is_some());
    let Some(call) = ended.max_by_key(|call| waiting(call)).filter(|call| waiting(call) > 0) else {
        return Ok(None);
    };
    let last = call.ends().1.arrival;
    let mut parts: Vec<_> = call.parts.iter().collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.arrival));
    parts.truncate(RANKS);
    let in_ms = |ns: i64| (ns - last) as f64 / 1e6;
    let exits = parts.iter().filter_map(|part| part.exit).map(in_ms).fold(0.0, f64::max);
    let first = parts.iter().map(|part| in_ms(part.arrival)).fold(0.0, f64::min);
    let room = (exits - first) * 0.02;
    let title = format!(
        "{} of {} bytes that kept ranks waiting longest: {} us in all for rank {}; tail {} us",
        call.collective.name(),
        call.bytes,
        us(waiting(call)),
        study.rank(call.ends().1.file),
        us(call.tail().unwrap_or(0)),
    );
    let height = 110 + 28 * parts.len() as u32;
    let svg = picture((1240, height), |area| {
        let lines = parts.len() as f64;
        let mut drawn = plot(area, &title, first - room..exits + room, 0.0..lines)?;
        let rank_at = |y: &f64| match parts.get(y.floor() as usize) {
            Some(part) if y.fract() != 0.0 => format!("rank {}", study.rank(part.file)),
            _ => String::new(),
        };
        drawn
            .configure_mesh()
            .disable_y_mesh()
            .x_desc("ms after the last arrival (light: waits for it; dark: after it)")
            .y_labels(2 * parts.len() + 1)
            .y_label_formatter(&rank_at)
            .label_style(("sans-serif", 13))
            .draw()?;
        for (line, part) in parts.iter().enumerate() {
            let exit = part.exit.unwrap_or(last);
            let bar = |from: i64, to: i64, colour: ShapeStyle| {
                let (low, high) = (line as f64 + 0.2, line as f64 + 0.8);
                Rectangle::new([(in_ms(from), low), (in_ms(to.max(from)), high)], colour)
            };
            let (waits, works) = (RGBColor(86, 180, 233).mix(0.5).filled(), RGBColor(0, 60, 110).filled());
            drawn.draw_series([bar(part.arrival, exit.min(last), waits), bar(part.arrival.max(last), exit, works)])?;
        }
        drawn.draw_series([PathElement::new([(0.0, 0.0), (0.0, lines)], RED.stroke_width(1))])?;
        Ok(())
    })?;
    Ok(Some(svg))
}

/// The nanoseconds that all ranks together waited for the last one.
fn waiting(call: &TracedCall) -> i64 {
    let last = call.ends().1.arrival;
    call.parts.iter().filter_map(|part| part.waited(last)).sum()
}
