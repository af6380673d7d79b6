//! Draws when ranks arrived and left: some steps as a timeline for each algorithm, and the exits of all steps.

use super::train::{Run, late_rank};
use crate::bench::Sample;
use earlybird::Error;
use plotters::coord::Shift;
use plotters::prelude::*;
use std::path::Path;
use std::time::Duration;

const SIZE: (u32, u32) = (1100, 900);
const COMPUTES: RGBColor = RGBColor(205, 210, 216);
const LATE: RGBColor = RGBColor(240, 170, 70);
const INSIDE: RGBColor = RGBColor(60, 110, 180);
const LAST_ARRIVAL: RGBColor = RGBColor(190, 40, 40);
const BY_ALGORITHM: [RGBColor; 2] = [RGBColor(130, 130, 130), RGBColor(20, 130, 90)];

type Drawing<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Writes the picture.
///
/// # Errors
/// [`Error::System`] if the file cannot be written.
pub fn draw(path: &Path, runs: &[Run], ranks: usize, delay: Duration) -> Result<(), Error> {
    let mut svg = String::new();
    let drawn = {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        draw_all(&root, runs, ranks, delay).and_then(|()| Ok(root.present()?))
    };
    drawn.map_err(|error| Error::system("draw the picture", error))?;
    std::fs::write(path, svg).map_err(|error| Error::system(format!("write {}", path.display()), error))
}

fn draw_all(root: &Drawing, runs: &[Run], ranks: usize, delay: Duration) -> Result<(), Box<dyn std::error::Error>> {
    root.fill(&WHITE)?;
    let delay_ms = delay.as_secs_f64() * 1e3;
    let title = format!("Training with {ranks} processes, one of them {delay_ms} ms late in every step");
    let root = root.titled(&title, ("sans-serif", 22))?;
    let (key, root) = root.split_vertically(34);
    draw_key(&key)?;
    let (timelines, exits) = root.split_vertically(470);
    let windows: Vec<Window> = runs.iter().map(|run| Window::of(run, ranks)).collect();
    // The same scale for all, or the eye compares the wrong thing.
    let width_ms = windows.iter().map(|window| window.end_ms).fold(0.0, f64::max);
    for ((run, window), area) in runs.iter().zip(&windows).zip(timelines.split_evenly((runs.len(), 1))) {
        timeline(&area, run, window, ranks, width_ms)?;
    }
    all_exits(&exits, runs)?;
    Ok(())
}

/// The legend of the timelines' colours, in one line.
fn draw_key(area: &Drawing) -> Result<(), Box<dyn std::error::Error>> {
    let entries = [
        (COMPUTES, "computes"),
        (LATE, "computes and is late"),
        (INSIDE, "in allreduce, from arrival to exit"),
        (LAST_ARRIVAL, "last arrival"),
    ];
    let mut x = 90;
    for (colour, text) in entries {
        let width = if colour == LAST_ARRIVAL { 2 } else { 22 };
        area.draw(&Rectangle::new([(x, 12), (x + width, 24)], colour.filled()))?;
        area.draw(&Text::new(text, (x + width + 8, 11), ("sans-serif", 14)))?;
        x += width + 50 + 8 * text.len() as i32;
    }
    Ok(())
}

/// A stretch of steps from the middle of a run, two rounds of lateness long.
struct Window {
    first_step: usize,
    steps: usize,
    /// The time that the picture begins with.
    start_ns: i64,
    end_ms: f64,
}

impl Window {
    fn of(run: &Run, ranks: usize) -> Window {
        let calls = run.samples.calls();
        let steps = (2 * ranks).min(8).min(calls.len() - 1);
        // A whole number of rounds, so that rank 0 is late first.
        let first_step = ((calls.len() - steps) / 2 / ranks * ranks).max(1);
        let exits = |step: usize| calls[step].iter().map(|sample: &Sample| sample.exit_ns);
        let start_ns = exits(first_step - 1).min().unwrap_or(0);
        let end_ns = exits(first_step + steps - 1).max().unwrap_or(0);
        Window { first_step, steps, start_ns, end_ms: (end_ns - start_ns) as f64 / 1e6 }
    }
}

fn timeline(
    area: &Drawing,
    run: &Run,
    window: &Window,
    ranks: usize,
    width_ms: f64,
) -> Result<(), Box<dyn std::error::Error>> {
    let last_step = window.first_step + window.steps - 1;
    let caption = format!("{}: steps {} to {last_step}", run.algorithm, window.first_step);
    let mut chart = ChartBuilder::on(area)
        .caption(caption, ("sans-serif", 17))
        .margin_left(12)
        .margin_bottom(8)
        .margin_right(20)
        .x_label_area_size(38)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..width_ms * 1.001, -0.6..ranks as f64 - 0.4)?;
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc("time in ms")
        .x_labels(12)
        .y_labels(ranks + 2)
        .x_label_formatter(&|ms| format!("{ms}"))
        .y_label_formatter(&|rank| match (rank.fract() == 0.0, *rank as usize) {
            (true, rank) if rank < ranks => format!("rank {rank}"),
            _ => String::new(),
        })
        .axis_desc_style(("sans-serif", 14))
        .label_style(("sans-serif", 13))
        .draw()?;

    let calls = run.samples.calls();
    let ms = |ns: i64| ((ns - window.start_ns) as f64 / 1e6).max(0.0);
    let bar = |rank: usize, from_ns: i64, to_ns: i64, colour: RGBColor| {
        let row = rank as f64;
        Rectangle::new([(ms(from_ns), row - 0.32), (ms(to_ns), row + 0.32)], colour.filled())
    };
    let (mut computing, mut late, mut inside, mut last) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for step in window.first_step..=last_step {
        for (rank, sample) in calls[step].iter().enumerate() {
            let from_ns = calls[step - 1][rank].exit_ns;
            let is_late = late_rank(step, ranks) == rank;
            let (bars, colour) = if is_late { (&mut late, LATE) } else { (&mut computing, COMPUTES) };
            bars.push(bar(rank, from_ns, sample.arrival_ns, colour));
            inside.push(bar(rank, sample.arrival_ns, sample.exit_ns, INSIDE));
        }
        let at_ms = ms(calls[step].iter().map(|sample| sample.arrival_ns).max().unwrap_or(0));
        last.push(PathElement::new(vec![(at_ms, -0.5), (at_ms, ranks as f64 - 0.5)], LAST_ARRIVAL.stroke_width(1)));
    }
    chart.draw_series(computing)?;
    chart.draw_series(late)?;
    chart.draw_series(inside)?;
    chart.draw_series(last)?;
    Ok(())
}

/// Every exit of every rank in every step, counted from the last arrival.
fn all_exits(area: &Drawing, runs: &[Run]) -> Result<(), Box<dyn std::error::Error>> {
    let points = |run: &Run| -> Vec<(f64, f64)> {
        let step_points = |(step, call): (usize, &Vec<Sample>)| {
            let last_ns = call.iter().map(|sample| sample.arrival_ns).max().unwrap_or(0);
            let after_us = move |sample: &Sample| (sample.exit_ns - last_ns) as f64 / 1e3;
            call.iter().map(|sample| (step as f64, after_us(sample).max(0.1))).collect::<Vec<_>>()
        };
        run.samples.calls().iter().enumerate().flat_map(step_points).collect()
    };
    let all: Vec<Vec<(f64, f64)>> = runs.iter().map(points).collect();
    let smallest = all.iter().flatten().map(|point| point.1).fold(f64::INFINITY, f64::min);
    let largest = all.iter().flatten().map(|point| point.1).fold(0.0, f64::max);
    let steps = all.iter().map(Vec::len).max().unwrap_or(0) / runs[0].samples.calls()[0].len();
    let mut chart = ChartBuilder::on(area)
        .caption("exits of all ranks, counted from the last arrival", ("sans-serif", 17))
        .margin_left(12)
        .margin_bottom(8)
        .margin_right(20)
        .x_label_area_size(38)
        .y_label_area_size(70)
        .build_cartesian_2d(-1.0..steps as f64, (smallest * 0.8..largest * 1.25).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("step")
        .y_desc("µs after the last arrival")
        .light_line_style(TRANSPARENT)
        .bold_line_style(BLACK.mix(0.1))
        .x_labels(12)
        .x_label_formatter(&|step| format!("{step:.0}"))
        .y_label_formatter(&|us| format!("{us}"))
        .axis_desc_style(("sans-serif", 14))
        .label_style(("sans-serif", 13))
        .draw()?;
    for ((run, points), colour) in runs.iter().zip(&all).zip(BY_ALGORITHM) {
        let dots = points.iter().map(|&point| Circle::new(point, 2, colour.mix(0.6).filled()));
        chart
            .draw_series(dots)?
            .label(run.algorithm.name())
            .legend(move |(x, y)| Circle::new((x + 8, y), 4, colour.filled()));
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperRight)
        .background_style(WHITE.mix(0.9))
        .border_style(BLACK.mix(0.2))
        .label_font(("sans-serif", 13))
        .draw()?;
    Ok(())
}
