//! `earlybird bench`: a collective under controlled arrival patterns, algorithms interleaved, every result checked.
//!
//! The parent starts the ranks, which are this program again with one more argument; rank 0 of them reports.

mod args;
mod blocks;
mod calls;
mod check;
mod choosing;
mod composed;
mod data;
mod memory;
#[cfg_attr(not(feature = "mpi"), path = "no_mpi.rs")]
pub mod mpi;
mod page;
mod preset;
mod ranks;
mod report;
mod row;
mod session;
mod stats;
mod variant;
mod worker;

use crate::job::{as_worker, run_job};
use crate::output::fail_once;
use args::Format;
use earlybird::Error;

pub use args::BenchArgs;
pub use calls::{Cell, Measured, measure};
pub use ranks::Ranks;
pub use session::Session;
pub use stats::{Bounds, Sample, Verdict, last_arrival, last_exit, quantile};

/// Runs the benchmark, or one rank of it.
pub fn run(args: &BenchArgs) -> Result<u8, Error> {
    let args = &mut args.clone();
    let complete = args.preset.map_or(Ok(()), |preset| preset.apply(args));
    if let Err(error) = complete.and_then(|()| args.refuse()) {
        return fail_once(args.worker, error);
    }
    let code = if args.worker || args.is_launched() { worker::work(args) } else { start(args) };
    match code {
        // The launcher tells of the end of rank 0, which prints, and not where the reader of the output has gone. The end of this
        // rank, which may be seen first, must not tell anything else.
        Err(Error::PeerDied { rank: 0, .. }) if args.worker => Ok(0),
        code => code,
    }
}

/// Starts this command again as ranks, once for every number of ranks.
fn start(args: &BenchArgs) -> Result<u8, Error> {
    let jobs: &[usize] = match (&args.ranks, args.preset) {
        (Some(ranks), _) => std::slice::from_ref(ranks),
        (None, Some(preset)) if args.format != Format::Json && args.html.is_none() => preset.ranks(),
        (None, Some(_)) => return Err(Error::usage("one job makes one JSON array, and one page; give --ranks")),
        (None, None) => return Err(Error::usage("how many ranks? give --ranks P, or start them with mpirun")),
    };
    for (at, &ranks) in jobs.iter().enumerate() {
        let mut again = as_worker();
        again.extend((at > 0).then(|| "--continued".into()));
        let code = run_job("earlybird bench", ranks, args.nodes.as_deref(), again)?;
        if code != 0 {
            return Ok(code);
        }
    }
    Ok(0)
}
