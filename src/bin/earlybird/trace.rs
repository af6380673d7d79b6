//! `earlybird trace`: what the traces of a job tell, as tables and as files for other programs.

mod export;
mod figure;
mod imbalance;
mod lateness;
mod operations;
mod study;

use crate::chart;
use crate::output::{fail, print};
use clap::{Args, Subcommand};
use earlybird::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use study::Study;

/// Look at what a job recorded under EARLYBIRD_TRACE=FILE
#[derive(Args)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand)]
enum TraceCommand {
    Report(ReportArgs),
}

/// Tell who was late, what ran, and where the time went
///
/// Every rank of a job that runs with EARLYBIRD_TRACE=FILE writes FILE.RANK; those that are there are read, also of a job that
/// was killed or still runs. Times of ranks on several hosts are aligned by the calls themselves.
#[derive(Args)]
struct ReportArgs {
    /// The name that EARLYBIRD_TRACE had, without the number of a rank
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Also write a timeline that the Perfetto UI and chrome://tracing open
    #[arg(long, value_name = "JSON")]
    perfetto: Option<PathBuf>,

    /// Also write every call of every rank
    #[arg(long, value_name = "CSV")]
    csv: Option<PathBuf>,

    /// Also draw how late each rank was over time
    #[arg(long, value_name = "SVG")]
    svg: Option<PathBuf>,
}

/// Carries out the command.
pub fn run(args: &TraceArgs) -> ExitCode {
    let TraceCommand::Report(args) = &args.command;
    match report(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail("trace report", &error),
    }
}

fn report(args: &ReportArgs) -> Result<(), Error> {
    let study = Study::read(&args.trace)?;
    let sections = [
        study.heading(),
        operations::section(&study),
        imbalance::section(&study),
        lateness::by_rank(&study),
        lateness::over_time(&study),
        lateness::open_calls(&study),
    ];
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    print(&format!("{}\n", sections.join("\n\n")))?;
    if let Some(path) = &args.perfetto {
        written(path, export::perfetto(&study, path))?;
    }
    if let Some(path) = &args.csv {
        written(path, export::csv(&study, path))?;
    }
    if let Some(path) = &args.svg {
        written(path, std::fs::write(path, chart::svg(&figure::lateness(&study))?))?;
    }
    Ok(())
}

fn written<T, E: ToString + 'static>(path: &Path, result: Result<T, E>) -> Result<(), Error> {
    result.map(drop).map_err(|error| Error::system(format!("writing {}", path.display()), error))
}
