//! Another library's work goes on while ranks wait in a collective: its messages may be what the late rank waits for.

use crate::common::flags::{meet, raise, wait_for};
use crate::common::{End, Job, Player};
use earlybird::{Communicator, Error, Op, Progress};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("answers", answers),
        ("calls-back", calls_back),
        ("panics", panics),
        ("gives-up", gives_up),
    ]);
}

/// The other library's messages: files that count up.
fn message(what: &str, number: u32) -> PathBuf {
    PathBuf::from(std::env::var("EARLYBIRD_DIR").unwrap()).with_extension(format!("{what}-{number}"))
}

/// Answers the next question that stands.
fn answering() -> Progress {
    let answered = AtomicU32::new(0);
    let answer = move || {
        let next = answered.load(Relaxed);
        if message("question", next).exists() {
            std::fs::write(message("answer", next), "").unwrap();
            answered.store(next + 1, Relaxed);
        }
    };
    Progress::new(Duration::from_micros(200), answer).unwrap()
}

const QUESTIONS: u32 = 6;

/// The last rank comes only after rank 0, which waits for it, has answered all its questions.
fn answers(player: &Player) {
    let world = Communicator::from_env().unwrap();
    let (rank, size) = (world.rank(), world.size());
    let mut comm = world.duplicate().unwrap();
    if rank == 0 {
        match player.arg::<String>(0).as_str() {
            "own" => comm.set_progress(Some(answering())).unwrap(),
            "inherited" => {
                world.set_progress(Some(answering())).unwrap();
                comm = world.duplicate().unwrap();
            }
            "late" => {
                // The rings exist already when it is set.
                comm.barrier().unwrap();
                comm.set_progress(Some(answering())).unwrap();
            }
            other => panic!("{other:?}"),
        }
    } else if player.arg::<String>(0) == "inherited" {
        comm = world.duplicate().unwrap();
    } else if player.arg::<String>(0) == "late" {
        comm.barrier().unwrap();
    }
    if rank + 1 == size {
        for number in 0..QUESTIONS {
            std::fs::write(message("question", number), "").unwrap();
            while !message("answer", number).exists() {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The waiting rank has time to fall asleep.
            std::thread::sleep(Duration::from_millis(15));
        }
    }
    let mut data = vec![rank as u64 + 1; player.arg(1)];
    comm.all_reduce_in_place(&mut data, Op::Sum).unwrap();
    assert!(data.iter().all(|sum| *sum == (1..=size as u64).sum::<u64>()));
    comm.barrier().unwrap();
}

#[test]
fn a_waiting_rank_drives_progress_awake_and_asleep() {
    for (wait, count) in [("latency", 1), ("balanced", 1), ("balanced", 100_000), ("power", 1), ("power", 100_000)] {
        for algorithm in ["flat", "leader", "chain", "slices", "static-leader", "plan:ring"] {
            let job = Job::new("answers", 2).arg("own").arg(count);
            job.var("EARLYBIRD_WAIT", wait).var("EARLYBIRD_ALGORITHM", algorithm).run();
        }
    }
    for (from, algorithm) in
        [("inherited", "auto"), ("inherited", "plan:ring"), ("late", "auto"), ("late", "plan:ring")]
    {
        Job::new("answers", 3).arg(from).arg(1).var("EARLYBIRD_ALGORITHM", algorithm).run();
    }
}

fn calls_back(player: &Player) {
    let comm = Arc::new(Communicator::from_env().unwrap());
    let refused = Arc::new(Mutex::new(None));
    if comm.rank() == 0 {
        let (same, found) = (Arc::downgrade(&comm), refused.clone());
        let call = move || {
            let comm = same.upgrade().unwrap();
            *found.lock().unwrap() = Some(comm.barrier());
            raise("called");
        };
        comm.set_progress(Some(Progress::new(Duration::from_micros(200), call).unwrap())).unwrap();
    } else {
        wait_for("called");
    }
    comm.barrier().unwrap();
    if comm.rank() == 0 {
        let refused = refused.lock().unwrap().take();
        assert!(
            matches!(&refused, Some(Err(Error::Usage { message })) if message.contains("inside a call")),
            "{refused:?}"
        );
        comm.set_progress(None).unwrap();
        player.say("refused");
    }
    comm.barrier().unwrap();
}

#[test]
fn a_call_from_within_is_refused() {
    assert_eq!(Job::new("calls-back", 2).run()[0], ["refused"]);
}

fn panics(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    if comm.rank() == 0 {
        let panic = || {
            raise("panics");
            panic!("no such message")
        };
        comm.set_progress(Some(Progress::new(Duration::from_millis(1), panic).unwrap())).unwrap();
    } else {
        wait_for("panics");
    }
    // It died inside the first barrier, at which it had arrived.
    let error = (0..2).find_map(|_| comm.barrier().err()).unwrap();
    player.say(error.code());
}

#[test]
fn a_panic_in_it_ends_the_process_and_the_others_hear_of_it() {
    let ends: Vec<End> = Job::new("panics", 2).start().join();
    assert_eq!(ends[0].status.signal(), Some(Signal::ABORT.as_raw()), "{}", ends[0]);
    assert_eq!(ends[1].said, ["EB_PEER_DIED"], "{}", ends[1]);
}

/// Rank 0 gives up an allreduce that the others reach too late.
fn gives_up(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    // A rank that is still inside the barrier would get its error there.
    meet("outside", &comm);
    if comm.rank() == 0 {
        comm.set_progress(Some(Progress::interrupting(Duration::from_millis(1), || true).unwrap())).unwrap();
    }
    // A call that ends while rank 0 gives it up is right, and by a plan, who has all packets of rank 0 completes the call: the
    // next one fails, since the others are late for each.
    let error = loop {
        std::thread::sleep(Duration::from_millis(if comm.rank() == 0 { 0 } else { 50 }));
        if let Err(error) = comm.all_reduce_in_place(&mut [1.0], Op::Sum) {
            break error;
        }
    };
    player.say(error.to_string());
}

#[test]
fn a_call_that_is_given_up_fails_on_all_ranks_and_names_the_one() {
    for algorithm in ["auto", "plan:ring"] {
        for said in Job::new("gives-up", 3).var("EARLYBIRD_ALGORITHM", algorithm).run() {
            assert!(said[0].contains("rank 0") && said[0].contains("interrupt"), "{algorithm}: {said:?}");
        }
    }
}
