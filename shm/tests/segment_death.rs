//! Ranks that die, stop, fork or turn into another program: what the others see and what stays behind.
#![cfg(not(earlybird_loom))]

mod segment_support;

use earlybird_shm::memory::sweep;
use rustix::process::Signal;
use segment_support::{Rank, Scratch, attach_all, serve_as_rank, team, wait_until, while_traced};

#[test]
fn rank_process() {
    serve_as_rank();
}

/// Starts a group of `size` and stops short of the last rank's attach.
fn almost_met(scratch: &Scratch, size: usize) -> Vec<Rank> {
    let mut ranks = team(&scratch.meet(), "job", size);
    for (rank, process) in ranks.iter_mut().enumerate().take(size - 1) {
        process.tell("attach");
        process.wait_claimed(rank);
    }
    ranks
}

/// Sockets of the rendezvous: those that listen, by a name in the directory and by an abstract one, and one for each connection.
fn sockets(scratch: &Scratch) -> usize {
    let names: Vec<String> = scratch.files().iter().map(|name| name.replace("meet-", "")).collect();
    let open = std::fs::read_to_string("/proc/net/unix").unwrap();
    open.lines().filter(|line| names.iter().any(|name| line.ends_with(name))).count()
}

fn met(scratch: &Scratch, size: usize) -> Vec<Rank> {
    let mut ranks = almost_met(scratch, size);
    ranks[size - 1].tell("attach");
    for process in &mut ranks {
        assert_eq!(process.answer(), "ok");
    }
    ranks
}

#[test]
fn a_killed_rank_is_seen_before_it_is_reaped() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 3);
    ranks[2].kill();
    for rank in ranks.iter_mut().take(2) {
        wait_until("the death", || rank.ask("alive 2") == "false");
        assert_eq!(rank.ask("state 2"), "Gone");
        assert_eq!(rank.ask("left 2"), "false");
        assert_eq!(rank.ask("alive 0"), "true");
        assert_eq!(rank.ask("alive 1"), "true");
    }
    // Not reaped, since its parent has not waited for it; its last thread may end after the one that its life is known by.
    let stat = || std::fs::read_to_string(format!("/proc/{}/stat", ranks[2].pid())).unwrap();
    wait_until("the end of its last thread", || stat().contains(") Z "));
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn nothing_stays_when_all_are_killed_after_attach() {
    let scratch = Scratch::new();
    let ranks = met(&scratch, 3);
    ranks.iter().for_each(Rank::kill);
    drop(ranks);
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn a_death_during_attach_ends_it_for_all_and_leaves_nothing() {
    for victim in 0..3 {
        let scratch = Scratch::new();
        let mut ranks = almost_met(&scratch, 4);
        ranks[victim].kill();
        for rank in (0..3).filter(|rank| *rank != victim) {
            let answer = ranks[rank].answer();
            assert!(
                answer.starts_with(&format!("EB_PEER_DIED rank {victim} (pid {}", ranks[victim].pid())),
                "{answer}"
            );
        }
        assert_eq!(scratch.files(), Vec::<String>::new());
        // the key is free again
        let mut again = team(&scratch.meet(), "job", 2);
        attach_all(&mut again);
    }
}

#[test]
fn a_late_comer_learns_of_a_death() {
    let scratch = Scratch::new();
    let mut ranks = almost_met(&scratch, 3);
    // rank 0 stays but cannot notice; rank 1 is gone when rank 2 comes
    ranks[0].signal(Signal::STOP);
    ranks[1].kill();
    let pid = ranks[1].pid();
    wait_until("the death", || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z "));
    let before = sockets(&scratch);
    ranks[2].tell("attach");
    // Otherwise rank 0 could end the rendezvous before rank 2 has found it.
    wait_until("the connection of rank 2", || sockets(&scratch) > before);
    ranks[0].signal(Signal::CONT);
    for rank in [0, 2] {
        let answer = ranks[rank].answer();
        assert!(answer.starts_with(&format!("EB_PEER_DIED rank 1 (pid {pid}")), "{answer}");
    }
}

#[test]
fn what_all_killed_during_attach_leave_is_removed_by_the_next_start() {
    for next_key in ["job", "another"] {
        removed_by_the_next_start_of(next_key);
    }
}

fn removed_by_the_next_start_of(next_key: &str) {
    let scratch = Scratch::new();
    let ranks = almost_met(&scratch, 3);
    ranks.iter().for_each(Rank::kill);
    drop(ranks);
    let left: Vec<String> = scratch.files().iter().map(|name| name[..5].to_owned()).collect();
    assert_eq!(left, ["meet-"]);
    let mut next = team(&scratch.meet(), next_key, 2);
    attach_all(&mut next);
    // the creator cleans up after others when it has met, just before it returns
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn sweep_removes_the_dead_and_spares_the_living() {
    let scratch = Scratch::new();
    let ranks = almost_met(&scratch, 3);
    assert_eq!(sweep(Some(&scratch.meet())), Ok(vec![]));
    ranks.iter().for_each(Rank::kill);
    drop(ranks);
    assert_eq!(sweep(Some(&scratch.meet())).unwrap().len(), 1);
    assert_eq!(scratch.files(), Vec::<String>::new());
    assert_eq!(sweep(Some(&scratch.0.join("absent"))), Ok(vec![]));
}

#[test]
fn executing_another_program_is_a_death() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 2);
    ranks[1].tell("exec");
    assert_eq!(ranks[1].answer(), "ok");
    wait_until("the end of the rank", || ranks[0].ask("alive 1") == "false");
    assert_eq!(ranks[0].ask("state 1"), "Gone");
    assert_eq!(ranks[0].ask("left 1"), "false");
    // The process itself is there; the kernel renames it after it has let go of the old program's memory.
    let stat = format!("/proc/{}/stat", ranks[1].pid());
    wait_until("the other program", || std::fs::read_to_string(&stat).unwrap().contains("(sleep)"));
}

#[test]
fn a_stopped_rank_is_stopped_and_not_dead() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 2);
    assert_eq!(ranks[0].ask("state 1"), "Running");
    ranks[1].signal(Signal::STOP);
    wait_until("the stop", || ranks[0].ask("state 1") == "Stopped");
    assert_eq!(ranks[0].ask("alive 1"), "true");
    ranks[1].signal(Signal::CONT);
    wait_until("the continuation", || ranks[0].ask("state 1") == "Running");
    assert_eq!(ranks[1].ask("alive 0"), "true");
}

#[test]
fn a_rank_under_a_debugger_is_traced_and_not_dead() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 2);
    let (first, second) = ranks.split_at_mut(1);
    let traced = while_traced(second[0].pid(), || {
        wait_until("the trace", || first[0].ask("state 1") == "Traced");
        assert_eq!(first[0].ask("alive 1"), "true");
    });
    if !traced {
        println!("SKIPPED: this process may not trace another");
        return;
    }
    assert_eq!(second[0].ask("alive 0"), "true");
    assert_eq!(first[0].ask("state 1"), "Running");
}

/// Whatever moment a rank is killed at, the others are told, and the next group of that key can meet.
#[test]
fn killed_at_any_moment_of_attach() {
    let scratch = Scratch::new();
    for round in 0..24_u64 {
        let mut ranks = team(&scratch.meet(), "job", 4);
        ranks.iter_mut().for_each(|rank| assert_eq!(rank.ask("timeout-ms 500"), "ok"));
        let victim = (round % 4) as usize;
        ranks[victim].tell("attach");
        for (rank, process) in ranks.iter_mut().enumerate() {
            if rank != victim {
                process.tell("attach");
            }
        }
        // a moment, not a duration: which step it hits is left to chance
        std::thread::sleep(std::time::Duration::from_micros(round * 40));
        ranks[victim].kill();
        for (rank, process) in ranks.iter_mut().enumerate() {
            if rank != victim {
                let answer = process.answer();
                let died = format!("EB_PEER_DIED rank {victim} ");
                // killed before its claim, it was never there; killed after everybody's, it met them
                let known = answer == "ok" || answer.starts_with(&died) || answer.starts_with("EB_TIMEOUT");
                assert!(known, "round {round}, rank {rank}: {answer:?}");
            }
        }
        drop(ranks);
        sweep(Some(&scratch.meet())).unwrap();
        assert_eq!(scratch.files(), Vec::<String>::new(), "round {round}");
    }
    attach_all(&mut team(&scratch.meet(), "job", 2));
}

#[test]
fn a_forked_child_is_not_a_member_and_its_end_is_nobodys_death() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 2);
    assert_eq!(ranks[1].ask("fork"), "parent false child true");
    assert_eq!(ranks[0].ask("alive 1"), "true");
    assert_eq!(ranks[0].ask("left 1"), "false");
}

/// A rank brings the others together, forks in another thread and is killed: its child has the socket at which late ranks come.
#[test]
fn late_ranks_do_not_wait_for_the_child_of_a_dead_one() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "forked", 4);
    ranks[0].ask("fork-beside");
    ranks[0].tell("attach");
    ranks[0].wait_claimed(0);
    ranks[1].tell("attach");
    ranks[1].wait_claimed(1);
    let children = format!("/proc/{}/task", ranks[0].pid());
    let has_child = || {
        let tasks = std::fs::read_dir(&children).unwrap().flatten();
        tasks
            .into_iter()
            .any(|task| std::fs::read_to_string(task.path().join("children")).is_ok_and(|all| !all.is_empty()))
    };
    wait_until("the child", has_child);
    ranks[0].kill();
    assert!(ranks[1].answer().starts_with("EB_PEER_DIED rank 0 "));
    let answer = ranks[2].ask("attach");
    assert!(answer.starts_with("EB_SYSTEM joining: process") && answer.contains("a child of it lives on"), "{answer}");
    assert_eq!(scratch.files(), Vec::<String>::new(), "the child has a socket, and no name leads there");
    assert!(ranks[3].ask("refuse no room").ends_with("rank 3: no room"));
}

#[test]
fn a_rank_is_dead_even_if_its_child_lives_on() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 2);
    let child = ranks[1].ask("fork-stay");
    ranks[1].kill();
    wait_until("the death", || ranks[0].ask("alive 1") == "false");
    let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
    assert!(!stat.contains(") Z "), "{stat}");
}

#[test]
fn a_timeout_is_the_same_for_all_and_leaves_nothing() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "job", 3);
    ranks[0].ask("timeout-ms 500");
    ranks[0].tell("attach");
    ranks[0].wait_claimed(0);
    // rank 1 would wait for ever, but not after rank 0 has given up
    ranks[1].tell("attach");
    for rank in ranks.iter_mut().take(2) {
        let answer = rank.answer();
        assert!(answer.starts_with("EB_TIMEOUT after 500ms rank(s) ["), "{answer}");
        assert!(answer.contains("2] had not arrived"), "{answer}");
    }
    assert_eq!(scratch.files(), Vec::<String>::new());
}
