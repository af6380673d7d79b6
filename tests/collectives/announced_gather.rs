//! The gather of blocks whose lengths their owners know: right for blocks of all lengths, owners leave before the root has come, and a
//! length that the root does not expect is told while the others go on.

use crate::common::flags::wait_for;
use crate::common::{Job, Player, mix};
use earlybird::{CallBuffers, CollectiveArgs, Communicator, Counts, DType, Error, Op};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("lengths", lengths),
        ("early", early),
        ("differ", differ),
        ("death", death),
        ("refused", refused),
    ]);
}

/// The block of `rank` in a call: nothing, a few elements, or up to `most`.
pub fn block(call: usize, rank: usize, most: usize) -> Vec<u32> {
    let drawn = mix((call * 64 + rank) as u64) as usize;
    let len = match drawn % 5 {
        0 => 0,
        1 => drawn / 5 % 26,
        2 => drawn / 5 % 3000,
        _ => drawn / 5 % most,
    };
    (0..len as u32).map(|i| i.wrapping_mul(31) ^ ((call as u32) << 20) ^ ((rank as u32) << 26)).collect()
}

/// Gathers the `send`s at rank `root`, which expects `counts`.
fn gather(comm: &Communicator, root: usize, send: &[u32], counts: &[usize]) -> Result<Vec<u32>, Error> {
    let is_root = comm.rank() == root;
    let mut recv = vec![0; if is_root { counts.iter().sum() } else { 0 }];
    let buffers = CallBuffers::of_bytes(Some(bytes(send)), bytes_mut(&mut recv), DType::U32.into());
    let counts = Counts::PerOwner(if is_root { counts } else { &[] });
    comm.run(CollectiveArgs::describe(earlybird::Collective::Gather, Some(root), counts, buffers, Op::Sum))?;
    Ok(recv)
}

pub fn bytes(words: &[u32]) -> &[u8] {
    bytemuck::cast_slice(words)
}

pub fn bytes_mut(words: &mut [u32]) -> &mut [u8] {
    bytemuck::cast_slice_mut(words)
}

fn lengths(player: &Player) {
    let (calls, most): (usize, usize) = (player.arg(0), player.arg(1));
    let comm = &Communicator::from_env().unwrap();
    for call in 0..calls {
        let root = call % comm.size();
        let blocks: Vec<Vec<u32>> = (0..comm.size()).map(|rank| block(call, rank, most)).collect();
        let counts: Vec<usize> = blocks.iter().map(Vec::len).collect();
        crate::common::dawdle(comm.rank(), call as u64, 300);
        let got = gather(comm, root, &blocks[comm.rank()], &counts).unwrap();
        assert!(comm.rank() != root || got == blocks.concat(), "call {call}: {counts:?}");
        if call % 7 == 0 {
            let mut sum = [1u64];
            comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
            assert_eq!(sum[0], comm.size() as u64);
        }
    }
}

#[test]
fn blocks_of_all_lengths_arrive() {
    for (ranks, nodes) in [(1, "1"), (2, "2"), (3, "3"), (5, "5"), (5, "2"), (4, "1,3")] {
        Job::new("lengths", ranks).arg(40).arg(700_000).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

#[test]
fn a_block_of_more_parts_than_a_mark_counts_arrives() {
    Job::new("lengths", 3).arg(25).arg(4_000_000).var("EARLYBIRD_ARENA_MAX", "256Ki").run();
}

/// Owners whose blocks fit a deposit return while the root is still away, so the job says "left" before it lets the root go on.
fn early(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let blocks = [vec![], vec![7; 20], vec![8; 100_000], vec![]];
    if comm.rank() == 0 {
        wait_for("go");
    }
    let counts = blocks.each_ref().map(Vec::len);
    let got = gather(&comm, 0, &blocks[comm.rank()], &counts).unwrap();
    player.say("left");
    assert!(comm.rank() != 0 || got == blocks.concat());
}

#[test]
fn no_rank_but_the_root_waits() {
    let mut job = Job::new("early", 4).start();
    for rank in 1..4 {
        job.wait_for(rank, "left");
    }
    job.raise("go");
    for end in job.join() {
        assert_eq!(end.said, ["left"], "{end}");
    }
}

fn differ(player: &Player) {
    let (sends, expects): (usize, usize) = (player.arg(0), player.arg(1));
    let comm = Communicator::from_env().unwrap();
    let own = if comm.rank() == 1 { sends } else { 3 };
    let counts: Vec<usize> = (0..comm.size()).map(|rank| if rank == 1 { expects } else { 3 }).collect();
    let told = gather(&comm, 0, &vec![1; own], &counts);
    player.say(told.map_or_else(|error| format!("{} {error}", error.code()), |_| "fine".into()));
    let mut sum = [1u64];
    comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
    assert_eq!(sum[0], comm.size() as u64, "the others go on");
}

/// Checks what three ranks have said: the `teller` alone the mismatch of a `collective` in which rank `from` sends so many elements to
/// rank `to`, which expects others.
pub fn one_tells(
    said: &[Vec<String>],
    teller: usize,
    collective: &str,
    [from, to]: [usize; 2],
    [sends, expects]: [usize; 2],
) {
    for (rank, said) in said.iter().enumerate() {
        let text = &said[0];
        match rank == teller {
            true => assert!(
                text.starts_with("EB_MISMATCH")
                    && text.contains(&format!("{collective} that gives {sends} elements to rank {to}"))
                    && text.contains(&format!("{collective} that expects {expects} elements of rank {from}")),
                "{text}"
            ),
            false => assert_eq!(text, "fine", "rank {rank}"),
        }
    }
}

#[test]
fn another_length_than_the_root_expects_is_told() {
    for (sends, expects) in [(5, 4), (4, 5), (0, 9), (700_000, 1), (1, 700_000), (600_000, 700_000)] {
        // One node: the root compares. Several: the owner does, with what the root has told all.
        for (nodes, teller) in [("3", 0), ("2,1", 1)] {
            let job = Job::new("differ", 3).arg(sends).arg(expects).var("EARLYBIRD_RANKS_PER_NODE", nodes);
            one_tells(&job.run(), teller, "gather", [1, 0], [sends, expects]);
        }
    }
}

fn death(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let counts = [3, 700_000, 700_000];
    let told = gather(&comm, 0, &vec![1; counts[comm.rank()]], &counts);
    player.say(told.map_or_else(|error| error.code(), |_| "fine"));
}

#[test]
fn a_death_ends_the_waits_for_parts() {
    // Deposited for the second time: with a part after the first, of four.
    for (victim, step, nth) in [(1, "deposited", 2), (2, "deposited", 1), (0, "entered", 1)] {
        let job = Job::new("death", 3).var("EARLYBIRD_FAULT", format!("{victim}:{step}:{nth}:kill"));
        for end in job.start().join() {
            let expected: &[&str] = if end.rank == victim { &[] } else { &["EB_PEER_DIED"] };
            assert!(end.was_killed() == (end.rank == victim) && end.said == expected, "{victim} {step} {nth}: {end}");
        }
    }
}

fn refused(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    let refused = |result: Result<(), Error>, part: &str| {
        let text = result.expect_err(part).to_string();
        assert!(text.contains(part), "{text}");
    };
    let (send, mut recv) = ([1u8, 2], [0u8; 4]);
    let counts = [2, 2];
    let args = CollectiveArgs::all_gather((&send[..], &mut recv[..])).counts(Counts::PerOwner(&counts));
    refused(comm.run(args), "only gather and scatter have such counts");
    let started = CollectiveArgs::gather(0, vec![1u8; 4]).counts(Counts::PerOwner(&counts));
    refused(comm.start(started).map(drop), "gather in place that does not block");
    if comm.rank() == 0 {
        let too_few = CollectiveArgs::gather(0, (&send[..], &mut recv[..])).counts(Counts::PerOwner(&[4]));
        refused(comm.run(too_few), "1 counts for 2 ranks");
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_shared() {
    for nodes in ["2", "1"] {
        Job::new("refused", 2).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}
