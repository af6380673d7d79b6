//! Alltoalls of unequal blocks, of which the long ones are read out of the other ranks' private buffers: results where long and short
//! blocks mix, and what happens where the system forbids it.

use crate::common::{Job, Player, dawdle};
use crate::single_copy::{contribution, forbid, ran, say_the_end, scatter, value};
use earlybird::{Algorithm, Communicator, Error};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("results", results),
        ("forbidden", forbidden),
        ("differ", differ),
        ("scatters", scatters),
        ("dies", dies),
    ]);
}

/// Elements of the longest block that is deposited among so many ranks: 1 MiB has room for one to each.
fn longest(ranks: usize) -> usize {
    (1 << 20) / size_of::<u64>() / ranks
}

/// The lengths of blocks: which elements two ranks, the lower one first, send to each other.
type LengthOf = fn(usize, usize, usize) -> usize;

/// Short, long and empty blocks in turn.
fn mixed(low: usize, high: usize, longest: usize) -> usize {
    match (low + high) % 4 {
        0 => 5,
        1 => longest * 3 / 2,
        2 => 0,
        _ => longest + 1,
    }
}

/// Long blocks between two ranks, of which the others learn only that they exist.
fn of_two(_: usize, high: usize, longest: usize) -> usize {
    if high == 1 { 2 * longest } else { 3 }
}

/// Blocks that are not longer than a deposit has room for.
fn short(low: usize, _: usize, longest: usize) -> usize {
    longest - low
}

/// The elements that `rank` sends to each rank and receives from each.
fn counts(comm: &Communicator, rank: usize, of: LengthOf) -> Vec<usize> {
    (0..comm.size()).map(|other| of(rank.min(other), rank.max(other), longest(comm.size()))).collect()
}

/// The blocks between `rank` and each other one, of those that it sends, or receives.
fn blocks(rank: usize, counts: &[usize], sends: bool) -> Vec<u64> {
    let value = |other, i| if sends { value(rank, other, i) } else { value(other, rank, i) };
    (0..counts.len()).flat_map(|other| (0..counts[other]).map(move |i| value(other, i))).collect()
}

/// Checks alltoalls apart and in place, and that `algorithm` ran.
fn check(comm: &Communicator, of: LengthOf, algorithm: Algorithm) {
    let rank = comm.rank();
    let counts = counts(comm, rank, of);
    let expected = blocks(rank, &counts, false);
    let mut buf = blocks(rank, &counts, true);
    for round in 0..2 {
        let mut recv = vec![0; expected.len()];
        dawdle(rank, round, 300);
        comm.all_to_all_varcount_into(&buf, &counts, &mut recv, &counts).unwrap();
        assert!(recv == expected && ran(comm, Some(algorithm)), "{:?}", comm.last_call());
    }
    dawdle(rank, 2, 300);
    comm.all_to_all_varcount_in_place(&mut buf, &counts).unwrap();
    assert!(buf == expected && ran(comm, Some(algorithm)), "in place: {:?}", comm.last_call());
}

fn results(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    let is_read = if comm.size() > 2 { Algorithm::SingleCopy } else { Algorithm::Flat };
    for (of, algorithm) in [(mixed as LengthOf, is_read), (short, Algorithm::Flat), (of_two, is_read)] {
        check(&comm, of, algorithm);
    }
    // Not every byte is a `bool`, so those are deposited.
    let counts = vec![1_500_000 / comm.size(); comm.size()];
    let mine: Vec<bool> = (0..counts.iter().sum()).map(|i| i % (2 + comm.rank()) == 0).collect();
    let mut flags = vec![false; mine.len()];
    comm.all_to_all_varcount_into(&mine, &counts, &mut flags, &counts).unwrap();
    assert!(ran(&comm, Some(Algorithm::Flat)), "{:?}", comm.last_call());
    let from = |i: usize| (i / counts[0], comm.rank() * counts[0] + i % counts[0]);
    assert!((0..flags.len()).map(from).zip(&flags).all(|((from, i), flag)| *flag == (i % (2 + from) == 0)));
    comm.set_algorithm(Algorithm::Flat).unwrap();
    check(&comm, mixed, Algorithm::Flat);
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    check(&comm, of_two, Algorithm::SingleCopy);
}

/// Rank 1 may be read by nobody: contributions are as they were after the first attempt, which is in place here, and apart in a duplicate.
fn forbidden(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    forbid(&comm);
    let counts = counts(&comm, comm.rank(), mixed);
    let mut buf = blocks(comm.rank(), &counts, true);
    comm.all_to_all_varcount_in_place(&mut buf, &counts).unwrap();
    assert!(buf == blocks(comm.rank(), &counts, false) && ran(&comm, Some(Algorithm::Flat)), "{:?}", comm.last_call());
    for group in [&comm, &comm.duplicate().unwrap()] {
        check(group, mixed, Algorithm::Flat);
        check(group, of_two, Algorithm::Flat);
    }
}

/// Rank 0 expects more of rank 1 than that sends: long blocks, or one that is long for rank 0 only.
fn differ(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    let rank = comm.rank();
    for (of, more) in [(mixed as LengthOf, 1), (short, 5000)] {
        let send = counts(&comm, rank, of);
        let mut recv = send.clone();
        if rank == 0 {
            recv[1] += more;
        }
        let mut received = vec![0; recv.iter().sum()];
        let error = comm.all_to_all_varcount_into(&blocks(rank, &send, true), &send, &mut received, &recv).unwrap_err();
        assert!(matches!(error, Error::Mismatch { rank_a: 1, rank_b: 0, .. }), "{error}");
    }
    check(&comm, mixed, Algorithm::SingleCopy);
}

/// Rank 1 may not be read any more when its first scatter comes: that alltoalls could read it has told nothing, since ranks of short blocks
/// take the fast path in them.
fn scatters(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    (0..3).for_each(|_| check(&comm, of_two, Algorithm::SingleCopy));
    forbid(&comm);
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    let (rank, count) = (comm.rank(), 40_000);
    let mut recv = vec![0; count];
    scatter(&comm, 1, &contribution(1, comm.size(), count), &mut recv).unwrap();
    assert!(
        (0..count).all(|i| recv[i] == value(1, rank, i)) && ran(&comm, Some(Algorithm::Flat)),
        "{:?}",
        comm.last_call()
    );
}

/// Rank 1 dies at the step that its environment names, in the second of two calls.
fn dies(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let counts = counts(&comm, comm.rank(), of_two);
    let (mine, mut recv) = (blocks(comm.rank(), &counts, true), vec![0; counts.iter().sum()]);
    for call in 0..2 {
        dawdle(comm.rank(), call, 2000);
        if let Err(error) = comm.all_to_all_varcount_into(&mine, &counts, &mut recv, &counts) {
            return player.say(error);
        }
    }
    say_the_end(player, &comm);
}

#[test]
fn every_block_arrives() {
    (2..=5).for_each(|ranks| drop(Job::new("results", ranks).run()));
}

#[test]
fn where_reading_is_forbidden_all_ranks_deposit() {
    [3, 4].into_iter().for_each(|ranks| drop(Job::new("forbidden", ranks).run()));
}

#[test]
fn alltoalls_that_could_read_do_not_vouch_for_scatters() {
    Job::new("scatters", 4).run();
}

#[test]
fn counts_that_differ_are_told_and_the_group_goes_on() {
    Job::new("differ", 3).run();
}

#[cfg(feature = "fault")]
#[test]
fn a_death_at_any_step_is_told() {
    for step in ["begin", "entered", "deposited", "copied"] {
        for end in Job::new("dies", 3).var("EARLYBIRD_FAULT", format!("1:{step}:2:kill")).start().join() {
            assert_eq!(end.was_killed(), end.rank == 1, "{step}: {end}");
            assert!(end.rank == 1 || end.said[0].contains("rank 1 (pid "), "{step}: {end}");
        }
    }
}
