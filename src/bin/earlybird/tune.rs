//! `earlybird tune`: measures what carries out each operation best on this machine, or what messages between nodes cost, and
//! writes a file for `EARLYBIRD_TUNE`.

mod between;

use super::bench::{mpi, parse_op};
use super::{as_worker, fail, fail_once, is_first, launched, parse_nodes, parse_ranks, run_job};
use clap::Args;
use earlybird::units::parse_size;
use earlybird::{Collective, Config, Error, Tables};
use std::ffi::OsString;
use std::process::ExitCode;

/// Measure what carries out each operation best on this machine, or what messages between nodes cost
///
/// One node: every operation is measured by `bench` under balanced and random arrivals and with one late rank: all algorithms,
/// and of allreduce flat plans too. A size is given to what is faster than the library's own choice beyond the noise under one
/// pattern and slower under none; all others stay with `auto`, so a file may have comments only. It counts for communicators of
/// this many ranks on one node.
///
/// Several nodes (--nodes, or ranks started by mpirun on several): the leaders of the nodes measure what messages between them
/// cost, from which `auto` then chooses the plan between nodes, of whatever number. Measure on three nodes or more: two cannot
/// show what a further message in a round costs, which is then taken to be as much as the first.
///
/// EARLYBIRD_TUNE names the file; the lines of several files may stand in one. EARLYBIRD_ALGORITHM and EARLYBIRD_ALLREDUCE and
/// its like go before it, and EARLYBIRD_EXCHANGE before its costs. Use it on a quiet machine.
#[derive(Args)]
pub struct TuneArgs {
    /// Number of ranks, or several on one node [default: those of mpirun]
    #[arg(long, value_name = "P,Q", value_delimiter = ',', value_parser = parse_ranks)]
    ranks: Vec<usize>,

    /// Virtual nodes: their number, or the ranks of each, such as 5,3,1
    #[arg(long, value_name = "N")]
    nodes: Option<String>,

    /// The file that is written
    #[arg(long, short, value_name = "FILE")]
    output: String,

    /// On one node: allreduce, reduce, broadcast, barrier, allgather, reduce-scatter [default: all]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_op)]
    operations: Option<Vec<Collective>>,

    /// Message sizes in bytes, with Ki, Mi or Gi [default: on one node 8,64,512,4Ki,16Ki,64Ki,256Ki,1Mi,4Mi, between nodes
    /// 8,512,4Ki,16Ki,64Ki,256Ki,1Mi]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_size)]
    sizes: Option<Vec<u64>>,

    /// Calls per row, between nodes per time [default: on one node as of bench, between nodes as many as take 40 ms]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    iterations: Option<u32>,

    /// Makes this process a rank of the job
    #[arg(long, hide = true)]
    worker: bool,
}

/// Bytes of messages on one node, where none are given.
const SIZES: [u64; 9] = [8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

const HEADER: &str = "# earlybird tune, for EARLYBIRD_TUNE. What is not listed is left to auto.\n";

/// What is measured of an allreduce besides the node's own algorithms.
const PLANS: &str = "plan:ring,plan:halving-doubling,plan:butterfly,plan:recursive-doubling,plan:binomial,plan:direct";

/// Measures and writes.
pub fn run(args: &TuneArgs) -> ExitCode {
    if let Err(error) = args.refuse().and_then(|()| args.begin()) {
        return fail_once("tune", args.worker, &error);
    }
    let code = match args.nodes {
        _ if args.worker || args.is_launched() => between::work(args),
        Some(_) => args
            .only_ranks()
            .and_then(|ranks| run_job("earlybird tune", ranks.unwrap_or(1), args.nodes.as_deref(), as_worker())),
        None => measure(args),
    };
    code.map_or_else(|error| fail("tune", &error), ExitCode::from)
}

impl TuneArgs {
    /// Whether this process is one of several ranks that an MPI launcher started.
    fn is_launched(&self) -> bool {
        !self.worker && launched().is_some_and(|(_, size)| size > 1)
    }

    /// What makes no sense, or is not there: said before anything is started.
    fn refuse(&self) -> Result<(), Error> {
        let config = Config::from_env()?;
        let is_rank = self.worker || self.is_launched();
        if self.is_launched() {
            mpi::available()?;
        } else if self.ranks.is_empty() {
            return Err(Error::usage("how many ranks? give --ranks P, or start them with mpirun on several nodes"));
        }
        if self.nodes.is_none() && !is_rank {
            return match config.ranks_per_node {
                None => Ok(()),
                Some(_) => Err(Error::usage("tables are for one node; unset EARLYBIRD_RANKS_PER_NODE or give --nodes")),
            };
        }
        if self.operations.is_some() {
            return Err(Error::usage("messages between nodes are measured, no operations; leave out --operations"));
        }
        let ranks = self.only_ranks()?.or(launched().map(|(_, size)| size));
        if let Some((nodes, ranks)) = self.nodes.as_deref().zip(ranks)
            && parse_nodes(nodes, ranks)?.sizes(ranks)?.len() < 2
        {
            return Err(Error::usage(format!("--nodes {nodes}: one node exchanges no messages; give two or more")));
        }
        let sizes = self.sizes.as_deref().unwrap_or(&between::SIZES);
        match sizes.len() >= 2 && sizes[0] >= 4 && sizes.windows(2).all(|pair| pair[0] / 4 < pair[1] / 4) {
            true => Ok(()),
            false => Err(Error::usage(
                "--sizes: messages of f32 are measured; give two sizes or more, from 4 bytes up, each larger by 4 at least",
            )),
        }
    }

    /// Begins the file, on the rank that will write it: one that cannot be written is better known before.
    fn begin(&self) -> Result<(), Error> {
        if is_first() && !self.worker { write(&self.output, "") } else { Ok(()) }
    }

    /// The one number of ranks, where there are nodes.
    fn only_ranks(&self) -> Result<Option<usize>, Error> {
        match self.ranks[..] {
            [] => Ok(None),
            [ranks] => Ok(Some(ranks)),
            _ => Err(Error::usage("--ranks: one number of ranks is measured on nodes; run it once for each")),
        }
    }
}

/// Writes the whole file.
fn write(path: &str, lines: &str) -> Result<(), Error> {
    let text = format!("{HEADER}{lines}");
    std::fs::write(path, text).map_err(|error| Error::usage(format!("--output {path}: {error}")))
}

/// Shows the file.
fn show(path: &str) -> Result<(), Error> {
    let written = std::fs::read_to_string(path);
    super::print(&written.map_err(|error| Error::system("read the file", format!("{path}: {error}")))?)
}

fn measure(args: &TuneArgs) -> Result<u8, Error> {
    let sizes: Vec<String> = args.sizes.as_deref().unwrap_or(&SIZES).iter().map(u64::to_string).collect();
    for &ranks in &args.ranks {
        for operation in args.operations.as_deref().unwrap_or(&Tables::OPERATIONS) {
            let mut again: Vec<OsString> = vec!["bench".into(), operation.name().into(), "--worker".into()];
            again.extend(["--into".into(), args.output.clone().into()]);
            if *operation != Collective::Barrier {
                again.extend(["--sizes".into(), sizes.join(",").into()]);
            }
            if *operation == Collective::AllReduce {
                again.extend(["--add".into(), PLANS.into()]);
            }
            if let Some(iterations) = args.iterations {
                again.extend(["--iterations".into(), iterations.to_string().into()]);
            }
            let code = run_job("earlybird tune", ranks, None, again)?;
            if code != 0 {
                return Ok(code);
            }
        }
    }
    show(&args.output).map(|()| 0)
}
