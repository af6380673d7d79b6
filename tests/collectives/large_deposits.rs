//! Calls of many sizes one after the other, between those that go from place to place in their area, those that stay, and those whose
//! results are written past the caches: every element of every result, by every algorithm, on ranks that come at different times.

use crate::common::{Job, Player, dawdle, mix};
use earlybird::{Algorithm, Communicator, FoldOrder, Op};
use earlybird_shm::Collective;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("sizes", sizes), ("beyond", beyond)]);
}

/// Bytes of a block: beside the marks, on the fast path, then deposits that go around, and longer ones.
const BYTES: [usize; 8] = [8, 4096, 32 << 10, 33 << 10, 40_000, 64 << 10, 100_000, 200_000];
/// Of a block whose results are larger than a processor's own cache, in several windows.
const LARGE_BYTES: [usize; 3] = [2 << 20, (2 << 20) + 8, 4_300_008];
/// Of a broadcast and an allreduce that are stored past the caches on processors of every maker.
const BEYOND_BYTES: usize = (16 << 20) + 8;
const COLLECTIVES: [Collective; 6] = [
    Collective::AllReduce,
    Collective::Broadcast,
    Collective::AllGather,
    Collective::AllToAll,
    Collective::ReduceScatter,
    Collective::Scan,
];

/// Element `i` of what rank `from` has for rank `to` in a call.
fn value(call: u64, from: usize, to: usize, i: usize) -> u64 {
    mix(call << 40 | (from as u64) << 32 | (to as u64) << 24 | i as u64) >> 8
}

fn block(call: u64, from: usize, to: usize, count: usize) -> Vec<u64> {
    (0..count).map(|i| value(call, from, to, i)).collect()
}

fn sum(call: u64, from: std::ops::Range<usize>, to: usize, count: usize) -> Vec<u64> {
    (0..count).map(|i| from.clone().map(|rank| value(call, rank, to, i)).sum()).collect()
}

fn sizes(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank(), comm.size());
    let (calls, is_large): (u64, bool) = (player.arg(0), player.arg(1));
    let sizes: &[usize] = if is_large { LARGE_BYTES.as_slice() } else { BYTES.as_slice() };
    for call in 0..calls {
        let drawn = mix(call);
        let collective = COLLECTIVES[drawn as usize % COLLECTIVES.len()];
        let count = sizes[(drawn >> 8) as usize % sizes.len()] / size_of::<u64>();
        let algorithms = collective.traits().algorithms;
        let algorithm = algorithms[(drawn >> 16) as usize % algorithms.len()];
        comm.set_algorithm(algorithm).unwrap();
        comm.set_order([FoldOrder::Arrival, FoldOrder::Rank][(drawn >> 24) as usize % 2]).unwrap();
        dawdle(rank, call, 200);
        let mine = block(call, rank, 0, count);
        let to_all = || (0..ranks).flat_map(|to| block(call, rank, to, count)).collect::<Vec<u64>>();
        let (mut one, mut all) = (vec![0; count], vec![0; count * ranks]);
        let (got, expected) = match collective {
            Collective::AllReduce => {
                comm.all_reduce_into(&mine, &mut one, Op::Sum).unwrap();
                (one, sum(call, 0..ranks, 0, count))
            }
            Collective::Broadcast => {
                let root = drawn as usize % ranks;
                one.copy_from_slice(&mine);
                comm.process_at_rank(root).broadcast_into(&mut one).unwrap();
                (one, block(call, root, 0, count))
            }
            Collective::AllGather => {
                comm.all_gather_into(&mine, &mut all).unwrap();
                (all, (0..ranks).flat_map(|from| block(call, from, 0, count)).collect())
            }
            Collective::AllToAll if drawn >> 32 & 1 == 1 => {
                // A sender's largest block is not known to the others.
                let len = |from: usize, to: usize| count >> ((from + 2 * to) % 3);
                let to_each: Vec<usize> = (0..ranks).map(|to| len(rank, to)).collect();
                let from_each: Vec<usize> = (0..ranks).map(|from| len(from, rank)).collect();
                let sent: Vec<u64> = (0..ranks).flat_map(|to| block(call, rank, to, len(rank, to))).collect();
                all.truncate(from_each.iter().sum());
                comm.all_to_all_varcount_into(&sent, &to_each, &mut all, &from_each).unwrap();
                (all, (0..ranks).flat_map(|from| block(call, from, rank, len(from, rank))).collect())
            }
            Collective::AllToAll => {
                comm.all_to_all_into(&to_all(), &mut all).unwrap();
                (all, (0..ranks).flat_map(|from| block(call, from, rank, count)).collect())
            }
            Collective::ReduceScatter => {
                comm.reduce_scatter_block_into(&to_all(), &mut one, Op::Sum).unwrap();
                (one, sum(call, 0..ranks, rank, count))
            }
            _ => {
                comm.scan_into(&mine, &mut one, Op::Sum).unwrap();
                (one, sum(call, 0..rank + 1, 0, count))
            }
        };
        let wrong = got.iter().zip(&expected).position(|(got, expected)| got != expected);
        assert_eq!(
            wrong, None,
            "element of call {call}, {collective:?} by {algorithm:?}, {count} elements, rank {rank}"
        );
    }
    player.say("done");
}

/// Broadcasts from each rank by each algorithm, one right after the other, and allreduces of as many bytes.
fn beyond(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks, count) = (comm.rank(), comm.size(), BEYOND_BYTES / size_of::<u64>());
    for call in 0..2 * ranks {
        let (root, algorithm) = (call / 2, Collective::Broadcast.traits().algorithms[call % 2]);
        comm.set_algorithm(algorithm).unwrap();
        let mut data = block(call as u64, rank, 0, count);
        comm.process_at_rank(root).broadcast_into(&mut data).unwrap();
        assert!(data == block(call as u64, root, 0, count), "broadcast {call} by {algorithm:?} on rank {rank}");
    }
    let mut total = vec![0; count];
    for call in 0..4 {
        comm.set_algorithm([Algorithm::Chain, Algorithm::Auto][call as usize % 2]).unwrap();
        comm.all_reduce_into(&block(call, rank, 0, count), &mut total, Op::Sum).unwrap();
        assert!(total == sum(call, 0..ranks, 0, count), "allreduce {call} on rank {rank}");
    }
    player.say("done");
}

#[test]
fn two_ranks() {
    Job::new("sizes", 2).arg(600).arg(false).run();
}

#[test]
fn three_ranks() {
    Job::new("sizes", 3).arg(600).arg(false).run();
}

#[test]
fn broadcasts_and_allreduces_larger_than_the_caches() {
    for ranks in 2..=3 {
        Job::new("beyond", ranks).run();
    }
}

#[test]
fn results_larger_than_the_caches() {
    for ranks in 2..=3 {
        Job::new("sizes", ranks).arg(24).arg(true).run();
    }
}
