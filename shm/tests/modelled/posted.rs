//! Models of posted operations: ranks that complete them in different orders, in memory that is used again.

use super::{Bound, Tally, report};
use Act::{Finish, Post, Run};
use earlybird_shm::Algorithm::{Flat, Slices};
use earlybird_shm::Collective::{AllReduce, AllToAll, Gather};
use earlybird_shm::model::Group;
use earlybird_shm::protocol::active_request::{ActiveRequest, Blocks, Room};
use earlybird_shm::protocol::call::Prepared;
use earlybird_shm::protocol::payload::Buffers;
use earlybird_shm::protocol::signature::{Collective, Signature};
use earlybird_shm::protocol::{Member, Patience};
use earlybird_shm::sync::{Rule, break_rule};
use earlybird_shm::{Algorithm, DType, FoldOrder, Op, OwnedBuffers, WaitPreset};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// What a rank does next with the operation of this number, from 1.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    /// Posts it.
    Post(usize),
    /// Asks whether it is complete, and takes it if so.
    Ask(usize),
    /// Waits for it.
    Finish(usize),
    /// Carries it out as a blocking call.
    Run(usize),
}

/// Ranks, each with what it does.
pub struct PostedModel {
    /// Name of its test.
    pub name: &'static str,
    /// The posted operations; the root is rank 0.
    pub collective: Collective,
    /// The algorithm of the operations.
    pub algorithm: Algorithm,
    /// 64-bit words that are summed.
    pub words: usize,
    /// Preemptions.
    pub bound: Bound,
    /// What each rank does.
    pub scripts: &'static [&'static [Act]],
}

/// The models of one slot and one area, so that every operation uses what the one before has used.
pub static POSTED: &[PostedModel] = &[
    PostedModel {
        name: "posted_slices_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 1,
        bound: Some(1),
        scripts: CROSSED,
    },
    PostedModel {
        name: "posted_slices_pieces_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 16,
        bound: Some(2),
        scripts: &[ONCE, ONCE],
    },
    PostedModel {
        name: "posted_flat_2",
        collective: AllReduce,
        algorithm: Flat,
        words: 1,
        bound: Some(3),
        scripts: CROSSED,
    },
    PostedModel {
        name: "posted_flat_3",
        collective: AllReduce,
        algorithm: Flat,
        words: 1,
        bound: Some(2),
        scripts: &[ONCE, ONCE, ONCE],
    },
    PostedModel {
        name: "posted_and_blocking_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 1,
        bound: Some(2),
        scripts: &[&[Post(1), Run(2), Finish(1)], &[Post(1), Finish(1), Run(2)]],
    },
    PostedModel {
        name: "posted_gather_2",
        collective: Gather,
        algorithm: Flat,
        words: 1,
        bound: Some(3),
        scripts: CROSSED,
    },
    PostedModel {
        name: "posted_all_to_all_2",
        collective: AllToAll,
        algorithm: Flat,
        words: 1,
        bound: Some(3),
        scripts: CROSSED,
    },
];

const ONCE: &[Act] = &[Post(1), Finish(1)];

/// Two ranks that take their results in different orders.
const CROSSED: &[&[Act]] = &[&[Post(1), Post(2), Finish(1), Finish(2)], &[Post(1), Post(2), Finish(2), Finish(1)]];

/// The model of this name.
pub fn posted(name: &str) -> Option<&'static PostedModel> {
    POSTED.iter().find(|model| model.name == name)
}

fn value(rank: usize, number: usize) -> u64 {
    1 << (8 * rank + number)
}

/// The contribution of `rank` to operation `number`, which moves blocks of one word for each of `ranks`.
fn blocks(rank: usize, number: usize, ranks: usize) -> Vec<u64> {
    (0..ranks).map(|to| value(rank, number) | (to as u64) << 40).collect()
}

fn run_rank(group: &Group, rank: usize, model: &PostedModel) {
    let ranks = model.scripts.len();
    let patience = Patience { preset: WaitPreset::Balanced, oversubscribed: false, timeout_ns: None, mean_wait_ns: 0 };
    let mut member = Member::new(group.board(rank, None), patience);
    let signature =
        Signature::new(Collective::AllReduce, DType::U64, Op::Sum, FoldOrder::Rank, Algorithm::Auto, model.words);
    let posted =
        Signature::new(model.collective, DType::U64, Op::Sum, FoldOrder::Rank, Algorithm::Auto, model.words).posted();
    let prepared = |signature: Signature, algorithm| {
        Prepared::new(signature, DType::U64, Op::Sum, ranks, false, algorithm).expect("u64 has a sum")
    };
    let moves = model.collective != AllReduce;
    let check_moved = |found: &[u64], number: usize| {
        let block = |from: usize| blocks(from, number, ranks)[if model.collective == Gather { 0 } else { rank }];
        let expected: Vec<u64> = (0..ranks).map(block).collect();
        let is_root = model.collective != Gather || rank == 0;
        assert_eq!(found, if is_root { &expected[..] } else { &[] }, "wrong block: rank {rank} operation {number}");
    };
    let check = |found: &[u64], number: usize| {
        let sum: u64 = (0..ranks).map(|rank| value(rank, number)).sum();
        assert!(found.iter().all(|word| *word == sum), "wrong sum: rank {rank} operation {number}: {found:?}");
    };
    let take = |posted: Box<ActiveRequest>, number: usize| {
        let held: Box<dyn Any> = posted.into_held();
        let recv = &held.downcast::<OwnedBuffers<u64>>().expect("what was posted").recv;
        if moves { check_moved(recv, number) } else { check(recv, number) }
    };
    let mut numbers = [0; 8];
    for act in model.scripts[rank] {
        match *act {
            Act::Post(n) => {
                let held = match (model.collective, rank) {
                    (AllReduce, _) => OwnedBuffers::in_place(vec![value(rank, n); model.words]),
                    (Gather, 0) => OwnedBuffers::apart(blocks(rank, n, 1), vec![0; ranks]),
                    (Gather, _) => OwnedBuffers::apart(blocks(rank, n, 1), Vec::new()),
                    _ => OwnedBuffers::apart(blocks(rank, n, ranks), vec![0; ranks]),
                };
                let signature = if model.collective == Gather { posted.rooted(0) } else { posted };
                let call = prepared(signature.in_lane(moves), model.algorithm);
                let room = Room { accumulator: 128, deposit: 128 };
                let posted = Box::new(ActiveRequest::new(call, Box::new(held), 0, Blocks::Equal(model.words), room));
                numbers[n] = member.post(posted).expect("a healthy group");
                assert_eq!(numbers[n], n as u64);
            }
            Act::Ask(n) => {
                if let Some((posted, result)) = member.ask(numbers[n]) {
                    result.expect("a healthy group");
                    take(posted, n);
                    numbers[n] = 0;
                }
            }
            Act::Finish(n) if numbers[n] == 0 => {}
            Act::Finish(n) => {
                let (posted, result) = member.finish(numbers[n]).expect("it was posted");
                result.expect("a healthy group");
                take(posted, n);
            }
            Act::Run(n) => {
                let mut buf = vec![value(rank, n); 1];
                let call = prepared(signature.in_lane(true), Algorithm::Flat);
                let report = member.run(&Buffers::in_place(&mut buf).call(0..1, &call)).expect("a healthy group");
                assert_eq!(report.epoch, n as u64);
                check(&buf, n);
            }
        }
    }
}

/// Explores the model, without `broken` if that is a rule, and prints how far.
pub fn run_posted(model: &'static PostedModel, broken: Option<Rule>) {
    let (begun, count) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let counted = count.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = model.bound;
    builder.max_branches = 20_000;
    builder.max_duration = None;
    builder.max_permutations = None;
    break_rule(broken);
    builder.check(move || {
        let ranks = model.scripts.len();
        let group = Group::new(ranks, false);
        let others: Vec<_> = (1..ranks)
            .map(|rank| {
                let group = group.share();
                loom::thread::spawn(move || run_rank(&group, rank, model))
            })
            .collect();
        run_rank(&group, 0, model);
        others.into_iter().for_each(|other| other.join().unwrap());
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let executions = count.load(Ordering::Relaxed);
    assert!(executions > 1, "{}: the model explores nothing", model.name);
    report(model.name, model.bound, &Tally { executions, died: 0, failed: 0 }, begun);
}
