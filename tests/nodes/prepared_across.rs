//! Prepared calls over several nodes: ranks that wait in different ways, and one error, with the buffers still there.

use crate::common::{Job, Player, mix};
use earlybird::{Algorithm, Choice, CollectiveArgs, Communicator, Error, Op, Persistent};
use half::f16;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("styles", styles), ("chosen", chosen), ("fails", fails)]);
}

const NODES: [(usize, &str); 4] = [(3, "1"), (4, "2"), (6, "1,3,2"), (3, "3")];

/// Each rank starts, waits and runs in its own way; what it starts is the only call under way, or is not.
fn styles(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank() as u64, comm.size() as u64);
    let mut sum = comm.init(CollectiveArgs::all_reduce(vec![0u64; 3_000], Op::Sum)).unwrap();
    let mut mean = comm.init(CollectiveArgs::all_reduce((vec![0f64; 2], vec![0.0; 2]), Op::Average)).unwrap();
    let mut half = comm.init(CollectiveArgs::all_reduce(vec![f16::ZERO; 7], Op::Average)).unwrap();
    let mut truth = comm.init(CollectiveArgs::all_reduce(vec![false; 7], Op::LogicalOr)).unwrap();
    for round in 0..120u64 {
        sum.buffers_mut().unwrap().fill(round + rank);
        mean.buffers_mut().unwrap().0.fill((round + rank) as f64);
        half.buffers_mut().unwrap().fill(f16::from_f32(rank as f32));
        truth.buffers_mut().unwrap().fill(rank == round % ranks);
        let others =
            (0..round % 3).map(|i| comm.start(CollectiveArgs::all_gather((vec![i], vec![0; ranks as usize]))).unwrap());
        let others: Vec<_> = others.collect();
        match mix(round * 64 + rank) % 4 {
            0 => sum.run().unwrap(),
            1 => {
                sum.start().unwrap();
                sum.wait().unwrap();
            }
            2 => {
                sum.start().unwrap();
                while !sum.try_wait().unwrap() {}
            }
            _ => {
                sum.start().unwrap();
                std::thread::sleep(Duration::from_micros(mix(round) % 300));
                drop(comm.start(CollectiveArgs::barrier()).unwrap());
            }
        }
        if mix(round * 64 + rank) % 4 != 3 {
            comm.start(CollectiveArgs::barrier()).unwrap().wait().unwrap();
        }
        sum.wait().unwrap();
        mean.run().unwrap();
        half.run().unwrap();
        truth.run().unwrap();
        assert!(sum.buffers_mut().unwrap().iter().all(|v| *v == ranks * round + ranks * (ranks - 1) / 2));
        assert_eq!(mean.buffers_mut().unwrap().0, [(round + rank) as f64; 2], "what is given stays");
        let lateness = (ranks * (ranks - 1) / 2) as f64 / ranks as f64;
        assert!(mean.buffers_mut().unwrap().1.iter().all(|v| (v - round as f64 - lateness).abs() < 1e-9));
        assert_eq!(*half.buffers_mut().unwrap(), [f16::from_f64(lateness); 7]);
        assert_eq!(*truth.buffers_mut().unwrap(), [true; 7]);
        for (i, other) in others.into_iter().enumerate() {
            assert!(other.wait().unwrap().1.iter().all(|v| *v == i as u64));
        }
    }
}

/// The plan between nodes is the one that was chosen when the call was prepared, whatever is chosen later.
fn chosen(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank() as u64, comm.size() as u64);
    let runs = || comm.last_call().unwrap().algorithm;
    for plan in ["plan:ring", "plan:rsg", "plan:butterfly:r=1"] {
        let plan: Choice = plan.parse().unwrap();
        comm.set_algorithm(plan).unwrap();
        let mut sum = comm.init(CollectiveArgs::all_reduce(vec![rank; 100], Op::Sum)).unwrap();
        let mut truth = comm.init(CollectiveArgs::all_reduce(vec![rank == 0; 5], Op::LogicalOr)).unwrap();
        let mut group = comm.init(CollectiveArgs::all_reduce_grouped(vec![vec![rank], vec![1, 1]], Op::Sum)).unwrap();
        let started = comm.start(CollectiveArgs::all_reduce(vec![rank], Op::Max)).unwrap();
        assert_eq!((started.wait().unwrap(), runs()), (vec![ranks - 1], plan));
        comm.set_algorithm(Algorithm::Auto).unwrap();
        sum.run().unwrap();
        assert_eq!((sum.buffers_mut().unwrap()[99], runs()), (ranks * (ranks - 1) / 2, plan));
        truth.run().unwrap();
        assert_eq!((&truth.buffers_mut().unwrap()[..], runs()), (&[true; 5][..], plan));
        group.run().unwrap();
        assert_eq!((group.buffers_mut().unwrap().parts_mut().nth(1).unwrap()[1], runs()), (ranks, plan));
        comm.start(CollectiveArgs::all_reduce(vec![rank], Op::Max)).unwrap().wait().unwrap();
        assert_ne!(runs(), plan);
    }
    // Without identical bits a plan is not for sums that round: refused on all ranks, before anything is started.
    comm.set_algorithm("plan:butterfly:r=1".parse::<Choice>().unwrap()).unwrap();
    let refused = |result: Result<Persistent<'_, Vec<f64>>, Error>| result.expect_err("refused").code();
    assert_eq!(refused(comm.init(CollectiveArgs::all_reduce(vec![0.5; 3], Op::Sum))), "EB_UNSUPPORTED");
    assert_eq!(
        comm.start(CollectiveArgs::all_reduce(vec![0.5; 3], Op::Sum)).expect_err("refused").code(),
        "EB_UNSUPPORTED"
    );
    let half = comm.start(CollectiveArgs::all_reduce(vec![f16::ONE; 3], Op::Average));
    assert_eq!(half.and_then(|request| request.wait()).expect_err("refused").code(), "EB_UNSUPPORTED");
    comm.set_algorithm(Algorithm::Auto).unwrap();
    comm.barrier().unwrap();
}

#[test]
fn a_plan_that_was_chosen_runs_or_is_refused() {
    for (ranks, nodes) in [(3, "1"), (6, "1,3,2")] {
        Job::new("chosen", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

#[test]
fn ranks_may_wait_in_different_ways() {
    for (ranks, nodes) in NODES {
        Job::new("styles", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

/// Over several nodes: runs a prepared call until the job fails; `who` stops before some call.
fn fails(player: &Player) {
    let (who, count): (usize, usize) = (player.arg(0), player.arg(1));
    let comm = Communicator::from_env().unwrap();
    let mut sum = comm.init(CollectiveArgs::all_reduce((vec![1.5f32; count], vec![0.0; count]), Op::Sum)).unwrap();
    let error = (0u64..).find_map(|call| {
        if comm.rank() == who && call == 20 {
            player.say("here");
            loop {
                std::thread::park();
            }
        }
        let result = if call % 2 == 0 { sum.run() } else { sum.start().and_then(|()| sum.wait()) };
        result.err()
    });
    let error = error.unwrap();
    player.say(format!("{} {error}", error.code()));
    player.say(sum.run().unwrap_err());
    let (given, room) = sum.into_buffers().unwrap();
    assert_eq!((given, room.len()), (vec![1.5; count], count));
    player.say("kept");
}

#[test]
fn deaths_and_deadlines_are_everybodys() {
    let cases =
        [(0, 5, false), (1, 5_000, false), (3, 300_000, false), (2, 5, true), (1, 5_000, true), (0, 5_000, true)];
    crate::common::deaths_and_deadlines_are_everybodys("fails", &cases, &["kept"]);
}
