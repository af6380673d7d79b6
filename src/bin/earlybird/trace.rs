//! `earlybird trace`: the traces of a job as tables and as files for other programs.

mod export;
mod figure;
mod imbalance;
mod lateness;
mod operations;
mod study;
mod top;

use crate::chart;
use crate::output::{must_be_writable, print};
use crate::page::Page;
use clap::{Args, Subcommand};
use earlybird::Error;
use std::path::{Path, PathBuf};
use top::TopArgs;

pub use study::Study;

/// Look at what a job recorded under EARLYBIRD_TRACE=FILE
#[derive(Args)]
pub struct TraceArgs {
    #[command(subcommand)]
    command: TraceCommand,
}

#[derive(Subcommand)]
enum TraceCommand {
    Report(ReportArgs),
    Top(TopArgs),
}

const EXAMPLES: &str = "\
Examples:
  EARLYBIRD_TRACE=run1 earlybird run -n 4 -- ./program
  earlybird trace report run1 --perfetto run1.json --html run1.html";

/// Tell who was late, what ran, and where the time went
///
/// Every rank of a job that runs with EARLYBIRD_TRACE=FILE writes FILE.RANK; those that are there are read, also of a job that
/// was killed or still runs. Times of ranks on several hosts are aligned by the calls themselves.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
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

    /// Also write a page of one file: the report, that drawing, and the call that kept the ranks waiting longest
    #[arg(long, value_name = "HTML")]
    html: Option<PathBuf>,
}

/// Carries out the command.
pub fn run(args: &TraceArgs) -> Result<u8, Error> {
    match &args.command {
        TraceCommand::Report(args) => report(args),
        TraceCommand::Top(args) => top::run(args),
    }
    .map(|()| 0)
}

fn report(args: &ReportArgs) -> Result<(), Error> {
    let outputs = [("--perfetto", &args.perfetto), ("--csv", &args.csv), ("--svg", &args.svg), ("--html", &args.html)];
    for (option, path) in outputs {
        path.as_deref().map_or(Ok(()), |path| must_be_writable(option, path))?;
    }
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
    if let Some(path) = &args.html {
        written(path, std::fs::write(path, page(&study, &args.trace, &sections)?))?;
    }
    Ok(())
}

/// The report as a page.
fn page(study: &Study, trace: &Path, sections: &[String]) -> Result<String, Error> {
    let mut page = Page::new(&format!("earlybird trace {}", trace.display()));
    let (heading, tables) = sections.split_first().expect("the heading is never empty");
    page.add_plain(heading);
    if study.shared_calls().next().is_some() {
        page.add_chart(&figure::lateness(study))?;
    }
    figure::longest_wait(study)?.iter().for_each(|picture| page.add_svg(picture));
    tables.iter().for_each(|table| page.add_plain(table));
    Ok(page.finish())
}

fn written<T, E: ToString + 'static>(path: &Path, result: Result<T, E>) -> Result<(), Error> {
    result.map(drop).map_err(|error| Error::system(format!("writing {}", path.display()), error))
}
