//! The job of a command: this program started again as ranks, or the ranks that an MPI launcher has started.

use crate::arguments::parse_nodes;
use earlybird::launch::{Job, Outcome};
use earlybird::{Config, Error, FoldOrder};
use std::ffi::OsString;
use std::path::PathBuf;

/// Returns the rank and the number of ranks that a launcher of MPI programs has set.
pub fn launched() -> Option<(usize, usize)> {
    let number = |name: &str| std::env::var(name).ok()?.parse().ok();
    let pairs = [("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")];
    pairs.iter().find_map(|(rank, size)| Some((number(rank)?, number(size)?)))
}

/// Returns true on rank 0 of a launched job, and in a process that no launcher started.
pub fn is_first() -> bool {
    launched().is_none_or(|(rank, _)| rank == 0)
}

/// Returns the arguments of this process with `--worker`, which makes it a rank of the job, added.
pub fn as_worker() -> Vec<OsString> {
    std::env::args_os().skip(1).chain(["--worker".into()]).collect()
}

/// The job whose ranks are this program with `args`.
pub fn job_of(command: &str, ranks: usize, args: Vec<OsString>) -> Result<Job, Error> {
    let binary = own_binary()?;
    Ok(Job::new(command, binary.clone(), ranks, binary.into(), args))
}

/// Runs this program with `args` as the ranks of a job that measures, and returns the exit code: 1 if any rank failed.
pub fn run_job(command: &str, ranks: usize, nodes: Option<&str>, args: Vec<OsString>) -> Result<u8, Error> {
    let mut job = job_of(command, ranks, args)?;
    job.nodes = nodes.map(|text| parse_nodes(text, ranks)).transpose()?;
    Ok(exit_code(job.run()?))
}

/// The exit code of a command whose job ended so: a rank's own code is none of the command's.
pub fn exit_code(outcome: Outcome) -> u8 {
    match outcome {
        Outcome::Failed { .. } => 1,
        outcome => outcome.exit_code(),
    }
}

/// The configuration with algorithm selection reset.
pub fn without_selection(mut config: Config) -> Config {
    (config.algorithm, config.tables, config.tuning) = Default::default();
    (config.order, config.exchange) = (FoldOrder::Arrival, None);
    config
}

/// The path of this program, which is started once per rank.
pub fn own_binary() -> Result<PathBuf, Error> {
    std::env::current_exe().map_err(|error| Error::system("find the earlybird binary", error))
}
