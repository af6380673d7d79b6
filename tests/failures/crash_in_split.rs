//! A rank dies at every step of a split, and on its way into the meeting that a split over several nodes, or the first plan,
//! needs: the others return an error that names it, and no memory stays allocated.

use crate::common::{Job, Player};
use earlybird::{Choice, Communicator, Error, Op};
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Operations before the split: a barrier, three duplicates, a barrier.
const BEFORE: usize = 2 + 3 * EXCHANGES;

/// Operations of a split of few ranks: 1 for what they want, 4 for what was borrowed, 1 for who failed.
const EXCHANGES: usize = 6;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("split", split), ("several", several), ("plan", plan), ("late", late), ("part", part)]);
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
fn a_death_in_a_split_is_named_and_nothing_stays_allocated() {
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

/// Most that survivors may take from the end of the dead rank on.
const NOTICED: Duration = Duration::from_secs(1);

/// Says how a call failed, the first time and again.
fn tell(player: &Player, error: &Error, again: impl Fn() -> Result<(), Error>) {
    player.say(format!("{} {error}", error.code()));
    (0..2).for_each(|_| assert_eq!(again().as_ref(), Err(error), "one error, for ever"));
}

/// Calls of several nodes that need a group of their own each time, until one fails.
fn several(player: &Player) {
    let comm = match Communicator::from_env() {
        Ok(comm) => comm,
        Err(error) => return player.say(format!("{} {error}", error.code())),
    };
    let result = match player.args()[0].as_str() {
        "split" => comm.split(Some((comm.rank() == 0).into()), 0).map(drop),
        _ => comm.duplicate().map(drop),
    };
    match result.and_then(|()| comm.barrier()) {
        Err(error) => tell(player, &error, || comm.barrier()),
        Ok(()) => player.say("done"),
    }
}

/// The first call that runs a plan.
fn plan(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm("plan:ring".parse::<Choice>().unwrap()).unwrap();
    let sum = || comm.all_reduce_in_place(&mut [1u32; 50], Op::Sum);
    match sum() {
        Err(error) => tell(player, &error, sum),
        Ok(()) => player.say("done"),
    }
}

/// Runs a job in which `victim` ends at an operation of its node, if it comes so far: all others say one thing about that, soon.
fn one_dies(job: Job, victim: usize, what: &str) -> bool {
    let others: Vec<usize> = (0..job.ranks()).filter(|rank| *rank != victim).collect();
    let mut job = job.start();
    job.wait_ended(&[victim]);
    let ended = Instant::now();
    job.wait_ended(&others);
    let took = ended.elapsed();
    let ends = job.join();
    if ends[victim].said == ["done"] {
        return false;
    }
    // A rank that dies in the last operation of all has given some of the others what they need.
    let mut told: Vec<&str> = others.iter().flat_map(|rank| &ends[*rank].said).map(String::as_str).collect();
    assert_eq!(told.len(), others.len(), "{what}: {ends:#?}");
    told.retain(|said| *said != "done");
    let begins = format!("EB_PEER_DIED rank {victim} (pid {} ", ends[victim].pid);
    assert!(told.iter().all(|said| *said == told[0] && said.starts_with(&begins)), "{what}: {ends:#?}");
    assert!(took < NOTICED, "{what}: noticed after {took:?}");
    true
}

#[test]
fn a_death_on_the_way_into_the_first_plan_is_named_soon() {
    for how in ["kill", "exit", "exec"] {
        for operation in 1..=2 {
            let fault = format!("1:left:{operation}:{how}");
            assert!(one_dies(Job::new("plan", 3).var("EARLYBIRD_FAULT", &fault), 1, &fault), "{fault}: it lived");
        }
    }
}

#[test]
fn a_death_at_any_operation_of_a_call_that_forms_groups_of_several_nodes_is_named_soon() {
    let mut deaths = 0;
    for (call, victim, local) in [("split", 1, 1), ("duplicate", 4, 1), ("duplicate", 3, 0), ("split", 3, 0)] {
        for operation in 1.. {
            let fault = format!("{local}:left:{operation}:kill");
            let job = Job::new("several", 5).arg(call).var("EARLYBIRD_RANKS_PER_NODE", "3,2");
            if !one_dies(job.var_of(victim, "EARLYBIRD_FAULT", &fault), victim, &format!("{call}, {victim}, {fault}")) {
                break;
            }
            deaths += 1;
        }
    }
    assert!(deaths > 40, "{deaths}");
    println!("{deaths} deaths while groups of several nodes were formed");
}

/// Rank 2, a node of its own, comes late to an allreduce.
fn late(player: &Player) {
    let comm = match Communicator::from_env() {
        Ok(comm) => comm,
        Err(error) => return player.say(format!("{} {error}", error.code())),
    };
    if comm.rank() == 2 {
        std::thread::sleep(Duration::from_secs(3));
    }
    match comm.all_reduce_in_place(&mut [1u32; 50], Op::Sum) {
        Err(error) => tell(player, &error, || comm.barrier()),
        Ok(()) => player.say("done"),
    }
}

#[test]
fn a_death_is_noticed_by_a_leader_that_waits_for_another_node() {
    for operation in 1.. {
        let fault = format!("1:left:{operation}:kill");
        let job = Job::new("late", 3).var("EARLYBIRD_RANKS_PER_NODE", "2,1").var_of(1, "EARLYBIRD_FAULT", &fault);
        let mut job = job.start();
        job.wait_ended(&[1]);
        let ended = Instant::now();
        job.wait_ended(&[0]);
        let took = ended.elapsed();
        let ends = job.join();
        if ends[1].said == ["done"] {
            assert!(operation > 10, "it lived through {operation}");
            break;
        }
        // A rank that dies after the last operation has given the leader what it needs, and taken the result.
        assert!(took < NOTICED, "{fault}: noticed after {took:?}");
        if ends[0].said != ["done"] {
            assert!(ends[0].said[0].starts_with("EB_PEER_DIED rank 1 "), "{fault}: {ends:#?}");
        }
    }
}

/// Odd ranks, one of each node, form a group of which the last dies.
fn part(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let part = comm.split(Some(comm.rank() as u32 % 2), 0).unwrap().unwrap();
    part.barrier().unwrap();
    player.say("here");
    if comm.rank() == 3 {
        std::thread::sleep(Duration::from_secs(3600));
    }
    if comm.rank() == 1 {
        let error = part.barrier().unwrap_err();
        tell(player, &error, || part.barrier());
    }
}

#[test]
fn errors_of_a_group_over_several_nodes_tell_the_number_in_the_job() {
    let mut job = Job::new("part", 4).var("EARLYBIRD_RANKS_PER_NODE", "2").start();
    (0..4).for_each(|rank| job.wait_for(rank, "here"));
    job.signal(3, Signal::KILL);
    let ends = job.join();
    let told = &ends[1].said[1];
    assert!(told.starts_with("EB_PEER_DIED rank 1 (pid ") && told.contains("(rank 1 is rank 3 of the job)"), "{told}");
}
