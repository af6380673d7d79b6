//! The `earlybird` command line program, one file per command.
//!
//! Exit codes of every command: 0 ok, 1 the checked thing failed, 2 usage (`run` passes its ranks' codes on).
#![forbid(unsafe_code)]

mod bench;
mod chart;
mod demo;
mod lineup;
mod plan;
mod run;
mod simulate;
mod tune;

use clap::{Parser, Subcommand};
use earlybird::launch::{self, Job, Outcome};
use earlybird::{Config, Error, FoldOrder, RanksPerNode};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Exit code of a request that cannot be carried out as it stands.
const EXIT_USAGE: u8 = 2;

/// Collective operations that know processes never arrive together.
#[derive(Parser)]
#[command(name = "earlybird", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(Box<bench::BenchArgs>),
    Demo(demo::DemoArgs),
    Plan(Box<plan::PlanArgs>),
    Run(run::RunArgs),
    Simulate(Box<simulate::SimulateArgs>),
    Tune(tune::TuneArgs),
}

/// Reads the arguments and carries out the command.
fn main() -> ExitCode {
    let mut args = std::env::args_os();
    match args.nth(1) {
        Some(command) if command == launch::exec::COMMAND => return launch::exec::become_rank(args),
        Some(command) if command == launch::watchdog::COMMAND => return launch::watchdog::watch(),
        _ => {}
    }
    match Arguments::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Tune(args) => tune::run(&args),
    }
}

/// Prints what went wrong and gives the exit code that belongs to it.
fn fail(command: &str, error: &Error) -> ExitCode {
    launch::say(format_args!("earlybird {command}: {error}"));
    match error {
        Error::Usage { .. } | Error::Unsupported { .. } => ExitCode::from(EXIT_USAGE),
        _ => ExitCode::FAILURE,
    }
}

/// What a launcher of MPI programs tells a rank: its number, and how many there are.
fn launched() -> Option<(usize, usize)> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let pairs = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")];
    pairs.iter().find_map(|(rank, size)| Some((number(rank)?, number(size)?)))
}

/// Whether this process is no rank of a launcher, or the first.
fn is_first() -> bool {
    launched().is_none_or(|(rank, _)| rank == 0)
}

/// As [`fail`], of what is wrong with arguments that all ranks of a launcher have: one says it. It alone fails, because
/// launchers kill a job at its first failure, which would otherwise be that of a rank that says nothing, before this one spoke.
/// A worker has no such others.
fn fail_once(command: &str, is_worker: bool, error: &Error) -> ExitCode {
    match is_worker || is_first() {
        true => fail(command, error),
        false => ExitCode::SUCCESS,
    }
}

/// The arguments of this process, and the one that makes it a rank of its own job.
fn as_worker() -> Vec<OsString> {
    std::env::args_os().skip(1).chain(["--worker".into()]).collect()
}

/// Starts this program with these arguments as ranks of a job that measures. The exit code: 1 by a rank's failure, since what
/// failed is the thing measured.
fn run_job(command: &str, ranks: usize, nodes: Option<&str>, args: Vec<OsString>) -> Result<u8, Error> {
    let binary = own_binary()?;
    let mut job = Job::new(command, binary.clone(), ranks, binary.into(), args);
    job.nodes = nodes.map(|text| parse_nodes(text, ranks)).transpose()?;
    Ok(match job.run()? {
        Outcome::Success => 0,
        Outcome::Failed { .. } => 1,
        outcome => outcome.exit_code(),
    })
}

/// Refuses another number of ranks than was started.
fn must_be(wanted: Option<usize>, size: usize) -> Result<(), Error> {
    match wanted.filter(|ranks| *ranks != size) {
        None => Ok(()),
        Some(ranks) => {
            Err(Error::usage(format!("--ranks {ranks}: {size} ranks were started; give that or leave it out")))
        }
    }
}

/// The same without what chooses how calls are carried out.
fn plain(config: Config) -> Config {
    let (algorithm, tables, tuning) = Default::default();
    Config { algorithm, tables, tuning, order: FoldOrder::Arrival, exchange: None, ..config }
}

/// Virtual nodes of `ranks` ranks, where some are `given`, in place of those of the environment.
fn with_nodes(config: Config, given: Option<&str>, ranks: usize) -> Result<Config, Error> {
    Ok(match given {
        Some(nodes) => Config { ranks_per_node: Some(parse_nodes(nodes, ranks)?), ..config },
        None => config,
    })
}

/// Virtual nodes of `ranks` ranks: their number, or the ranks of each.
fn parse_nodes(text: &str, ranks: usize) -> Result<RanksPerNode, Error> {
    let nodes = match text.parse() {
        Ok(nodes) => RanksPerNode::on_nodes(ranks, nodes)?,
        Err(_) => text.parse()?,
    };
    nodes.sizes(ranks).map(|_| nodes)
}

/// This program, for starting it once per rank.
fn own_binary() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|error| Error::system("find the earlybird binary", error))
}

/// A time in seconds, zero excluded where it makes no sense is up to the caller.
fn parse_seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| format!("{text:?} is not a number of seconds, for example 0.5"))?;
    Duration::try_from_secs_f64(seconds).map_err(|_| format!("{text} s is not a time; give seconds from 0 upwards"))
}

/// A number of ranks that one node can hold.
fn parse_ranks(text: &str) -> Result<usize, String> {
    let ranks = text.parse().ok().filter(|ranks| (1..=launch::MAX_RANKS).contains(ranks));
    ranks.ok_or_else(|| format!("{text:?} is not a number of ranks from 1 to {}", launch::MAX_RANKS))
}

/// Writes to standard output; a reader that has gone is an error, not a panic.
fn print(text: &str) -> Result<(), Error> {
    std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes())
        .map_err(|error| Error::system("write to standard output", error))
}
