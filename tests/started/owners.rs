//! Started and persistent gathers and scatters of blocks whose lengths their owners know, on one node and on several: right, and what differs
//! told to all.

use crate::common::{Job, Player, mix};
use earlybird::{CollectiveArgs, Communicator, Counts, Op};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("arrive", arrive), ("again", again), ("differ", differ)]);
}

const LAYOUTS: [(usize, &str); 5] = [(1, "1"), (2, "2"), (3, "3"), (5, "2"), (4, "1,3")];

/// The elements of each rank's block in a call, of which some have none.
fn counts_of(call: usize, ranks: usize) -> Vec<usize> {
    (0..ranks).map(|rank| mix((call * 64 + rank) as u64) as usize % [1, 9, 3000][call % 3]).collect()
}

fn block(rank: usize, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| i.wrapping_mul(31) ^ (rank as u32) << 26).collect()
}

fn arrive(_: &Player) {
    let comm = &Communicator::from_env().unwrap();
    let (me, ranks) = (comm.rank(), comm.size());
    for call in 0..30 {
        let (root, counts) = (call % ranks, counts_of(call, ranks));
        let mine = block(me, counts[me]);
        let all: Vec<u32> = counts.iter().enumerate().flat_map(|(rank, len)| block(rank, *len)).collect();
        let known = || Counts::PerOwner(if me == root { &counts } else { &[] });
        let (room, given) = if me == root { (vec![0; all.len()], all.clone()) } else { (Vec::new(), Vec::new()) };
        crate::common::dawdle(me, call as u64, 300);
        let gathering = comm.start(CollectiveArgs::gather(root, (mine.clone(), room)).counts(known())).unwrap();
        let scattering =
            comm.start(CollectiveArgs::scatter(root, (given, vec![0; mine.len()])).counts(known())).unwrap();
        let mut sum = [1u64];
        comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
        assert_eq!(sum[0], ranks as u64);
        assert_eq!(scattering.wait().unwrap().1, mine, "call {call}: {counts:?}");
        assert!(me != root || gathering.wait().unwrap().1 == all, "call {call}: {counts:?}");
    }
}

#[test]
fn blocks_arrive_among_other_calls() {
    for (ranks, nodes) in LAYOUTS {
        Job::new("arrive", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

fn again(_: &Player) {
    let comm = &Communicator::from_env().unwrap();
    let (me, ranks) = (comm.rank(), comm.size());
    let counts = counts_of(2, ranks);
    let known = Counts::PerOwner(if me == 0 { &counts } else { &[] });
    let given = vec![0; if me == 0 { counts.iter().sum() } else { 0 }];
    let args = CollectiveArgs::scatter(0, (given, vec![0; counts[me]])).counts(known);
    let mut scatter = comm.init(args).unwrap();
    for round in 0..10 {
        scatter.buffers_mut().unwrap().0.fill(round);
        scatter.start().unwrap();
        scatter.wait().unwrap();
        assert_eq!(scatter.buffers_mut().unwrap().1, vec![round; counts[me]]);
    }
}

#[test]
fn a_persistent_scatter_is_started_again() {
    for (ranks, nodes) in LAYOUTS {
        Job::new("again", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

fn differ(player: &Player) {
    let comm = &Communicator::from_env().unwrap();
    let me = comm.rank();
    let known = Counts::PerOwner(if me == 0 { &[1, 2, 3] } else { &[] });
    let given = vec![7u32; if me == 0 { 6 } else { 0 }];
    let scattering = comm.start(CollectiveArgs::scatter(0, (given, vec![0; [1, 5, 3][me]])).counts(known)).unwrap();
    player.say(scattering.wait().unwrap_err().to_string());
    comm.barrier().unwrap();
}

#[test]
fn another_length_than_the_root_sends_is_told_to_all() {
    for nodes in ["3", "2,1"] {
        for said in Job::new("differ", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes).run() {
            assert!(said[0].contains("that gives 2 elements to rank 1"), "{said:?}");
            assert!(said[0].contains("that expects 5 elements of rank 0"), "{said:?}");
        }
    }
}
