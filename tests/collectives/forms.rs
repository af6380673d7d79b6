//! The forms of the operations that `operations.rs` has no room for: blocks that differ for every pair, in place, grouped,
//! shared. Every type, order and count on 1 to 8 processes that come at random times, on one node and on several, bit by bit
//! against a sequential result.

use crate::common::data::{Sample, contribution, reference, same_bits};
use crate::common::flags::meet;
use crate::common::{Job, Player, mix};
use earlybird::{Communicator, Error, FoldOrder, Indexed, Op};
use half::{bf16, f16};
use num_complex::Complex;
use std::time::Duration;

const ORDERS: [FoldOrder; 2] = [FoldOrder::Arrival, FoldOrder::Rank];

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("matrix", matrix),
        ("windows", windows),
        ("differ", differ),
        ("strays", strays),
        ("turns", turns),
        ("announced", announced),
    ]);
}

struct Caller {
    comm: Communicator,
    calls: u64,
}

/// How many elements `from` has for `to`: some pairs have none.
fn pair(seed: u64, from: usize, to: usize, count: usize) -> usize {
    match mix(seed ^ (from * 64 + to) as u64) % 4 {
        0 => 0,
        n => count * n as usize / 3,
    }
}

impl Caller {
    /// Before a call: some come late to it, the same ranks in every run. A seed for its data.
    fn begin(&mut self, order: FoldOrder) -> u64 {
        self.calls += 1;
        let random = mix(self.calls * 64 + self.comm.rank() as u64);
        if random.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(random >> 32 & 0xff));
        }
        self.comm.set_order(order).unwrap();
        mix(self.calls)
    }

    fn dirty<T: Sample>(&self, count: usize) -> Vec<T> {
        (0..count).map(|i| T::rounded(mix(self.calls ^ i as u64))).collect()
    }

    fn moves<T: Sample>(&mut self, count: usize) {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let seed = self.begin(FoldOrder::Arrival);
        let block = |from: usize, to: usize, count: usize| {
            contribution::<T>(seed ^ (from * ranks + to) as u64, from, count, Op::Sum, false)
        };
        let what = |form: &str| format!("alltoall {form} {} {count}", T::DTYPE.name());
        let send_counts: Vec<usize> = (0..ranks).map(|to| pair(seed, rank, to, count)).collect();
        let recv_counts: Vec<usize> = (0..ranks).map(|from| pair(seed, from, rank, count)).collect();
        let send: Vec<T> = (0..ranks).flat_map(|to| block(rank, to, send_counts[to])).collect();
        let expected: Vec<T> = (0..ranks).flat_map(|from| block(from, rank, recv_counts[from])).collect();
        let mut recv = self.dirty::<T>(expected.len());
        self.comm.all_to_all_varcount_into(&send, &send_counts, &mut recv, &recv_counts).unwrap();
        same_bits(&recv, &expected, &|| what("unequal"));

        // As much from each as to it.
        self.begin(FoldOrder::Arrival);
        let counts: Vec<usize> = (0..ranks).map(|other| pair(seed, rank.min(other), rank.max(other), count)).collect();
        let mut buf: Vec<T> = (0..ranks).flat_map(|to| block(rank, to, counts[to])).collect();
        let expected: Vec<T> = (0..ranks).flat_map(|from| block(from, rank, counts[from])).collect();
        self.comm.all_to_all_varcount_in_place(&mut buf, &counts).unwrap();
        same_bits(&buf, &expected, &|| what("unequal in place"));
    }

    fn folds<T: Sample>(&mut self, op: Op, count: usize, exact: bool) {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        // Sums that round are folded by rank on one node, node by node on several.
        let exact = exact || self.comm.nodes() > 1;
        // Rounded values have known bits only by rank.
        for &order in if exact { &ORDERS[..] } else { &ORDERS[1..] } {
            let what = |form: &str| format!("{form} {} {op:?} {order:?} {count}", T::DTYPE.name());
            let seed = self.begin(order);
            let send = contribution::<T>(seed, rank, count * ranks, op, exact);
            let all = reference::<T>(seed, ranks, count * ranks, op, exact);
            let mut buf = send.clone();
            self.comm.reduce_scatter_block_in_place(&mut buf, op).unwrap();
            let own = rank * count..(rank + 1) * count;
            let mut expected = send.clone();
            expected[own.clone()].copy_from_slice(&all[own]);
            same_bits(&buf, &expected, &|| what("reduce-scatter in place"));

            self.begin(order);
            let counts: Vec<usize> = (0..ranks).map(|r| pair(seed, 0, r, count)).collect();
            let (start, total) = (counts[..rank].iter().sum::<usize>(), counts.iter().sum::<usize>());
            let mut buf = send[..total].to_vec();
            self.comm.reduce_scatter_varcount_in_place(&mut buf, &counts, op).unwrap();
            let own = start..start + counts[rank];
            let mut expected = send[..total].to_vec();
            expected[own.clone()].copy_from_slice(&all[own]);
            same_bits(&buf, &expected, &|| what("reduce-scatter unequal in place"));

            self.begin(order);
            let view = self.comm.all_reduce_shared(&send[..count], op).unwrap();
            same_bits(&view, &all[..count], &|| what("shared result"));
            drop(view);

            self.begin(order);
            let mut shared = self.comm.alloc::<T>(count).unwrap();
            shared.copy_from_slice(&send[..count]);
            self.comm.all_reduce_shared_in_place(&mut shared, op).unwrap();
            same_bits(&shared, &all[..count], &|| what("shared buffer"));

            self.begin(order);
            let (mut one, mut other) = (send[..count / 3].to_vec(), send[count / 3..count].to_vec());
            self.comm.all_reduce_grouped_in_place(&mut [&mut one, &mut [], &mut other], op).unwrap();
            one.extend(other);
            same_bits(&one, &all[..count], &|| what("grouped"));
        }
    }
}

fn matrix(player: &Player) {
    let job = Communicator::from_env().unwrap();
    let (me, last) = (job.rank(), job.size() as i64 - 1);
    // Over several nodes also with ranks that go through the nodes in no order.
    let mixed = job.nodes() > 1 && player.arg::<bool>(0);
    let key = if me % 2 == 0 { me as i64 } else { last + last - me as i64 };
    let comm = if mixed { job.split(Some(0), key).unwrap().unwrap() } else { job };
    let mut caller = Caller { comm, calls: 0 };
    let ranks = caller.comm.size();
    for count in [0, 1, ranks - 1, ranks, 37, 1000, 100_003] {
        caller.moves::<u32>(count);
        caller.moves::<f64>(count);
        // The reference of all blocks together is quadratic in the ranks.
        let few = count.min(20_000);
        caller.folds::<i32>(Op::Sum, few, true);
        caller.folds::<f64>(Op::Sum, few, false);
        if count < 100_003 {
            caller.moves::<i8>(count);
            caller.moves::<bool>(count);
            caller.moves::<f16>(count);
            caller.moves::<Complex<f64>>(count);
            caller.folds::<u8>(Op::BitXor, few, true);
            caller.folds::<i64>(Op::Min, few, true);
            caller.folds::<f32>(Op::Product, few, false);
            caller.folds::<f16>(Op::Average, few, false);
            // Its sums of these numbers round, once on one node and once per node on several.
            caller.folds::<bf16>(if caller.comm.nodes() > 1 { Op::Max } else { Op::Sum }, few, true);
            caller.folds::<Complex<f32>>(Op::Product, few, true);
            caller.folds::<bool>(Op::LogicalXor, few, true);
            caller.folds::<Indexed<f32, i32>>(Op::MaxIndex, few, true);
        }
    }
    caller.comm.barrier().unwrap();
    player.say(format!("calls {}", caller.calls));
}

/// Calls larger than the windows of the smallest arena: in place a window must not spoil what a later one gives.
fn windows(player: &Player) {
    let mut caller = Caller { comm: Communicator::from_env().unwrap(), calls: 0 };
    for count in [3_000, 20_011] {
        caller.moves::<f64>(count);
        caller.moves::<u8>(count);
        caller.folds_in_windows::<f64>(Op::Sum, count, false);
        caller.folds_in_windows::<bf16>(Op::Average, count, true);
        caller.folds_in_windows::<Complex<f64>>(Op::Sum, count, true);
        caller.folds_in_windows::<bool>(Op::LogicalXor, count, true);
    }
    player.say("done");
}

impl Caller {
    /// The smallest arena has no room for shared buffers: the forms that need none.
    fn folds_in_windows<T: Sample>(&mut self, op: Op, count: usize, exact: bool) {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        for &order in if exact { &ORDERS[..] } else { &ORDERS[1..] } {
            let seed = self.begin(order);
            let send = contribution::<T>(seed, rank, count * ranks, op, exact);
            let all = reference::<T>(seed, ranks, count * ranks, op, exact);
            let counts: Vec<usize> = (0..ranks).map(|r| pair(seed, 1, r, count)).collect();
            let (start, total) = (counts[..rank].iter().sum::<usize>(), counts.iter().sum::<usize>());
            let (mut even, mut uneven) = (send.clone(), send[..total].to_vec());
            self.comm.reduce_scatter_block_in_place(&mut even, op).unwrap();
            self.comm.reduce_scatter_varcount_in_place(&mut uneven, &counts, op).unwrap();
            let what = || format!("in windows {} {op:?} {order:?} {count}", T::DTYPE.name());
            let own = rank * count..(rank + 1) * count;
            same_bits(&even[own.clone()], &all[own.clone()], &what);
            assert!((0..even.len()).all(|i| own.contains(&i) || even[i].bits() == send[i].bits()), "{}", what());
            same_bits(&uneven[start..start + counts[rank]], &all[start..start + counts[rank]], &what);
            let view = self.comm.all_reduce_shared(&send[..count], op).unwrap();
            same_bits(&view, &all[..count], &what);
        }
    }
}

fn run_matrix(ranks: usize) {
    check_matrix(Job::new("matrix", ranks));
}

fn check_matrix(job: Job) {
    let said = job.watchdog(Duration::from_secs(120)).run();
    let calls: usize = said[0][0].strip_prefix("calls ").unwrap().parse().unwrap();
    assert!(calls > 500, "{calls} calls");
    assert!(said.iter().all(|lines| lines == &said[0]), "{said:?}");
}

#[test]
fn every_form_on_1_2_and_3_ranks() {
    (1..=3).for_each(run_matrix);
}

#[test]
fn every_form_on_5_ranks() {
    run_matrix(5);
}

#[test]
fn every_form_on_8_ranks() {
    run_matrix(8);
}

#[test]
fn every_form_on_several_nodes() {
    for (ranks, nodes, mixed) in [(2, "1", false), (5, "2", true), (4, "1,3", false)] {
        check_matrix(Job::new("matrix", ranks).arg(mixed).var("EARLYBIRD_RANKS_PER_NODE", nodes));
    }
}

#[test]
fn forms_larger_than_the_windows() {
    for ranks in [2, 3, 5] {
        let least = earlybird_shm::layout::Windows::least_budget_bytes(ranks);
        Job::new("windows", ranks).var("EARLYBIRD_ARENA_MAX", least).run();
    }
}

/// Calls whose buffers are as long as those of the call before, while the lengths of others' blocks are not.
fn turns(_: &Player) {
    let comm = &Communicator::from_env().unwrap();
    let rank = comm.rank();
    for call in 0..200u64 {
        let scale = [1, 9, 300][(call / 50) as usize % 3];
        let counts =
            [[2, 1, 5], [2, 5, 1], [2, 0, 6], [1, 2, 5], [5, 2, 1]][(mix(call) % 5) as usize].map(|n| n * scale);
        let block = |rank: usize| vec![call << 8 | rank as u64; counts[rank]];
        let all = [block(0), block(1), block(2)].concat();
        let (mut joined, mut part, mut sum) = (vec![0; all.len()], vec![0; counts[rank]], vec![0; counts[rank]]);
        comm.all_gather_varcount_into(&block(rank), &mut joined, &counts).unwrap();
        assert_eq!(joined, all, "call {call}: {counts:?}");
        let root = comm.process_at_rank(0);
        match rank {
            0 => root.scatter_varcount_into_root(&all, &mut part, &counts).unwrap(),
            _ => root.scatter_varcount_into(&mut part, &counts).unwrap(),
        }
        assert_eq!(part, block(rank), "call {call}: {counts:?}");
        comm.reduce_scatter_varcount_into(&all, &mut sum, &counts, Op::Sum).unwrap();
        assert!(sum.iter().zip(&part).all(|(sum, one)| *sum == 3 * one), "call {call}: {counts:?}");
    }
}

/// Alltoalls of short blocks but for one, which is short, fits the first operation, or does not; and now and then one that is not expected.
fn announced(_: &Player) {
    let comm = &Communicator::from_env().unwrap();
    let (me, ranks) = (comm.rank(), comm.size());
    for call in 0..90u64 {
        let drawn = mix(call) as usize;
        let long = [4, 700, 30_000, 300_000][drawn % 4];
        let pair = (drawn >> 8 & 0xff) % ranks * ranks + (drawn >> 16 & 0xff) % ranks;
        let len = |from: usize, to: usize| if from * ranks + to == pair { long } else { (from + 2 * to + drawn) % 5 };
        let block = |from: usize, to: usize| vec![call << 16 | (from * ranks + to) as u64; len(from, to)];
        let mut send_counts: Vec<usize> = (0..ranks).map(|to| len(me, to)).collect();
        let recv_counts: Vec<usize> = (0..ranks).map(|from| len(from, me)).collect();
        let mut send: Vec<u64> = (0..ranks).flat_map(|to| block(me, to)).collect();
        let mut recv = vec![0; recv_counts.iter().sum()];
        let is_wrong = call % 9 == 8;
        if is_wrong && me == 1 {
            send_counts[0] += 1;
            send.insert(0, 0);
        }
        let done = comm.all_to_all_varcount_into(&send, &send_counts, &mut recv, &recv_counts);
        if is_wrong {
            let error = done.unwrap_err();
            assert!(matches!(error, Error::Mismatch { .. }), "call {call}: {error}");
            continue;
        }
        done.unwrap();
        let expected: Vec<u64> = (0..ranks).flat_map(|from| block(from, me)).collect();
        assert!(recv == expected, "call {call}: rank {me}, {recv_counts:?}");
    }
}

#[test]
fn lengths_that_ranks_announce_may_be_of_any_size_or_wrong() {
    for ranks in [2, 3, 5] {
        Job::new("announced", ranks).run();
    }
}

#[test]
fn lengths_of_others_are_not_those_of_the_call_before() {
    Job::new("turns", 3).run();
}

/// Rank 1 sends to rank 2 what that does not expect, or gives buffers that do not fit; the communicator goes on.
fn differ(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank(), comm.size());
    let mut send_counts = vec![4; ranks];
    if rank == 1 {
        send_counts[2] = 5;
    }
    let send = vec![rank as u64; send_counts.iter().sum()];
    let mut recv = vec![0u64; 4 * ranks];
    let error = comm.all_to_all_varcount_into(&send, &send_counts, &mut recv, &vec![4; ranks]).unwrap_err();
    player.say(format!("{} {error}", error.code()));
    assert_eq!(comm.last_call(), None, "a call that moved nothing is none");
    comm.all_to_all_varcount_into(&vec![rank as u64; 4 * ranks], &vec![4; ranks], &mut recv, &vec![4; ranks]).unwrap();
    assert!(recv.iter().enumerate().all(|(i, x)| *x == i as u64 / 4));
    for result in [
        comm.all_to_all_varcount_into(&[1u8], &vec![1; ranks], &mut [0], &vec![1; ranks]),
        comm.all_to_all_varcount_into(&[1u8], &[1], &mut [0], &[1]),
        comm.all_to_all_varcount_in_place(&mut [1u8], &vec![usize::MAX; ranks]),
        comm.reduce_scatter_block_in_place(&mut [1u8], Op::Sum),
        comm.reduce_scatter_varcount_in_place(&mut [1u8], &vec![1; ranks], Op::Sum),
        comm.reduce_scatter_varcount_in_place(&mut [1u8], &[1], Op::Sum),
    ] {
        assert!(matches!(result, Err(Error::Usage { .. })), "{result:?}");
    }
    comm.barrier().unwrap();
}

#[test]
fn counts_that_differ_are_told_to_all_and_nothing_is_lost() {
    crate::common::all_tell_that_counts_differ("differ");
}

/// One rank makes another call where the others compare their counts or share a result.
fn strays(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (ranks, odd) = (comm.size(), comm.rank() == player.arg::<usize>(1));
    let (send, counts, mut recv) = (vec![1u64; 3 * ranks], vec![3; ranks], vec![0; 3 * ranks]);
    // Nobody is still joining.
    let result = comm.barrier().and_then(|()| match (player.args()[0].as_str(), odd) {
        ("counts", false) => comm.all_to_all_varcount_into(&send, &counts, &mut recv, &counts),
        ("counts", true) => comm.all_to_all_into(&send, &mut recv),
        ("scattered", false) => comm.reduce_scatter_varcount_in_place(&mut recv, &counts, Op::Sum),
        ("scattered", true) => comm.reduce_scatter_block_in_place(&mut recv, Op::Sum),
        ("shared", false) => comm.all_reduce_shared(&vec![1u64; 3000], Op::Sum).map(drop),
        ("shared", true) => comm.all_reduce_in_place(&mut vec![1u64; 3000], Op::Sum),
        (other, _) => panic!("no case {other}"),
    });
    let result = result.and_then(|()| comm.barrier());
    player.say(result.map_or_else(|error| format!("{} {error}", error.code()), |()| "accepted".into()));
    meet("told", &comm);
}

#[test]
fn another_call_is_one_error_for_all_nodes() {
    for case in ["counts", "scattered", "shared"] {
        for odd in [0, 1, 4] {
            let job = Job::new("strays", 5).arg(case).arg(odd).var("EARLYBIRD_RANKS_PER_NODE", "2");
            crate::common::all_tell_of_different_calls(job, "EB_MISMATCH ranks ");
        }
    }
}
