//! A child made by fork is not a member: its calls are refused, and neither its life nor its end disturbs the group.
//!
//! The only unsafe code of these tests: there is no safe way to fork.
#![allow(unsafe_code)]

use crate::common::{Job, Player};
use earlybird::{CollectiveArgs, Communicator, Error, Op};
use rustix::process::{Pid, WaitOptions, waitpid};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("forks", forks)]);
}

/// What a forked child gets for each kind of use.
fn use_as_child(comm: &Communicator) -> [Result<(), Error>; 6] {
    let (send, mut recv) = ([1.0f64; 100], [0.0; 100]);
    let apart = comm.all_reduce_into(&send, &mut recv, Op::Sum);
    let split = comm.split(Some(0), 0).map(drop);
    let started = comm.start(CollectiveArgs::barrier()).map(drop);
    [apart, started, comm.all_reduce_in_place(&mut recv, Op::Sum), comm.barrier(), split, comm.duplicate().map(drop)]
}

fn forks(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let part = comm.split(Some((comm.rank() / 2) as u32), 0).unwrap().unwrap();
    comm.barrier().unwrap();
    let mut under_way = comm.start(CollectiveArgs::all_reduce(vec![1u64; 9_000], Op::Sum)).unwrap();
    // SAFETY: this process has one thread (the test harness was told so), so that no lock is held by another one; the
    // child only calls the library, writes a file and ends without running what this process has registered.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = [&part, &comm].iter().all(|c| use_as_child(c).iter().all(|r| *r == Err(Error::Forked)));
        let test = matches!(under_way.try_wait(), Err(Error::Forked));
        drop(under_way);
        drop((part, comm));
        player.say(format!("child refused {}", refused && test));
        // SAFETY: ends the child, nothing else.
        unsafe { libc::_exit(0) };
    }
    // The child has let go of the group and of its request; its parent has not.
    waitpid(Pid::from_raw(child), WaitOptions::empty()).unwrap();
    assert_eq!(under_way.wait().unwrap(), vec![comm.size() as u64; 9_000]);
    for (comm, count) in [&part, &comm].into_iter().flat_map(|c| [3, 500, 50_000].map(|count| (c, count))) {
        let mut buf = vec![1.0f64; count];
        comm.all_reduce_in_place(&mut buf, Op::Sum).unwrap();
        assert!(buf.iter().all(|v| *v == comm.size() as f64));
    }
    player.say("parent goes on");
}

#[test]
fn a_forked_child_is_refused_and_its_parent_goes_on() {
    for ranks in [1, 3] {
        for said in Job::new("forks", ranks).run() {
            assert_eq!(said, ["child refused true", "parent goes on"]);
        }
    }
}
