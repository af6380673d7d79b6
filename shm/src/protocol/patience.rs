//! Settings of waiting: how long a rank spins and yields before it sleeps, and when it is awake again, adapted to its own waits.

use crate::config::WaitPreset;
use std::ops::Range;

/// The settings of a rank's waits, and their history.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The preset in force.
    pub preset: WaitPreset,
    /// True if there are more ranks than CPUs that they may use.
    pub oversubscribed: bool,
    /// Deadline of one wait; `None` waits for ever (deaths are noticed all the same).
    pub timeout_ns: Option<u64>,
    /// This rank's own long waits so far, but for the last one.
    history: WaitHistory,
    /// The last long wait, which counts from the next one on: who leaves a wait is in a hurry.
    last_ns: Option<u64>,
}

impl Patience {
    /// The settings of a rank that has not waited yet.
    pub fn new(preset: WaitPreset, oversubscribed: bool, timeout_ns: Option<u64>) -> Self {
        Patience { preset, oversubscribed, timeout_ns, history: WaitHistory::default(), last_ns: None }
    }
}

/// The long waits of a rank so far.
#[derive(Debug, Clone, Copy, Default)]
struct WaitHistory {
    mean_ns: u64,
    /// The usual wait: a running mean in which outliers count little.
    usual_ns: u64,
    /// The mean distance of waits from the usual one.
    spread_ns: u64,
}

/// A sleeper that a timer wakes runs again by then.
const WAKE_UP_NS: u64 = 200_000;
/// The longest time around the expected end of a wait in which a rank stays awake, unless a tenth of the wait is longer.
const AWAKE_MOST_NS: u64 = 2_000_000;

impl WaitHistory {
    /// Adds a wait. The usual one and the spread follow as round-trip times in TCP (RFC 6298), but from a wait that is far off they
    /// take one at the edge of the expected.
    fn add(&mut self, waited_ns: u64) {
        self.mean_ns = (7 * self.mean_ns + waited_ns) / 8;
        let edge_ns = 4 * self.spread_ns + WAKE_UP_NS;
        let taken_ns = waited_ns.clamp(self.usual_ns.saturating_sub(edge_ns), self.usual_ns + edge_ns);
        self.spread_ns = (3 * self.spread_ns + taken_ns.abs_diff(self.usual_ns)) / 4;
        self.usual_ns = (7 * self.usual_ns + taken_ns) / 8;
    }

    /// The times after its start at which a wait is expected to end; `None` where waits differ by more than is worth staying awake
    /// for.
    fn expected_end(&self) -> Option<Range<u64>> {
        let margin_ns = 2 * self.spread_ns + WAKE_UP_NS;
        let is_narrow = 2 * margin_ns <= AWAKE_MOST_NS.max(self.usual_ns / 10);
        is_narrow.then(|| self.usual_ns.saturating_sub(margin_ns)..self.usual_ns + margin_ns)
    }
}

pub(super) mod pace {
    use super::Patience;
    use crate::config::WaitPreset;

    /// Polls without a pause, then polls with one, while every rank has a CPU of its own: about 2 and 60 us.
    #[cfg(not(earlybird_loom))]
    const fn most_looks() -> [u32; 2] {
        [400, 1500]
    }
    /// The polls in a model: none, unless the model is about spinning.
    #[cfg(earlybird_loom)]
    fn most_looks() -> [u32; 2] {
        [crate::model::spins(); 2]
    }
    /// Time of the first inspection of the peers, and the longest interval between two.
    pub const INSPECT_FIRST_NS: u64 = 1_000_000;
    pub const INSPECT_MOST_NS: u64 = 100_000_000;

    /// The next step of a wait that lasts.
    #[derive(Debug, PartialEq, Eq)]
    pub enum Next {
        /// Gives the CPU away and looks again at once.
        Yield,
        /// Sleeps until it is woken, at most that long.
        Sleep { most_ns: u64 },
    }

    impl Patience {
        /// The polls of a wait before it yields or sleeps: first those without a pause. One at most where ranks outnumber the CPUs.
        #[inline(always)]
        pub(in crate::protocol) fn looks(&self) -> [u32; 2] {
            match (self.oversubscribed, most_looks()) {
                (false, looks) => looks,
                (true, [tight, _]) => [tight.min(1), 0],
            }
        }

        /// The polls after a yield, which takes half a microsecond and more even where nobody else wants the CPU: without polls in
        /// between, most changes would come while this rank is in the kernel.
        pub(in crate::protocol) fn looks_after_yield(&self) -> [u32; 2] {
            [0, self.looks()[1] / 8]
        }

        /// The next step of a wait that has lasted `waited_ns`. It sleeps in the end, but is awake when the end is expected: a
        /// sleeper takes tens of microseconds to come back, which all others see as the tail of the call.
        pub(in crate::protocol) fn next(&self, waited_ns: u64) -> Next {
            if waited_ns < self.preset.yield_ns(self.oversubscribed, self.history.mean_ns) {
                return Next::Yield;
            }
            let has_cpu = !self.oversubscribed && self.preset != WaitPreset::Power;
            match self.history.expected_end().filter(|_| has_cpu) {
                Some(end) if end.contains(&waited_ns) => Next::Yield,
                Some(end) if waited_ns < end.start => Next::Sleep { most_ns: end.start - waited_ns },
                _ => Next::Sleep { most_ns: u64::MAX },
            }
        }

        /// Sleep between two polls of a wait that takes long: an eighth of the wait so far, from 50 us to 1 ms.
        pub(in crate::protocol) fn backoff_ns(waited_ns: u64) -> u64 {
            (waited_ns / 8).clamp(50_000, 1_000_000)
        }

        /// Keeps a wait that a peer's wake-up ended for [`Patience::learn`].
        pub(in crate::protocol) fn keep(&mut self, waited_ns: u64) {
            self.last_ns = Some(waited_ns);
        }

        /// Adds the wait that was kept last to the history, before the next one.
        pub(in crate::protocol) fn learn(&mut self) {
            if let Some(waited_ns) = self.last_ns.take() {
                self.history.add(waited_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::pace::Next;
    use super::*;

    const MS: u64 = 1_000_000;

    /// A rank that has waited that long, again and again.
    fn after(preset: WaitPreset, oversubscribed: bool, waits_ns: &[u64]) -> Patience {
        let mut patience = Patience::new(preset, oversubscribed, None);
        (0..50).for_each(|at| {
            patience.keep(waits_ns[at % waits_ns.len()]);
            patience.learn();
        });
        patience
    }

    fn is_awake(patience: &Patience, waited_ns: u64) -> bool {
        patience.next(waited_ns) == Next::Yield
    }

    #[test]
    fn a_rank_is_awake_when_its_waits_usually_end() {
        for preset in [WaitPreset::Balanced, WaitPreset::Latency] {
            for usual in [2 * MS, 25 * MS, 400 * MS] {
                let patience = after(preset, false, &[usual - usual / 100, usual + usual / 100]);
                assert!(is_awake(&patience, 0) && is_awake(&patience, usual - usual / 100), "{patience:?}");
                assert!(is_awake(&patience, usual + usual / 100), "{patience:?}");
                assert_eq!(patience.next(10 * usual), Next::Sleep { most_ns: u64::MAX }, "{patience:?}");
            }
        }
    }

    #[test]
    fn an_outlier_now_and_then_changes_nothing() {
        let mut waits = vec![2 * MS; 10];
        waits[4] = 40 * MS;
        let patience = after(WaitPreset::Balanced, false, &waits);
        assert!(is_awake(&patience, 2 * MS), "{patience:?}");
    }

    #[test]
    fn a_rank_sleeps_until_shortly_before() {
        let patience = after(WaitPreset::Balanced, false, &[25 * MS]);
        let Next::Sleep { most_ns } = patience.next(5 * MS) else { panic!("{patience:?}") };
        assert!((18 * MS..20 * MS).contains(&most_ns), "{most_ns}");
        assert!(is_awake(&patience, 5 * MS + most_ns));
    }

    #[test]
    fn waits_of_all_lengths_foretell_nothing() {
        let patience = after(WaitPreset::Balanced, false, &[2 * MS, 9 * MS, 5 * MS, 14 * MS]);
        for waited in [MS, 2 * MS, 7 * MS, 9 * MS] {
            assert_eq!(patience.next(waited), Next::Sleep { most_ns: u64::MAX }, "{patience:?}");
        }
    }

    #[test]
    fn among_more_ranks_than_cpus_short_waits_do_not_shorten_a_long_one() {
        let patience = after(WaitPreset::Balanced, true, &[2_000, 2_000, 2_000, MS / 2]);
        assert!(is_awake(&patience, MS - 1), "{patience:?}");
        assert_eq!(patience.next(MS), Next::Sleep { most_ns: u64::MAX }, "{patience:?}");
        let patience = after(WaitPreset::Balanced, true, &[5 * MS]);
        assert_eq!(patience.next(4_000), Next::Sleep { most_ns: u64::MAX }, "{patience:?}");
    }

    #[test]
    fn a_rank_that_should_spare_its_cpu_sleeps_at_the_expected_end_too() {
        for (preset, oversubscribed) in [(WaitPreset::Power, false), (WaitPreset::Balanced, true)] {
            let patience = after(preset, oversubscribed, &[25 * MS]);
            assert_eq!(patience.next(25 * MS), Next::Sleep { most_ns: u64::MAX }, "{patience:?}");
        }
    }
}
