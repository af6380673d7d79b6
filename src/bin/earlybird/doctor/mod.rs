//! `earlybird doctor`: what this system gives and forbids, what earlybird does about it, and what to change.

mod finding;
mod meeting;
mod memory;
mod mpi;
mod processes;
mod trial;

use crate::output::{AnswerFormat, print};
use clap::Args;
use earlybird::{Config, Error, launch};
use finding::{Finding, State, rendered};

const EXAMPLES: &str = "\
Examples:
  earlybird doctor
  earlybird doctor --pid 4711        (is the interposer active in this process?)
  earlybird doctor --format json > system.json";

/// Tell what this system offers and forbids, and what to change
///
/// Looks at memory, sockets, limits, namespaces, processors and MPI libraries, and runs a job of two ranks. Exit code 1 where
/// something is broken, so that no job can start as things are.
#[derive(Args)]
#[command(after_help = EXAMPLES)]
pub struct DoctorArgs {
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = AnswerFormat::Table)]
    format: AnswerFormat,

    /// Also look at this process: is the interposer active in it?
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// A rank of the trial job
    #[arg(long, hide = true)]
    worker: bool,
}

/// Looks, and prints what was found.
pub fn run(args: &DoctorArgs) -> Result<u8, Error> {
    if args.worker {
        trial::work()?.map_or(Ok(()), print)?;
        return Ok(0);
    }
    let config = Config::from_env();
    // A rank for each processor, and the two of the trial at least.
    let ranks = launch::allowed_cpus().map_or(2, |cpus| cpus.len().max(2));
    let sections: [Vec<Finding>; 5] = [
        memory::findings(ranks),
        // Before the trial, which as a job removes what others left.
        meeting::findings(&config),
        processes::findings(),
        trial::findings(),
        mpi::findings(),
    ];
    let mut findings = sections.concat();
    findings.extend(args.pid.into_iter().flat_map(processes::of_process));
    print(&rendered(&findings, args.format))?;
    let is_broken = findings.iter().any(|finding| finding.state == State::Broken);
    Ok(is_broken.into())
}
