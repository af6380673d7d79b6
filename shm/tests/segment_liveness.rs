//! Ranks that are reported dead, and ranks whose memory may be reused: without descriptors, dying slowly, or with no thread to spare.
#![cfg(not(earlybird_loom))]

mod segment_support;

use rustix::process::Signal;
use segment_support::{Rank, Scratch, attach_all, serve_as_rank, team, wait_until, while_dying};
use std::os::unix::process::CommandExt;
use std::process::Command;

#[test]
fn rank_process() {
    serve_as_rank();
}

fn sees(rank: &mut Rank, other: usize) -> [String; 2] {
    ["alive", "ended"].map(|what| rank.ask(&format!("{what} {other}")))
}

/// Record locks go when any descriptor of the file is closed; the word does not.
#[test]
fn a_rank_that_opens_and_closes_its_descriptors_is_alive() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "job", 3);
    attach_all(&mut ranks);
    for command in ["open-and-close-all", "close-all"] {
        assert_eq!(ranks[1].ask(command), "ok");
        for other in [0, 2] {
            assert_eq!(sees(&mut ranks[other], 1), ["true", "false"], "after {command}");
        }
        // nor does it take the others for dead, whom it cannot ask for locks any more
        for other in [0, 2] {
            assert_eq!(sees(&mut ranks[1], other), ["true", "false"], "after {command}");
        }
    }
    ranks[2].kill();
    for watcher in [0, 1] {
        wait_until("the death", || sees(&mut ranks[watcher], 2) == ["false", "true"]);
    }
    ranks[1].kill();
    wait_until("the death of a rank without locks", || sees(&mut ranks[0], 1) == ["false", "true"]);
}

#[test]
fn a_dying_rank_is_blamed_and_its_memory_is_not_reused() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "job", 2);
    attach_all(&mut ranks);
    let [watcher, dying] = &mut ranks[..] else { unreachable!() };
    let held = while_dying(dying, || {
        wait_until("the death", || watcher.ask("alive 1") == "false");
        assert_eq!(watcher.ask("ended 1"), "false", "a thread of it can still write");
    });
    if !held {
        println!("SKIPPED: this user may not trace its children");
        return;
    }
    wait_until("the end of all threads", || watcher.ask("ended 1") == "true");
}

#[test]
fn a_rank_that_executes_another_program_is_dead_and_its_memory_free() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "job", 2);
    attach_all(&mut ranks);
    assert_eq!(ranks[1].ask("exec"), "ok");
    wait_until("the other program", || sees(&mut ranks[0], 1) == ["false", "true"]);
}

#[test]
fn a_stopped_rank_is_alive() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "job", 2);
    attach_all(&mut ranks);
    ranks[1].signal(Signal::STOP);
    wait_until("the stop", || ranks[0].ask("state 1") == "Stopped");
    assert_eq!(sees(&mut ranks[0], 1), ["true", "false"]);
    ranks[1].signal(Signal::CONT);
    assert_eq!(ranks[1].ask("alive 0"), "true");
}

/// A program that has replaced or lost its threads, or may start none: the record lock is the first witness then.
#[test]
fn a_rank_without_an_owner_thread_is_seen_to_live_and_to_die() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can play another user, whose threads can be limited");
        return;
    }
    let scratch = Scratch::new();
    let other = 23456;
    std::os::unix::fs::chown(&scratch.0, Some(other), None).unwrap();
    let mut ranks: Vec<Rank> = (0..2)
        .map(|rank| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command.uid(other);
            Rank::spawn_by(command, &scratch.meet(), "job", rank, 2)
        })
        .collect();
    for rank in &mut ranks {
        assert_eq!(rank.ask("thread-limit 1"), "ok");
    }
    attach_all(&mut ranks);
    let threads = std::fs::read_dir(format!("/proc/{}/task", ranks[1].pid())).unwrap();
    let names = threads.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")).unwrap());
    assert!(names.into_iter().all(|name| name.trim() != "earlybird-alive"));
    assert_eq!(sees(&mut ranks[0], 1), ["true", "false"]);
    ranks[1].kill();
    wait_until("the death", || sees(&mut ranks[0], 1) == ["false", "true"]);
}

#[test]
fn a_rank_that_left_is_neither_alive_nor_in_the_way() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "job", 2);
    attach_all(&mut ranks);
    assert_eq!(ranks[1].ask("drop"), "ok");
    assert_eq!(sees(&mut ranks[0], 1), ["false", "true"]);
    assert_eq!(ranks[0].ask("left 1"), "true");
}
