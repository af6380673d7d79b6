//! `earlybird trace top`: the same tables for the last moments of a running job, again and again.

use super::lateness;
use super::operations;
use super::study::Study;
use crate::output::print;
use clap::Args;
use earlybird::Error;
use earlybird::units::parse_time;
use std::io::{IsTerminal, stdout};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Takes the cursor home and clears the screen.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Show a running job: who was late a moment ago, and who is inside which call
///
/// Reads the files that the ranks are writing, which costs the job nothing. Ends with Ctrl-C.
#[derive(Args)]
pub struct TopArgs {
    /// The name that EARLYBIRD_TRACE has, without the number of a rank
    #[arg(value_name = "FILE")]
    trace: PathBuf,

    /// Time between two looks, each of which shows what has happened in it
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    every: Duration,

    /// Looks before the end [default: until Ctrl-C]
    #[arg(long, value_name = "K")]
    looks: Option<u64>,
}

/// Carries out the command.
///
/// # Errors
/// Those of reading the trace.
pub fn run(args: &TopArgs) -> Result<(), Error> {
    if args.every.is_zero() {
        return Err(Error::usage("--every 0: give the time between two looks, for example 2s"));
    }
    // Of the first look everything is shown that has happened.
    let mut seen = None;
    for look in 0.. {
        let begin = Instant::now();
        let study = Study::read(&args.trace)?;
        let (heading, end) = (study.heading(), study.begin() + study.length());
        let study = study.since(seen.replace(end).unwrap_or(i64::MIN));
        let happened = match study.calls.is_empty() {
            true => "No call since the last look.".to_string(),
            false => format!("{} call(s) since the last look, or still open.", study.calls.len()),
        };
        let sections = [operations::section(&study), lateness::by_rank(&study), lateness::open_calls(&study)];
        let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
        let clear = if stdout().is_terminal() { CLEAR } else { "" };
        print(&format!("{clear}{heading}\n\n{happened}\n\n{}\n\n", sections.join("\n\n")))?;
        if args.looks.is_some_and(|looks| look + 1 >= looks) {
            break;
        }
        std::thread::sleep(args.every.saturating_sub(begin.elapsed()));
    }
    Ok(())
}
