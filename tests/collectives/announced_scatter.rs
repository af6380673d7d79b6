//! The scatter of blocks whose lengths only the root knows all of: right for blocks of all lengths, no rank waits for any but the root, and
//! a length that the root does not send is told while the others go on.

use super::announced_gather::{block, bytes, bytes_mut, one_tells};
use crate::common::flags::wait_for;
use crate::common::{Job, Player};
use earlybird::{CallBuffers, Collective, CollectiveArgs, Communicator, Counts, DType, Error, Op};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("lengths", lengths),
        ("in_place", in_place),
        ("away", away),
        ("differ", differ),
        ("death", death),
        ("refused", refused),
    ]);
}

/// Scatters `blocks` from rank `root`; this rank expects a block of `expects` elements.
fn scatter(comm: &Communicator, root: usize, blocks: &[Vec<u32>], expects: usize) -> Result<Vec<u32>, Error> {
    let is_root = comm.rank() == root;
    let (send, mut recv) = (if is_root { blocks.concat() } else { Vec::new() }, vec![0; expects]);
    let counts: Vec<usize> = if is_root { blocks.iter().map(Vec::len).collect() } else { Vec::new() };
    let buffers = CallBuffers::of_bytes(Some(bytes(&send)), bytes_mut(&mut recv), DType::U32.into());
    comm.run(CollectiveArgs::describe(Collective::Scatter, Some(root), Counts::PerOwner(&counts), buffers, Op::Sum))?;
    Ok(recv)
}

fn blocks_of(comm: &Communicator, call: usize, most: usize) -> Vec<Vec<u32>> {
    (0..comm.size()).map(|rank| block(call, rank, most)).collect()
}

fn lengths(player: &Player) {
    let (calls, most): (usize, usize) = (player.arg(0), player.arg(1));
    let comm = &Communicator::from_env().unwrap();
    for call in 0..calls {
        let root = call % comm.size();
        let blocks = blocks_of(comm, call, most);
        let mine = &blocks[comm.rank()];
        crate::common::dawdle(comm.rank(), call as u64, 300);
        assert_eq!(&scatter(comm, root, &blocks, mine.len()).unwrap(), mine, "call {call}");
        if call % 7 == 0 {
            let mut sum = [1u64];
            comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
            assert_eq!(sum[0], comm.size() as u64);
        }
    }
}

#[test]
fn blocks_of_all_lengths_arrive() {
    // Beside the mark, as one piece, and, where one block is longer, by a scatter of its own.
    for most in [12, 1000, 700_000] {
        for (ranks, nodes) in [(1, "1"), (2, "2"), (3, "3"), (5, "5"), (5, "2"), (4, "1,3")] {
            Job::new("lengths", ranks).arg(40).arg(most).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        }
    }
}

#[test]
fn blocks_arrive_through_little_memory() {
    Job::new("lengths", 3).arg(25).arg(700_000).var("EARLYBIRD_ARENA_MAX", "256Ki").run();
}

/// The root's own block stays where it lies among the others.
fn in_place(_: &Player) {
    let comm = &Communicator::from_env().unwrap();
    for (call, most) in [12, 400, 100_000].into_iter().cycle().take(30).enumerate() {
        let root = call % comm.size();
        let blocks = blocks_of(comm, call, most);
        let (mine, counts) = (&blocks[comm.rank()], blocks.iter().map(Vec::len).collect::<Vec<_>>());
        if comm.rank() != root {
            assert_eq!(&scatter(comm, root, &blocks, mine.len()).unwrap(), mine, "call {call}");
            continue;
        }
        let mut all = blocks.concat();
        let buffers = CallBuffers::of_bytes(None, bytes_mut(&mut all), DType::U32.into());
        let counts = Counts::PerOwner(&counts);
        comm.run(CollectiveArgs::describe(Collective::Scatter, Some(root), counts, buffers, Op::Sum)).unwrap();
        assert_eq!(all, blocks.concat(), "call {call}");
    }
}

#[test]
fn a_root_keeps_its_block_in_place() {
    for nodes in ["3", "2,1"] {
        Job::new("in_place", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

/// Rank 2 is away until the others say that they have left.
fn away(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let blocks = [vec![], vec![7; 20], vec![8; player.arg(0)]];
    if comm.rank() == 2 {
        wait_for("go");
    }
    let got = scatter(&comm, 0, &blocks, blocks[comm.rank()].len()).unwrap();
    player.say("left");
    assert_eq!(got, blocks[comm.rank()]);
}

#[test]
fn no_rank_waits_for_any_but_the_root() {
    for len in [3, 1500] {
        let mut job = Job::new("away", 3).arg(len).start();
        for rank in 0..2 {
            job.wait_for(rank, "left");
        }
        job.raise("go");
        for end in job.join() {
            assert_eq!(end.said, ["left"], "{end}");
        }
    }
}

fn differ(player: &Player) {
    let (sends, expects): (usize, usize) = (player.arg(0), player.arg(1));
    let comm = Communicator::from_env().unwrap();
    let blocks = [vec![1; 3], vec![1; sends], vec![1; 3]];
    for call in 0..3 {
        let told = scatter(&comm, 0, &blocks, if comm.rank() == 1 { expects } else { 3 });
        let text = told.map_or_else(|error| format!("{} {error}", error.code()), |_| "fine".into());
        if call == 0 {
            player.say(text);
        }
    }
    let mut sum = [1u64];
    comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
    assert_eq!(sum[0], comm.size() as u64, "the others go on");
}

#[test]
fn another_length_than_the_root_sends_is_told() {
    for (sends, expects) in [(5, 4), (4, 5), (0, 9), (600, 601), (700_000, 1), (1, 700_000), (600_000, 700_000)] {
        for nodes in ["3", "2,1"] {
            let job = Job::new("differ", 3).arg(sends).arg(expects).var("EARLYBIRD_RANKS_PER_NODE", nodes);
            one_tells(&job.run(), 1, "scatter", [0, 1], [sends, expects]);
        }
    }
}

fn death(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let blocks = [vec![1; 3], vec![1; player.arg(0)], vec![1; 700]];
    let told = scatter(&comm, 0, &blocks, blocks[comm.rank()].len());
    player.say(told.map_or_else(|error| error.code(), |_| "fine"));
}

#[test]
fn a_death_of_the_root_ends_the_waits_for_its_bundle() {
    for (len, step) in [(700, "entered"), (700, "begin"), (3, "begin"), (70_000, "entered")] {
        let job = Job::new("death", 3).arg(len).var("EARLYBIRD_FAULT", format!("0:{step}:1:kill"));
        for end in job.start().join() {
            let expected: &[&str] = if end.rank == 0 { &[] } else { &["EB_PEER_DIED"] };
            assert!(end.was_killed() == (end.rank == 0) && end.said == expected, "{len} {step}: {end}");
        }
    }
}

fn refused(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    let refused = |result: Result<(), Error>, part: &str| {
        let text = result.expect_err(part).to_string();
        assert!(text.contains(part), "{text}");
    };
    let (send, mut recv) = ([1u8, 2, 3, 4], [0u8; 2]);
    let started = CollectiveArgs::scatter(0, vec![1u8; 4]).counts(Counts::PerOwner(&[2, 2]));
    refused(comm.start(started).map(drop), "scatter in place that does not block");
    if comm.rank() == 0 {
        for (counts, part) in [(&[4][..], "1 counts for 2 ranks"), (&[3, 2], "scatter")] {
            let args = CollectiveArgs::scatter(0, (&send[..], &mut recv[..])).counts(Counts::PerOwner(counts));
            refused(comm.run(args), part);
        }
    } else {
        let in_place = CollectiveArgs::scatter(0, &mut recv[..]).counts(Counts::PerOwner(&[]));
        refused(comm.run(in_place), "in place on rank 1, which is not the root");
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_shared() {
    for nodes in ["2", "1"] {
        Job::new("refused", 2).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}
