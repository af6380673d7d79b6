//! Every combination of type, operator, algorithm, order, size and buffers, on 1 to 64 processes, each result checked
//! element by element against a sequential fold.

use crate::common::data::{Sample, contribution, hash, reference, same_bits};
use crate::common::{Job, Player, mix};
use earlybird::{
    Algorithm, CallBuffers, Collective, CollectiveArgs, Communicator, DType, Error, FoldOrder, Indexed, Op, ReduceOp,
};
use half::{bf16, f16};
use num_complex::Complex;
use std::time::Duration;

/// The choices of an allreduce.
fn algorithms() -> Vec<Algorithm> {
    [&[Algorithm::Auto], Collective::AllReduce.traits().algorithms].concat()
}

const ORDERS: [FoldOrder; 2] = [FoldOrder::Arrival, FoldOrder::Rank];

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("matrix", matrix),
        ("rounded", rounded),
        ("large", large),
        ("few", few),
        ("interleaved", interleaved),
        ("barriers", barriers),
        ("again", again),
    ]);
}

/// One rank in one job, with the calls it has made.
struct Caller {
    comm: Communicator,
    calls: u64,
}

impl Caller {
    fn join() -> Caller {
        Caller { comm: Communicator::from_env().unwrap(), calls: 0 }
    }

    /// Comes late to some calls, another rank to another call, the same in every run.
    fn dawdle(&self) {
        let random = mix(self.calls * 64 + self.comm.rank() as u64);
        if random.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(random >> 32 & 0xff));
        }
    }

    fn reduce<T: Sample>(&mut self, send: &[T], op: Op, in_place: bool) -> Vec<T> {
        self.calls += 1;
        self.dawdle();
        let mut recv = send.to_vec();
        if in_place {
            self.comm.all_reduce_in_place(&mut recv, op).unwrap();
        } else {
            // What stood in the receive buffer must not show.
            recv.iter_mut().enumerate().for_each(|(i, v)| *v = T::rounded(i as u64));
            self.comm.all_reduce_into(send, &mut recv, op).unwrap();
        }
        recv
    }

    fn choose(&self, algorithm: Algorithm, order: FoldOrder) {
        self.comm.set_algorithm(algorithm).unwrap();
        self.comm.set_order(order).unwrap();
    }

    /// The checks of one type, operator and count under every algorithm, order and use of buffers.
    fn every_way<T: Sample>(&mut self, op: Op, count: usize) -> usize {
        let (rank, ranks) = (self.comm.rank(), self.comm.size());
        let seed = mix(self.calls);
        let send = contribution::<T>(seed, rank, count, op, true);
        let expected = reference::<T>(seed, ranks, count, op, true);
        let mut cases = 0;
        for algorithm in algorithms() {
            for order in ORDERS {
                self.choose(algorithm, order);
                for in_place in [false, true] {
                    let found = self.reduce(&send, op, in_place);
                    same_bits(&found, &expected, &|| {
                        format!("{} {op:?} {algorithm} {order:?} {count} in place {in_place}", T::DTYPE.name())
                    });
                    if algorithm != Algorithm::Auto && ranks > 1 {
                        assert_eq!(self.comm.last_call().unwrap().algorithm, algorithm);
                    }
                    cases += 1;
                }
            }
        }
        cases
    }

    fn every_way_of(&mut self, dtype: DType, op: Op, count: usize) -> usize {
        match dtype {
            DType::I8 => self.every_way::<i8>(op, count),
            DType::I16 => self.every_way::<i16>(op, count),
            DType::I32 => self.every_way::<i32>(op, count),
            DType::I64 => self.every_way::<i64>(op, count),
            DType::U8 => self.every_way::<u8>(op, count),
            DType::U16 => self.every_way::<u16>(op, count),
            DType::U32 => self.every_way::<u32>(op, count),
            DType::U64 => self.every_way::<u64>(op, count),
            DType::F16 => self.every_way::<f16>(op, count),
            DType::BF16 => self.every_way::<bf16>(op, count),
            DType::F32 => self.every_way::<f32>(op, count),
            DType::F64 => self.every_way::<f64>(op, count),
            DType::ComplexF32 => self.every_way::<Complex<f32>>(op, count),
            DType::ComplexF64 => self.every_way::<Complex<f64>>(op, count),
            DType::Bool => self.every_way::<bool>(op, count),
            DType::IndexedI32 => self.every_way::<Indexed<i32, i32>>(op, count),
            DType::IndexedI64 => self.every_way::<Indexed<i64, i64>>(op, count),
            DType::IndexedF32 => self.every_way::<Indexed<f32, i32>>(op, count),
            DType::IndexedF64 => self.every_way::<Indexed<f64, i64>>(op, count),
        }
    }
}

const LARGE: usize = 100_003;
const LARGE_PART: usize = 5;

/// Every pair of type and operator that exists.
fn pairs() -> Vec<(DType, Op)> {
    let all = DType::ALL.into_iter().flat_map(|dtype| Op::ALL.into_iter().map(move |op| (dtype, op)));
    all.filter(|(dtype, op)| dtype.has(*op)).collect()
}

fn matrix(player: &Player) {
    let mut caller = Caller::join();
    let ranks = caller.comm.size();
    let mut cases = 0;
    for count in [0, 1, ranks - 1, ranks, 37, 1000, LARGE] {
        for (i, (dtype, op)) in pairs().into_iter().enumerate() {
            // Of the large ones a part, another part for another number of ranks.
            if count != LARGE || (i + ranks).is_multiple_of(LARGE_PART) {
                cases += caller.every_way_of(dtype, op, count);
            }
        }
    }
    player.say(format!("cases {cases}"));
}

/// Rounded values: the same bits on all ranks in any order, those of the sequential fold in rank order.
fn rounded(player: &Player) {
    let mut caller = Caller::join();
    let mut cases = 0;
    for count in [1, 37, 1000, 20_011] {
        for op in [Op::Sum, Op::Product, Op::Average] {
            cases += rounded_every_way::<f32>(&mut caller, op, count)
                + rounded_every_way::<f64>(&mut caller, op, count)
                + rounded_every_way::<f16>(&mut caller, op, count)
                + rounded_every_way::<bf16>(&mut caller, op, count)
                + rounded_every_way::<Complex<f32>>(&mut caller, op, count);
        }
    }
    player.say(format!("cases {cases}"));
}

fn rounded_every_way<T: Sample>(caller: &mut Caller, op: Op, count: usize) -> usize {
    let (rank, ranks) = (caller.comm.rank(), caller.comm.size());
    let seed = mix(caller.calls);
    let send = contribution::<T>(seed, rank, count, op, false);
    let expected = reference::<T>(seed, ranks, count, op, false);
    let mut cases = 0;
    for algorithm in algorithms() {
        for order in ORDERS {
            for in_place in [false, true, false] {
                caller.choose(algorithm, order);
                let found = caller.reduce(&send, op, in_place);
                let what = || format!("{} {op:?} {algorithm} {order:?} {count}", T::DTYPE.name());
                if order == FoldOrder::Rank {
                    same_bits(&found, &expected, &what);
                }
                let mine = hash(&found);
                let (least, most) = (caller.reduce(&[mine], Op::Min, true), caller.reduce(&[mine], Op::Max, true));
                assert_eq!((least[0], most[0]), (mine, mine), "{}: bits differ between ranks", what());
                cases += 1;
            }
        }
    }
    cases
}

/// Messages larger than the windows of the arena.
fn large(player: &Player) {
    let mut caller = Caller::join();
    let (count, algorithm): (usize, Algorithm) = (player.arg(0), player.arg(1));
    let (rank, ranks) = (caller.comm.rank(), caller.comm.size());
    for order in ORDERS {
        caller.choose(algorithm, order);
        let send = contribution::<f32>(1, rank, count, Op::Sum, false);
        let found = caller.reduce(&send, Op::Sum, order == FoldOrder::Rank);
        let mine = hash(&found);
        caller.choose(Algorithm::Flat, order);
        let (least, most) = (caller.reduce(&[mine], Op::Min, true), caller.reduce(&[mine], Op::Max, true));
        assert_eq!((least[0], most[0]), (mine, mine), "{algorithm} {order:?}: bits differ between ranks");
        if order == FoldOrder::Rank {
            let expected = reference::<f32>(1, ranks, count, Op::Sum, false);
            same_bits(&found, &expected, &|| format!("{algorithm} {order:?}"));
        }
    }
    player.say(format!("operations {}", caller.comm.last_call().unwrap().operation));
}

/// A few calls of every algorithm, for many ranks.
fn few(player: &Player) {
    let mut caller = Caller::join();
    let mut cases = 0;
    for count in [3, 5000] {
        cases += caller.every_way::<f32>(Op::Sum, count);
    }
    caller.comm.barrier().unwrap();
    player.say(format!("cases {cases}"));
}

/// Hundreds of operations, each of another size, type and algorithm: slots and areas are used again and again.
fn interleaved(player: &Player) {
    let mut caller = Caller::join();
    let ranks = caller.comm.size();
    for call in 0..player.arg::<u64>(0) {
        let random = mix(call ^ 0x5eed);
        let algorithm = Algorithm::ALL[random as usize % Algorithm::ALL.len()];
        let order = ORDERS[(random >> 8 & 1) as usize];
        let count = [0, 1, 4, 5, 60, 700, 9_000, 40_000][(random >> 16 & 7) as usize];
        caller.choose(algorithm, order);
        if random >> 40 & 7 == 0 {
            caller.comm.barrier().unwrap();
        }
        let (rank, op) = (caller.comm.rank(), [Op::Sum, Op::Product, Op::Min, Op::Max][(random >> 24 & 3) as usize]);
        let what = || format!("call {call}: {op:?} {algorithm} {order:?} {count}");
        match random >> 32 & 1 {
            0 => {
                let found = caller.reduce(&contribution::<f64>(call, rank, count, op, true), op, false);
                same_bits(&found, &reference::<f64>(call, ranks, count, op, true), &what);
            }
            _ => {
                let found = caller.reduce(&contribution::<i32>(call, rank, count, op, true), op, true);
                same_bits(&found, &reference::<i32>(call, ranks, count, op, true), &what);
            }
        }
    }
    player.say(format!("calls {}", caller.calls));
}

/// An allreduce of the bytes of numbers.
fn of_bytes<'a>(send: Option<&'a [u8]>, recv: &'a mut [u8]) -> CollectiveArgs<'a> {
    let buffers = CallBuffers::of_bytes(send, recv, DType::I32.into());
    CollectiveArgs::all_reduce(buffers, ReduceOp::Builtin(Op::Sum))
}

/// Calls repeated as bytes on one rank and by their type on the others: of one piece of a deposit and around its end.
fn again(player: &Player) {
    let mut caller = Caller::join();
    let (rank, ranks) = (caller.comm.rank(), caller.comm.size());
    for count in [1, 16, 26, 27, 106, 1000, 2047, 2048, 2049] {
        for call in 0..8 {
            let seed = mix(count as u64 * 8 + call);
            let (send, op) = (contribution::<i32>(seed, rank, count, Op::Sum, true), Op::Sum);
            let expected = reference::<i32>(seed, ranks, count, op, true);
            let refused = caller.comm.run(of_bytes(None, &mut vec![0; 4 * count + 1]));
            assert!(matches!(refused, Err(Error::Usage { .. })), "no whole number of elements: {refused:?}");
            let refused = caller.comm.run(of_bytes(Some(&[0; 4]), &mut vec![0; 4 * count + 4]));
            assert!(matches!(refused, Err(Error::Usage { .. })), "another length: {refused:?}");
            let found = match (call as usize + rank) % 2 {
                0 => {
                    // At an odd address.
                    let mut bytes = [&[0], bytemuck::cast_slice(&send)].concat();
                    let given = (call % 2 == 0).then(|| bytemuck::cast_slice(&send));
                    caller.comm.run(of_bytes(given, &mut bytes[1..])).unwrap();
                    bytes[1..].chunks(4).map(|value| i32::from_ne_bytes(value.try_into().unwrap())).collect()
                }
                _ => caller.reduce(&send, op, call % 2 == 0),
            };
            same_bits(&found, &expected, &|| format!("count {count} call {call}"));
        }
    }
    player.say("again");
}

/// Nobody leaves a barrier before all have come: each rank leaves a mark before, and must find all marks after it.
fn barriers(player: &Player) {
    let caller = Caller::join();
    let (rank, ranks) = (caller.comm.rank(), caller.comm.size());
    let mark =
        |r: usize| std::path::Path::new(&std::env::var("EARLYBIRD_DIR").unwrap()).with_extension(format!("at-{r}"));
    for round in 1..=60u64 {
        caller.choose(Algorithm::ALL[round as usize % Algorithm::ALL.len()], ORDERS[(round / 8 % 2) as usize]);
        if mix(round * 8 + rank as u64).is_multiple_of(3) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Renaming is atomic: a reader finds the old number or the new one.
        let draft = mark(rank + 1000);
        std::fs::write(&draft, round.to_string()).unwrap();
        std::fs::rename(&draft, mark(rank)).unwrap();
        caller.comm.barrier().unwrap();
        for r in 0..ranks {
            let at: u64 = std::fs::read_to_string(mark(r)).unwrap().parse().unwrap();
            assert!(at >= round, "rank {r} was at round {at} when rank {rank} left barrier {round}");
        }
    }
    player.say("barriers 60");
}

fn all_said(said: Vec<Vec<String>>, expected: &str) {
    for (rank, lines) in said.iter().enumerate() {
        assert_eq!(lines, &[expected], "rank {rank}");
    }
}

fn run_matrix(ranks: usize) {
    let pairs = pairs().len();
    let large = (0..pairs).filter(|i| (i + ranks).is_multiple_of(LARGE_PART)).count();
    let cases = (pairs * 6 + large) * 7 * 2 * 2;
    all_said(Job::new("matrix", ranks).run(), &format!("cases {cases}"));
    println!("{ranks} rank(s): {cases} cases, every element checked on every rank");
}

#[test]
fn every_combination_on_1_rank() {
    run_matrix(1);
}

#[test]
fn every_combination_on_2_ranks() {
    run_matrix(2);
}

#[test]
fn every_combination_on_3_ranks() {
    run_matrix(3);
}

#[test]
fn every_combination_on_5_ranks() {
    run_matrix(5);
}

#[test]
fn every_combination_on_8_ranks() {
    run_matrix(8);
}

#[test]
fn rounded_values_have_the_same_bits_everywhere_and_in_every_run() {
    let cases = 4 * 3 * 5 * 7 * 2 * 3;
    for ranks in [2, 3, 5, 8] {
        all_said(Job::new("rounded", ranks).run(), &format!("cases {cases}"));
        println!("{ranks} ranks: {cases} cases of rounded values");
    }
}

#[test]
fn calls_are_repeated_as_bytes() {
    [2, 3].into_iter().for_each(|ranks| all_said(Job::new("again", ranks).run(), "again"));
}

#[test]
fn calls_larger_than_the_windows_run_as_several_operations() {
    for ranks in [2, 3] {
        let least = earlybird_shm::layout::Windows::least_budget_bytes(ranks);
        for algorithm in algorithms() {
            let job = Job::new("large", ranks).arg(50_000).arg(algorithm).var("EARLYBIRD_ARENA_MAX", least);
            let operations: u64 = job.run()[0][0].strip_prefix("operations ").unwrap().parse().unwrap();
            assert!(operations > 2 * 6, "{algorithm}: {operations} operations for 2 calls of 200 kB and 4 small ones");
        }
    }
    let least = earlybird_shm::layout::Windows::least_budget_bytes(2);
    Job::new("large", 2).arg(5 << 20).arg("chain").var("EARLYBIRD_ARENA_MAX", least).run();
    Job::new("large", 3).arg(5 << 20).arg("chain").run();
}

#[test]
fn sixty_four_ranks_on_few_processors() {
    for ranks in [13, 64] {
        all_said(Job::new("few", ranks).run(), &format!("cases {}", 2 * 7 * 2 * 2));
    }
}

#[test]
fn slots_and_areas_are_used_again() {
    for ranks in [2, 3, 7] {
        for wait in earlybird::WaitPreset::ALL {
            let job = Job::new("interleaved", ranks).arg(600).var("EARLYBIRD_WAIT", wait);
            all_said(job.run(), "calls 600");
        }
    }
}

#[test]
fn a_barrier_holds_everybody_back() {
    for ranks in [2, 3, 5] {
        all_said(Job::new("barriers", ranks).run(), "barriers 60");
    }
}

#[test]
fn the_comparison_refuses_one_wrong_bit() {
    let expected = reference::<f64>(7, 3, 100, Op::Min, true);
    let mut found = expected.clone();
    same_bits(&found, &expected, &|| "equal".into());
    found[99] = f64::from_bits(found[99].to_bits() ^ 1 << 63);
    let hashes = [hash(&found), hash(&expected)];
    assert_ne!(hashes[0], hashes[1]);
    let refused = std::panic::catch_unwind(|| same_bits(&found, &expected, &|| "changed".into()));
    assert!(refused.is_err());
}
