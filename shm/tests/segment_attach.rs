//! Groups that meet: every size sees one arena, different keys do not mix, nothing stays behind.

mod segment_support;

use segment_support::{Rank, Scratch, attach_all, serve_as_rank, team};

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
