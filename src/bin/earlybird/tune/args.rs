//! The arguments of `earlybird tune`, and the combinations that it refuses.

use crate::arguments::{one_of, parse_nodes, parse_ranks, refuse_chosen_algorithm};
use crate::bench::mpi;
use crate::job::launched;
use clap::Args;
use earlybird::units::parse_size;
use earlybird::{Collective, Config, Error};

const EXAMPLES: &str = "\
Examples:
  earlybird tune --ranks 2,4 -o tuned
  EARLYBIRD_TUNE=$PWD/tuned earlybird run -n 4 -- ./program
  earlybird tune --ranks 6 --nodes 3 -o costs";

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
#[command(after_help = EXAMPLES)]
pub struct TuneArgs {
    /// Number of ranks, or several on one node [default: those of mpirun]
    #[arg(long, value_name = "P,Q", value_delimiter = ',', value_parser = parse_ranks)]
    pub(super) ranks: Vec<usize>,

    /// Virtual nodes: their number, or the ranks of each, such as 5,3,1
    #[arg(long, value_name = "N")]
    pub(super) nodes: Option<String>,

    /// The file that is written
    #[arg(long, short, value_name = "FILE")]
    pub(super) output: String,

    /// The measured operations, on one node [default: all that have several algorithms]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = one_of(Collective::PUBLIC, Collective::name))]
    pub(super) operations: Option<Vec<Collective>>,

    /// Message sizes in bytes, with Ki, Mi or Gi [default: on one node 8,64,512,4Ki,16Ki,64Ki,256Ki,1Mi,4Mi, between nodes
    /// 8,512,4Ki,16Ki,64Ki,256Ki,1Mi]
    #[arg(long, value_name = "A,B", value_delimiter = ',', value_parser = parse_size)]
    pub(super) sizes: Option<Vec<u64>>,

    /// Calls per row, between nodes per time [default: on one node as of bench, between nodes as many as take 40 ms]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) iterations: Option<u32>,

    /// Makes this process a rank of the job
    #[arg(long, hide = true)]
    pub(super) worker: bool,
}

/// Default bytes of messages between nodes: from what is all latency to what is all bandwidth.
pub(super) const MESSAGE_SIZES: [u64; 7] = [8, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

impl TuneArgs {
    /// Returns true if this process is one of several ranks that an MPI launcher started.
    pub(super) fn is_launched(&self) -> bool {
        !self.worker && launched().is_some_and(|(_, size)| size > 1)
    }

    /// Refuses arguments that contradict each other or need what is not there, before anything is started.
    pub(super) fn refuse(&self) -> Result<(), Error> {
        let config = Config::from_env()?;
        refuse_chosen_algorithm(&config)?;
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
        let sizes = self.sizes.as_deref().unwrap_or(&MESSAGE_SIZES);
        match sizes.len() >= 2 && sizes[0] >= 4 && sizes.windows(2).all(|pair| pair[0] / 4 < pair[1] / 4) {
            true => Ok(()),
            false => Err(Error::usage(
                "--sizes: messages of f32 are measured; give two sizes or more, from 4 bytes up, each larger by 4 at least",
            )),
        }
    }

    /// The one number of ranks, where there are nodes.
    pub(super) fn only_ranks(&self) -> Result<Option<usize>, Error> {
        match self.ranks[..] {
            [] => Ok(None),
            [ranks] => Ok(Some(ranks)),
            _ => Err(Error::usage("--ranks: one number of ranks is measured on nodes; run it once for each")),
        }
    }
}
