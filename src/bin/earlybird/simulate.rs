//! `earlybird simulate`: schedules in time on a machine that is described, not there.
//!
//! Exit code 0 ok, 2 the request makes no sense.

mod figure;
mod machine;
mod preset;
mod runner;
mod spec;

use crate::arguments::parse_cost;
use crate::chart::{self, Failure};
use crate::lateness::{Lateness, Recorded};
use crate::output::print;
use clap::{Args, ValueEnum};
use earlybird::Error;
use earlybird::pattern::Pattern;
use earlybird::units::parse_size;
use figure::{Axis, Figure, Measure, Point};
use itertools::iproduct;
use machine::MachineArgs;
use preset::PublishedFigure;
use spec::Spec;
use std::path::PathBuf;
use std::rc::Rc;

const EXAMPLES: &str = "\
Examples:
  earlybird simulate --algorithms ring,butterfly --ranks 48 --bytes 64Ki \\
      --alpha 3e-5 --beta 1e-8 --gamma 2e-10
  earlybird simulate --preset kolmakov-8 --format svg > figure.svg";

/// Simulate schedules in time: a table, CSV or a drawing
///
/// A rank begins a round when it has finished its earlier rounds; there is no barrier between rounds. Without
/// --topology only the ports of ranks are shared, and logarithmic schedules may have up to 131072 ranks.
///
/// An algorithm is a schedule of `earlybird plan`, with parameters after colons, `x` between numbers of a list:
/// butterfly:r=3, cyclic-shift:radices=4x3, chain:segments=8:order=arrival, elimination-3-2:protocol=mixed-1.
/// butterfly:r=best tries every r, butterfly:r=estimated takes the published estimate; `best` takes the schedule that
/// the cost model thinks fastest. three-phase:fold=chain:chunks=4:exchange=ring reduces and publishes inside nodes of
/// --ranks-per-node ranks (fold: static-leader, leader, chain, slices) and exchanges between them.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct SimulateArgs {
    /// Schedules to simulate, with parameters
    #[arg(long, value_delimiter = ',', value_name = "A,B", required_unless_present = "preset")]
    algorithms: Vec<Spec>,
    /// Numbers of ranks
    #[arg(long, value_delimiter = ',', value_name = "P,..", required_unless_present = "preset")]
    ranks: Vec<usize>,
    /// Sizes of the vector in bytes (Ki, Mi, Gi)
    #[arg(long, value_delimiter = ',', value_name = "B,..", value_parser = parse_size, required_unless_present = "preset")]
    bytes: Vec<u64>,
    /// Arrival patterns: balanced, random, first-late, last-late, one-late, ascending
    #[arg(long, value_delimiter = ',', value_name = "P,..", default_value = "balanced")]
    pattern: Vec<Pattern>,
    /// The full delay of a late rank
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost)]
    delay: Option<f64>,
    /// Instead of a pattern the arrivals that a job of as many ranks recorded under EARLYBIRD_TRACE=FILE: those at one of its
    /// calls, drawn anew for every iteration
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pattern", "delay"])]
    arrivals: Option<PathBuf>,
    /// Mean of a random delay of every message
    #[arg(long, value_name = "SECONDS", value_parser = parse_cost, default_value = "0")]
    jitter: f64,
    /// Chooses random delays
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Calls with their own random delays, whose mean is shown
    #[arg(long, default_value_t = 1, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iterations: u32,
    /// time: from 0, when the earliest rank may arrive, to the last exit; tail: from the last arrival to the last exit
    #[arg(long, value_enum, default_value_t = Measure::Time)]
    measure: Measure,
    /// A published figure or table: its machine, algorithms, parameters and sizes
    #[arg(long, value_enum, conflicts_with_all = ["machine", "algorithms", "ranks", "bytes", "pattern", "delay", "arrivals", "jitter", "iterations", "measure"])]
    preset: Option<PublishedFigure>,
    /// table, csv or svg
    #[arg(long, value_enum, default_value_t = SimulationFormat::Table)]
    format: SimulationFormat,
    #[command(flatten)]
    machine: MachineArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum SimulationFormat {
    Table,
    Csv,
    Svg,
}

/// Runs the command.
pub fn run(args: &SimulateArgs) -> Result<u8, Error> {
    print(&answer(args).map_err(|error| Error::usage(error.to_string()))?)?;
    Ok(0)
}

fn answer(args: &SimulateArgs) -> Result<String, Failure> {
    let figure = match args.preset {
        Some(preset) => preset.figure(args.seed)?,
        None => sweep(args)?,
    };
    match args.format {
        SimulationFormat::Table => Ok(figure.table()),
        SimulationFormat::Csv => Ok(figure.csv()?),
        SimulationFormat::Svg => Ok(chart::svg(&figure.chart())?),
    }
}

/// Every algorithm for every number of ranks, size and pattern.
fn sweep(args: &SimulateArgs) -> Result<Figure, Failure> {
    let delay_s = args.delay.unwrap_or(0.0);
    if delay_s == 0.0 && args.pattern.iter().any(|pattern| *pattern != Pattern::Balanced) {
        return Err("a pattern needs --delay, the seconds by which a late rank is late".into());
    }
    if delay_s > 0.0 && args.pattern.iter().all(|pattern| *pattern == Pattern::Balanced) {
        return Err("--delay has no effect on a balanced pattern; choose another with --pattern".into());
    }
    let axis = if args.bytes.len() == 1 && args.ranks.len() > 1 { Axis::Ranks } else { Axis::Bytes };
    let mut points = Vec::new();
    for &ranks in &args.ranks {
        let mut runner = args.machine.build(ranks)?;
        runner.jitter_s = args.jitter;
        runner.seed = args.seed;
        runner.iterations = args.iterations;
        runner.measure = args.measure;
        let lateness = match &args.arrivals {
            None => args.pattern.iter().map(|&pattern| Lateness::Pattern { pattern, delay_s }).collect(),
            Some(path) => vec![Lateness::Recorded(Rc::new(Recorded::read(path, None, ranks)?))],
        };
        for (&bytes, spec, late) in iproduct!(&args.bytes, &args.algorithms, &lateness) {
            let row = runner.row(spec, bytes, late)?;
            let mut series = spec.to_string();
            if axis == Axis::Bytes && args.ranks.len() > 1 {
                series += &format!(", {ranks} ranks");
            }
            if args.pattern.len() > 1 {
                series += &format!(", {}", late.name());
            }
            let x = if axis == Axis::Bytes { bytes as f64 } else { ranks as f64 };
            points.push(Point { series, x, y: row.time_us, row });
        }
    }
    let title = match (&args.ranks[..], &args.bytes[..]) {
        ([ranks], _) => format!("{ranks} ranks, simulated"),
        (_, [bytes]) => format!("{bytes} bytes, simulated"),
        _ => "simulated".to_string(),
    };
    Ok(Figure { title, axis, relative: false, points, measure: args.measure })
}

#[cfg(test)]
mod tests;
