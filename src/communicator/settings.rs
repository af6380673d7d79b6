//! What the user of a communicator has chosen for the calls that follow, and the short answer to it: most programs choose
//! nothing, and a call of few bytes is too short to ask four questions.
//!
//! Everything is relaxed: choices are the calling thread's own or were handed over with the handle.

use crate::config::Tables;
use crate::{Algorithm, Choice, FoldOrder};
use earlybird_shm::{Collective, How};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

#[derive(Debug)]
pub(super) struct Settings {
    /// The tables of `EARLYBIRD_ALLREDUCE` and its like, in force until the user chooses otherwise.
    tables: Tables,
    use_tables: AtomicBool,
    choice: AtomicU32,
    by_rank: AtomicBool,
    /// Whether there is more to a call than what is chosen: other nodes, or rings that count it.
    goes_round: AtomicBool,
    /// [`Settings::straight`], packed: `algorithm 8 | order 8`, or [`ROUND`].
    straight: AtomicU32,
}

/// No short answer: no algorithm has the code in its low bits.
const ROUND: u32 = u32::MAX;

impl Settings {
    pub(super) fn new(tables: Tables, choice: Choice, order: FoldOrder) -> Self {
        let settings = Settings {
            use_tables: AtomicBool::new(tables != Tables::default()),
            tables,
            choice: AtomicU32::new(choice.code()),
            by_rank: AtomicBool::new(order == FoldOrder::Rank),
            goes_round: AtomicBool::new(false),
            straight: AtomicU32::new(ROUND),
        };
        settings.sum_up();
        settings
    }

    /// The same choices for another communicator.
    pub(super) fn another(&self) -> Self {
        let settings = Settings::new(self.tables.clone(), Choice::from_code(self.choice.load(Relaxed)), self.order());
        settings.use_tables.store(self.use_tables.load(Relaxed), Relaxed);
        settings.sum_up();
        settings
    }

    pub(super) fn choose(&self, choice: Choice) {
        self.choice.store(choice.code(), Relaxed);
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

    fn sum_up(&self) {
        let straight = match Choice::from_code(self.choice.load(Relaxed)) {
            Choice::Node(algorithm) if !self.use_tables.load(Relaxed) && !self.goes_round.load(Relaxed) => {
                algorithm as u32 | (self.order() as u32) << 8
            }
            _ => ROUND,
        };
        self.straight.store(straight, Relaxed);
    }

    /// How every call is carried out by the node and nothing but the node, if that is so.
    #[inline(always)]
    pub(super) fn straight(&self) -> Option<How> {
        let straight = self.straight.load(Relaxed);
        let order = if straight >> 8 == 0 { FoldOrder::Arrival } else { FoldOrder::Rank };
        Some(How { algorithm: Algorithm::from_code(straight as u8)?, order, within: 0 })
    }

    fn order(&self) -> FoldOrder {
        if self.by_rank.load(Relaxed) { FoldOrder::Rank } else { FoldOrder::Arrival }
    }

    /// What carries out a call with blocks of `bytes`.
    #[inline]
    pub(super) fn choice(&self, collective: Collective, bytes: usize) -> Choice {
        let choice = Choice::from_code(self.choice.load(Relaxed));
        if self.use_tables.load(Relaxed)
            && let Some(table) = self.tables.of(collective)
            && let listed = table.choice_for(bytes as u64)
            && listed != Choice::default()
        {
            return listed;
        }
        choice
    }

    /// How a call with blocks of `bytes` is carried out inside a node where it runs no plan.
    #[inline]
    pub(super) fn how(&self, collective: Collective, bytes: usize) -> How {
        let algorithm = match self.choice(collective, bytes) {
            Choice::Node(algorithm) => algorithm,
            Choice::Plan(_) => Algorithm::Auto,
        };
        How { algorithm, order: self.order(), within: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_answer_is_the_long_one_or_none() {
        let settings = Settings::new(Tables::default(), Choice::default(), FoldOrder::Arrival);
        let long = |settings: &Settings| settings.how(Collective::AllReduce, 8);
        assert_eq!(settings.straight(), Some(long(&settings)));
        settings.choose_order(FoldOrder::Rank);
        for algorithm in Algorithm::ALL {
            settings.choose(Choice::Node(algorithm));
            assert_eq!(settings.straight(), Some(How { algorithm, order: FoldOrder::Rank, within: 0 }));
            assert_eq!(settings.another().straight(), Some(long(&settings)));
        }
        settings.choose("plan:ring".parse().unwrap());
        assert_eq!(settings.straight(), None, "a plan");
        settings.choose(Choice::default());
        settings.go_round();
        assert_eq!(settings.straight(), None, "other nodes");
        let tables = Tables { allreduce: "chain:0-".parse().unwrap(), ..Tables::default() };
        let settings = Settings::new(tables, Choice::default(), FoldOrder::Arrival);
        assert_eq!((settings.straight(), settings.another().straight()), (None, None), "tables");
        settings.choose(Choice::default());
        assert_eq!(settings.straight(), Some(long(&settings)), "the user's choice ends the tables");
    }
}
