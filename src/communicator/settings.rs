//! The settings of a communicator's later calls, and their summary for the fast path: most programs choose nothing, and reading four
//! settings would take a noticeable part of a call of few bytes.
//!
//! Every access is relaxed: settings are the calling thread's own or were handed over with the communicator.

use crate::size_table::Tables;
use crate::tuning::Tuning;
use crate::{Algorithm, Choice, Config, FoldOrder};
use earlybird_shm::{CallOptions, Collective};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

#[derive(Debug)]
#[repr(C)]
pub(super) struct Settings {
    /// [`Settings::fast_options`], packed: `algorithm 8 | order 8`, or [`NOT_FAST`].
    fast: AtomicU32,
    /// The options of all calls, also of those that are traced: [`Settings::options_of_all_calls`].
    for_all: AtomicU32,
    /// The tables of `EARLYBIRD_ALLREDUCE` and the like, in force until the user chooses an algorithm.
    tables: Tables,
    /// The measured best choices for any number of ranks, and for those of this communicator; every other setting has precedence.
    tuning: Tuning,
    tuned: Tables,
    /// True if there are tables and they are in force.
    use_tables: AtomicBool,
    /// True once the user has chosen an algorithm, which puts all tables out of force.
    chosen: AtomicBool,
    choice: AtomicU32,
    is_deterministic: AtomicBool,
    /// True if calls are routed to other nodes or counted by rings.
    is_routed: AtomicBool,
    /// True if every call is recorded.
    is_traced: AtomicBool,
}

/// The setting that chose what carries out a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decider {
    /// No setting: the library chooses.
    Nothing,
    /// The one for all calls: `EARLYBIRD_ALGORITHM` or `set_algorithm`.
    AllCalls,
    /// The table of the collective, `EARLYBIRD_ALLREDUCE` and its like.
    Table,
    /// A measurement: the file of `EARLYBIRD_TUNE`.
    Tuning,
}

/// No settings for the fast path: no algorithm has the code in its low bits.
const NOT_FAST: u32 = u32::MAX;

impl Settings {
    /// The settings of a communicator of so many ranks on one node; `None` on several, whose calls are all routed and for which no tables
    /// are measured.
    pub(super) fn new(tables: Tables, tuning: Tuning, choice: Choice, order: FoldOrder, ranks: Option<usize>) -> Self {
        let tuned = ranks.map_or_else(Tables::default, |ranks| tuning.tables(ranks));
        let settings = Settings {
            use_tables: AtomicBool::new(tables != Tables::default() || tuned != Tables::default()),
            tables,
            tuning,
            tuned,
            chosen: AtomicBool::new(false),
            choice: AtomicU32::new(choice.code()),
            is_deterministic: AtomicBool::new(order == FoldOrder::Rank),
            is_routed: AtomicBool::new(ranks.is_none()),
            is_traced: AtomicBool::new(false),
            fast: AtomicU32::new(NOT_FAST),
            for_all: AtomicU32::new(NOT_FAST),
        };
        settings.update_fast();
        settings
    }

    /// The settings that a configuration asks for.
    pub(super) fn of(config: &Config, ranks: Option<usize>) -> Self {
        Settings::new(config.tables.clone(), config.tuning.clone(), config.algorithm, config.order, ranks)
    }

    /// The same settings for another communicator.
    pub(super) fn another(&self, ranks: Option<usize>) -> Self {
        let choice = Choice::from_code(self.choice.load(Relaxed));
        let settings = Settings::new(self.tables.clone(), self.tuning.clone(), choice, self.order(), ranks);
        if self.chosen.load(Relaxed) {
            settings.choose(choice);
        }
        settings
    }

    pub(super) fn choose(&self, choice: Choice) {
        self.choice.store(choice.code(), Relaxed);
        self.chosen.store(true, Relaxed);
        self.use_tables.store(false, Relaxed);
        self.update_fast();
    }

    pub(super) fn choose_order(&self, order: FoldOrder) {
        self.is_deterministic.store(order == FoldOrder::Rank, Relaxed);
        self.update_fast();
    }

    /// Takes all later calls off the fast path: they are routed to other nodes, or counted by rings.
    pub(super) fn route(&self) {
        self.is_routed.store(true, Relaxed);
        self.update_fast();
    }

    /// Takes all later calls off the fast path, because they are recorded.
    pub(super) fn trace(&self) {
        self.is_traced.store(true, Relaxed);
        self.update_fast();
    }

    fn update_fast(&self) {
        let packed = match Choice::from_code(self.choice.load(Relaxed)) {
            Choice::Node(algorithm) if !self.use_tables.load(Relaxed) && !self.is_routed.load(Relaxed) => {
                algorithm as u32 | (self.order() as u32) << 8
            }
            _ => NOT_FAST,
        };
        self.for_all.store(packed, Relaxed);
        self.fast.store(if self.is_traced.load(Relaxed) { NOT_FAST } else { packed }, Relaxed);
    }

    /// The settings of every call, where all calls have the same, only the node carries them out and none is recorded.
    #[inline(always)]
    pub(super) fn fast_options(&self) -> Option<CallOptions> {
        unpacked(self.fast.load(Relaxed))
    }

    /// The same for calls that are recorded.
    #[inline(always)]
    pub(super) fn options_of_all_calls(&self) -> Option<CallOptions> {
        unpacked(self.for_all.load(Relaxed))
    }

    fn order(&self) -> FoldOrder {
        if self.is_deterministic.load(Relaxed) { FoldOrder::Rank } else { FoldOrder::Arrival }
    }

    /// The choice for a call with blocks of `bytes`.
    #[inline]
    pub(super) fn choice(&self, collective: Collective, bytes: usize) -> Choice {
        self.decided(collective, bytes).0
    }

    /// The same, and the setting that it follows from.
    #[inline]
    pub(super) fn decided(&self, collective: Collective, bytes: usize) -> (Choice, Decider) {
        let requested = self.requested_by(collective, bytes);
        if !self.use_tables.load(Relaxed) || requested.0 != Choice::default() {
            return requested;
        }
        match self.tuned.choice_for(collective, bytes) {
            auto if auto == Choice::default() => requested,
            measured => (measured, Decider::Tuning),
        }
    }

    /// The choice that the user asked for, measurements aside.
    #[inline]
    pub(super) fn requested(&self, collective: Collective, bytes: usize) -> Choice {
        self.requested_by(collective, bytes).0
    }

    #[inline]
    fn requested_by(&self, collective: Collective, bytes: usize) -> (Choice, Decider) {
        if self.use_tables.load(Relaxed) {
            let choice = self.tables.choice_for(collective, bytes);
            if choice != Choice::default() {
                return (choice, Decider::Table);
            }
        }
        let choice = Choice::from_code(self.choice.load(Relaxed));
        (choice, if choice == Choice::default() { Decider::Nothing } else { Decider::AllCalls })
    }

    /// The microseconds that a call with blocks of `bytes` took on one node of `ranks` ranks, by each algorithm that was measured.
    pub(super) fn expected_us(&self, ranks: usize, collective: Collective, bytes: usize) -> Vec<(Choice, f64)> {
        self.tuning.tails().expected_us(ranks, collective, bytes)
    }

    /// The settings of a call with blocks of `bytes` inside a node where it runs no plan.
    #[inline]
    pub(super) fn options(&self, collective: Collective, bytes: usize) -> CallOptions {
        let algorithm = match self.choice(collective, bytes) {
            Choice::Node(algorithm) => algorithm,
            Choice::Plan(_) => Algorithm::Auto,
        };
        CallOptions { algorithm, order: self.order(), within: 0 }
    }
}

/// The unpacked value of [`Settings::fast`], if it has one.
#[inline(always)]
fn unpacked(packed: u32) -> Option<CallOptions> {
    let order = if packed >> 8 == 0 { FoldOrder::Arrival } else { FoldOrder::Rank };
    Some(CallOptions { algorithm: Algorithm::from_repr(packed as u8)?, order, within: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_options_are_those_of_the_call_or_none() {
        let new = |tables| Settings::new(tables, Tuning::default(), Choice::default(), FoldOrder::Arrival, Some(2));
        let settings = new(Tables::default());
        let options = |settings: &Settings| settings.options(Collective::AllReduce, 8);
        assert_eq!(settings.fast_options(), Some(options(&settings)));
        settings.choose_order(FoldOrder::Rank);
        for algorithm in Algorithm::ALL {
            settings.choose(Choice::Node(algorithm));
            assert_eq!(settings.fast_options(), Some(CallOptions { algorithm, order: FoldOrder::Rank, within: 0 }));
            assert_eq!(settings.another(Some(2)).fast_options(), Some(options(&settings)));
            assert_eq!(settings.another(None).fast_options(), None, "several nodes");
        }
        settings.choose("plan:ring".parse().unwrap());
        assert_eq!(settings.fast_options(), None, "a plan");
        settings.choose(Choice::default());
        settings.trace();
        assert_eq!(
            (settings.fast_options(), settings.options_of_all_calls()),
            (None, Some(options(&settings))),
            "traced"
        );
        settings.route();
        assert_eq!((settings.fast_options(), settings.options_of_all_calls()), (None, None), "other nodes");
        let tables = Tables::default().with(Collective::AllReduce, "chain:0-".parse().unwrap());
        let settings = new(tables);
        assert_eq!((settings.fast_options(), settings.another(Some(2)).fast_options()), (None, None), "tables");
        settings.choose(Choice::default());
        assert_eq!(settings.fast_options(), Some(options(&settings)), "the user's choice ends the tables");
    }

    #[test]
    fn what_was_measured_stands_where_nothing_was_requested() {
        let tuning: Tuning = "ranks.4.allreduce = 'plan:ring:0-'\nranks.2.allreduce = 'chain:0-'".parse().unwrap();
        let of = |tables, choice, ranks| Settings::new(tables, tuning.clone(), choice, FoldOrder::Arrival, ranks);
        let what = |settings: &Settings| settings.choice(Collective::AllReduce, 8);
        let tuned = of(Tables::default(), Choice::default(), Some(4));
        assert_eq!((what(&tuned), tuned.fast_options()), (Choice::Plan("ring"), None));
        assert_eq!(tuned.requested(Collective::AllReduce, 8), Choice::default());
        assert_eq!(what(&tuned.another(Some(2))), Choice::Node(Algorithm::Chain), "a part has its own number of ranks");
        assert!(tuned.another(Some(3)).fast_options().is_some() && tuned.another(None).fast_options().is_none());
        let tables = Tables::default().with(Collective::AllReduce, "flat:0-".parse().unwrap());
        assert_eq!(what(&of(tables, Choice::default(), Some(4))), Choice::Node(Algorithm::Flat));
        assert_eq!(what(&of(Tables::default(), Algorithm::Leader.into(), Some(4))), Choice::Node(Algorithm::Leader));
        tuned.choose(Choice::default());
        assert_eq!(what(&tuned), Choice::default(), "the user's choice ends it");
        assert_eq!(what(&tuned.another(Some(2))), Choice::default());
    }
}
