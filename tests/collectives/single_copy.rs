//! Allgathers, alltoalls and scatters that read the other ranks' private buffers: results in every form, and what happens where the
//! system forbids it.

use crate::common::flags::{raise, wait_for};
use crate::common::{Job, Player, dawdle};
use earlybird::{Algorithm, Communicator, Error};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("results", results),
        ("forbidden", forbidden),
        ("later", later),
        ("dies", dies),
        ("nodes", nodes),
        ("away", away),
        ("empty", empty),
    ]);
}

/// Elements of a block for which `auto` takes the algorithm in scatters, and in alltoalls of more than two ranks.
const LARGE: usize = 300_000;
/// So many that between two ranks they are deposited on every processor.
const LARGEST: usize = 1_100_000;
/// Elements of a block for which `auto` takes the algorithm in allgathers and alltoalls of two ranks.
const MEDIUM: usize = 160_000;

pub(crate) fn value(from: usize, to: usize, i: usize) -> u64 {
    (from * 1_000_003 + to * 10_007 + i) as u64
}

/// The blocks that `rank` sends to each of `ranks`, or to all.
pub(crate) fn contribution(rank: usize, ranks: usize, count: usize) -> Vec<u64> {
    (0..ranks).flat_map(|to| (0..count).map(move |i| value(rank, to, i))).collect()
}

/// Scatters `all` of `root`, of which this rank receives `recv`.
pub(crate) fn scatter(comm: &Communicator, root: usize, all: &[u64], recv: &mut [u64]) -> Result<(), Error> {
    let process = comm.process_at_rank(root);
    if comm.rank() == root { process.scatter_into_root(all, recv) } else { process.scatter_into(recv) }
}

/// Checks scatters of every rank, apart and in place, with blocks of `count` elements and of different lengths.
fn check_scatters(comm: &Communicator, count: usize, algorithm: Option<Algorithm>) {
    let (rank, ranks) = (comm.rank(), comm.size());
    for root in 0..ranks {
        let process = comm.process_at_rank(root);
        let what = |form| format!("scatter of {count} from {root} {form}: {:?}", comm.last_call());
        let own = contribution(root, ranks, count)[rank * count..][..count].to_vec();
        let mut all = contribution(root, ranks, count);
        let mut recv = vec![0; count];
        dawdle(rank, count as u64 + root as u64, 300);
        scatter(comm, root, &all, &mut recv).unwrap();
        assert!(recv == own && ran(comm, algorithm), "{}", what("apart"));
        recv.fill(0);
        match rank == root {
            true => process.scatter_in_place_root(&mut all).unwrap(),
            false => process.scatter_into(&mut recv).unwrap(),
        }
        assert!(
            if rank == root { all == contribution(root, ranks, count) } else { recv == own },
            "{}",
            what("in place")
        );
        // Rank r has r more than the others, and rank 0 none.
        let counts: Vec<usize> = (0..ranks).map(|r| if r == 0 { 0 } else { count + r }).collect();
        let mut recv = vec![0; counts[rank]];
        let unequal: Vec<u64> = (0..ranks).flat_map(|to| (0..counts[to]).map(move |i| value(root, to, i))).collect();
        match rank == root {
            true => process.scatter_varcount_into_root(&unequal, &mut recv, &counts).unwrap(),
            false => process.scatter_varcount_into(&mut recv, &counts).unwrap(),
        }
        assert!((0..counts[rank]).all(|i| recv[i] == value(root, rank, i)), "{}", what("of unequal blocks"));
    }
}

/// Returns whether the last call ran by `algorithm`, if one is given.
pub(crate) fn ran(comm: &Communicator, algorithm: Option<Algorithm>) -> bool {
    let ran = comm.last_call().unwrap().algorithm.to_string();
    algorithm.is_none_or(|algorithm| ran == algorithm.name())
}

/// Checks both collectives in which all need all, with blocks of `count` elements, and that `algorithm` ran where one is given.
fn check(comm: &Communicator, count: usize, algorithm: Option<Algorithm>) {
    check_all_gathers(comm, count, algorithm);
    check_all_to_alls(comm, count, algorithm);
}

/// Checks allgathers apart, in place and of blocks of different lengths.
fn check_all_gathers(comm: &Communicator, count: usize, algorithm: Option<Algorithm>) {
    let (rank, ranks) = (comm.rank(), comm.size());
    let gathered: Vec<u64> = (0..ranks).flat_map(|from| contribution(from, 1, count)).collect();

    dawdle(rank, count as u64, 300);
    let mut recv = vec![0; ranks * count];
    comm.all_gather_into(&contribution(rank, 1, count), &mut recv).unwrap();
    assert!(recv == gathered && ran(comm, algorithm), "allgather of {count}: {:?}", comm.last_call());
    let mut buf = vec![0; ranks * count];
    buf[rank * count..][..count].copy_from_slice(&contribution(rank, 1, count));
    comm.all_gather_in_place(&mut buf).unwrap();
    assert!(buf == gathered && ran(comm, algorithm), "allgather of {count} in place: {:?}", comm.last_call());

    // Rank r has r more than the others, and rank 0 none.
    let counts: Vec<usize> = (0..ranks).map(|r| if r == 0 { 0 } else { count + r }).collect();
    let unequal: Vec<u64> = (0..ranks).flat_map(|from| contribution(from, 1, counts[from])).collect();
    let mut recv = vec![0; unequal.len()];
    comm.all_gather_varcount_into(&contribution(rank, 1, counts[rank]), &mut recv, &counts).unwrap();
    assert!(recv == unequal, "allgather of unequal blocks, {count}");
}

/// Checks alltoalls apart and in place.
fn check_all_to_alls(comm: &Communicator, count: usize, algorithm: Option<Algorithm>) {
    let (rank, ranks) = (comm.rank(), comm.size());
    let exchanged: Vec<u64> = (0..ranks).flat_map(|from| (0..count).map(move |i| value(from, rank, i))).collect();
    let mut recv = vec![0; ranks * count];
    dawdle(rank, count as u64 + 1, 300);
    comm.all_to_all_into(&contribution(rank, ranks, count), &mut recv).unwrap();
    assert!(recv == exchanged && ran(comm, algorithm), "alltoall of {count}: {:?}", comm.last_call());
    let mut buf = contribution(rank, ranks, count);
    comm.all_to_all_in_place(&mut buf).unwrap();
    assert!(buf == exchanged && ran(comm, algorithm), "alltoall of {count} in place: {:?}", comm.last_call());
}

fn results(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    for count in [1, 7, 1000, 30_000, 700_000] {
        check_scatters(&comm, count, Some(Algorithm::SingleCopy));
        check(&comm, count, Some(Algorithm::SingleCopy));
    }
    // Elements of which not every byte is a value are deposited.
    let mut flags = vec![false; comm.size()];
    comm.all_gather_into(&[comm.rank() % 2 == 1], &mut flags).unwrap();
    assert!((0..comm.size()).all(|rank| flags[rank] == (rank % 2 == 1)));
    comm.set_algorithm(Algorithm::Auto).unwrap();
    check(&comm, 30_000, Some(Algorithm::Flat));
    check_scatters(&comm, 2000, Some(Algorithm::Flat));
    check_scatters(&comm, LARGE, Some(Algorithm::SingleCopy));
    match comm.size() {
        2 => {
            check(&comm, MEDIUM, Some(Algorithm::SingleCopy));
            check(&comm, LARGEST, Some(Algorithm::Flat));
        }
        _ => {
            check_all_gathers(&comm, LARGE, Some(Algorithm::Flat));
            check_all_to_alls(&comm, LARGE, Some(Algorithm::SingleCopy));
        }
    }
    player.say("done");
}

/// The calls of several nodes, whose leaders exchange what their ranks read.
fn nodes(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    for count in [3, 30_000] {
        check(&comm, count, None);
        check_scatters(&comm, count, None);
    }
    player.say("done");
}

/// Forbids all ranks to read rank 1.
pub(crate) fn forbid(comm: &Communicator) {
    if comm.rank() == 1 {
        set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
    }
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::SYS_PTRACE);
    set_capabilities(None, sets).unwrap();
    comm.barrier().unwrap();
}

/// Rank 1 may be read by nobody, once all ranks have read each other.
fn later(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    check(&comm, 1000, Some(Algorithm::SingleCopy));
    forbid(&comm);
    for count in [1, 30_000, 100_000] {
        check_scatters(&comm, count, Some(Algorithm::SingleCopy));
    }
    check(&comm, 1000, Some(Algorithm::Flat));
    check_scatters(&comm, 1000, Some(Algorithm::Flat));
    player.say("done");
}

/// The last rank comes to a scatter only when the others, but for the root, have left it.
fn away(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    check_scatters(&comm, 1000, Some(Algorithm::SingleCopy));
    let (rank, ranks) = (comm.rank(), comm.size());
    if rank == ranks - 1 {
        (1..rank).for_each(|other| wait_for(&format!("left-{other}")));
    }
    let (mut recv, all) = (vec![0; LARGE], contribution(0, ranks, LARGE));
    scatter(&comm, 0, &all, &mut recv).unwrap();
    raise(&format!("left-{rank}"));
    assert!((0..LARGE).all(|i| recv[i] == value(0, rank, i)));
    player.say("done");
}

/// Rank 1 leaves a gather, then a scatter that has nothing for it, before rank 0 has come to either.
fn empty(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    check_scatters(&comm, 1000, Some(Algorithm::SingleCopy));
    let (rank, root, count) = (comm.rank(), comm.process_at_rank(0), 4000);
    let gather = |round: usize| {
        let (mut all, mine) = (vec![0; 2 * count], contribution(rank + 10 * round, 1, count));
        match rank {
            0 => root.gather_into_root(&mine, &mut all).unwrap(),
            _ => root.gather_into(&mine).unwrap(),
        }
        assert!(rank == 1 || (0..count).all(|i| all[count + i] == value(1 + 10 * round, 0, i)), "gather {round}");
    };
    if rank == 0 {
        // What rank 1 deposits next must not take the place of what it has deposited before.
        wait_for("left");
        std::thread::sleep(Duration::from_millis(50));
    }
    gather(0);
    match rank {
        0 => root.scatter_varcount_into_root(&vec![7u64; count], &mut vec![0; count], &[count, 0]).unwrap(),
        _ => root.scatter_varcount_into(&mut [0u64; 0], &[count, 0]).unwrap(),
    }
    if rank == 1 {
        raise("left");
    }
    gather(1);
    player.say("done");
}

/// Rank 1 may be read by nobody.
fn forbidden(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    forbid(&comm);
    // Contributions are as they were after the first attempt, also in place.
    check(&comm, MEDIUM, Some(Algorithm::Flat));
    check_scatters(&comm, LARGE, Some(Algorithm::Flat));
    let part = comm.duplicate().unwrap();
    check(&part, MEDIUM, Some(Algorithm::Flat));
    // Asked for by name, too.
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    check(&comm, 1000, Some(Algorithm::Flat));
    // A scatter from a rank that may not be read is the first call of its group.
    let part = comm.duplicate().unwrap();
    part.set_algorithm(Algorithm::SingleCopy).unwrap();
    let (mut recv, all) = (vec![0; 1000], contribution(1, comm.size(), 1000));
    scatter(&part, 1, &all, &mut recv).unwrap();
    assert_eq!(part.last_call().unwrap().algorithm.to_string(), "flat");
    assert!((0..1000).all(|i| recv[i] == value(1, part.rank(), i)));
    check_scatters(&part, 1000, Some(Algorithm::Flat));
    player.say("done");
}

/// Says how the group has ended, if its last call has not told.
pub(crate) fn say_the_end(player: &Player, comm: &Communicator) {
    match comm.barrier() {
        Err(error) => player.say(error),
        Ok(()) => player.say("no error"),
    }
}

/// Rank 1 dies at the step that its environment names, in the second of two calls.
fn dies(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::SingleCopy).unwrap();
    let mut recv = vec![0u64; comm.size() * 40_000];
    let root: Option<usize> = player.args().first().map(|root| root.parse().unwrap());
    for call in 0..2 {
        dawdle(comm.rank(), call, 2000);
        let done = match root {
            None => comm.all_gather_into(&vec![comm.rank() as u64; 40_000], &mut recv),
            Some(root) => scatter(&comm, root, &vec![7; comm.size() * 40_000], &mut recv[..40_000]),
        };
        if let Err(error) = done {
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

#[test]
fn a_scatter_that_may_not_be_read_any_more_is_handed_over() {
    for ranks in [2, 4] {
        let said = Job::new("later", ranks).run();
        assert!(said.iter().all(|lines| lines == &["done"]), "{said:?}");
    }
}

#[test]
fn a_reader_of_nothing_has_not_heard_of_the_root() {
    let said = Job::new("empty", 2).run();
    assert!(said.iter().all(|lines| lines == &["done"]), "{said:?}");
}

#[test]
fn a_reader_of_a_scatter_does_not_wait_for_another() {
    let said = Job::new("away", 4).run();
    assert!(said.iter().all(|lines| lines == &["done"]), "{said:?}");
}

#[cfg(feature = "fault")]
#[test]
fn a_death_at_any_step_is_told() {
    for step in ["begin", "entered", "deposited", "copied"] {
        for root in [None, Some(0), Some(1)] {
            let job = root.into_iter().fold(Job::new("dies", 3), |job, root| job.arg(root));
            for end in job.var("EARLYBIRD_FAULT", format!("1:{step}:2:kill")).start().join() {
                assert_eq!(end.was_killed(), end.rank == 1, "{step} {root:?}: {end}");
                assert!(end.rank == 1 || end.said[0].contains("rank 1 (pid "), "{step} {root:?}: {end}");
            }
        }
    }
}
