//! What the user of a communicator has chosen for the calls that follow, and the short answer to it: most programs choose
//! nothing, and a call of few bytes is too short to ask four questions.
//!
//! Everything is relaxed: choices are the calling thread's own or were handed over with the handle.

use crate::size_table::Tables;
use crate::tuning::Tuning;
use crate::{Algorithm, Choice, Config, FoldOrder};
use earlybird_shm::{CallOptions, Collective};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

#[derive(Debug)]
#[repr(C)]
pub(super) struct Settings {
    /// [`Settings::fast_options`], packed: `algorithm 8 | order 8`, or [`ROUND`].
    fast: AtomicU32,
    /// The same where calls are traced: [`Settings::options_of_all_calls`].
    for_all: AtomicU32,
    /// The tables of `EARLYBIRD_ALLREDUCE` and its like, in force until the user chooses otherwise.
    tables: Tables,
    /// What was measured to be best, for any number of ranks, and for those of this communicator: after all else.
    tuning: Tuning,
    tuned: Tables,
    /// Whether there are tables and they are in force.
    use_tables: AtomicBool,
    /// Whether the user has chosen since, which puts all tables out of force.
    chosen: AtomicBool,
    choice: AtomicU32,
    by_rank: AtomicBool,
    /// Whether there is more to a call than what is chosen: other nodes, or rings that count it.
    goes_round: AtomicBool,
    /// True if every call is recorded.
    is_traced: AtomicBool,
}

/// The setting that chose what carries out a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decider {
    /// None: the library chooses.
    Nothing,
    /// The one for all calls: `EARLYBIRD_ALGORITHM` or `set_algorithm`.
    AllCalls,
    /// The table of the collective, `EARLYBIRD_ALLREDUCE` and its like.
    Table,
    /// A measurement: the file of `EARLYBIRD_TUNE`.
    Tuning,
}

/// No short answer: no algorithm has the code in its low bits.
const ROUND: u32 = u32::MAX;

impl Settings {
    pub(super) fn new(tables: Tables, choice: Choice, order: FoldOrder) -> Self {
        let settings = Settings {
            use_tables: AtomicBool::new(tables != Tables::default()),
            tables,
            tuning: Tuning::default(),
            tuned: Tables::default(),
            chosen: AtomicBool::new(false),
            choice: AtomicU32::new(choice.code()),
            by_rank: AtomicBool::new(order == FoldOrder::Rank),
            goes_round: AtomicBool::new(false),
            is_traced: AtomicBool::new(false),
            fast: AtomicU32::new(ROUND),
            for_all: AtomicU32::new(ROUND),
        };
        settings.sum_up();
        settings
    }

    /// Those of a communicator of so many ranks on one node; `None` on several.
    pub(super) fn of(config: &Config, ranks: Option<usize>) -> Self {
        let choice = Settings::new(config.tables.clone(), config.algorithm, config.order);
        choice.tuned(config.tuning.clone(), ranks)
    }

    /// With what was measured for so many ranks on one node; `None` on several.
    pub(super) fn tuned(mut self, tuning: Tuning, ranks: Option<usize>) -> Self {
        self.tuned = ranks.map_or_else(Tables::default, |ranks| tuning.tables(ranks));
        self.tuning = tuning;
        let any = [&self.tables, &self.tuned].into_iter().any(|tables| *tables != Tables::default());
        self.use_tables = AtomicBool::new(any);
        self.sum_up();
        self
    }

    /// The same choices for another communicator, of so many ranks on one node.
    pub(super) fn another(&self, ranks: Option<usize>) -> Self {
        let choice = Choice::from_code(self.choice.load(Relaxed));
        let settings = Settings::new(self.tables.clone(), choice, self.order()).tuned(self.tuning.clone(), ranks);
        if self.chosen.load(Relaxed) {
            settings.choose(choice);
        }
        settings
    }

    pub(super) fn choose(&self, choice: Choice) {
        self.choice.store(choice.code(), Relaxed);
        self.chosen.store(true, Relaxed);
        self.use_tables.store(false, Relaxed);
        self.sum_up();
    }

    pub(super) fn choose_order(&self, order: FoldOrder) {
        self.by_rank.store(order == FoldOrder::Rank, Relaxed);
        self.sum_up();
    }

    /// From here on there is more to a call than what is chosen.
    pub(super) fn go_round(&self) {
        self.goes_round.store(true, Relaxed);
        self.sum_up();
    }

    /// From here on calls are recorded, which [`Settings::fast_options`] would not let them be.
    pub(super) fn trace(&self) {
        self.is_traced.store(true, Relaxed);
        self.sum_up();
    }

    fn sum_up(&self) {
        let straight = match Choice::from_code(self.choice.load(Relaxed)) {
            Choice::Node(algorithm) if !self.use_tables.load(Relaxed) && !self.goes_round.load(Relaxed) => {
                algorithm as u32 | (self.order() as u32) << 8
            }
            _ => ROUND,
        };
        self.for_all.store(straight, Relaxed);
        self.fast.store(if self.is_traced.load(Relaxed) { ROUND } else { straight }, Relaxed);
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
        if self.by_rank.load(Relaxed) { FoldOrder::Rank } else { FoldOrder::Arrival }
    }

    /// What carries out a call with blocks of `bytes`.
    #[inline]
    pub(super) fn choice(&self, collective: Collective, bytes: usize) -> Choice {
        self.decided(collective, bytes).0
    }

    /// The same, and the setting that it follows from.
    #[inline]
    pub(super) fn decided(&self, collective: Collective, bytes: usize) -> (Choice, Decider) {
        let asked = self.asked_by(collective, bytes);
        if !self.use_tables.load(Relaxed) || asked.0 != Choice::default() {
            return asked;
        }
        match self.tuned.choice_for(collective, bytes) {
            auto if auto == Choice::default() => asked,
            measured => (measured, Decider::Tuning),
        }
    }

    /// The choice that the user asked for, measurements aside.
    #[inline]
    pub(super) fn asked(&self, collective: Collective, bytes: usize) -> Choice {
        self.asked_by(collective, bytes).0
    }

    #[inline]
    fn asked_by(&self, collective: Collective, bytes: usize) -> (Choice, Decider) {
        if self.use_tables.load(Relaxed) {
            let choice = self.tables.choice_for(collective, bytes);
            if choice != Choice::default() {
                return (choice, Decider::Table);
            }
        }
        let choice = Choice::from_code(self.choice.load(Relaxed));
        (choice, if choice == Choice::default() { Decider::Nothing } else { Decider::AllCalls })
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

/// The settings in [`Settings::fast`], if there are any.
#[inline(always)]
fn unpacked(straight: u32) -> Option<CallOptions> {
    let order = if straight >> 8 == 0 { FoldOrder::Arrival } else { FoldOrder::Rank };
    Some(CallOptions { algorithm: Algorithm::from_repr(straight as u8)?, order, within: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_answer_is_the_long_one_or_none() {
        let settings = Settings::new(Tables::default(), Choice::default(), FoldOrder::Arrival);
        let long = |settings: &Settings| settings.options(Collective::AllReduce, 8);
        assert_eq!(settings.fast_options(), Some(long(&settings)));
        settings.choose_order(FoldOrder::Rank);
        for algorithm in Algorithm::ALL {
            settings.choose(Choice::Node(algorithm));
            assert_eq!(settings.fast_options(), Some(CallOptions { algorithm, order: FoldOrder::Rank, within: 0 }));
            assert_eq!(settings.another(None).fast_options(), Some(long(&settings)));
        }
        settings.choose("plan:ring".parse().unwrap());
        assert_eq!(settings.fast_options(), None, "a plan");
        settings.choose(Choice::default());
        settings.trace();
        assert_eq!((settings.fast_options(), settings.options_of_all_calls()), (None, Some(long(&settings))), "traced");
        settings.go_round();
        assert_eq!((settings.fast_options(), settings.options_of_all_calls()), (None, None), "other nodes");
        let tables = Tables::default().with(Collective::AllReduce, "chain:0-".parse().unwrap());
        let settings = Settings::new(tables, Choice::default(), FoldOrder::Arrival);
        assert_eq!((settings.fast_options(), settings.another(None).fast_options()), (None, None), "tables");
        settings.choose(Choice::default());
        assert_eq!(settings.fast_options(), Some(long(&settings)), "the user's choice ends the tables");
    }

    #[test]
    fn what_was_measured_stands_where_nothing_was_asked_for() {
        let tuning: Tuning = "ranks.4.allreduce = 'plan:ring:0-'\nranks.2.allreduce = 'chain:0-'".parse().unwrap();
        let of = |tables, choice, ranks| Settings::new(tables, choice, FoldOrder::Arrival).tuned(tuning.clone(), ranks);
        let what = |settings: &Settings| settings.choice(Collective::AllReduce, 8);
        let tuned = of(Tables::default(), Choice::default(), Some(4));
        assert_eq!((what(&tuned), tuned.fast_options()), (Choice::Plan("ring"), None));
        assert_eq!(tuned.asked(Collective::AllReduce, 8), Choice::default());
        assert_eq!(what(&tuned.another(Some(2))), Choice::Node(Algorithm::Chain), "a part has its own number of ranks");
        assert!(tuned.another(Some(3)).fast_options().is_some() && tuned.another(None).fast_options().is_some());
        let tables = Tables::default().with(Collective::AllReduce, "flat:0-".parse().unwrap());
        assert_eq!(what(&of(tables, Choice::default(), Some(4))), Choice::Node(Algorithm::Flat));
        assert_eq!(what(&of(Tables::default(), Algorithm::Leader.into(), Some(4))), Choice::Node(Algorithm::Leader));
        tuned.choose(Choice::default());
        assert_eq!(what(&tuned), Choice::default(), "the user's choice ends it");
        assert_eq!(what(&tuned.another(Some(2))), Choice::default());
    }
}
