//! How fast a rank's large deposits go into memory that other processors have in their caches, and the stores that suit that.
//!
//! An ordinary store first takes the line from all caches that have it. Between processors that share a cache this is fast, and the
//! reader finds the line near. Between others, as those of AMD's core complexes, 64 KiB take four times as long, more than memory
//! itself: there the stores go past the caches, and the reader reads from memory (`docs/results/2026-11-26.md`). What is far from
//! what no interface says in a virtual machine, and a hypervisor moves processors at any time; so each rank times its own
//! deposits. Both ways write the same bytes before the same mark: no other rank needs to know.

use crate::clock::now_ns;
use crate::kernels;

/// Shorter deposits are always ordinary: a few lines are on their way while the next are written.
const LEAST_BYTES: usize = 40 * 1024;
/// A slow deposit takes longer than this for a KiB: near ones take 60 to 130 ns, far ones 430.
const SLOW_NS_PER_KIB: u64 = 250;
/// Slow deposits in turn before others go past the caches: one may have been interrupted.
const SLOW_IN_TURN: u8 = 2;
/// Deposits past the caches before the next ordinary one, which shows whether they are still slow.
const PAST_CACHES_IN_TURN: u8 = 16;

/// The pace of a rank's large deposits so far.
#[derive(Debug, Default)]
pub(super) struct StorePace {
    slow: u8,
    past_caches: u8,
}

/// The stores of one deposit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    /// Into the caches.
    Ordinary,
    /// Into the caches, and timed since then.
    Timed { begun_ns: u64 },
    /// Past the caches.
    PastCaches,
}

impl StorePace {
    /// The stores for the next deposit, of `bytes`.
    pub(super) fn begin(&mut self, bytes: usize) -> Stores {
        if bytes < LEAST_BYTES || !kernels::taking_lines_is_slow() {
            return Stores::Ordinary;
        }
        self.next(now_ns())
    }

    /// Takes note that a deposit of `bytes` has ended.
    pub(super) fn end(&mut self, stores: Stores, bytes: usize) {
        if let Stores::Timed { begun_ns } = stores {
            self.add(now_ns().saturating_sub(begun_ns), bytes);
        }
    }

    fn next(&mut self, now_ns: u64) -> Stores {
        if self.slow < SLOW_IN_TURN || self.past_caches == PAST_CACHES_IN_TURN {
            self.past_caches = 0;
            return Stores::Timed { begun_ns: now_ns };
        }
        self.past_caches += 1;
        Stores::PastCaches
    }

    fn add(&mut self, took_ns: u64, bytes: usize) {
        let is_slow = took_ns * 1024 > SLOW_NS_PER_KIB * bytes as u64;
        self.slow = if is_slow { (self.slow + 1).min(SLOW_IN_TURN) } else { 0 };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 64 << 10;
    const NEAR_NS: u64 = 7_400;
    const FAR_NS: u64 = 28_000;

    /// Deposits of which each takes that long if its stores are ordinary; how many went past the caches.
    fn deposit(pace: &mut StorePace, took_ns: &[u64]) -> usize {
        let mut past_caches = 0;
        for took_ns in took_ns {
            match pace.next(0) {
                Stores::PastCaches => past_caches += 1,
                _ => pace.add(*took_ns, BYTES),
            }
        }
        past_caches
    }

    #[test]
    fn near_deposits_stay_in_the_caches_and_an_interrupt_changes_nothing() {
        let mut took_ns = [NEAR_NS; 100];
        took_ns[40] = 1_000_000;
        assert_eq!(deposit(&mut StorePace::default(), &took_ns), 0);
    }

    #[test]
    fn far_deposits_go_past_the_caches_but_for_those_that_are_timed() {
        // Two at first, and one after sixteen.
        assert_eq!(deposit(&mut StorePace::default(), &[FAR_NS; 2 + 10 * 17]), 10 * 16);
    }

    #[test]
    fn deposits_return_to_the_caches_when_the_processors_are_near_again() {
        let mut pace = StorePace::default();
        assert_eq!(deposit(&mut pace, &[FAR_NS; 10]), 8);
        assert_eq!(deposit(&mut pace, &[NEAR_NS; 100]), 8);
    }

    #[test]
    fn small_deposits_are_not_timed() {
        assert_eq!(StorePace::default().begin(LEAST_BYTES - 1), Stores::Ordinary);
    }
}
