//! Results that all ranks share: right while they are read, whatever runs meanwhile; copies where a view would stop others;
//! memory given back.

use crate::common::data::{Sample, contribution, reference, same_bits};
use crate::common::{Job, Player, mix};
use earlybird::{Choice, CollectiveArgs, Communicator, Config, DType, Error, Indexed, Op, SharedView, UserOp};
use half::{bf16, f16};
use num_complex::Complex;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("results", results),
        ("held", held),
        ("ahead", ahead),
        ("budget", budget),
        ("differ", differ),
        ("dies", dies),
        ("planned", planned),
        ("described", described),
    ]);
}

/// Whether this rank is the only one of its node.
fn is_alone(comm: &Communicator) -> bool {
    let (rank, ranks) = (comm.rank(), comm.size());
    match Config::from_env().unwrap().ranks_per_node {
        Some(nodes) => nodes.sizes(ranks).unwrap()[nodes.node_of(rank, ranks).unwrap()] == 1,
        None => ranks == 1,
    }
}

fn check<T: Sample>(comm: &Communicator, op: Op, count: usize, exact: bool) {
    let (rank, ranks) = (comm.rank(), comm.size());
    let seed = mix(count as u64 ^ op as u64);
    // Sums that round are folded by rank on one node, node by node on several.
    let exact = exact || comm.nodes() > 1;
    let send = contribution::<T>(seed, rank, count, op, exact);
    let expected = reference::<T>(seed, ranks, count, op, exact);
    let halves = matches!(T::DTYPE, DType::F16 | DType::BF16) && op == Op::Average && comm.nodes() > 1;
    if mix(seed ^ rank as u64).is_multiple_of(8) {
        std::thread::sleep(Duration::from_micros(200));
    }
    let view = comm.all_reduce_shared(&send, op).unwrap();
    same_bits(&view, &expected, &|| format!("{count} x {} {op:?}", T::DTYPE.name()));
    let is_large = count * size_of::<T>() >= 2048;
    assert_eq!(view.is_copy(), is_alone(comm) || !is_large || halves, "{count} x {}", T::DTYPE.name());
}

fn results(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let ranks = comm.size();
    for count in [0, 1, ranks - 1, ranks, 37, 512, 1000, 5_003, 100_003] {
        check::<f32>(&comm, Op::Sum, count, true);
        check::<f32>(&comm, Op::Sum, count, false);
        check::<f64>(&comm, Op::Product, count, false);
        check::<i64>(&comm, Op::Max, count, true);
        check::<u8>(&comm, Op::BitXor, count, true);
        if count <= 5_003 {
            check::<f16>(&comm, Op::Sum, count, false);
            check::<bf16>(&comm, Op::Average, count, true);
            check::<f64>(&comm, Op::Average, count, true);
            check::<bool>(&comm, Op::LogicalXor, count, true);
            check::<Complex<f64>>(&comm, Op::Product, count, true);
            check::<Indexed<f32, i32>>(&comm, Op::MinIndex, count, true);
        }
    }
    // Larger than the windows: several operations, one result.
    check::<f64>(&comm, Op::Sum, 700_001, false);
    check::<f16>(&comm, Op::Sum, 700_001, false);
    player.say("done");
}

#[test]
fn results_are_those_of_private_memory() {
    for ranks in [1, 2, 3, 5, 8] {
        assert!(Job::new("results", ranks).run().iter().all(|said| *said == ["done"]));
    }
    let small = Job::new("results", 3).var("EARLYBIRD_ARENA_MAX", 16 << 20);
    assert!(small.run().iter().all(|said| *said == ["done"]));
    for (ranks, nodes) in [(2, "1"), (5, "2"), (4, "1,3")] {
        let job = Job::new("results", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        assert!(job.run().iter().all(|said| *said == ["done"]));
    }
}

const COUNT: usize = 3000;

fn sum_of(call: u64, ranks: usize) -> u64 {
    (0..ranks as u64).map(|rank| call * 100 + rank).sum()
}

fn call(comm: &Communicator, number: u64) -> SharedView<'_, u64> {
    comm.all_reduce_shared(&[number * 100 + comm.rank() as u64; COUNT], Op::Sum).unwrap()
}

/// Each rank holds views at its own choice; all learn of it, and nobody waits.
fn held(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank(), comm.size());
    let right = |view: &[u64], number: u64| view.len() == COUNT && view.iter().all(|x| *x == sum_of(number, ranks));
    let mut kept: Vec<(u64, SharedView<'_, u64>)> = Vec::new();
    let mut copies = 0;
    for number in 1..=300 {
        let view = call(&comm, number);
        assert!(right(&view, number), "call {number}");
        // What is a copy is one on all ranks of the node: whoever holds the two places, all say so.
        let mut theirs = vec![u8::from(view.is_copy()); ranks];
        comm.all_gather_in_place(&mut theirs).unwrap();
        let mut of_node = theirs.chunks(ranks / comm.nodes());
        assert!(of_node.all(|all| all.iter().all(|copy| *copy == all[0])), "call {number}: {theirs:?}");
        copies += u32::from(view.is_copy());
        if mix(number * 8 + rank as u64).is_multiple_of(3) {
            kept.push((number, view));
        }
        if mix(number * 64 + rank as u64).is_multiple_of(2) && !kept.is_empty() {
            let at = mix(number) as usize % kept.len();
            drop(kept.swap_remove(at));
        }
        if number % 50 == 0 {
            kept.clear();
            comm.barrier().unwrap();
            drop(call(&comm, 1000));
            assert!(!call(&comm, 1001).is_copy(), "views that are gone hold nothing");
        }
        assert!(kept.iter().all(|(number, view)| right(view, *number)), "a view changed after call {number}");
    }
    player.say(format!("copies {}", copies > 0 && copies < 300));
}

#[test]
fn a_view_does_not_change_and_stops_nobody() {
    for ranks in [2, 3, 5] {
        assert!(Job::new("held", ranks).run().iter().all(|said| *said == ["copies true"]));
    }
    let nodes = Job::new("held", 4).var("EARLYBIRD_RANKS_PER_NODE", 2);
    assert!(nodes.run().iter().all(|said| *said == ["copies true"]));
}

/// One rank keeps both results, and nothing the others do waits for it.
fn ahead(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let views = [call(&comm, 1), call(&comm, 2)];
    let mut last = None;
    match comm.rank() {
        0 => {
            // The others go on with operations that need only themselves, and with those that need rank 0 too.
            for number in 3..20 {
                last = Some(call(&comm, number));
                assert!(last.as_ref().unwrap().is_copy());
            }
            assert!(views[0].iter().all(|x| *x == sum_of(1, comm.size())));
            assert!(views[1].iter().all(|x| *x == sum_of(2, comm.size())));
        }
        _ => {
            drop(views);
            for number in 3..20 {
                drop(call(&comm, number));
            }
        }
    }
    comm.barrier().unwrap();
    drop(last);
    player.say("done");
}

#[test]
fn both_results_held_by_one_rank_make_copies() {
    assert!(Job::new("ahead", 3).run().iter().all(|said| *said == ["done"]));
}

fn budget(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    drop(comm.alloc::<u8>(1));
    drop(comm.duplicate().unwrap());
    comm.barrier().unwrap();
    let before = comm.shared_memory_bytes();
    let group = comm.duplicate().unwrap();
    comm.barrier().unwrap();
    let with_group = comm.shared_memory_bytes();
    comm.barrier().unwrap();
    {
        let view = group.all_reduce_shared(&vec![1.0f64; 100_000], Op::Sum).unwrap();
        assert!(!view.is_copy());
        let second = group.all_reduce_shared(&vec![2.0f64; 100_000], Op::Sum).unwrap();
        assert!(view.iter().all(|x| *x == 3.0) && second.iter().all(|x| *x == 6.0));
        comm.barrier().unwrap();
        assert!(comm.shared_memory_bytes() >= with_group + 2 * 800_000);
        comm.barrier().unwrap();
        // More than the budget has: a copy, and the group goes on.
        let most = player.arg::<usize>(0);
        let large = group.all_reduce_shared(&vec![1u64; most], Op::Max).unwrap();
        assert!(large.is_copy() && large.len() == most && large.iter().all(|x| *x == 1));
        assert!(view.iter().all(|x| *x == 3.0));
    }
    // One place is allocated anew for a larger result, the other as it was.
    drop(group.all_reduce_shared(&vec![1.0f64; 150_000], Op::Sum).unwrap());
    assert!(!group.all_reduce_shared(&vec![1.0f64; 100], Op::Sum).unwrap().is_empty());
    drop(group);
    comm.barrier().unwrap();
    assert_eq!(comm.shared_memory_bytes(), before, "everything is back");
    comm.barrier().unwrap();
    player.say("done");
}

#[test]
fn results_come_out_of_the_budget_and_go_back() {
    let job = Job::new("budget", 3).arg(2 << 20).var("EARLYBIRD_ARENA_MAX", 24 << 20);
    assert!(job.run().iter().all(|said| *said == ["done"]));
}

fn differ(player: &Player) {
    let job = Communicator::from_env().unwrap();
    drop(job.duplicate().unwrap());
    job.barrier().unwrap();
    let before = job.shared_memory_bytes();
    job.barrier().unwrap();
    let comm = job.duplicate().unwrap();
    let error = match comm.rank() {
        1 => comm.all_reduce_in_place(&mut vec![1f32; 5000], Op::Sum).map(|()| 0).unwrap_err(),
        _ => comm.all_reduce_shared(&vec![1f32; 5000], Op::Sum).map(|view| view.len()).unwrap_err(),
    };
    player.say(format!("{} {error}", error.code()));
    if comm.rank() != 1 {
        assert!(matches!(comm.all_reduce_shared(&[1f32], Op::BitAnd), Err(Error::Unsupported { .. })));
    }
    // Memory for a result that rank 1 never heard of is back too.
    drop(comm);
    job.barrier().unwrap();
    assert_eq!(job.shared_memory_bytes(), before);
    job.barrier().unwrap();
}

#[test]
fn a_rank_that_wants_a_result_of_its_own_is_told() {
    let said = Job::new("differ", 3).run();
    assert!(said[0][0].starts_with("EB_MISMATCH") && said[0][0].contains("with a shared result"), "{said:?}");
    assert!(said.iter().all(|lines| *lines == said[0]), "{said:?}");
}

/// Rank 1 is killed while it has a view and the others wait for it.
fn dies(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let view = call(&comm, 1);
    player.say("once");
    if comm.rank() == 1 {
        std::thread::sleep(Duration::from_secs(600));
    }
    let error = comm.all_reduce_shared(&[0u64; COUNT], Op::Sum).unwrap_err();
    assert!(view.iter().all(|x| *x == sum_of(1, comm.size())), "a view outlives the failure of its group");
    player.say(error.code());
    drop(view);
    drop(comm);
}

#[test]
fn a_view_outlives_the_death_of_a_rank() {
    for nodes in [3, 2] {
        crate::common::survivors_tell_of_a_death(Job::new("dies", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes));
    }
}

/// By a plan every rank has its own on one node; on several the plan runs between leaders.
fn planned(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm("plan:ring".parse::<Choice>().unwrap()).unwrap();
    let view = call(&comm, 7);
    assert_eq!(view.is_copy(), comm.nodes() == 1 || is_alone(&comm));
    assert!(view.iter().all(|x| *x == sum_of(7, comm.size())));
    player.say("done");
}

#[test]
fn plans_of_one_node_give_copies() {
    for nodes in [3, 2] {
        let job = Job::new("planned", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        assert!(job.run().iter().all(|said| *said == ["done"]));
    }
}

/// A view that one call after the other fills, by operators of the caller's own too.
fn described(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank() as u64, comm.size());
    let mut view = comm.view::<u64>();
    for number in 1..=5 {
        let send = [number * 100 + rank; COUNT];
        comm.run(CollectiveArgs::all_reduce((&send[..], &mut view), Op::Sum)).unwrap();
        assert!(view.len() == COUNT && view.iter().all(|x| *x == sum_of(number, ranks)), "call {number}");
        assert_eq!(view.is_copy(), is_alone(&comm));
    }
    let send = [rank; COUNT];
    let last = UserOp::ordered(|_: &u64, b: &u64| *b);
    comm.run(CollectiveArgs::all_reduce((&send[..], &mut view), &last)).unwrap();
    assert!(view.is_copy() && view.len() == COUNT && view.iter().all(|x| *x == ranks as u64 - 1));
    // An empty result replaces a full one.
    comm.run(CollectiveArgs::all_reduce((&[][..], &mut view), Op::Sum)).unwrap();
    assert!(view.is_empty());
    let refused = |result: Result<(), Error>, why: &str| match result {
        Err(Error::Usage { message }) => assert!(message.contains(why), "{message}"),
        other => panic!("{other:?}"),
    };
    let none = comm.run(CollectiveArgs::all_gather((&send[..], &mut view)));
    refused(none, "allgather into a view; only an allreduce has such a result");
    let twin = comm.duplicate().unwrap();
    let foreign = twin.run(CollectiveArgs::all_reduce((&send[..], &mut view), Op::Sum));
    refused(foreign, "made by another communicator");
    // A refused call has failed nothing.
    assert_eq!(twin.all_reduce_shared(&send, Op::Max).unwrap()[COUNT - 1], ranks as u64 - 1);
    comm.barrier().unwrap();
    player.say("done");
}

#[test]
fn calls_that_are_described_fill_views() {
    for nodes in ["3", "2", "1,2"] {
        let job = Job::new("described", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        assert!(job.run().iter().all(|said| *said == ["done"]));
    }
}
