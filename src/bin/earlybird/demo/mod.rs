//! `earlybird demo`: processes train a small model together while one of them is always late.
//!
//! The demonstration shows on real data the time per step and the tail with the classical algorithm and with
//! the library's own choice, and that the result is bit for bit that of one process.

mod data;
mod model;
mod plot;
mod train;

use crate::arguments::parse_seconds;
use crate::bench::{Ranks, quantile};
use crate::job::{as_worker, run_job};
use crate::lineup::Lineup;
use crate::output::{fail, print, progress_bar};
use crate::table::table;
use clap::Args;
use data::{FEATURES, Wines};
use earlybird::launch::say;
use earlybird::{Algorithm, Config, Error, FoldOrder, WaitPreset};
use itertools::Itertools;
use model::Model;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use train::Run;

/// Train a small model with several processes, one always late
///
/// Trains twice, with static-leader and with auto, in rank order; in every step another rank is late. Shows time per
/// step and tail, compares the parameters of every rank bit for bit with a training in one process, and draws arrivals
/// and exits. Exit code 1 if any parameter differs.
#[derive(Args)]
pub struct DemoArgs {
    /// Number of processes
    #[arg(long, value_name = "P", default_value = "4", value_parser = clap::value_parser!(u32).range(2..=64))]
    ranks: u32,

    /// Steps of each training
    #[arg(long, value_name = "K", default_value = "200", value_parser = clap::value_parser!(u32).range(16..=100_000))]
    steps: u32,

    /// Delay of the late rank, in seconds
    #[arg(long, value_name = "S", default_value = "0.005", allow_negative_numbers = true, value_parser = parse_seconds)]
    delay: Duration,

    /// File for the picture of arrivals and exits
    #[arg(long, value_name = "FILE", default_value = "earlybird-demo.svg")]
    svg: PathBuf,

    /// Makes this process a rank of the job
    #[arg(long, hide = true)]
    worker: bool,
}

/// The algorithms that are compared, the classical one first.
const ALGORITHMS: [Algorithm; 2] = [Algorithm::StaticLeader, Algorithm::Auto];

/// Runs the demonstration, or one rank of it.
pub fn run(args: &DemoArgs) -> ExitCode {
    let code = match args.worker {
        true => work(args),
        false => start(args),
    };
    code.map_or_else(|error| fail("demo", &error), ExitCode::from)
}

fn start(args: &DemoArgs) -> Result<u8, Error> {
    // Mistakes are better said once, and before anything is started.
    Config::from_env()?;
    let directory = args.svg.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(directory) = directory.filter(|directory| !directory.is_dir()) {
        return Err(Error::usage(format!("--svg: {} is not a directory; create it first", directory.display())));
    }
    run_job("earlybird demo", args.ranks as usize, None, as_worker())
}

/// One rank; rank 0 reports.
fn work(args: &DemoArgs) -> Result<u8, Error> {
    let wines = Wines::load();
    let ranks = Ranks::detect(false)?;
    let mut config = Config::from_env()?;
    config.order = FoldOrder::Rank;
    let wait = config.wait;
    let comm = ranks.join(config.clone(), "")?;
    let lineup = Lineup::over(ranks.join(config, "-lineup")?)?;
    let rank = comm.rank();
    let steps = args.steps as usize;
    let before = Model::new(wines.classes);
    if rank == 0 {
        print(&introduction(args, &wines, &before, comm.allowed_cpus(), wait))?;
    }
    let progress = progress_bar(rank, steps * ALGORITHMS.len(), "{bar:40} step {pos}/{len}, {msg}");
    let mut runs = Vec::new();
    for algorithm in ALGORITHMS {
        progress.set_message(algorithm.name());
        runs.push(train::train(&comm, &lineup, &wines, algorithm, steps, args.delay, || progress.inc(1))?);
    }
    progress.finish_and_clear();
    let processors = comm.allowed_cpus();
    drop((comm, lineup));
    if rank == 0 { report(args, processors, &wines, &before, &runs) } else { Ok(0) }
}

/// The description of the job, the data and the model, printed before the training.
fn introduction(args: &DemoArgs, wines: &Wines, model: &Model, processors: usize, wait: WaitPreset) -> String {
    let (ranks, steps, delay_ms) = (args.ranks, args.steps, args.delay.as_secs_f64() * 1e3);
    let (learned, held_out) = (wines.training.classes.len(), wines.held_out.classes.len());
    let classes = wines.classes;
    let count = model.parameters().len();
    let bytes = size_of_val(model.parameters());
    format!(
        "{ranks} processes on {processors} processors train a small classifier together.\n\
         In every step one of them, in turn, comes {delay_ms} ms late.\n\n\
         data      quality of red wine in {classes} classes from {FEATURES} measurements: {learned} wines to learn \
         from, {held_out} held out\n          {}\n\
         model     {FEATURES}-{}-{classes}: {count} parameters of f32, one allreduce of {bytes} bytes per step, \
         folded in rank order\n\
         training  {steps} steps of gradient descent over all wines, once with each algorithm\n\
         waiting   {wait}\n\n",
        data::SOURCE,
        model::HIDDEN,
    )
}

/// Prints the figures, checks the parameters, draws.
fn report(args: &DemoArgs, processors: usize, wines: &Wines, before: &Model, runs: &[Run]) -> Result<u8, Error> {
    print(&figures(runs))?;
    if args.ranks as usize > processors {
        let gradient_us = quantile(&runs[1].gradients_us, 0.5);
        print(&format!(
            "note      {} processes share {processors} processors: a rank that has left goes on computing, and one that \
             shares its\n          processor leaves after it, so the tail holds gradients of others ({gradient_us:.0} us \
             each)\n          with any algorithm\n",
            args.ranks
        ))?;
    }
    for (what, examples) in [("learned", &wines.training), ("held out", &wines.held_out)] {
        let (start, end) = (before.quality(examples), runs[1].model.quality(examples));
        let (right_before, right_after) = (start.accuracy * 100.0, end.accuracy * 100.0);
        print(&format!(
            "{what:<10}loss {:.3} -> {:.3}, right {right_before:.1} % -> {right_after:.1} %\n",
            start.loss, end.loss
        ))?;
    }
    let alone = train::train_alone(wines, args.ranks as usize, args.steps as usize);
    let mut differing = 0;
    for run in runs {
        let ranks = train::ranks_that_differ(run, &alone);
        let algorithm = run.algorithm;
        if ranks.is_empty() {
            print(&format!(
                "bits      {algorithm}: the parameters of all ranks equal those of one process, bit for bit\n"
            ))?;
        } else {
            say(format_args!(
                "earlybird demo: {algorithm}: the parameters of rank(s) {ranks:?} differ from those of one process"
            ));
            differing += 1;
        }
    }
    plot::draw(&args.svg, runs, args.ranks as usize, args.delay)?;
    print(&format!("picture   {}\n", args.svg.display()))?;
    Ok(u8::from(differing > 0))
}

/// Time per step and tail of each run, and how they compare.
fn figures(runs: &[Run]) -> String {
    let header = ["algorithm", "step ms", "tail us", "tail p99 us", "cpu us/call"];
    let (mut rows, mut tails_us, mut steps_ms) = (Vec::new(), Vec::new(), Vec::new());
    for run in runs {
        let chosen = run.chosen.iter().join("+");
        let name = match run.algorithm.name() {
            name if name == chosen || chosen.is_empty() => name.to_owned(),
            name => format!("{name} ({chosen})"),
        };
        let tails = run.samples.tails_us();
        let (median_us, p99_us, cpu_us) = (quantile(&tails, 0.5), quantile(&tails, 0.99), run.samples.cpu_us_mean());
        let step_ms = quantile(&run.samples.steps_us(), 0.5) / 1e3;
        let one_digit = |us: f64| format!("{us:.1}");
        rows.push(vec![name, format!("{step_ms:.3}"), one_digit(median_us), one_digit(p99_us), one_digit(cpu_us)]);
        tails_us.push(median_us);
        steps_ms.push(step_ms);
    }
    let compare = |what: &str, figures: &[f64]| {
        let ratio = figures[1] / figures[0];
        let verdict = if ratio < 1.0 { "shorter" } else { "not shorter" };
        format!("{what:<10}of auto is {ratio:.2} times that of static-leader: {verdict}\n")
    };
    table(&header, rows)
        + "\nstep = last exit to last exit, tail = last arrival to last exit (medians over the steps)\n\n"
        + &compare("tail", &tails_us)
        + &compare("step", &steps_ms)
}
