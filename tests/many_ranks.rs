//! The largest number of ranks of a node: they join, wait for each other and sum. Alone in its program, since nothing else would meet its deadlines
//! beside a thousand processes.

mod common;

use common::{Job, Player};
use earlybird::{CallBuffers, Collective, CollectiveArgs, Communicator, Counts, DType, Op};
use std::time::{Duration, Instant};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    common::play(&[("sum", sum), ("scatter", scatter)]);
}

fn sum(player: &Player) {
    let began = Instant::now();
    let comm = Communicator::from_env().unwrap();
    let joined = began.elapsed();
    let size = comm.size();
    for count in [1, 1000, 20_000] {
        comm.barrier().unwrap();
        let mut values = vec![comm.rank() as u64; count];
        comm.all_reduce_in_place(&mut values, Op::Sum).unwrap();
        assert!(values.iter().all(|sum| *sum == (size * (size - 1) / 2) as u64), "{count}");
    }
    comm.barrier().unwrap();
    if comm.rank() == size - 1 {
        player.say(format!(
            "joined after {} ms, all done after {} ms",
            joined.as_millis(),
            began.elapsed().as_millis()
        ));
    }
}

/// Scatters blocks whose lengths the root alone knows all of.
fn scatter(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (size, rank) = (comm.size(), comm.rank());
    let counts: Vec<usize> = (0..size).map(|rank| rank % 40).collect();
    for root in [0, size - 1] {
        let send: Vec<u8> = match rank == root {
            true => counts.iter().enumerate().flat_map(|(rank, count)| vec![rank as u8; *count]).collect(),
            false => Vec::new(),
        };
        let mut recv = vec![0; counts[rank]];
        let buffers = CallBuffers::of_bytes(Some(&send), &mut recv, DType::U8.into());
        let known = Counts::PerOwner(&counts);
        comm.run(CollectiveArgs::describe(Collective::Scatter, Some(root), known, buffers, Op::Sum)).unwrap();
        assert_eq!(recv, vec![rank as u8; counts[rank]]);
    }
}

/// The list of so many lengths fits no deposit of one page, so the root broadcasts them.
#[test]
fn a_root_tells_more_lengths_than_a_deposit_holds() {
    Job::new("scatter", 600).var("EARLYBIRD_ARENA_MAX", "32Mi").watchdog(Duration::from_secs(240)).run();
}

#[test]
fn as_many_ranks_as_a_node_can_have_sum() {
    let said = Job::new("sum", earlybird_shm::MAX_RANKS).watchdog(Duration::from_secs(240)).run();
    println!("the last rank: {:?}", said[earlybird_shm::MAX_RANKS - 1]);
}
