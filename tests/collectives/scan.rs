//! Scans, inclusive and exclusive: every type and operator in every form, on one node and on several in rank order and out of it,
//! bit by bit against a loop over the ranks.

use crate::common::data::{Sample, contribution, reference, same_bits};
use crate::common::{Job, Player, dawdle, mix};
use earlybird::{CollectiveArgs, Communicator, Error, FoldOrder, Indexed, Op, UserOp};
use half::{bf16, f16};
use num_complex::Complex;
use std::sync::Arc;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("matrix", matrix),
        ("windows", windows),
        ("users", users),
        ("leaves", leaves),
        ("refusals", refusals),
    ]);
}

/// The communicator of all ranks: on several nodes as they are, or with ranks 0 and 2 on the second node, 1 and 3 on the first.
fn joined(dealt: bool) -> Communicator {
    let comm = Communicator::from_env().unwrap();
    match dealt {
        true => comm.split(Some(0), [1, 3, 0, 2][comm.rank()]).unwrap().unwrap(),
        false => comm,
    }
}

struct Caller {
    comm: Communicator,
    calls: u64,
}

impl Caller {
    /// All forms of both scans of `count` elements by `op`.
    fn scans<T: Sample>(&mut self, op: Op, count: usize) {
        let (rank, several) = (self.comm.rank(), self.comm.nodes() > 1);
        self.calls += 1;
        let seed = mix(self.calls);
        dawdle(rank, self.calls, 300);
        // Whatever order was asked for.
        self.comm.set_order([FoldOrder::Arrival, FoldOrder::Rank][self.calls as usize % 2]).unwrap();
        // Sums that round are folded by rank on one node, node by node on several.
        let send = contribution::<T>(seed, rank, count, op, several);
        let before = contribution::<T>(seed ^ 1, rank + 50, count, op, several);
        let inclusive = reference::<T>(seed, rank + 1, count, op, several);
        let exclusive = |stays: &[T]| match rank {
            0 => stays.to_vec(),
            _ => reference::<T>(seed, rank, count, op, several),
        };
        let what = |form: &str| format!("{form} {} {op:?} {count} on rank {rank}", T::DTYPE.name());

        let mut recv = before.clone();
        self.comm.scan_into(&send, &mut recv, op).unwrap();
        same_bits(&recv, &inclusive, &|| what("scan"));
        let mut buf = send.clone();
        self.comm.scan_in_place(&mut buf, op).unwrap();
        same_bits(&buf, &inclusive, &|| what("scan in place"));
        let mut recv = before.clone();
        self.comm.exclusive_scan_into(&send, &mut recv, op).unwrap();
        same_bits(&recv, &exclusive(&before), &|| what("exscan"));
        let mut buf = send.clone();
        self.comm.exclusive_scan_in_place(&mut buf, op).unwrap();
        same_bits(&buf, &exclusive(&send), &|| what("exscan in place"));
        // The first rank has no result, hence may have no room for it.
        let room = || if rank == 0 { Vec::new() } else { before.clone() };
        let mut recv = room();
        self.comm.exclusive_scan_into(&send, &mut recv, op).unwrap();
        same_bits(&recv, &exclusive(&[]), &|| what("exscan without room on rank 0"));
        let started = self.comm.start(CollectiveArgs::exclusive_scan((send.clone(), room()), op)).unwrap();
        same_bits(&started.wait().unwrap().1, &exclusive(&[]), &|| what("started exscan without room on rank 0"));

        let started = self.comm.start(CollectiveArgs::scan((send.clone(), before.clone()), op)).unwrap();
        let other = self.comm.start(CollectiveArgs::exclusive_scan(send.clone(), op)).unwrap();
        same_bits(&other.wait().unwrap(), &exclusive(&send), &|| what("started exscan in place"));
        same_bits(&started.wait().unwrap().1, &inclusive, &|| what("started scan"));
        let mut persistent =
            self.comm.init(CollectiveArgs::exclusive_scan((send.clone(), before.clone()), op)).unwrap();
        for _ in 0..2 {
            persistent.run().unwrap();
            same_bits(&persistent.buffers_mut().unwrap().1, &exclusive(&before), &|| what("persistent exscan"));
        }
    }

    /// Scans by every operator that `T` has.
    fn every_operator<T: Sample>(&mut self, counts: &[usize]) {
        // A half is rounded node by node.
        let rounds = self.comm.nodes() > 1 && T::DTYPE.size() == 2 && T::DTYPE.must_have(Op::BitAnd).is_err();
        let is_exact = |op: &Op| !rounds || matches!(op, Op::Min | Op::Max);
        let has = |op: &Op| *op != Op::Average && T::DTYPE.must_have(*op).is_ok();
        for op in Op::ALL.into_iter().filter(|op| has(op) && is_exact(op)) {
            counts.iter().for_each(|count| self.scans::<T>(op, *count));
        }
    }
}

fn matrix(player: &Player) {
    let mut caller = Caller { comm: joined(player.arg(0)), calls: 0 };
    macro_rules! every_type {
        ($($t:ty),*) => { $(caller.every_operator::<$t>(&[0, 1, 67]);)* };
    }
    every_type!(i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, bool, Complex<f32>, Complex<f64>);
    every_type!(Indexed<i32, i32>, Indexed<i64, i64>, Indexed<f32, i32>, Indexed<f64, i64>);
    caller.every_operator::<f64>(&[3000, 40_001]);
    player.say(format!("calls {}", caller.calls));
}

/// Calls larger than the windows of the smallest arena: in place a window must not spoil what a later one gives.
fn windows(player: &Player) {
    let mut caller = Caller { comm: joined(false), calls: 0 };
    caller.scans::<f32>(Op::Sum, 20_011);
    caller.scans::<f16>(Op::Sum, 20_011);
    caller.scans::<Complex<f64>>(Op::Product, 3_000);
    player.say("done");
}

/// A map `x -> a x + b`; a product of maps is their composition, and not commutative.
type Map = [u64; 2];

fn map_of(rank: usize, i: usize) -> Map {
    [mix(rank as u64 * 1000 + i as u64) | 1, mix(rank as u64 * 77 + i as u64)]
}

/// The composition of `f` after `g`.
fn after(f: &Map, g: &Map) -> Map {
    [f[0].wrapping_mul(g[0]), f[0].wrapping_mul(g[1]).wrapping_add(f[1])]
}

/// Larger than what some windows hold.
type Large = [u64; 700];

fn users(player: &Player) {
    let comm = joined(player.arg(0));
    let rank = comm.rank();
    let op = UserOp::ordered(after);
    let expected = |ranks: usize, i: usize| (1..ranks).fold(map_of(0, i), |f, rank| after(&f, &map_of(rank, i)));
    for count in [1, 33, 5000] {
        let send: Vec<Map> = (0..count).map(|i| map_of(rank, i)).collect();
        let inclusive: Vec<Map> = (0..count).map(|i| expected(rank + 1, i)).collect();
        let exclusive: Vec<Map> = match rank {
            0 => send.clone(),
            _ => (0..count).map(|i| expected(rank, i)).collect(),
        };
        dawdle(rank, count as u64, 2000);
        let (mut scanned, mut before) = (vec![[0; 2]; count], send.clone());
        comm.scan_into(&send, &mut scanned, &op).unwrap();
        comm.exclusive_scan_in_place(&mut before, &op).unwrap();
        assert!(scanned == inclusive && before == exclusive, "{count} on rank {rank}");
        let shared = Arc::new(UserOp::ordered(after));
        let started = comm.start(CollectiveArgs::exclusive_scan(send.clone(), &shared)).unwrap();
        let mut persistent = comm.init(CollectiveArgs::scan((send.clone(), scanned), &shared)).unwrap();
        persistent.run().unwrap();
        assert!(
            started.wait().unwrap() == exclusive && persistent.buffers_mut().unwrap().1 == inclusive,
            "{count} on rank {rank}"
        );
    }
    let adds = UserOp::ordered(|a: &Large, b: &Large| std::array::from_fn(|i| a[i].wrapping_mul(3).wrapping_add(b[i])));
    let mut large: Vec<Large> = vec![[rank as u64 + 1; 700]; 3];
    comm.scan_in_place(&mut large, &adds).unwrap();
    let folded = (1..=rank as u64).fold(1u64, |sum, rank| sum.wrapping_mul(3).wrapping_add(rank + 1));
    assert!(large.iter().flatten().all(|element| *element == folded));
    player.say("done");
}

/// Lower ranks leave before higher ones have come.
fn leaves(player: &Player) {
    let comm = joined(false);
    let (rank, size) = (comm.rank(), comm.size());
    let dir = std::env::var("EARLYBIRD_DIR").unwrap();
    let left = |rank: usize| std::path::PathBuf::from(format!("{dir}-left-{rank}"));
    while rank > 0 && !left(rank - 1).exists() {
        std::thread::yield_now();
    }
    let mut sum = [1u64; 3];
    comm.scan_in_place(&mut sum, Op::Sum).unwrap();
    assert_eq!(sum, [rank as u64 + 1; 3]);
    std::fs::write(left(rank), "").unwrap();
    comm.barrier().unwrap();
    if rank == 0 {
        (0..size).for_each(|rank| std::fs::remove_file(left(rank)).unwrap());
    }
    player.say("done");
}

fn refusals(player: &Player) {
    let comm = joined(false);
    let rank = comm.rank();
    let mut buf = [1.0f32; 4];
    for refused in [comm.scan_in_place(&mut buf, Op::Average), comm.exclusive_scan_in_place(&mut buf, Op::Average)] {
        let Err(Error::Unsupported { what, hint }) = refused else { panic!("{refused:?}") };
        assert!(what.contains("average in") && hint.contains("use sum"), "{what}: {hint}");
    }
    let short = comm.scan_into(&[1.0f32; 3], &mut buf, Op::Sum).unwrap_err();
    assert!(short.to_string().contains("give buffers of one length"), "{short}");
    let bits = comm.scan_in_place(&mut buf, Op::BitAnd).unwrap_err();
    assert_eq!(bits.code(), "EB_UNSUPPORTED");
    // One rank makes the exclusive call; the error names both.
    let error = match rank {
        1 => comm.exclusive_scan_in_place(&mut buf, Op::Sum),
        _ => comm.scan_in_place(&mut buf, Op::Sum),
    };
    // A rank that needs none of the others learns it at its next call.
    let error = error.and_then(|()| comm.barrier()).unwrap_err();
    player.say(error);
}

fn run_matrix(job: Job) {
    let said = job.run();
    let calls: usize = said[0][0].strip_prefix("calls ").unwrap().parse().unwrap();
    assert!(calls > 150 && said.iter().all(|lines| lines == &said[0]), "{said:?}");
}

#[test]
fn every_type_and_operator_on_one_node() {
    (1..=5).for_each(|ranks| run_matrix(Job::new("matrix", ranks).arg(false)));
}

#[test]
fn every_type_and_operator_on_several_nodes() {
    for (ranks, nodes, dealt) in [(4, "2", true), (4, "1", false), (5, "3,2", false), (4, "3,1", true)] {
        run_matrix(Job::new("matrix", ranks).arg(dealt).var("EARLYBIRD_RANKS_PER_NODE", nodes));
    }
}

#[test]
fn calls_larger_than_the_windows() {
    for ranks in [2, 3, 5] {
        let least = earlybird_shm::layout::Windows::least_budget_bytes(ranks);
        Job::new("windows", ranks).var("EARLYBIRD_ARENA_MAX", least).run();
    }
}

#[test]
fn operators_that_are_not_commutative() {
    for (ranks, nodes, dealt) in [(1, "1", false), (3, "3", false), (4, "2", false), (4, "2", true), (4, "1,3", true)] {
        Job::new("users", ranks).arg(dealt).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

#[test]
fn a_rank_waits_for_no_rank_after_it() {
    Job::new("leaves", 4).run();
}

#[test]
fn what_cannot_be_is_refused() {
    for nodes in ["3", "2,1"] {
        let said = Job::new("refusals", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        for error in said.iter().map(|lines| &lines[0]) {
            assert!(error.contains("scan of 4 x f32") && error.contains("exscan of 4 x f32"), "{said:?}");
        }
    }
}
