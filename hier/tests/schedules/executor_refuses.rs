//! Failures of the executor: a named error on every rank, and no rank waits for ever. And that a
//! run allocates nothing once it has run.

use crate::faulty::{Faults, Faulty};
use crate::operators::{Sum, Token};
use crate::threads::{Threads, ThreadsOptions};
use earlybird_hier::exec::{CompileError, Endpoint, Failure, Geometry, Operation, RunError, Running, compile};
use earlybird_hier::schedule::Params;
use earlybird_hier::{Collective, Consistency, OpTraits, Plan, PlanError, Verified, schedule, verify};
use std::sync::Arc;
use std::time::Duration;

const COMMUTES: OpTraits = OpTraits { commutative: true, exact: true };

fn plan(name: &str, ranks: usize) -> Verified<Plan> {
    verify::verify(schedule::build(name, &Params::ranks(ranks)).unwrap()).unwrap()
}

fn geometry(elements: usize) -> Geometry {
    Geometry { elements, element_bytes: 8, segment_bytes: 256 }
}

fn running(plan: &Verified<Plan>, rank: usize, elements: usize) -> Operation<Sum> {
    let program = compile(plan, rank, geometry(elements)).unwrap();
    Operation::new(Arc::new(program), Sum { traits: COMMUTES, code: 1 }, Consistency::Identical).unwrap()
}

/// Runs `program` on every rank of a group with faults; what each returned.
fn on_all<R: Send>(
    size: usize,
    faults: impl Fn(usize) -> Faults,
    program: impl Fn(usize, Endpoint<Faulty<Threads>>) -> R + Sync,
) -> Vec<R> {
    std::thread::scope(|scope| {
        let threads: Vec<_> = Threads::group(size, ThreadsOptions { depth: 2, ..ThreadsOptions::default() })
            .into_iter()
            .enumerate()
            .map(|(rank, t)| (rank, Endpoint::new(Faulty::new(t, faults(rank)))))
            .map(|(rank, endpoint)| {
                let program = &program;
                scope.spawn(move || program(rank, endpoint))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    })
}

fn failures(results: Vec<Result<(), RunError>>) -> Vec<Failure> {
    let failure = |result| match result {
        Err(RunError::Failed(failure)) => failure,
        other => panic!("expected a failure of the group, got {other:?}"),
    };
    results.into_iter().map(failure).collect()
}

#[test]
fn sizes_that_cannot_be_are_refused_when_compiling() {
    let ring = plan("ring", 3);
    let refused = |rank, elements, element_bytes, segment_bytes| {
        compile(&ring, rank, Geometry { elements, element_bytes, segment_bytes }).unwrap_err()
    };
    assert_eq!(refused(3, 1, 8, 64), CompileError::Rank { rank: 3, ranks: 3 });
    assert_eq!(refused(0, 1, 0, 64), CompileError::Segment { element_bytes: 0, segment_bytes: 64 });
    assert_eq!(refused(0, 1, 8, 7), CompileError::Segment { element_bytes: 8, segment_bytes: 7 });
    let too_large = CompileError::TooLarge { elements: usize::MAX / 4, element_bytes: 8, segment_bytes: 64 };
    assert_eq!(refused(0, usize::MAX / 4, 8, 64), too_large);
}

#[test]
fn an_operator_gets_only_plans_it_may_use() {
    let make = |name, traits, consistency| {
        let program = Arc::new(compile(&plan(name, 6), 0, geometry(4)).unwrap());
        Operation::new(program, Sum { traits, code: 1 }, consistency).map(|_| ())
    };
    let not_admitted =
        |result| assert!(matches!(result, Err(RunError::Plan(PlanError::NotAdmitted { .. }))), "{result:?}");
    let rounds = OpTraits { commutative: true, exact: false };
    not_admitted(make("ring", OpTraits { commutative: false, exact: true }, Consistency::Identical));
    not_admitted(make("census", rounds, Consistency::Identical));
    not_admitted(make("dissemination", COMMUTES, Consistency::Identical));
    make("census", rounds, Consistency::PerRank).unwrap();
    make("binomial", OpTraits { commutative: false, exact: false }, Consistency::Identical).unwrap();
    let program = Arc::new(compile(&plan("dissemination", 6), 0, geometry(4)).unwrap());
    let wrong = Operation::new(program, Token, Consistency::Identical).map(|_| ());
    assert_eq!(wrong, Err(RunError::ElementBytes { operator: 1, program: 8 }));
}

#[test]
fn misuse_of_one_rank_is_its_own_error() {
    let ring = plan("ring", 2);
    let mut group = Threads::group(2, ThreadsOptions { packet_bytes: 64, depth: 1 }).into_iter();
    let mut endpoint = Endpoint::new(group.next().unwrap());
    let mut data = [0u8; 64];
    let mut one = running(&ring, 0, 8);
    assert_eq!(one.poll(&mut endpoint, &mut data), Err(RunError::Idle));
    one.start(&mut endpoint).unwrap();
    assert_eq!(one.start(&mut endpoint), Err(RunError::Busy));
    assert_eq!(one.poll(&mut endpoint, &mut data[1..]), Err(RunError::Length { given: 63, expected: 64 }));
    assert_eq!(one.poll(&mut endpoint, &mut data), Ok(false), "it goes on after a misuse");
    let others = RunError::Endpoint { rank: 1, ranks: 2, endpoint_rank: 0, endpoint_ranks: 2 };
    assert_eq!(running(&ring, 1, 8).start(&mut endpoint), Err(others));
    assert_eq!(running(&ring, 0, 1000).start(&mut endpoint), Err(RunError::Packet { given: 256, most: 64 }));
}

#[test]
fn a_rank_that_dies_anywhere_gives_everybody_its_name() {
    for name in ["ring", "butterfly", "binomial", "direct"] {
        let plan = plan(name, 4);
        for die_before in 0..12 {
            let faults = |rank| Faults { die_before: (rank == 2).then_some(die_before), ..Faults::default() };
            let results = on_all(4, faults, |rank, mut endpoint| {
                let mut one = running(&plan, rank, 100);
                // Two runs, so that the death comes in one of them, or between them.
                for _ in 0..2 {
                    one.run(&mut endpoint, &mut [0u8; 800], None)?;
                }
                // Whoever is through waits for the others: a leave would be taken for a death.
                one.run(&mut endpoint, &mut [0u8; 800], None)
            });
            if results[2].is_ok() {
                assert!(results.iter().all(Result::is_ok), "{results:?}");
                continue;
            }
            assert_eq!(failures(results), vec![Failure::PeerDied { rank: 2 }; 4], "{name}, {die_before}");
        }
    }
}

#[test]
fn a_lost_message_is_named() {
    let ring = plan("ring", 3);
    for lose in 0..8 {
        let faults = |rank| Faults { lose: (rank == 1).then_some(lose), ..Faults::default() };
        let results = on_all(3, faults, |rank, mut endpoint| {
            let mut one = running(&ring, rank, 300);
            let result = one.run(&mut endpoint, &mut [0u8; 2400], Some(Duration::from_millis(200)));
            // Stay until all ranks have seen it.
            result.and_then(|()| one.run(&mut endpoint, &mut [0u8; 2400], Some(Duration::from_millis(200))))
        });
        let failures = failures(results);
        assert!(failures.iter().all(|f| *f == failures[0]), "{failures:?}");
        match failures[0] {
            Failure::Lost { from: 1, to: 2, .. } | Failure::Timeout { .. } => {}
            ref other => panic!("{other:?}"),
        }
    }
}

#[test]
fn different_calls_are_found_before_data_moves() {
    let (ring, other) = (plan("ring", 3), plan("butterfly", 3));
    for kind in 0..3 {
        let results = on_all(
            3,
            |_| Faults::default(),
            |rank, mut endpoint| {
                let odd = rank == 1;
                let (plan, elements) =
                    (if odd && kind == 0 { &other } else { &ring }, 30 + usize::from(odd && kind == 1));
                let program = Arc::new(compile(plan, rank, geometry(elements)).unwrap());
                let operator = Sum { traits: COMMUTES, code: if odd && kind == 2 { 2 } else { 1 } };
                let mut one = Operation::new(program, operator, Consistency::Identical).unwrap();
                one.run(&mut endpoint, &mut vec![0u8; elements * 8], None)
            },
        );
        let failures = failures(results);
        assert!(matches!(failures[0], Failure::Mismatch { .. }), "{failures:?}");
        assert!(failures.iter().all(|f| *f == failures[0]), "{failures:?}");
    }
}

#[test]
fn the_first_failure_is_every_later_answer() {
    let ring = plan("ring", 2);
    let results = on_all(
        2,
        |_| Faults::default(),
        |rank, mut endpoint| {
            if rank == 1 {
                return Err(RunError::Failed(Failure::PeerDied { rank: 1 }));
            }
            let mut one = running(&ring, 0, 5);
            let first = one.run(&mut endpoint, &mut [0u8; 40], None).unwrap_err();
            assert_eq!(one.start(&mut endpoint).unwrap_err(), first);
            assert!(!one.is_running());
            assert_eq!(endpoint.fail(Failure::PeerDied { rank: 0 }), Failure::PeerDied { rank: 1 });
            Err(first)
        },
    );
    assert_eq!(failures(results), vec![Failure::PeerDied { rank: 1 }; 2]);
}

#[test]
fn a_run_allocates_nothing_once_it_has_run() {
    for name in ["ring", "direct", "rsg", "prefix", "dissemination"] {
        let params = Params::ranks(4);
        let plan = verify::verify(schedule::build(name, &params).unwrap()).unwrap();
        let barrier = plan.collective == Collective::Barrier;
        let counts = on_all(
            4,
            |_| Faults::default(),
            |rank, mut endpoint| {
                let elements = if barrier { 1 } else { 500 };
                let size = Geometry { elements, element_bytes: if barrier { 1 } else { 8 }, segment_bytes: 256 };
                let program = Arc::new(compile(&plan, rank, size).unwrap());
                let mut data = vec![0u8; program.bytes()];
                let mut token = Operation::new(program.clone(), Token, Consistency::Identical).ok();
                let mut add = Operation::new(program, Sum { traits: COMMUTES, code: 1 }, Consistency::Identical).ok();
                let mut run = || match (&mut token, &mut add) {
                    (Some(token), _) => token.run(&mut endpoint, &mut data, None).unwrap(),
                    (None, Some(add)) => add.run(&mut endpoint, &mut data, None).unwrap(),
                    (None, None) => unreachable!("one of them fits"),
                };
                // The packets that arrive too early differ from run to run; the memory for them grows to the largest number.
                (0..100).map(|_| allocation_counter::measure(&mut run).count_total).collect::<Vec<_>>()
            },
        );
        for counts in counts {
            assert!(counts[0] > 0, "the first run takes memory, or this test sees none");
            let without = counts.iter().filter(|n| **n == 0).count();
            assert!(without > 50, "{name}: {counts:?}");
        }
    }
}
