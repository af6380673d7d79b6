//! The tests' own jobs are held to account: a job that hangs, fails, or leaves something behind fails its test.

use crate::common::{Job, Player};
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("hang", hang), ("fail", fail), ("litter", litter), ("child", leave_a_child)]);
}

fn is_rank(rank: usize) -> bool {
    std::env::var("EARLYBIRD_RANK").unwrap() == rank.to_string()
}

fn hang(player: &Player) {
    player.say(std::process::id());
    if is_rank(1) {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn fail(_: &Player) {
    assert!(!is_rank(1), "rank 1 fails on purpose");
}

fn litter(_: &Player) {
    let dir = std::path::PathBuf::from(std::env::var("EARLYBIRD_DIR").unwrap());
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("meet-left"), "").unwrap();
}

// The zombie is the point.
#[allow(clippy::zombie_processes)]
fn leave_a_child(player: &Player) {
    let child = std::process::Command::new("sleep").arg("3600").spawn().unwrap();
    player.say(child.id());
}

/// What the test says in failing.
fn refused(job: impl FnOnce() + std::panic::UnwindSafe) -> String {
    let panic = std::panic::catch_unwind(job).expect_err("the job passed");
    *panic.downcast::<String>().unwrap()
}

fn is_gone(pid: &str) -> bool {
    // A process that has ended may still be a zombie of whoever inherited it.
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat[stat.rfind(')').unwrap()..].starts_with(") Z"),
        Err(_) => true,
    }
}

fn must_go(pid: &str) {
    for _ in 0..5000 {
        if is_gone(pid) {
            return;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("process {pid} outlives its job");
}

#[test]
fn a_job_that_hangs_is_killed_and_told_about() {
    let message = refused(|| drop(Job::new("hang", 2).watchdog(Duration::from_secs(2)).run()));
    assert!(message.contains("the job hangs") && message.contains("alive until now: [1]"), "{message}");
    let said = message.rsplit("said [\"").next().unwrap();
    must_go(&said[..said.find('"').unwrap()]);
}

#[test]
fn a_rank_that_fails_fails_its_job_with_what_it_printed() {
    let message = refused(|| drop(Job::new("fail", 2).run()));
    assert!(message.contains("a rank failed") && message.contains("rank 1 fails on purpose"), "{message}");
}

#[test]
fn what_a_job_leaves_is_noticed() {
    let message = refused(|| drop(Job::new("litter", 1).run()));
    assert!(message.contains("meet-left"), "{message}");
}

#[test]
fn what_a_rank_starts_goes_with_it() {
    must_go(&Job::new("child", 1).run()[0][0]);
}
