//! Code of one's own on the arrival board, model-checked: threads add up their numbers, and whoever comes last makes the sum.
//!
//! ```console
//! cargo run -p earlybird-shm --example last_arriver
//! RUSTFLAGS="--cfg earlybird_loom" cargo run --release -p earlybird-shm --target-dir target/loom --example last_arriver
//! ```
//!
//! The first runs it once, on the machine at hand. The second runs the same lines under every interleaving, with every
//! outdated value that a relaxed load may give, and then a variant without the flags, which must be refused: that all have
//! arrived does not say that what they wrote can be seen. On most machines that variant works, nearly always.

use earlybird_shm::arrivals::ArrivalBoard;
use earlybird_shm::sync::{AtomicU64, Ordering, thread};
use std::sync::Arc;

const PARTIES: usize = 2;

struct Sum {
    board: ArrivalBoard,
    numbers: [AtomicU64; PARTIES],
    /// 1 once the number can be read; orders it.
    written: [AtomicU64; PARTIES],
    total: AtomicU64,
    /// 1 once the total can be read; orders it.
    done: AtomicU64,
}

fn until(flag: &AtomicU64) {
    while flag.load(Ordering::Acquire) == 0 {
        thread::yield_now();
    }
}

impl Sum {
    fn new() -> Sum {
        let words = || std::array::from_fn(|_| AtomicU64::new(0));
        let board = ArrivalBoard::new(PARTIES);
        Sum { board, numbers: words(), written: words(), total: AtomicU64::new(0), done: AtomicU64::new(0) }
    }

    /// Adds the number of `party`: the sum of all. Without `flags` it trusts the arrival board alone, which is wrong.
    fn add(&self, party: usize, number: u64, flags: bool) -> u64 {
        self.numbers[party].store(number, Ordering::Relaxed);
        self.written[party].store(1, Ordering::Release);
        let arrived = self.board.participant(party).arrive(&self.board, 0).expect("a fresh board");
        if arrived.place + 1 < PARTIES {
            until(&self.done);
            return self.total.load(Ordering::Relaxed);
        }
        let number = |party: usize| {
            if flags {
                until(&self.written[party]);
            }
            self.numbers[party].load(Ordering::Relaxed)
        };
        let total = (0..PARTIES).map(number).sum();
        self.total.store(total, Ordering::Relaxed);
        self.done.store(1, Ordering::Release);
        total
    }
}

fn everybody(flags: bool) {
    let sum = Arc::new(Sum::new());
    let others: Vec<_> = (1..PARTIES)
        .map(|party| {
            let sum = sum.clone();
            thread::spawn(move || sum.add(party, 10 + party as u64, flags))
        })
        .collect();
    let mut totals = vec![sum.add(0, 10, flags)];
    totals.extend(others.into_iter().map(|other| other.join().expect("a party that adds")));
    let right: u64 = (0..PARTIES as u64).map(|party| 10 + party).sum();
    assert!(totals.iter().all(|total| *total == right), "wrong sum: {totals:?}, not {right}");
}

#[cfg(not(earlybird_loom))]
fn main() {
    everybody(true);
    println!("the last to arrive made the sum");
}

#[cfg(earlybird_loom)]
fn main() {
    use earlybird_shm::model::explore;

    const WITHOUT: &str = "without-flags";
    if std::env::args().any(|arg| arg == WITHOUT) {
        explore("the sum without flags", None, || everybody(false));
        return;
    }
    explore("the sum", None, || everybody(true));
    // In a process of its own: what fails in a model may abort.
    let twin = std::process::Command::new(std::env::current_exe().expect("this program")).arg(WITHOUT).output();
    let twin = twin.expect("a process for the twin");
    let said = String::from_utf8_lossy(&twin.stderr);
    assert!(!twin.status.success(), "the sum without flags passes: the model shows nothing");
    assert!(said.contains("wrong sum"), "the sum without flags fails, but for another reason:\n{said}");
    println!(
        "the sum without flags is refused: {}",
        said.lines().find(|line| line.contains("wrong sum")).unwrap_or("")
    );
}
