//! The largest number of ranks of a node: they join, wait for each other and sum. Alone in its program, since nothing else would meet its deadlines
//! beside a thousand processes.

mod common;

use common::{Job, Player};
use earlybird::{Communicator, Op};
use std::time::{Duration, Instant};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    common::play(&[("sum", sum)]);
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

#[test]
fn as_many_ranks_as_a_node_can_have_sum() {
    let said = Job::new("sum", earlybird_shm::MAX_RANKS).watchdog(Duration::from_secs(240)).run();
    println!("the last rank: {:?}", said[earlybird_shm::MAX_RANKS - 1]);
}
