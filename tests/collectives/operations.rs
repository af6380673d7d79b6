//! Every operation but the allreduce (`all_reduce.rs`): every type, operator, algorithm, order, root and count on 1 to 8
//! processes that come at random times, each result checked element by element against a sequential one.

use crate::common::data::{Sample, contribution, reference, same_bits};
use crate::common::{Job, Player, mix};
use earlybird::{Algorithm, Communicator, FoldOrder, Indexed, Op};
use earlybird_shm::Collective;
use half::{bf16, f16};
use num_complex::Complex;
use std::time::Duration;

const ORDERS: [FoldOrder; 2] = [FoldOrder::Arrival, FoldOrder::Rank];

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("matrix", matrix), ("windows", windows), ("mixed", mixed), ("tables", tables)]);
}

/// One rank in one job.
struct Caller {
    comm: Communicator,
    calls: u64,
    cases: usize,
}

/// The algorithms of an operation, and the library's own choice.
fn ways(collective: Collective) -> Vec<Algorithm> {
    collective.traits().algorithms.iter().copied().chain([Algorithm::Auto]).collect()
}

impl Caller {
    fn join() -> Caller {
        Caller { comm: Communicator::from_env().unwrap(), calls: 0, cases: 0 }
    }

    /// Before a call: some come late to it, the same ranks in every run.
    fn begin(&mut self, algorithm: Algorithm, order: FoldOrder) {
        self.calls += 1;
        self.cases += 1;
        let random = mix(self.calls * 64 + self.comm.rank() as u64);
        if random.is_multiple_of(32) {
            std::thread::sleep(Duration::from_micros(random >> 32 & 0xff));
        }
        self.comm.set_algorithm(algorithm).unwrap();
        self.comm.set_order(order).unwrap();
    }

    /// What ran is what was asked for.
    fn ran(&self, algorithm: Algorithm) {
        if algorithm != Algorithm::Auto && self.comm.size() > 1 {
            assert_eq!(self.comm.last_call().unwrap().algorithm, algorithm);
        }
    }

    fn roots(&self) -> Vec<usize> {
        let mut roots = vec![0, self.comm.size() / 2, self.comm.size() - 1];
        roots.dedup();
        roots
    }

    /// What stood in a receive buffer must not show.
    fn dirty<T: Sample>(&self, count: usize) -> Vec<T> {
        (0..count).map(|i| T::rounded(mix(self.calls ^ i as u64))).collect()
    }

    fn folds<T: Sample>(&mut self, op: Op, count: usize, exact: bool) {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let seed = mix(self.calls);
        let send = contribution::<T>(seed, rank, count, op, exact);
        let expected = reference::<T>(seed, ranks, count, op, exact);
        // Rounded values have known bits only by rank.
        let orders = if exact { &ORDERS[..] } else { &ORDERS[1..] };
        for &order in orders {
            for algorithm in ways(Collective::Reduce) {
                for root in self.roots() {
                    let what = |place: &str| {
                        format!("reduce {place} {} {op:?} {algorithm} {order:?} {count} to {root}", T::DTYPE.name())
                    };
                    let process = |caller: &Caller| caller.comm.process_at_rank(root).rank();
                    assert_eq!(process(self), root);
                    self.begin(algorithm, order);
                    let mut recv = self.dirty::<T>(count);
                    match rank == root {
                        true => {
                            self.comm.process_at_rank(root).reduce_into_root(&send, &mut recv, op).unwrap();
                            same_bits(&recv, &expected, &|| what("into"));
                        }
                        false => self.comm.process_at_rank(root).reduce_into(&send, op).unwrap(),
                    }
                    self.ran(algorithm);
                    self.begin(algorithm, order);
                    let mut buf = send.clone();
                    self.comm.process_at_rank(root).reduce_in_place(&mut buf, op).unwrap();
                    same_bits(&buf, if rank == root { &expected } else { &send }, &|| what("in place"));
                }
            }
            self.reduce_scatter::<T>(op, count, exact, order);
        }
    }

    /// The blocks of a reduce-scatter: `count` elements each, or lengths that differ and may be 0.
    fn reduce_scatter<T: Sample>(&mut self, op: Op, count: usize, exact: bool, order: FoldOrder) {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let seed = mix(self.calls);
        // The reference of all blocks together is quadratic in the ranks.
        let count = count.min(20_000);
        let send = contribution::<T>(seed, rank, count * ranks, op, exact);
        let all = reference::<T>(seed, ranks, count * ranks, op, exact);
        let what = |form: &str| format!("reduce-scatter {form} {} {op:?} {order:?} {count}", T::DTYPE.name());
        self.begin(Algorithm::Auto, order);
        let mut recv = self.dirty::<T>(count);
        self.comm.reduce_scatter_block_into(&send, &mut recv, op).unwrap();
        same_bits(&recv, &all[rank * count..(rank + 1) * count], &|| what("equal"));

        let counts = unequal(seed, count * ranks, ranks);
        let start: usize = counts[..rank].iter().sum();
        let total: usize = counts.iter().sum();
        self.begin(Algorithm::Auto, order);
        let mut recv = self.dirty::<T>(counts[rank]);
        self.comm.reduce_scatter_varcount_into(&send[..total], &mut recv, &counts, op).unwrap();
        same_bits(&recv, &all[start..start + counts[rank]], &|| what("unequal"));
    }

    fn moves<T: Sample>(&mut self, count: usize) {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let seed = mix(self.calls ^ count as u64);
        let given = |rank: usize, count: usize| contribution::<T>(seed, rank, count, Op::Sum, false);
        let everything: Vec<T> = (0..ranks).flat_map(|r| given(r, count)).collect();
        let counts = unequal(seed, count * ranks, ranks);
        let unequal_parts: Vec<T> = (0..ranks).flat_map(|r| given(r, counts[r])).collect();
        let what = |form: &str, root: usize| format!("{form} {} {count} root {root}", T::DTYPE.name());
        let (auto, order) = (Algorithm::Auto, FoldOrder::Rank);
        for root in self.roots() {
            for algorithm in ways(Collective::Broadcast) {
                self.begin(algorithm, order);
                let mut buf = if rank == root { given(root, count) } else { self.dirty(count) };
                self.comm.process_at_rank(root).broadcast_into(&mut buf).unwrap();
                same_bits(&buf, &given(root, count), &|| what("broadcast", root));
                self.ran(algorithm);
            }
            self.begin(auto, order);
            let (mut recv, mut varying) = (self.dirty::<T>(count * ranks), self.dirty::<T>(unequal_parts.len()));
            let process = self.comm.process_at_rank(root);
            match rank == root {
                true => {
                    process.gather_into_root(&given(rank, count), &mut recv).unwrap();
                    same_bits(&recv, &everything, &|| what("gather", root));
                    let send = given(rank, counts[rank]);
                    process.gather_varcount_into_root(&send, &mut varying, &counts).unwrap();
                    same_bits(&varying, &unequal_parts, &|| what("gather unequal", root));
                    recv = self.dirty::<T>(count * ranks);
                    recv[rank * count..(rank + 1) * count].copy_from_slice(&given(rank, count));
                    process.gather_in_place_root(&mut recv).unwrap();
                    same_bits(&recv, &everything, &|| what("gather in place", root));
                }
                false => {
                    process.gather_into(&given(rank, count)).unwrap();
                    process.gather_varcount_into(&given(rank, counts[rank]), &counts).unwrap();
                    process.gather_into(&given(rank, count)).unwrap();
                }
            }
            self.begin(auto, order);
            let mut part = self.dirty::<T>(count);
            let process = self.comm.process_at_rank(root);
            match rank == root {
                true => process.scatter_into_root(&everything, &mut part).unwrap(),
                false => process.scatter_into(&mut part).unwrap(),
            }
            same_bits(&part, &given(rank, count), &|| what("scatter", root));
            let (mut whole, mut part) = (everything.clone(), self.dirty::<T>(count));
            match rank == root {
                true => {
                    process.scatter_in_place_root(&mut whole).unwrap();
                    same_bits(&whole, &everything, &|| what("scatter in place", root));
                }
                false => {
                    process.scatter_into(&mut part).unwrap();
                    same_bits(&part, &given(rank, count), &|| what("scatter in place", root));
                }
            }
            let mut part = self.dirty::<T>(counts[rank]);
            match rank == root {
                true => process.scatter_varcount_into_root(&unequal_parts, &mut part, &counts).unwrap(),
                false => process.scatter_varcount_into(&mut part, &counts).unwrap(),
            }
            same_bits(&part, &given(rank, counts[rank]), &|| what("scatter unequal", root));
        }
        self.begin(auto, order);
        let mut recv = self.dirty::<T>(count * ranks);
        self.comm.all_gather_into(&given(rank, count), &mut recv).unwrap();
        same_bits(&recv, &everything, &|| what("allgather", 0));
        self.begin(auto, order);
        recv = self.dirty::<T>(count * ranks);
        recv[rank * count..(rank + 1) * count].copy_from_slice(&given(rank, count));
        self.comm.all_gather_in_place(&mut recv).unwrap();
        same_bits(&recv, &everything, &|| what("allgather in place", 0));
        self.begin(auto, order);
        let mut varying = self.dirty::<T>(unequal_parts.len());
        self.comm.all_gather_varcount_into(&given(rank, counts[rank]), &mut varying, &counts).unwrap();
        same_bits(&varying, &unequal_parts, &|| what("allgather unequal", 0));

        // Rank r sends its block i to rank i: block i of what r gives.
        let sent = given(rank, count * ranks);
        let mine = |r: usize| given(r, count * ranks)[rank * count..(rank + 1) * count].to_vec();
        let expected: Vec<T> = (0..ranks).flat_map(mine).collect();
        self.begin(auto, order);
        let mut recv = self.dirty::<T>(count * ranks);
        self.comm.all_to_all_into(&sent, &mut recv).unwrap();
        same_bits(&recv, &expected, &|| what("alltoall", 0));
        self.begin(auto, order);
        recv = sent;
        self.comm.all_to_all_in_place(&mut recv).unwrap();
        same_bits(&recv, &expected, &|| what("alltoall in place", 0));
    }

    /// One type of each size and kind of arithmetic, by one of its operators, another one for another count.
    fn every_kind(&mut self, count: usize) {
        use Op::*;
        let pick = |ops: &[Op]| ops[count % ops.len()];
        self.folds::<i8>(pick(&[Sum, BitXor, Max]), count, true);
        self.folds::<u16>(pick(&[LogicalAnd, Product, BitOr]), count, true);
        self.folds::<i32>(pick(&[BitAnd, Min, LogicalXor]), count, true);
        self.folds::<f16>(pick(&[Sum, Average, Min, Product]), count, true);
        self.folds::<bf16>(pick(&[Average, Max, Sum, Product]), count, true);
        self.folds::<f64>(Average, count, true);
        self.folds::<Complex<f32>>(pick(&[Sum, Average, Product]), count, true);
        self.folds::<Complex<f64>>(pick(&[Product, Sum, Average]), count, true);
        self.folds::<bool>(pick(&[LogicalXor, LogicalAnd, BitOr]), count, true);
        self.folds::<Indexed<f32, i32>>(pick(&[MinIndex, MaxIndex]), count, true);
        self.folds::<Indexed<i64, i64>>(pick(&[MaxIndex, MinIndex]), count, true);
        self.folds::<f16>(pick(&[Product, Sum, Average]), count, false);
    }

    fn every_type(&mut self, op: Op, count: usize) {
        self.folds::<i32>(op, count, true);
        self.folds::<i64>(op, count, true);
        self.folds::<u32>(op, count, true);
        self.folds::<u64>(op, count, true);
        self.folds::<f32>(op, count, true);
        self.folds::<f64>(op, count, true);
    }
}

/// Lengths of `ranks` blocks, some of them 0, of at most `total` elements.
fn unequal(seed: u64, total: usize, ranks: usize) -> Vec<usize> {
    let share = |rank: usize| match mix(seed ^ rank as u64) % 4 {
        0 => 0,
        n => (total / ranks) * n as usize / 3,
    };
    (0..ranks).map(share).collect()
}

fn matrix(player: &Player) {
    let mut caller = Caller::join();
    let ranks = caller.comm.size();
    for count in [0, 1, ranks - 1, ranks, 37, 1000, 100_003] {
        caller.moves::<u32>(count);
        caller.moves::<f64>(count);
        for op in [Op::Sum, Op::Product, Op::Min, Op::Max] {
            caller.every_type(op, count);
        }
        if count < 100_003 {
            caller.moves::<i8>(count);
            caller.moves::<bool>(count);
            caller.moves::<f16>(count);
            caller.moves::<Complex<f64>>(count);
            caller.every_kind(count);
            for op in [Op::Sum, Op::Product] {
                caller.folds::<f32>(op, count, false);
                caller.folds::<f64>(op, count, false);
            }
        }
    }
    caller.comm.barrier().unwrap();
    player.say(format!("cases {}", caller.cases));
}

/// Calls larger than the windows of the smallest arena.
fn windows(player: &Player) {
    let mut caller = Caller::join();
    for count in [3_000, 20_011] {
        caller.moves::<f64>(count);
        caller.folds::<f32>(Op::Sum, count, true);
        caller.folds::<f64>(Op::Product, count, false);
        caller.folds::<bf16>(Op::Average, count, true);
        caller.folds::<Complex<f64>>(Op::Sum, count, true);
        caller.folds::<bool>(Op::LogicalXor, count, true);
    }
    player.say(format!("cases {}", caller.cases));
}

/// Operations of all kinds one after the other, without anybody waiting in between: early leavers run ahead.
fn mixed(player: &Player) {
    let caller = Caller::join();
    let (rank, ranks) = (caller.comm.rank(), caller.comm.size());
    let calls: u64 = player.arg(0);
    for call in 0..calls {
        let random = mix(call ^ 0xe4_11e5);
        let count = [0, 1, 3, 13, 60, 700, 9_000, 40_000][(random >> 8 & 7) as usize];
        let root = (random >> 16) as usize % ranks;
        let ways = ways(Collective::Reduce);
        caller.comm.set_algorithm(ways[(random >> 24) as usize % ways.len()]).unwrap();
        caller.comm.set_order(ORDERS[(random >> 32 & 1) as usize]).unwrap();
        if mix(call * 64 + rank as u64).is_multiple_of(24) {
            std::thread::sleep(Duration::from_micros(random >> 40 & 0x1ff));
        }
        let send = contribution::<f64>(call, rank, count, Op::Sum, true);
        let what = || format!("call {call} of {count} with root {root}");
        let process = caller.comm.process_at_rank(root);
        match random & 7 {
            0..=2 => {
                let mut buf = send.clone();
                process.reduce_in_place(&mut buf, Op::Sum).unwrap();
                if rank == root {
                    same_bits(&buf, &reference::<f64>(call, ranks, count, Op::Sum, true), &what);
                }
            }
            3..=4 => {
                let mut buf = send.clone();
                process.broadcast_into(&mut buf).unwrap();
                same_bits(&buf, &contribution::<f64>(call, root, count, Op::Sum, true), &what);
            }
            5 => {
                let mut recv = vec![0.0; count * ranks];
                match rank == root {
                    true => process.gather_into_root(&send, &mut recv).unwrap(),
                    false => process.gather_into(&send).unwrap(),
                }
                for r in (0..ranks).filter(|_| rank == root) {
                    let expected = contribution::<f64>(call, r, count, Op::Sum, true);
                    same_bits(&recv[r * count..(r + 1) * count], &expected, &what);
                }
            }
            6 => {
                let mut buf = send.clone();
                caller.comm.all_reduce_in_place(&mut buf, Op::Sum).unwrap();
                same_bits(&buf, &reference::<f64>(call, ranks, count, Op::Sum, true), &what);
            }
            _ => {
                let whole = |r: usize| contribution::<f64>(call, r, count * ranks, Op::Sum, true);
                let (send, mut recv) = (whole(root), vec![0.0; count]);
                match rank == root {
                    true => process.scatter_into_root(&send, &mut recv).unwrap(),
                    false => process.scatter_into(&mut recv).unwrap(),
                }
                same_bits(&recv, &send[rank * count..(rank + 1) * count], &what);
            }
        }
    }
    player.say(format!("calls {calls}"));
}

/// What ran for an operation on one element and on a thousand, without a choice by the program.
fn tables(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let process = comm.process_at_rank(0);
    let mut ran = Vec::new();
    for count in [1, 1000] {
        let mut buf = vec![0u32; count];
        process.reduce_in_place(&mut buf, Op::Sum).unwrap();
        ran.push(comm.last_call().unwrap().algorithm.name());
        process.broadcast_into(&mut buf).unwrap();
        ran.push(comm.last_call().unwrap().algorithm.name());
        comm.barrier().unwrap();
        ran.push(comm.last_call().unwrap().algorithm.name());
        comm.all_reduce_in_place(&mut buf, Op::Sum).unwrap();
        ran.push(comm.last_call().unwrap().algorithm.name());
    }
    player.say(ran.join(" "));
}

#[test]
fn a_size_table_rules_its_own_operation() {
    let job = || Job::new("tables", 2).var("EARLYBIRD_ALGORITHM", "leader");
    let tables = job()
        .var("EARLYBIRD_REDUCE", "chain:0-4,static-leader:4000-")
        .var("EARLYBIRD_BROADCAST", "chain:0-")
        .var("EARLYBIRD_BARRIER", "slices:0-0")
        .run();
    let expected = "chain chain slices leader static-leader chain slices leader";
    assert!(tables.iter().all(|said| said == &[expected]), "{tables:?}");
    // What an operation does not have is left to the library.
    let general = job().run();
    assert!(general.iter().all(|said| said == &["flat flat leader leader flat flat leader leader"]), "{general:?}");
}

fn run_matrix(ranks: usize) {
    let said = Job::new("matrix", ranks).watchdog(Duration::from_secs(120)).run();
    let cases: usize = said[0][0].strip_prefix("cases ").unwrap().parse().unwrap();
    assert!(cases > 2_500, "{cases} cases");
    assert!(said.iter().all(|lines| lines == &said[0]), "{said:?}");
    println!("{ranks} rank(s): {cases} cases, every element checked");
}

#[test]
fn every_operation_on_1_rank() {
    run_matrix(1);
}

#[test]
fn every_operation_on_2_ranks() {
    run_matrix(2);
}

#[test]
fn every_operation_on_3_ranks() {
    run_matrix(3);
}

#[test]
fn every_operation_on_5_ranks() {
    run_matrix(5);
}

#[test]
fn every_operation_on_8_ranks() {
    run_matrix(8);
}

#[test]
fn calls_larger_than_the_windows_run_as_several_operations() {
    for ranks in [2, 3, 5] {
        let least = earlybird_shm::layout::Windows::least_budget_bytes(ranks);
        Job::new("windows", ranks).var("EARLYBIRD_ARENA_MAX", least).run();
    }
}

#[test]
fn ranks_that_run_ahead_meet_the_others_again() {
    for ranks in [2, 3, 7] {
        for wait in earlybird::WaitPreset::ALL {
            let said = Job::new("mixed", ranks).arg(500).var("EARLYBIRD_WAIT", wait).run();
            assert!(said.iter().all(|lines| lines == &["calls 500"]), "{said:?}");
        }
    }
}
