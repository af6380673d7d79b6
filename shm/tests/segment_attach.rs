//! Groups that meet: every size sees one arena, different keys do not mix, nothing stays behind.
#![cfg(not(earlybird_loom))]

mod segment_support;

use std::process::Command;
use std::time::Instant;

use segment_support::{Rank, Scratch, attach_all, serve_as_rank, team, wait_until};

#[test]
fn rank_process() {
    serve_as_rank();
}

/// Every rank writes its word and reads everybody else's; afterwards no file is left.
fn meet(size: usize) {
    let scratch = Scratch::new();
    let dir = scratch.meet();
    let mut ranks = team(&dir, "job", size);
    attach_all(&mut ranks);
    assert_eq!(scratch.files(), Vec::<String>::new());
    for (rank, process) in ranks.iter_mut().enumerate() {
        assert_eq!(process.ask(&format!("write {rank} {}", 1000 + rank)), "ok");
    }
    let pids: Vec<u32> = ranks.iter().map(Rank::pid).collect();
    for process in &mut ranks {
        assert_eq!(process.ask("policy"), "[0, 1]");
        for (other, pid) in pids.iter().enumerate() {
            assert_eq!(process.ask(&format!("read {other}")), (1000 + other).to_string());
            assert_eq!(process.ask(&format!("peer {other}")), pid.to_string());
            assert_eq!(process.ask(&format!("alive {other}")), "true");
        }
        assert_eq!(process.ask(&format!("alive {size}")), "false");
        assert_eq!(process.ask(&format!("peer {size}")), "0");
    }
    // leaving in order is not dying
    let mut last = ranks.pop().unwrap();
    for process in &mut ranks {
        assert_eq!(process.ask("exit"), "ok");
    }
    for other in 0..size - 1 {
        assert_eq!(last.ask(&format!("left {other}")), "true");
    }
    assert_eq!(last.ask(&format!("left {}", size - 1)), "false");
    assert_eq!(last.ask("exit"), "ok");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn one_rank() {
    meet(1);
}

#[test]
fn two_ranks() {
    meet(2);
}

#[test]
fn eight_ranks() {
    meet(8);
}

#[test]
fn sixty_four_ranks() {
    meet(64);
}

/// Joining takes time that grows with the ranks, no faster.
#[test]
fn three_hundred_ranks() {
    many(300);
}

/// The largest number of ranks of a node; `cargo test --release -p earlybird-shm --test segment_attach -- --ignored most`.
#[test]
#[ignore = "starts 1023 processes"]
fn most_ranks() {
    many(earlybird_shm::memory::MAX_RANKS);
}

fn many(size: usize) {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "many", size);
    ranks.iter_mut().for_each(|rank| assert_eq!(rank.ask("rank-ready"), "ok"));
    let started = Instant::now();
    attach_all(&mut ranks);
    let took = started.elapsed();
    println!("{size} ranks: attach {} ms", took.as_millis());
    assert!(took < std::time::Duration::from_secs(5), "{size} ranks took {took:?} to attach");
    assert_eq!(ranks[0].ask(&format!("peer {}", size - 1)), ranks[size - 1].pid().to_string());
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn a_long_path_does_not_hinder_the_socket() {
    let scratch = Scratch::new();
    let long = scratch.0.join("x".repeat(200));
    attach_all(&mut team(&long, "job", 3));
    assert_eq!(std::fs::read_dir(long).unwrap().count(), 0);
}

/// Containers that share the file systems but not the process ids: both ranks are process 1 in their own eyes.
#[test]
fn ranks_in_pid_namespaces_of_their_own() {
    let namespaced = || {
        let mut command = Command::new("unshare");
        command.args(["-p", "-f", "--kill-child", "--mount-proc"]);
        command
    };
    if !namespaced().arg("true").output().is_ok_and(|run| run.status.success()) {
        println!("SKIPPED: this user cannot make pid namespaces");
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.meet();
    let mut ranks: Vec<Rank> = (0..2)
        .map(|rank| {
            let mut command = namespaced();
            command.arg(std::env::current_exe().unwrap());
            Rank::spawn_by(command, &dir, "job", rank, 2)
        })
        .collect();
    attach_all(&mut ranks);
    for (rank, process) in ranks.iter_mut().enumerate() {
        let other = 1 - rank;
        assert_eq!(process.ask(&format!("peer {other}")), "1");
        assert_eq!(process.ask(&format!("alive {other}")), "true");
        assert_eq!(process.ask(&format!("state {other}")), "Running");
    }
    assert_eq!(ranks[0].ask("write 0 9"), "ok");
    assert_eq!(ranks[1].ask("read 0"), "9");
    ranks[1].kill();
    wait_until("the death", || ranks[0].ask("alive 1") == "false");
    assert_eq!(ranks[0].ask("state 1"), "Gone");
}

#[test]
fn the_cpus_of_all_ranks_are_counted_once() {
    let cpus = rustix::thread::sched_getaffinity(None).unwrap();
    let usable: Vec<usize> = (0..rustix::thread::CpuSet::MAX_CPU).filter(|&cpu| cpus.is_set(cpu)).collect();
    let count = |pins: [usize; 2]| {
        let scratch = Scratch::new();
        let mut ranks = team(&scratch.meet(), "job", 2);
        for (process, pin) in ranks.iter_mut().zip(pins) {
            assert_eq!(process.ask(&format!("pin {pin}")), "ok");
        }
        attach_all(&mut ranks);
        let counts = [ranks[0].ask("cpus"), ranks[1].ask("cpus")];
        assert_eq!(counts[0], counts[1]);
        counts[0].parse::<usize>().unwrap()
    };
    assert_eq!(count([usable[0], usable[0]]), 1);
    if let Some(&second) = usable.get(1) {
        // a quota of the control group may allow less than the masks do
        assert!((1..=2).contains(&count([usable[0], second])));
    }
}

/// Prints the figures of docs/internals/memory.md; asserts no time. `cargo test --release --test segment_attach -- --ignored --nocapture`
#[test]
#[ignore = "a measurement, not a check"]
fn measure() {
    const REPEATS: usize = 11;
    for size in [2, 8, 64] {
        let mut attach_us: Vec<u128> = (0..REPEATS)
            .map(|_| {
                let scratch = Scratch::new();
                let mut ranks = team(&scratch.meet(), "job", size);
                // every process is up and waits for its command
                ranks.iter_mut().for_each(|rank| assert_eq!(rank.ask("no-dir"), "ok"));
                let started = Instant::now();
                attach_all(&mut ranks);
                started.elapsed().as_micros()
            })
            .collect();
        attach_us.sort();
        println!(
            "{size} ranks: attach {} us median, {} to {} us",
            attach_us[REPEATS / 2],
            attach_us[0],
            attach_us[REPEATS - 1]
        );
    }
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "job", 2);
    attach_all(&mut ranks);
    println!("is_alive of a living rank (alive of 10000, ns each): {}", ranks[0].ask("alive-ns 1"));
    let killed = Instant::now();
    ranks[1].kill();
    wait_until("the death", || ranks[0].ask("alive 1") == "false");
    println!("seen dead {} us after the kill, asked over a pipe every 5 ms", killed.elapsed().as_micros());
}
