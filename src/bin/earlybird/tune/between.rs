//! `earlybird tune` over several nodes: the costs of messages between them, measured by plans of their leaders.
//!
//! Whole calls are timed, so that the costs of the library are a part of a message's; persistent ones, which are not cut into
//! segments. A `ring` of n nodes over n blocks takes 2 (n - 1) rounds in which every node sends one block to one other: that is
//! what a message costs. `direct:protocol=latency` takes one round of n - 1 messages: what it takes beyond one message are the
//! further ones.

use super::args::{MESSAGE_SIZES, TuneArgs};
use super::file;
use crate::bench::{Ranks, quantile};
use crate::job::without_selection;
use earlybird::{Choice, CollectiveArgs, Communicator, Config, Costs, DType, Error, Op};
use earlybird_shm::bytes::{ByteFold, of, of_mut};
use std::time::{Duration, Instant};

/// A time is the median of so many batches of calls, each of so long unless the calls are given, and of so many calls at most.
const BATCHES: usize = 7;
const BATCH: Duration = Duration::from_millis(40);
const MOST_CALLS: u32 = 1000;

/// Bytes of the vectors that a fold is timed on: more than fits the inner caches.
const FOLDED_BYTES: usize = 4 << 20;

/// Measures as one rank of the job and, on rank 0, writes the costs to the file.
pub fn work(args: &TuneArgs) -> Result<u8, Error> {
    let config = without_selection(Config::from_env()?);
    let ranks = Ranks::detect(!args.worker)?;
    let comm = ranks.join(ranks.placed(config, args.only_ranks()?, args.nodes.as_deref())?, "")?;
    if comm.nodes() < 2 {
        return Err(Error::usage(format!(
            "{} ranks on one node exchange no messages; start ranks on several nodes, or give --nodes",
            comm.size()
        )));
    }
    let leads = comm.local_rank() == 0;
    let leaders = comm.split(leads.then_some(0), comm.rank() as i64)?;
    let costs = leaders.map(|leaders| measure(args, &leaders)).transpose()?;
    // A rank must not end while others measure.
    comm.barrier()?;
    if let Some(costs) = costs.filter(|_| comm.rank() == 0) {
        let (nodes, ranks) = (comm.nodes(), comm.size());
        file::write(
            &args.output,
            &format!("# measured by the leaders of {nodes} nodes, {ranks} ranks in all\n{costs}"),
        )?;
        file::show(&args.output)?;
    }
    Ok(0)
}

/// Measures the costs of messages between the ranks of this communicator, each on a node of its own.
fn measure(args: &TuneArgs, leaders: &Communicator) -> Result<Costs, Error> {
    let nodes = leaders.nodes();
    let rounds = 2.0 * (nodes - 1) as f64;
    let reduced = reduced_s_per_byte(leaders)?;
    let sizes = args.sizes.as_deref().unwrap_or(&MESSAGE_SIZES);
    let mut messages: Vec<(u64, f64)> = Vec::with_capacity(sizes.len());
    for &bytes in sizes {
        // Blocks are of whole elements.
        let block = (bytes as usize / size_of::<f32>()).max(1);
        let bytes = (block * size_of::<f32>()) as u64;
        let folds = (nodes - 1) as f64 * bytes as f64 * reduced;
        let took = seconds(args, leaders, "plan:ring", nodes * block)? - folds;
        // More bytes take no less time, whatever the noise.
        let least = messages.last().map_or(0.0, |(_, before)| *before);
        messages.push((bytes, (took / rounds).max(least)));
    }
    let port = if nodes == 2 {
        // There is no further message; a plan for more nodes gains nothing by them until it was measured.
        messages[0].1
    } else {
        let took = seconds(args, leaders, "plan:direct:protocol=latency", 1)?;
        ((took - messages[0].1) / (nodes - 2) as f64).max(0.0)
    };
    let messages: Vec<(u64, f64)> = messages.into_iter().map(|(bytes, seconds)| (bytes, rounded(seconds))).collect();
    Costs::new(&messages, rounded(port), rounded(reduced))
}

/// Rounds to the significant digits of a measurement.
fn rounded(seconds: f64) -> f64 {
    format!("{seconds:.2e}").parse().unwrap_or(seconds)
}

/// Seconds of an allreduce of so many `f32` by this plan, on the slowest rank.
fn seconds(args: &TuneArgs, leaders: &Communicator, plan: &str, elements: usize) -> Result<f64, Error> {
    leaders.set_algorithm(plan.parse::<Choice>()?)?;
    let mut prepared = leaders.init(CollectiveArgs::all_reduce(vec![1.0f32; elements], Op::Max))?;
    let mut batch = |calls: u32| {
        leaders.barrier()?;
        let start = Instant::now();
        for _ in 0..calls {
            prepared.run()?;
        }
        slowest(leaders, start.elapsed().as_secs_f64()).map(|took| took / f64::from(calls))
    };
    // Connections are made, and the plan.
    let first = batch(2).and_then(|_| batch(1))?;
    let fit = (BATCH.as_secs_f64() / first.max(1e-9)) as u32;
    let calls = args.iterations.unwrap_or_else(|| fit.clamp(2, MOST_CALLS));
    let times = (0..BATCHES).map(|_| batch(calls)).collect::<Result<Vec<f64>, Error>>()?;
    Ok(quantile(&times, 0.5))
}

/// Seconds to reduce a byte of `f32`, on the slowest rank while all do so.
fn reduced_s_per_byte(leaders: &Communicator) -> Result<f64, Error> {
    let fold = ByteFold::new(DType::F32, Op::Sum)?;
    let elements = FOLDED_BYTES / size_of::<f32>();
    let (mut ours, theirs) = (vec![1.0f32; elements], vec![1.0f32; elements]);
    leaders.barrier()?;
    let times = (0..BATCHES).map(|_| {
        let start = Instant::now();
        fold.fold(of_mut(&mut ours), of(&theirs), false);
        start.elapsed().as_secs_f64()
    });
    slowest(leaders, quantile(&times.collect::<Vec<f64>>(), 0.5)).map(|took| took / FOLDED_BYTES as f64)
}

fn slowest(leaders: &Communicator, seconds: f64) -> Result<f64, Error> {
    let mut all = [seconds];
    leaders.all_reduce_in_place(&mut all, Op::Max)?;
    Ok(all[0])
}
