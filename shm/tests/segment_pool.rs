//! Regions allocated and released, among processes: by the last holder, also when others died, with the budget kept.
#![cfg(not(earlybird_loom))]

mod segment_support;

use rustix::process::Signal;
use segment_support::{REGION, Rank, Scratch, attach_all, serve_as_rank, team, wait_until};

#[test]
fn rank_process() {
    serve_as_rank();
}

/// Budget of these tests, and the part that the group of all ranks takes.
const TOTAL: u64 = 1 << 20;
const BASE: u64 = 100 << 10;

fn met(scratch: &Scratch, size: usize) -> Vec<Rank> {
    let mut ranks = team(&scratch.meet(), "job", size);
    attach_all(&mut ranks);
    ranks.iter_mut().for_each(|rank| assert_eq!(rank.ask(&format!("budget {TOTAL} {BASE}")), "ok"));
    ranks
}

fn grant(answer: &str) -> (usize, u64, u64) {
    let mut parts = answer.split(':');
    let mut next = || parts.next().and_then(|part| part.parse().ok()).unwrap_or_else(|| panic!("{answer}"));
    (next() as usize, next(), next())
}

fn taken(rank: &mut Rank) -> u64 {
    rank.ask("taken").parse().unwrap()
}

#[test]
fn the_last_holder_gives_a_region_back_and_the_next_finds_it_empty() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 3);
    let before = taken(&mut ranks[0]);
    assert_eq!(before, 0, "nothing is taken before something is allocated");
    let (slot, id, bytes) = grant(&ranks[0].ask("allocate 65536 0,2"));
    assert_eq!((slot, bytes), (1, 65536));
    // the table and the lines
    assert_eq!(taken(&mut ranks[0]), 8192 + 8192);
    assert_eq!(ranks[2].ask(&format!("write-region {slot} 3 77")), "ok");
    assert_eq!(ranks[0].ask(&format!("read-region {slot} 3")), "77");
    ranks[0].ask(&format!("let-go {slot} {id}"));
    // twice is once, and a stranger's word counts nothing
    ranks[0].ask(&format!("let-go {slot} {id}"));
    ranks[1].ask(&format!("let-go {slot} {id}"));
    assert_eq!(ranks[2].ask(&format!("read-region {slot} 3")), "77");
    ranks[2].ask(&format!("let-go {slot} {}", id + 1));
    assert_eq!(taken(&mut ranks[1]), 16384);
    ranks[2].ask(&format!("let-go {slot} {id}"));
    assert_eq!(taken(&mut ranks[1]), 8192);
    let (again, other, _) = grant(&ranks[1].ask("allocate 65536 1,2"));
    assert!(again == slot && other != id, "the region is used again under another number");
    assert_eq!(ranks[1].ask(&format!("read-region {slot} 3")), "0");
    // the late word of a former holder is not about this loan
    ranks[2].ask(&format!("let-go {slot} {id}"));
    assert_eq!(ranks[1].ask("allocate 65536 0,1").split(':').next(), Some("2"));
    assert_eq!(ranks[1].ask("read-region 4096 0"), "EB_USAGE");
}

#[test]
fn the_budget_is_kept_and_comes_back() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 2);
    let mut loans = Vec::new();
    let answer = loop {
        let answer = ranks[0].ask("allocate 100000 0,1");
        if answer.starts_with("EB_") {
            break answer;
        }
        loans.push(grant(&answer));
    };
    let used: u64 = BASE + loans.iter().map(|loan| loan.2).sum::<u64>();
    assert_eq!(loans.len() as u64, (TOTAL - BASE) / 100_000);
    assert!(
        answer.starts_with(&format!("EB_NO_SPACE 100000 bytes of shared memory are needed and {} are", TOTAL - used))
    );
    assert!(answer.contains("EARLYBIRD_ARENA_MAX"), "{answer}");
    // two at once: both or none
    let (slot, id, _) = loans[0];
    ranks.iter_mut().for_each(|rank| assert_eq!(rank.ask(&format!("let-go {slot} {id}")), "ok"));
    assert!(ranks[1].ask("allocate 100000 0,1 0,1").starts_with("EB_NO_SPACE 200000 "));
    assert_eq!(grant(&ranks[1].ask("allocate 100000 0,1")).0, slot);
}

#[test]
fn what_the_dead_held_is_given_back() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 3);
    let all = (TOTAL - BASE) / 2;
    let (first, id, _) = grant(&ranks[0].ask(&format!("allocate {all} 0,1")));
    let (second, ..) = grant(&ranks[1].ask(&format!("allocate {all} 1,2")));
    assert!(ranks[2].ask("allocate 4096 2").starts_with("EB_NO_SPACE"));
    ranks[1].kill();
    wait_until("the end of all threads", || ranks[0].ask("ended 1") == "true");
    // the survivor's word is the last
    let before = taken(&mut ranks[0]);
    ranks[0].ask(&format!("let-go {first} {id}"));
    assert_eq!(taken(&mut ranks[0]), before - 8192);
    assert_eq!(grant(&ranks[0].ask(&format!("allocate {all} 0,2"))).0, first);
    // nobody is left to say it: whoever needs it looks for itself
    ranks[2].kill();
    wait_until("the end of all threads", || ranks[0].ask("ended 2") == "true");
    assert_eq!(grant(&ranks[0].ask(&format!("allocate {all} 0"))).0, second);
}

#[test]
fn a_rank_that_was_not_told_lets_go_by_the_origin() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 2);
    let before = taken(&mut ranks[0]);
    ranks[0].ask("allocate 4096 0,1 0 1,0");
    assert!(taken(&mut ranks[0]) > before + 3 * 8192);
    ranks[0].ask("release_all_of");
    ranks[1].ask("release_all_of");
    assert_eq!(taken(&mut ranks[0]), 8192, "only the table is left");
}

#[test]
fn a_stopped_holder_of_the_lock_is_a_timeout_and_a_dead_one_nothing() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 3);
    let (slot, id, _) = grant(&ranks[0].ask("allocate 4096 0,2"));
    assert_eq!(ranks[1].ask("lock-pool 1"), "ok");
    ranks[1].signal(Signal::STOP);
    let answer = ranks[0].ask("allocate 4096 0,1");
    assert!(answer.starts_with("EB_TIMEOUT after 300ms rank(s) [1] had not arrived"), "{answer}");
    assert!(answer.contains(&format!("process {}", ranks[1].pid())), "{answer}");
    // a drop does not wait for ever: the rest is done at the next occasion
    assert_eq!(ranks[2].ask(&format!("let-go {slot} {id}")), "ok");
    ranks[1].kill();
    wait_until("the end of all threads", || ranks[0].ask("ended 1") == "true");
    ranks[0].ask(&format!("let-go {slot} {id}"));
    let before = taken(&mut ranks[0]);
    let (other, ..) = grant(&ranks[2].ask("allocate 4096 2"));
    assert_eq!((other, taken(&mut ranks[0])), (slot, before), "released first, then allocated again");
}

/// A thread that waits for the lock keeps no other thread of its process waiting.
#[test]
fn a_drop_takes_a_second_at_most_whoever_else_waits_for_the_lock() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 2);
    let (slot, id, _) = grant(&ranks[0].ask("allocate 4096 0"));
    assert_eq!(ranks[1].ask("lock-pool 1"), "ok");
    ranks[1].signal(Signal::STOP);
    let longest = ranks[0].ask(&format!("let-go-beside-a-wait {slot} {id} 4"));
    let longest: u64 = longest.parse().unwrap_or_else(|_| panic!("rank 0 hung: {longest:?}"));
    println!("let go within {longest} ms beside a thread that waits without a deadline");
    assert!((900..5000).contains(&longest), "{longest} ms");
}

/// A word that names no rank is no rank's lock, whatever has written it.
#[test]
fn noise_in_the_word_of_the_lock_hangs_nobody() {
    let scratch = Scratch::new();
    let mut ranks = met(&scratch, 2);
    for word in [2, 1022, 65534, 0] {
        assert_eq!(ranks[0].ask(&format!("lock-pool {word}")), "ok");
        let answer = ranks[0].ask("allocate 4096 0");
        assert!(grant(&answer).2 >= 4096, "{word}: {answer}");
    }
}

#[test]
fn regions_run_out_where_files_are_limited() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "job", 1);
    let limit = earlybird_shm::memory::POOL_BYTES + 3 * REGION;
    assert_eq!(ranks[0].ask(&format!("file-limit {limit}")), "ok");
    attach_all(&mut ranks);
    ranks[0].ask(&format!("budget {TOTAL} {BASE}"));
    let (slot, id, _) = grant(&ranks[0].ask("allocate 4096 0"));
    assert_eq!((slot, grant(&ranks[0].ask("allocate 4096 0")).0), (1, 2));
    let answer = ranks[0].ask("allocate 4096 0");
    assert!(answer.starts_with("EB_NO_SPACE 4096 ") && answer.contains("all 3 regions are allocated"), "{answer}");
    ranks[0].ask(&format!("let-go {slot} {id}"));
    assert_eq!(grant(&ranks[0].ask("allocate 4096 0")).0, 1);
}
