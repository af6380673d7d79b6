//! A rank dies at every step of a split: the others return an error that names it, and no memory stays lent.

mod common;

use common::{Job, Player};
use earlybird::{Communicator, Error};
use std::time::{Duration, Instant};

/// Operations before the split: a barrier, three duplicates, a barrier.
const BEFORE: usize = 2 + 3 * EXCHANGES;

/// Operations of a split of few ranks: 1 for what they want, 4 for what was borrowed, 1 for who failed.
const EXCHANGES: usize = 6;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    common::play(&[("split", split)]);
}

fn split(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    (0..3).for_each(|_| drop(comm.duplicate().unwrap()));
    comm.barrier().unwrap();
    let before = comm.shared_memory_bytes();
    player.say("splits");
    // all in one group, or rank 0, which borrows for the others, alone
    let color = if player.arg::<bool>(0) { 0 } else { (comm.rank() > 0).into() };
    let result = match comm.split(Some(color), 0) {
        // the dead rank had done its part: it is missed in the first call that needs it
        Ok(part) => {
            let result = comm.barrier();
            drop(part);
            player.say("late");
            result
        }
        Err(error) => Err(error),
    };
    match result {
        Err(Error::PeerDied { rank, .. }) => player.say(format!("died {rank}")),
        other => panic!("{other:?}"),
    }
    let began = Instant::now();
    while comm.shared_memory_bytes() > before {
        assert!(began.elapsed() < Duration::from_secs(10), "{} bytes, not {before}", comm.shared_memory_bytes());
        std::thread::sleep(Duration::from_millis(1));
    }
    player.say("clean");
}

#[test]
fn a_death_in_a_split_is_named_and_nothing_stays_lent() {
    let (mut deaths, mut late) = (0, 0);
    for victim in 0..3 {
        for exchange in 1..=EXCHANGES {
            for (step, how) in [("begin", "kill"), ("entered", "exit"), ("copied", "kill"), ("left", "exec")] {
                let fault = format!("{victim}:{step}:{}:{how}", BEFORE + exchange);
                let job = Job::new("split", 3).arg(exchange % 2 == 0 || victim == 0).var("EARLYBIRD_FAULT", &fault);
                let ends = job.start().join();
                assert!(ends[victim].said == ["splits"], "{fault}: {}", ends[victim]);
                for end in ends.iter().filter(|end| end.rank != victim) {
                    let heard: Vec<&str> = end.said.iter().map(String::as_str).filter(|line| *line != "late").collect();
                    assert_eq!(heard, ["splits", &format!("died {victim}"), "clean"], "{fault}: {end}");
                    late += usize::from(end.said.len() > heard.len());
                }
                deaths += 1;
            }
        }
    }
    // a rank that dies after the last exchange has completed the split
    assert!(late > 0, "no split was completed");
    println!("{deaths} deaths in a split, noticed after it {late} times");
}
