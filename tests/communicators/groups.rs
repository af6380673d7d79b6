//! Communicators come and go: several in one process, one after the other under one name, left right after the last call.

use crate::common::{Job, Player, mix};
use earlybird::{Algorithm, Communicator, Error, Identity, Op};
use rustix::process::Signal;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("two", two_at_once), ("again", again), ("last", last_call), ("survivor", survivor)]);
}

fn join(suffix: &str) -> Communicator {
    let mut identity = Identity::detect().unwrap();
    identity.key.push_str(suffix);
    Communicator::builder().identity(identity).connect().unwrap()
}

fn reduce(comm: &Communicator, count: usize, call: u64) -> Result<(), Error> {
    let value = |rank: usize| (mix(call) % 1000) as f64 + rank as f64;
    let mut buf = vec![value(comm.rank()); count];
    comm.all_reduce_in_place(&mut buf, Op::Sum)?;
    let sum: f64 = (0..comm.size()).map(value).sum();
    assert!(buf.iter().all(|v| *v == sum), "call {call}");
    Ok(())
}

/// Two threads, each with a communicator of its own, call as they like.
fn two_at_once(player: &Player) {
    let (a, b) = (join("-a"), join("-b"));
    let many = |comm: &Communicator, calls: u64| {
        for call in 0..calls {
            reduce(comm, [1, 700, 20_000][(call % 3) as usize], call).unwrap();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| many(&a, 200));
        scope.spawn(|| many(&b, 300));
    });
    drop(a);
    many(&b, 50);
    player.say("done");
}

#[test]
fn two_communicators_of_one_process_do_not_disturb_each_other() {
    for ranks in [1, 2, 3] {
        assert!(Job::new("two", ranks).run().iter().all(|said| said == &["done"]));
    }
}

/// The other communicator was dropped, which must not hide this process's life or death from the peers of this one.
fn survivor(player: &Player) {
    let (a, b) = (join("-a"), join("-b"));
    drop(a);
    reduce(&b, 10, 0).unwrap();
    player.say("joined");
    if b.rank() == 1 {
        std::thread::sleep(Duration::from_secs(3600));
    }
    match b.barrier() {
        Err(Error::PeerDied { rank, .. }) => player.say(format!("died {rank}")),
        other => player.say(format!("{other:?}")),
    }
}

#[test]
fn deaths_are_seen_after_another_communicator_was_dropped() {
    let mut job = Job::new("survivor", 3).start();
    (0..3).for_each(|rank| job.wait_for(rank, "joined"));
    // Long enough for the waiting ranks to look at the living several times.
    std::thread::sleep(Duration::from_millis(300));
    job.signal(1, Signal::KILL);
    for end in job.join().iter().filter(|end| end.rank != 1) {
        assert_eq!(end.said.last().map(String::as_str), Some("died 1"), "{end}");
    }
}

/// Joins, calls and leaves, again and again under one name; others may still be leaving when this rank comes back.
fn again(player: &Player) {
    for round in 0..player.arg::<u64>(0) {
        let comm = Communicator::from_env().unwrap();
        if mix(round * 8 + comm.rank() as u64).is_multiple_of(4) {
            std::thread::sleep(Duration::from_millis(1));
        }
        reduce(&comm, 100, round).unwrap();
    }
    player.say("done");
}

#[test]
fn a_name_can_be_used_again_at_once() {
    for ranks in [1, 2, 3, 5] {
        assert!(Job::new("again", ranks).arg(40).run().iter().all(|said| said == &["done"]));
    }
}

/// Every rank leaves as soon as its last call is done, while others still copy the result.
fn last_call(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    reduce(&comm, player.arg(0), 1).unwrap();
    drop(comm);
    player.say("done");
}

#[test]
fn leaving_right_after_the_last_call_is_no_error() {
    for algorithm in Algorithm::ALL {
        for (ranks, count) in [(2, 3), (3, 500), (3, 100_000), (3, 2_000_000), (5, 300_000)] {
            let job = Job::new("last", ranks).arg(count).var("EARLYBIRD_ALGORITHM", algorithm);
            assert!(job.run().iter().all(|said| said == &["done"]), "{algorithm}, {ranks} ranks, {count}");
        }
    }
}
