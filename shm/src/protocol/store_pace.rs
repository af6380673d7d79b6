//! The pace of a rank's large deposits, whose lines other processors have in their caches, and the stores that suit it.
//!
//! An ordinary store first takes the line from all caches that have it. Between processors that share a cache this is fast, and the
//! reader finds the line near. Between others, as those of AMD's core complexes, 64 KiB take four times as long, more than memory
//! itself: there the stores go past the caches, and the reader reads from memory (`docs/results/2026-11-26.md`). No interface of
//! a virtual machine tells which processors share a cache, and a hypervisor moves them at any time; so each rank times its own
//! deposits. Both ways write the same bytes before the same mark: no other rank needs to know.

use super::collective::{Collective, Side};
#[cfg(not(earlybird_loom))]
use crate::clock::now_ns;
use crate::kernels;

/// A model has deposits of a few bytes, and no clock.
#[cfg(earlybird_loom)]
fn now_ns() -> u64 {
    0
}

/// Shorter deposits are always ordinary: so many lines are on their way at a time, while the next are written.
const LEAST_BYTES: usize = 8 * 1024 + 1;
/// Of deposits that are not slow one in so many is timed: reading the clock twice takes as long as 400 bytes.
const TIMED_ONE_IN: u8 = 8;
/// A slow deposit takes longer than this for a KiB: near ones take 60 to 130 ns, far ones 430.
const SLOW_NS_PER_KIB: u64 = 250;
/// Builds for tests find all deposits slow, so that stores of both kinds are met on every machine.
const ALL_ARE_SLOW: bool = cfg!(feature = "fault");
/// Bytes of the smallest accumulator whose first contribution goes past the caches: 4 MiB gained nothing.
const FIRST_PAST_CACHES_BYTES: usize = 8 << 20;
/// Slow deposits in turn before others go past the caches: one may have been interrupted.
const SLOW_IN_TURN: u8 = 2;
/// Deposits past the caches before the next ordinary one, which shows whether they are still slow.
const PAST_CACHES_IN_TURN: u8 = 16;

/// The pace of a rank's large deposits so far.
#[derive(Debug, Default)]
pub(super) struct StorePace {
    /// Timed deposits in turn that were slow.
    slow: u8,
    /// Deposits since the last one that was timed.
    untimed: u8,
}

/// The stores of one deposit, or of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stores {
    /// Into the caches.
    Ordinary,
    /// Into the caches, and timed since then.
    Timed { begun_ns: u64 },
    /// Past the caches.
    PastCaches,
}

impl Stores {
    /// The stores for a result of so many bytes: past the caches where it is large, but not where it replaces the contribution of this rank,
    /// which was just read. In a broadcast in one buffer nothing is: the receivers have contributed nothing.
    #[inline]
    pub(super) fn of_result(of: Collective, bytes: usize, in_windows: bool, in_place: bool) -> Stores {
        let traits = of.traits();
        let is_large = bytes >= kernels::past_caches_min_bytes(in_windows || !traits.folds);
        let replaced = in_place && traits.senders == Side::All;
        if is_large && !replaced { Stores::PastCaches } else { Stores::Ordinary }
    }

    /// The stores for the first contribution to an accumulator of so many bytes, of which results are written by `results`. Two
    /// ranks took 0.76 to 0.88 of the time past the caches, four ranks on two processors up to 1.24 (`docs/results/2026-11-28.md`).
    #[inline]
    pub(super) fn of_first(results: Stores, bytes: usize, ranks: usize) -> Stores {
        match results {
            Stores::PastCaches if bytes >= FIRST_PAST_CACHES_BYTES && ranks == 2 && kernels::taking_lines_is_slow() => {
                Stores::PastCaches
            }
            _ => Stores::Ordinary,
        }
    }
}

impl StorePace {
    /// The stores for the next deposit, of `bytes`.
    pub(super) fn begin(&mut self, bytes: usize) -> Stores {
        if bytes < LEAST_BYTES || !kernels::taking_lines_is_slow() {
            return Stores::Ordinary;
        }
        self.next(now_ns)
    }

    /// The stores for a deposit whose readers have such stores for all of it: where those go past the caches, it does not fit into them. Two
    /// ranks took 0.78 and 0.75 of the time for a broadcast of 16 MiB so (`docs/results/2026-11-28.md`).
    pub(super) fn begin_for(&mut self, results: Stores, bytes: usize) -> Stores {
        match results {
            Stores::PastCaches if kernels::taking_lines_is_slow() => Stores::PastCaches,
            _ => self.begin(bytes),
        }
    }

    /// Takes note that a deposit of `bytes` has ended.
    pub(super) fn end(&mut self, stores: Stores, bytes: usize) {
        if let Stores::Timed { begun_ns } = stores {
            self.add(ALL_ARE_SLOW || is_slow(now_ns().saturating_sub(begun_ns), bytes));
        }
    }

    fn next(&mut self, now_ns: impl Fn() -> u64) -> Stores {
        let (stores, most_untimed) = match self.slow {
            0 => (Stores::Ordinary, TIMED_ONE_IN - 1),
            SLOW_IN_TURN.. => (Stores::PastCaches, PAST_CACHES_IN_TURN),
            _ => (Stores::Ordinary, 0),
        };
        if self.untimed >= most_untimed {
            self.untimed = 0;
            return Stores::Timed { begun_ns: now_ns() };
        }
        self.untimed += 1;
        stores
    }

    fn add(&mut self, is_slow: bool) {
        self.slow = if is_slow { (self.slow + 1).min(SLOW_IN_TURN) } else { 0 };
    }
}

fn is_slow(took_ns: u64, bytes: usize) -> bool {
    took_ns.saturating_mul(1024) > SLOW_NS_PER_KIB.saturating_mul(bytes as u64)
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;

    const BYTES: usize = 64 << 10;
    const NEAR_NS: u64 = 7_400;
    const FAR_NS: u64 = 28_000;

    /// Deposits of which each takes that long if its stores are ordinary; how many went past the caches.
    fn deposit(pace: &mut StorePace, took_ns: &[u64]) -> usize {
        let mut past_caches = 0;
        for took_ns in took_ns {
            match pace.next(|| 0) {
                Stores::PastCaches => past_caches += 1,
                Stores::Timed { .. } => pace.add(is_slow(*took_ns, BYTES)),
                Stores::Ordinary => {}
            }
        }
        past_caches
    }

    #[test]
    fn near_deposits_stay_in_the_caches_and_an_interrupt_changes_nothing() {
        let mut took_ns = [NEAR_NS; 200];
        // The thirteenth that is timed.
        took_ns[12 * 8 + 7] = 1_000_000;
        assert_eq!(deposit(&mut StorePace::default(), &took_ns), 0);
    }

    #[test]
    fn far_deposits_go_past_the_caches_but_for_those_that_are_timed() {
        // Seven that are not timed and two that are at first, then one after sixteen.
        assert_eq!(deposit(&mut StorePace::default(), &[FAR_NS; 9 + 10 * 17]), 10 * 16);
    }

    #[test]
    fn deposits_return_to_the_caches_when_the_processors_are_near_again() {
        let mut pace = StorePace::default();
        assert_eq!(deposit(&mut pace, &[FAR_NS; 17]), 8);
        assert_eq!(deposit(&mut pace, &[NEAR_NS; 100]), 8);
    }

    #[test]
    fn large_results_go_past_the_caches_unless_they_replace_what_was_just_read() {
        let bytes = 64 << 20;
        let stores = |of: Collective, in_place| Stores::of_result(of, bytes, false, in_place);
        for of in [Collective::AllReduce, Collective::AllGather, Collective::Broadcast, Collective::Scatter] {
            assert_eq!(stores(of, false), Stores::PastCaches, "{}", of.name());
        }
        assert_eq!(stores(Collective::AllReduce, true), Stores::Ordinary);
        assert_eq!(stores(Collective::AllToAll, true), Stores::Ordinary);
        assert_eq!(stores(Collective::Broadcast, true), Stores::PastCaches);
        assert_eq!(Stores::of_result(Collective::Broadcast, 1 << 20, false, true), Stores::Ordinary);
    }

    #[test]
    fn results_that_are_moved_go_past_the_caches_later() {
        let bytes = kernels::past_caches_min_bytes(false);
        let stores = |of: Collective, in_windows| Stores::of_result(of, bytes, in_windows, false);
        assert_eq!(stores(Collective::AllReduce, false), Stores::PastCaches);
        assert_eq!(stores(Collective::ReduceScatter, true), Stores::Ordinary);
        assert_eq!(stores(Collective::Broadcast, false), Stores::Ordinary);
    }

    #[test]
    fn small_deposits_are_not_timed() {
        assert_eq!(StorePace::default().begin(LEAST_BYTES - 1), Stores::Ordinary);
    }

    #[test]
    fn what_is_read_past_the_caches_is_deposited_so_where_taking_lines_is_slow() {
        let first = |results| StorePace::default().begin_for(results, BYTES);
        assert_eq!(first(Stores::PastCaches) == Stores::PastCaches, kernels::taking_lines_is_slow());
        assert_eq!(first(Stores::Ordinary), Stores::Ordinary);
    }
}
