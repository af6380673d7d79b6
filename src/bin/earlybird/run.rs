//! `earlybird run`: starts a program once per rank on this node.

use crate::arguments::{parse_nodes, parse_ranks};
use crate::job::own_binary;
use clap::Args;
use earlybird::Error;
use earlybird::launch::{Bind, Job};
use earlybird::units::parse_time;
use std::ffi::OsString;
use std::time::Duration;

/// The options stand before the program, since whatever follows it is its own.
const USAGE: &str = "earlybird run -n <P> [OPTIONS] [--] <PROGRAM> [ARGUMENT]...";

const EXAMPLES: &str = "\
Examples:
  earlybird run -n 4 -- ./program --its-option
  earlybird run -n 8 --nodes 2 --prefix -- ./program       (two virtual nodes)
  EARLYBIRD_TIMEOUT=10s earlybird run -n 4 --timeout 5min -- ./program";

/// Start a program once per rank on this node
///
/// Every rank finds EARLYBIRD_RANK, EARLYBIRD_SIZE and EARLYBIRD_JOB in its environment. Rank 0 inherits standard
/// input. After the first failure the other ranks get --grace to print their errors, then TERM, 2 s later KILL. A signal to
/// the launcher (ctrl-C, TERM, HUP) is passed on; the second one kills. Whatever a rank leaves in its process group is
/// killed with it, and neither outlives the launcher, however that ends. Only at a terminal, where rank 0 stays in the
/// launcher's group, may what rank 0 has started outlive a launcher that is killed (KILL).
///
/// Exit code: 0, or that of the first rank that failed (128 + signal for a signal), 124 when --timeout ended the job,
/// 128 + signal when the launcher got one.
#[derive(Args)]
#[command(after_help = EXAMPLES, override_usage = USAGE)]
pub struct RunArgs {
    /// Number of ranks
    #[arg(short = 'n', long = "ranks", value_name = "P", allow_negative_numbers = true, value_parser = parse_ranks)]
    ranks: usize,

    /// Virtual nodes: their number, the first ones getting one rank more if it does not divide evenly, or the ranks of
    /// each
    #[arg(long, value_name = "N|5,3,1")]
    nodes: Option<String>,

    /// Binding of ranks: rank r on the (r mod n)th of the n allowed processors, or anywhere
    #[arg(long, value_enum, default_value_t)]
    bind: Bind,

    /// End the job after this time: seconds, or with a unit as in 5min
    #[arg(long, value_name = "S", allow_negative_numbers = true, value_parser = parse_time)]
    timeout: Option<Duration>,

    /// Time that the other ranks get after the first failure, before they are told to end
    #[arg(long, value_name = "S", default_value = "5", allow_negative_numbers = true, value_parser = parse_time)]
    grace: Duration,

    /// Mark every line of output with its rank: [3]; a line of more than 64 KiB is broken, what follows marked [3+]
    #[arg(long)]
    prefix: bool,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Runs the job; the exit code is the job's.
pub fn run(args: &RunArgs) -> Result<u8, Error> {
    let nodes = args.nodes.as_deref().map(|text| parse_nodes(text, args.ranks)).transpose()?;
    let (program, rest) = args.command.split_first().expect("the argument parser requires a program");
    let mut job = Job::new("earlybird run", own_binary()?, args.ranks, program.clone(), rest.to_vec());
    job.bind = args.bind;
    job.timeout = args.timeout;
    job.grace = args.grace;
    job.prefix = args.prefix;
    job.nodes = nodes;
    Ok(job.run()?.exit_code())
}
