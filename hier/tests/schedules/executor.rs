//! The executor against what plans promise: every schedule, every rank count to 17, awkward sizes, several operations
//! under way, random plans.

use crate::common;
use crate::concrete;
use crate::execute::{Job, Map, Operator, judge, run_on};
use crate::faulty::{Faults, Faulty};
use crate::operators;
use crate::random_plans;
use crate::threads::{Threads, ThreadsOptions};
use earlybird_hier::exec::{Alltoallv, Endpoint, Failure, Parts, RunError, Running, Transport};
use earlybird_hier::plan::Collective;
use earlybird_hier::{Consistency, OpTraits, schedule, verify};
use proptest::prelude::*;
use std::sync::Arc;

/// By rank, by operator: the elements this rank ended with.
type Results = Vec<Vec<Vec<[u8; 8]>>>;

/// Runs all jobs, one after the other, on threads that stay; the results by job.
fn run_all<T: Transport + Send>(ranks: Vec<T>, jobs: &[Job]) -> Vec<Results> {
    let by_rank: Vec<Vec<_>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ranks
            .into_iter()
            .map(|transport| {
                scope.spawn(move || {
                    let mut endpoint = Endpoint::new(transport);
                    jobs.iter().map(|job| run_on(&mut endpoint, job)).collect()
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    (0..jobs.len()).map(|job| by_rank.iter().map(|rank: &Vec<_>| rank[job].clone()).collect()).collect()
}

fn all_right(jobs: &[Job], results: &[Results]) {
    for (job, results) in jobs.iter().zip(results) {
        if let Some(fault) = judge(job, results) {
            panic!("{} {:?}, {} elements, segments of {}: {fault}", job.0.algorithm, job.0.parameters, job.1, job.2);
        }
    }
}

/// Every case of every schedule with every size, segments large and small by turns.
fn jobs(ranks: usize) -> Vec<Job> {
    let mut counts = vec![0, 1, 2, 3, ranks - 1, ranks, ranks + 1, 37, 1000];
    counts.sort_unstable();
    counts.dedup();
    let mut jobs = Vec::new();
    for (name, params) in common::cases(ranks, false) {
        let plan = Arc::new(verify::verify(schedule::build(name, &params).unwrap()).unwrap());
        for (i, count) in counts.iter().enumerate() {
            let segment_bytes = [8, 65536, 256, 24, 2048][(jobs.len() + i) % 5];
            // Large sizes in tiny segments by every sender at once take long and show nothing new.
            let segment_bytes = if *count == 1000 { segment_bytes.max(256) } else { segment_bytes };
            jobs.push((plan.clone(), *count, segment_bytes));
        }
    }
    jobs
}

#[test]
fn every_schedule_every_rank_count_every_size() {
    for ranks in 1..=17 {
        let jobs = jobs(ranks);
        let group = Threads::group(ranks, ThreadsOptions { depth: 1 + ranks % 3, ..ThreadsOptions::default() });
        all_right(&jobs, &run_all(group, &jobs));
    }
}

#[test]
fn delays_and_other_orders_change_nothing() {
    for ranks in [2, 3, 6, 9] {
        let jobs: Vec<Job> = jobs(ranks).into_iter().step_by(7).collect();
        let faults = Faults { seed: ranks as u64, hold_one_in: 4, refuse_one_in: 4, ..Faults::default() };
        let group = Threads::group(ranks, ThreadsOptions { depth: 1, ..ThreadsOptions::default() });
        let group = group.into_iter().map(|t| Faulty::new(t, faults)).collect();
        all_right(&jobs, &run_all(group, &jobs));
    }
}

#[test]
fn a_plan_with_another_operand_order_would_be_noticed() {
    // Run where it is not admitted, a plan that is only commutative gives other bits: the operators can tell.
    let plan = schedule::build("ring", &earlybird_hier::Params::ranks(5)).unwrap();
    let verified = verify::verify(plan.clone()).unwrap();
    let traits = OpTraits { commutative: false, exact: true };
    earlybird_hier::verify::admit(verified, traits, Consistency::Identical).unwrap_err();
    let orders = concrete::results(&plan).unwrap();
    let in_order: Vec<usize> = (0..5).collect();
    let differs = |order: &Vec<usize>| Map::of(order, 3) != Map::of(&in_order, 3);
    assert!(orders.iter().flatten().flatten().any(differs));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Verifier, executor and a plain interpreter agree on random plans.
    #[test]
    fn three_interpreters_agree_on_random_plans(plan in random_plans::plan(), elements in 0usize..40, segment in 1usize..9) {
        let orders = concrete::results(&plan).expect("a plan made of trees can be run");
        prop_assert!(concrete::keeps_its_promises(&plan));
        let plan = Arc::new(verify::verify(plan).unwrap());
        let job = (plan.clone(), elements, segment * 8);
        let results = run_all(Threads::group(plan.ranks(), ThreadsOptions::default()), std::slice::from_ref(&job));
        prop_assert_eq!(judge(&job, &results[0]), None);
        // Element by element, in the very order that the interpreter found.
        prop_assert_eq!(plan.collective, Collective::Allreduce);
        let compose = Operator::fitting(&plan).iter().position(|op| *op == Operator::Compose);
        for (result, orders) in results[0].iter().zip(&orders) {
            for (block, order) in orders.iter().enumerate() {
                let at = |b| earlybird_hier::plan::offset(b, plan.blocks, elements);
                let wrong = compose.and_then(|o| (at(block)..at(block + 1)).find(|e| {
                    result[o][*e] != Map::of(order.as_ref().unwrap(), *e).to_bytes()
                }));
                prop_assert_eq!(wrong, None);
            }
        }
    }
}

/// The part of rank `from` for rank `to`, of its own length.
fn part(from: usize, to: usize, scale: usize) -> Vec<u8> {
    (0..(from * 7 + to * 3) % 5 * scale).map(|i| (from * 50 + to + i) as u8).collect()
}

/// Two alltoallvs with a plan between them, as rank `transport`; `call` is its number for the second.
fn swap(transport: impl Transport, scale: usize, call: u64) -> Result<(), RunError> {
    let (me, ranks) = (transport.rank(), transport.size());
    let mut endpoint = Endpoint::new(transport);
    for call in [5, call] {
        let send: Vec<Vec<u8>> = (0..ranks).map(|to| part(me, to, scale)).collect();
        let mut receive: Vec<Vec<u8>> = (0..ranks).map(|from| vec![0; part(from, me, scale).len()]).collect();
        let parts = send.iter().zip(&mut receive).map(|(send, receive)| Parts::new(send, receive));
        Alltoallv::start(&mut endpoint, call)?.wait(&mut endpoint, &mut parts.collect::<Vec<_>>(), None)?;
        assert!((0..ranks).filter(|from| *from != me).all(|from| receive[from] == part(from, me, scale)));
    }
    Ok(())
}

#[test]
fn parts_of_any_length_reach_their_ranks() {
    for ranks in 1..=6 {
        for scale in [0, 1, 100, 10_000] {
            let options = ThreadsOptions { depth: 1 + scale % 3, packet_bytes: 1000 };
            std::thread::scope(|scope| {
                for transport in Threads::group(ranks, options) {
                    scope.spawn(move || swap(transport, scale, 6).expect("nobody fails"));
                }
            });
        }
    }
}

#[test]
fn a_different_exchange_is_refused_by_everybody() {
    let results: Vec<Result<(), RunError>> = std::thread::scope(|scope| {
        let group = Threads::group(3, ThreadsOptions::default()).into_iter();
        let ranks: Vec<_> = group
            .map(|t| {
                scope.spawn(move || {
                    let call = 6 + t.rank() as u64 / 2;
                    swap(t, 100, call)
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().expect("an error, not a panic")).collect()
    });
    let mismatch = |r: &Result<(), RunError>| matches!(r, Err(RunError::Failed(Failure::Mismatch { rank_b: 2, .. })));
    assert!(results.iter().all(mismatch), "{results:?}");
}

/// Two operations under way at once; rank 1 begins with the second, of another length than rank 0's.
#[test]
fn a_different_operation_that_was_put_aside_is_refused() {
    use earlybird_hier::exec::{Geometry, Operation, compile};
    use operators::Token;
    let plan = schedule::build("dissemination", &schedule::Params::ranks(2)).unwrap();
    let plan = verify::verify(plan).unwrap();
    let running = |rank, elements| {
        let geometry = Geometry { elements, element_bytes: 1, segment_bytes: 64 };
        let program = Arc::new(compile(&plan, rank, geometry).unwrap());
        Operation::new(program, Token, Consistency::Identical).unwrap()
    };
    let mut group = Threads::group(2, ThreadsOptions::default()).into_iter().map(Endpoint::new);
    let [mut zero, mut one] = std::array::from_fn(|_| group.next().unwrap());
    // Nobody polls the first one on rank 1 before the second one's packet is on its way.
    let (mut first, mut second) = (running(1, 1), running(1, 40));
    first.start(&mut one).unwrap();
    second.start(&mut one).unwrap();
    second.poll(&mut one, &mut [0; 40]).unwrap();
    let _ = first.poll(&mut one, &mut [0]);
    let (mut first, mut second) = (running(0, 1), running(0, 2));
    first.start(&mut zero).unwrap();
    second.start(&mut zero).unwrap();
    // The first one meets the other's packet and puts it aside.
    while !first.poll(&mut zero, &mut [0]).unwrap() {}
    let refused = (0..100).find_map(|_| second.poll(&mut zero, &mut [0; 2]).err());
    assert_eq!(refused, Some(RunError::Failed(Failure::Mismatch { rank_a: 0, rank_b: 1 })));
}
