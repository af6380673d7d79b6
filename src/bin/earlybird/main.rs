//! The `earlybird` command line program, one file per command.
//!
//! Exit codes of every command: 0 ok, 1 the checked thing failed, 2 usage (`run` passes its ranks' codes on).
#![forbid(unsafe_code)]

mod arguments;
mod bench;
mod chart;
mod demo;
mod job;
mod lineup;
mod output;
mod plan;
mod run;
mod simulate;
mod table;
mod trace;
mod tune;

use clap::{Parser, Subcommand};
use earlybird::launch;
use std::process::ExitCode;

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
    Trace(trace::TraceArgs),
    Tune(tune::TuneArgs),
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
    match Arguments::parse().command {
        Command::Bench(args) => bench::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Plan(args) => plan::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Trace(args) => trace::run(&args),
        Command::Tune(args) => tune::run(&args),
    }
}
