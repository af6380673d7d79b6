//! Draws when ranks arrived and left: some steps as a timeline for each algorithm, and the exits of all steps.

use super::train::{Run, late_rank};
use crate::bench::{last_arrival, last_exit};
use crate::chart::{self, Chart, Drawing, Failure, picture, plot};
use earlybird::Error;
use plotters::prelude::*;
use std::path::Path;
use std::time::Duration;

const SIZE: (u32, u32) = (1100, 900);
const COMPUTES: RGBColor = RGBColor(205, 210, 216);
const LATE: RGBColor = RGBColor(240, 170, 70);
const INSIDE: RGBColor = RGBColor(60, 110, 180);
const LAST_ARRIVAL: RGBColor = RGBColor(190, 40, 40);

/// Writes the picture.
///
/// # Errors
/// [`Error::System`] if the file cannot be written.
pub fn draw(path: &Path, runs: &[Run], ranks: usize, delay: Duration) -> Result<(), Error> {
    let svg = picture(SIZE, |root| draw_all(root, runs, ranks, delay))?;
    std::fs::write(path, svg).map_err(|error| Error::system(format!("write {}", path.display()), error))
}

fn draw_all(root: &Drawing, runs: &[Run], ranks: usize, delay: Duration) -> Result<(), Failure> {
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
    chart::draw(&exits, &all_exits(runs))
}

/// The legend of the timelines' colours, in one line.
fn draw_key(area: &Drawing) -> Result<(), Failure> {
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
    steps: std::ops::Range<usize>,
    /// The time that the picture begins with.
    start_ns: i64,
    end_ms: f64,
}

impl Window {
    fn of(run: &Run, ranks: usize) -> Window {
        let calls = run.samples.calls();
        let steps = (2 * ranks).min(8).min(calls.len() - 1);
        // A whole number of rounds, so that rank 0 is late first.
        let first = ((calls.len() - steps) / 2 / ranks * ranks).max(1);
        let start_ns = calls[first - 1].iter().map(|sample| sample.exit_ns).min().unwrap_or(0);
        let end_ms = (last_exit(&calls[first + steps - 1]) - start_ns) as f64 / 1e6;
        Window { steps: first..first + steps, start_ns, end_ms }
    }
}

fn timeline(area: &Drawing, run: &Run, window: &Window, ranks: usize, width_ms: f64) -> Result<(), Failure> {
    let caption = format!("{}: steps {} to {}", run.algorithm, window.steps.start, window.steps.end - 1);
    let mut chart = plot(area, &caption, 0.0..width_ms * 1.001, -0.6..ranks as f64 - 0.4)?;
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
        .label_style(("sans-serif", 13))
        .draw()?;
    let calls = run.samples.calls();
    let ms = |ns: i64| ((ns - window.start_ns) as f64 / 1e6).max(0.0);
    let bar = |rank: usize, from_ns: i64, to_ns: i64, colour: RGBColor| {
        let row = rank as f64;
        Rectangle::new([(ms(from_ns), row - 0.32), (ms(to_ns), row + 0.32)], colour.filled())
    };
    for step in window.steps.clone() {
        let bars = calls[step].iter().enumerate().flat_map(|(rank, sample)| {
            let before = if late_rank(step, ranks) == rank { LATE } else { COMPUTES };
            let computing = bar(rank, calls[step - 1][rank].exit_ns, sample.arrival_ns, before);
            [computing, bar(rank, sample.arrival_ns, sample.exit_ns, INSIDE)]
        });
        chart.draw_series(bars)?;
        let at_ms = ms(last_arrival(&calls[step]));
        let line = vec![(at_ms, -0.5), (at_ms, ranks as f64 - 0.5)];
        chart.draw_series([PathElement::new(line, LAST_ARRIVAL.stroke_width(1))])?;
    }
    Ok(())
}

/// Every exit of every rank in every step, counted from the last arrival.
fn all_exits(runs: &[Run]) -> Chart {
    let mut points = Vec::new();
    for run in runs {
        for (step, call) in run.samples.calls().iter().enumerate() {
            let after_us = |exit_ns: i64| ((exit_ns - last_arrival(call)) as f64 / 1e3).max(0.1);
            points.extend(call.iter().map(|sample| (run.algorithm.to_string(), step as f64, after_us(sample.exit_ns))));
        }
    }
    Chart {
        title: "exits of all ranks, counted from the last arrival".into(),
        bytes: false,
        dots: true,
        x_name: "step",
        y_name: "µs after the last arrival",
        points,
    }
}
