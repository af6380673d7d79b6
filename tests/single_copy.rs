//! Allgathers and alltoalls that read the other ranks' private buffers: results in every form, and what happens where the system
//! forbids it.

mod common;

use common::{Job, Player, dawdle};
use earlybird::{Algorithm, Communicator};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    common::play(&[("results", results), ("forbidden", forbidden), ("dies", dies), ("nodes", nodes)]);
}

/// Elements of a block for which `auto` takes the algorithm, with up to four ranks.
const LARGE: usize = 300_000;

fn value(from: usize, to: usize, i: usize) -> u64 {
    (from * 1_000_003 + to * 10_007 + i) as u64
}

/// The blocks that `rank` sends to each of `ranks`, or to all.
fn contribution(rank: usize, ranks: usize, count: usize) -> Vec<u64> {
    (0..ranks).flat_map(|to| (0..count).map(move |i| value(rank, to, i))).collect()
}

/// Checks both collectives, apart and in place, with blocks of `count` elements, and that `algorithm` ran where one is given.
fn check(comm: &Communicator, count: usize, algorithm: Option<Algorithm>) {
    let (rank, ranks) = (comm.rank(), comm.size());
    let gathered: Vec<u64> = (0..ranks).flat_map(|from| contribution(from, 1, count)).collect();
    let exchanged: Vec<u64> = (0..ranks).flat_map(|from| (0..count).map(move |i| value(from, rank, i))).collect();
    let ran = || {
        let ran = comm.last_call().unwrap().algorithm.to_string();
        algorithm.is_none_or(|algorithm| ran == algorithm.name())
    };

    dawdle(rank, count as u64, 300);
    let mut recv = vec![0; ranks * count];
    comm.all_gather_into(&contribution(rank, 1, count), &mut recv).unwrap();
    assert!(recv == gathered && ran(), "allgather of {count}: {:?}", comm.last_call());
    let mut buf = vec![0; ranks * count];
    buf[rank * count..][..count].copy_from_slice(&contribution(rank, 1, count));
    comm.all_gather_in_place(&mut buf).unwrap();
    assert!(buf == gathered && ran(), "allgather of {count} in place: {:?}", comm.last_call());

    dawdle(rank, count as u64 + 1, 300);
    comm.all_to_all_into(&contribution(rank, ranks, count), &mut recv).unwrap();
    assert!(recv == exchanged && ran(), "alltoall of {count}: {:?}", comm.last_call());
    let mut buf = contribution(rank, ranks, count);
    comm.all_to_all_in_place(&mut buf).unwrap();
    assert!(buf == exchanged && ran(), "alltoall of {count} in place: {:?}", comm.last_call());

    // Rank r has r more than the others, and rank 0 none.
    let counts: Vec<usize> = (0..ranks).map(|r| if r == 0 { 0 } else { count + r }).collect();
    let unequal: Vec<u64> = (0..ranks).flat_map(|from| contribution(from, 1, counts[from])).collect();
    let mut recv = vec![0; unequal.len()];
    comm.all_gather_varcount_into(&contribution(rank, 1, counts[rank]), &mut recv, &counts).unwrap();
    assert!(recv == unequal, "allgather of unequal blocks, {count}");
}

fn results(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    for count in [1, 7, 1000, 30_000, 700_000] {
        check(&comm, count, Some(Algorithm::SingleCopy));
    }
    // Elements of which not every byte is a value, and blocks that only their two ranks know, are deposited.
    let mut flags = vec![false; comm.size()];
    comm.all_gather_into(&[comm.rank() % 2 == 1], &mut flags).unwrap();
    assert!((0..comm.size()).all(|rank| flags[rank] == (rank % 2 == 1)));
    comm.set_algorithm(Algorithm::Auto).unwrap();
    check(&comm, 30_000, Some(Algorithm::Flat));
    if comm.size() <= 4 {
        check(&comm, LARGE, Some(Algorithm::SingleCopy));
    }
    player.say("done");
}

/// The calls of several nodes, whose leaders exchange what their ranks read.
fn nodes(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    for count in [3, 30_000] {
        check(&comm, count, None);
    }
    player.say("done");
}

/// Rank 1 may be read by nobody.
fn forbidden(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    if comm.rank() == 1 {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    }
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::SYS_PTRACE);
    set_capabilities(None, sets).unwrap();
    comm.barrier().unwrap();
    // Contributions are as they were after the first attempt, also in place.
    check(&comm, LARGE, Some(Algorithm::Flat));
    let part = comm.duplicate().unwrap();
    check(&part, LARGE, Some(Algorithm::Flat));
    // Asked for by name, too.
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    check(&comm, 1000, Some(Algorithm::Flat));
    player.say("done");
}

/// Rank 1 dies at the step that its environment names, in the second of two calls.
fn dies(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    let mut recv = vec![0u64; comm.size() * 40_000];
    for call in 0..2 {
        dawdle(comm.rank(), call, 2000);
        if let Err(error) = comm.all_gather_into(&vec![comm.rank() as u64; 40_000], &mut recv) {
            return player.say(error);
        }
    }
    match comm.barrier() {
        Err(error) => player.say(error),
        Ok(()) => player.say("no error"),
    }
}

#[test]
fn every_block_arrives() {
    (2..=5).for_each(|ranks| drop(Job::new("results", ranks).run()));
}

#[test]
fn on_several_nodes_the_ranks_of_each_read() {
    let said = Job::new("nodes", 4).var("EARLYBIRD_RANKS_PER_NODE", "3,1").run();
    assert!(said.iter().all(|lines| lines == &["done"]), "{said:?}");
}

#[test]
fn where_reading_is_forbidden_all_ranks_deposit() {
    for ranks in [2, 3] {
        let said = Job::new("forbidden", ranks).run();
        assert!(said.iter().all(|lines| lines == &["done"]), "{said:?}");
    }
}

#[cfg(feature = "fault")]
#[test]
fn a_death_at_any_step_is_told() {
    for step in ["begin", "entered", "deposited", "copied"] {
        let ends = Job::new("dies", 3).var("EARLYBIRD_FAULT", format!("1:{step}:2:kill")).start().join();
        for end in ends {
            assert_eq!(end.was_killed(), end.rank == 1, "{step}: {end}");
            assert!(end.rank == 1 || end.said[0].contains("rank 1 (pid "), "{step}: {end}");
        }
    }
}
