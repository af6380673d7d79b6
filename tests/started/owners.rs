//! Started and persistent gathers and scatters of blocks whose lengths their owners know, on one node and on several: right, and what differs
//! told to all.

use crate::common::flags::wait_for;
use crate::common::{Job, Player, mix};
use earlybird::{CollectiveArgs, Communicator, Counts, Op};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("arrive", arrive),
        ("again", again),
        ("differ", differ),
        ("early", early),
        ("crowded", crowded),
    ]);
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
    let mut scatter =
        comm.init(CollectiveArgs::scatter(0, (given.clone(), vec![0; counts[me]])).counts(known)).unwrap();
    let mut gather = comm.init(CollectiveArgs::gather(0, (vec![0; counts[me]], given)).counts(known)).unwrap();
    for round in 0..10 {
        scatter.buffers_mut().unwrap().0.fill(round);
        gather.buffers_mut().unwrap().0.fill(round + 1);
        scatter.start().unwrap();
        gather.start().unwrap();
        scatter.wait().unwrap();
        gather.wait().unwrap();
        assert_eq!(scatter.buffers_mut().unwrap().1, vec![round; counts[me]]);
        assert!(gather.buffers_mut().unwrap().1.iter().all(|got| *got == round + 1));
    }
}

#[test]
fn persistent_ones_are_started_again() {
    for (ranks, nodes) in LAYOUTS {
        Job::new("again", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

/// Rank 1 expects more of a scatter than the root sends, and sends more in a gather than the root expects.
fn differ(player: &Player) {
    let comm = &Communicator::from_env().unwrap();
    let me = comm.rank();
    let own = [1, 5, 3][me];
    let known = || Counts::PerOwner(if me == 0 { &[1, 2, 3] } else { &[] });
    let of_root = vec![7u32; if me == 0 { 6 } else { 0 }];
    let scattering = comm.start(CollectiveArgs::scatter(0, (of_root.clone(), vec![0; own])).counts(known())).unwrap();
    let gathering = comm.start(CollectiveArgs::gather(0, (vec![7u32; own], of_root)).counts(known())).unwrap();
    for result in [scattering.wait(), gathering.wait()] {
        player.say(result.map_or_else(|error| error.to_string(), |_| "well".into()));
    }
    comm.barrier().unwrap();
}

#[test]
fn another_length_is_told_to_the_rank_that_receives() {
    let said = Job::new("differ", 3).run();
    assert!(said[0][0] == "well" && said[2] == ["well", "well"] && said[1][1] == "well", "{said:?}");
    assert!(said[1][0].contains("scatter that gives 2 elements to rank 1"), "{said:?}");
    assert!(said[0][1].contains("gather that gives 5 elements to rank 0"), "{said:?}");
}

#[test]
fn another_length_is_told_to_all_ranks_of_several_nodes() {
    for said in Job::new("differ", 3).var("EARLYBIRD_RANKS_PER_NODE", "2,1").run() {
        assert!(said[0].contains("that gives 2 elements to rank 1"), "{said:?}");
        assert!(said[1].contains("that gives 5 elements to rank 0"), "{said:?}");
    }
}

/// What rank 1 sends in a gather of this number, some of it beside the mark and the rest from kept memory.
fn sent(number: usize) -> Vec<u32> {
    block(number, [3, 20_000, 0, 500][number % 4])
}

/// Rank 1 waits for three gathers before the root has started any.
fn early(player: &Player) {
    let comm = &Communicator::from_env().unwrap();
    let me = comm.rank();
    comm.barrier().unwrap();
    if me == 0 {
        wait_for("sent");
    }
    for number in 0..3 {
        let own = if me == 0 { Vec::new() } else { sent(number) };
        let counts = [0, sent(number).len()];
        let room = vec![0; if me == 0 { counts[1] } else { 0 }];
        let args = CollectiveArgs::gather(0, (own, room)).counts(Counts::PerOwner(&counts));
        let (_, gathered) = comm.start(args).unwrap().wait().unwrap();
        assert!(me == 1 || gathered == sent(number), "gather {number}");
    }
    player.say("done");
    comm.barrier().unwrap();
}

#[test]
fn who_sends_in_a_gather_does_not_wait_for_the_root() {
    let mut job = Job::new("early", 2).start();
    job.wait_for(1, "done");
    job.raise("sent");
    assert!(job.join().iter().all(|end| end.status.success()));
}

/// More is under way than there is memory for, and comes when there is.
fn crowded(_: &Player) {
    let comm = &Communicator::from_env().unwrap();
    let (me, ranks) = (comm.rank(), comm.size());
    let len = 500_000;
    let args = |number: usize| {
        let (own, all) = (block(ranks * number + me, len), if me == 0 { vec![0; len * ranks] } else { Vec::new() });
        CollectiveArgs::gather(0, (own, all))
    };
    let counts = vec![len; ranks];
    let known = || Counts::PerOwner(if me == 0 { &counts } else { &[] });
    let started: Vec<_> = (0..20).map(|number| comm.start(args(number).counts(known())).unwrap()).collect();
    for (number, gathering) in started.into_iter().enumerate() {
        crate::common::dawdle(me, number as u64, 300);
        let (_, all) = gathering.wait().unwrap();
        let blocks = all.chunks(len).enumerate();
        blocks.for_each(|(rank, got)| assert_eq!(got, block(ranks * number + rank, len), "{number} {rank}"));
    }
}

#[test]
fn calls_without_memory_wait_for_earlier_ones() {
    for ranks in [2, 3] {
        Job::new("crowded", ranks).var("EARLYBIRD_ARENA_MAX", 24 << 20).run();
    }
}
