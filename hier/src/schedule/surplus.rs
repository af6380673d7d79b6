//! The classic fold: brings any number of ranks to a power of two.
//!
//! With rem = P - p₂, for i < rem position 2i sends its vector to 2i + 1, which takes part for both; 2i receives the
//! result in a last round. Rank order is kept. On the critical path 2mβ + mγ and two rounds.

use super::arithmetic::floor_log2;
use crate::plan::{Action, Blocks, PlanBuilder, Side};

/// The participants, and for each idle rank the participant that represents it.
pub(super) struct Surplus {
    pub(super) participants: Vec<usize>,
    idle: Vec<(usize, usize)>,
}

impl Surplus {
    pub(super) fn of(ranks: &[usize]) -> Self {
        let rem = ranks.len() - (1 << floor_log2(ranks.len()));
        let idle: Vec<_> = (0..rem).map(|i| (ranks[2 * i], ranks[2 * i + 1])).collect();
        let participants = idle.iter().map(|(_, taker)| *taker).chain(ranks[2 * rem..].iter().copied()).collect();
        Self { participants, idle }
    }

    /// The idle ranks give `blocks` blocks away. Returns the next round.
    pub(super) fn fold_in(&self, b: &mut PlanBuilder, blocks: usize, round: usize) -> usize {
        for (idle, taker) in &self.idle {
            b.message(round, *idle, *taker, 0, 0, Blocks::range(0, blocks), Action::Reduce(Side::Left));
        }
        round + usize::from(!self.idle.is_empty())
    }

    /// The idle ranks get the result. Returns the next round.
    pub(super) fn fold_out(&self, b: &mut PlanBuilder, blocks: usize, round: usize) -> usize {
        for (idle, taker) in &self.idle {
            b.message(round, *taker, *idle, 0, 0, Blocks::range(0, blocks), Action::Copy);
        }
        round + usize::from(!self.idle.is_empty())
    }
}
