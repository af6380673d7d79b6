//! `earlybird tune`: measures what carries out each operation best on this machine, or what messages between nodes cost, and
//! writes a file for `EARLYBIRD_TUNE`.

mod args;
mod between;
mod file;

use crate::job::{as_worker, is_first, run_job};
use crate::output::fail_once;
use earlybird::{Collective, Error};
use std::ffi::OsString;

pub use args::TuneArgs;

/// Bytes of messages on one node, where none are given.
const SIZES: [u64; 9] = [8, 64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// The plans that are measured of an allreduce besides the node's own algorithms.
const PLANS: &str = "plan:ring,plan:halving-doubling,plan:butterfly,plan:recursive-doubling,plan:binomial,plan:direct";

/// Measures and writes.
pub fn run(args: &TuneArgs) -> Result<u8, Error> {
    if let Err(error) = args.refuse().and_then(|()| begin(args)) {
        return fail_once(args.worker, error);
    }
    match args.nodes {
        _ if args.worker || args.is_launched() => between::work(args),
        Some(_) => args
            .only_ranks()
            .and_then(|ranks| run_job("earlybird tune", ranks.unwrap_or(1), args.nodes.as_deref(), as_worker())),
        None => measure(args),
    }
}

/// Creates the file on the rank that will write it, so that a file that cannot be written is reported before measuring.
fn begin(args: &TuneArgs) -> Result<(), Error> {
    if is_first() && !args.worker { file::write(&args.output, "") } else { Ok(()) }
}

fn measure(args: &TuneArgs) -> Result<u8, Error> {
    let sizes: Vec<String> = args.sizes.as_deref().unwrap_or(&SIZES).iter().map(u64::to_string).collect();
    for &ranks in &args.ranks {
        for operation in Collective::PUBLIC {
            // A collective of one algorithm is measured only if asked for.
            let wanted = args.operations.as_ref().map(|wanted| wanted.contains(operation));
            if !wanted.unwrap_or(operation.traits().algorithms.len() > 1) {
                continue;
            }
            let mut again: Vec<OsString> = vec!["bench".into(), operation.name().into(), "--worker".into()];
            again.extend(["--into".into(), args.output.clone().into()]);
            if operation.traits().has_data {
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
    file::show(&args.output).map(|()| 0)
}
