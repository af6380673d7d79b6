//! The `earlybird` command line program, one file per command.
//!
//! Exit codes of every command: 0 ok, 1 the checked thing failed, 2 usage (`run` passes its ranks' codes on).
#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod chart;
mod demo;
mod doctor;
mod explain;
mod job;
mod lateness;
mod lineup;
mod numbers;
mod output;
mod page;
mod pages;
mod plan;
mod proc_files;
mod run;
mod simulate;
mod table;
mod topo;
mod trace;
mod tune;

use clap::{CommandFactory, Parser, Subcommand};
use earlybird::{Config, Error, launch};
use std::process::ExitCode;

const EXAMPLES: &str = "\
Examples:
  earlybird demo                             what happens when a rank is late and when one dies
  earlybird run -n 4 -- ./program            four ranks of a program
  earlybird bench allreduce --ranks 2        how long an allreduce takes after the last arrival
  earlybird doctor                           what this system offers and forbids";

/// Collective operations for processes that arrive at different times.
#[derive(Parser)]
#[command(name = "earlybird", version, arg_required_else_help = true, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Bench(Box<bench::BenchArgs>),
    Demo(demo::DemoArgs),
    Doctor(doctor::DoctorArgs),
    Explain(explain::ExplainArgs),
    Pages(pages::PagesArgs),
    Plan(Box<plan::PlanArgs>),
    Run(run::RunArgs),
    Simulate(Box<simulate::SimulateArgs>),
    Topo(topo::TopoArgs),
    Trace(trace::TraceArgs),
    Tune(tune::TuneArgs),
}

impl Command {
    /// Carries the command out; its exit code.
    fn run(&self) -> Result<u8, Error> {
        match self {
            Command::Bench(args) => bench::run(args),
            Command::Demo(args) => demo::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Explain(args) => explain::run(args),
            Command::Pages(args) => pages::run(args, Arguments::command()),
            Command::Plan(args) => plan::run(args),
            Command::Run(args) => run::run(args),
            Command::Simulate(args) => simulate::run(args),
            Command::Topo(args) => topo::run(args),
            Command::Trace(args) => trace::run(args),
            Command::Tune(args) => tune::run(args),
        }
    }
}

/// Reads the arguments and carries out the command.
fn main() -> ExitCode {
    let mut args = std::env::args_os();
    match args.nth(1) {
        Some(command) if command == launch::exec::COMMAND => return launch::exec::become_rank(args).into(),
        Some(command) if command == launch::watchdog::COMMAND => {
            launch::watchdog::watch();
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    let command = Arguments::parse().command;
    // Every command reports a mistake in a variable once, before anything is started; doctor among its findings.
    let mistake = Config::from_env().err().filter(|_| !matches!(command, Command::Doctor(_)));
    let code = match mistake {
        Some(error) => output::fail_once(false, error),
        None => command.run(),
    };
    code.map_or_else(|error| output::fail(&std::env::args().nth(1).unwrap_or_default(), &error), ExitCode::from)
}
