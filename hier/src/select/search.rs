//! The search that all families of schedules are offered to.

use super::candidate::Candidate;
use crate::cost::{Cost, Model};
use crate::plan::Order;
use crate::schedule::Params;
use crate::verify::{Consistency, OpTraits};

/// A schedule in a ranking, with its predicted time.
#[derive(Debug, Clone, PartialEq)]
pub struct RankedSchedule {
    /// Name of the schedule.
    pub algorithm: &'static str,
    /// Its parameters.
    pub params: Params,
    /// Its closed form.
    pub cost: Cost,
    /// Predicted seconds.
    pub seconds: f64,
}

/// A search for the fastest candidates: the request, and the best found so far, fastest first.
pub(super) struct Search<'a> {
    pub(super) ranks: usize,
    pub(super) bytes: f64,
    op: OpTraits,
    per_rank: bool,
    pub(super) model: &'a Model,
    how_many: usize,
    best: Vec<(f64, Candidate, Cost)>,
}

impl<'a> Search<'a> {
    pub(super) fn new(
        ranks: usize,
        bytes: f64,
        op: OpTraits,
        consistency: Consistency,
        model: &'a Model,
        how_many: usize,
    ) -> Self {
        let per_rank = consistency == Consistency::PerRank;
        Search { ranks, bytes, op, per_rank, model, how_many: how_many.max(1), best: Vec::new() }
    }

    /// True if a plan with this order and consistency may be used.
    pub(super) fn admits(&self, order: Order, consistent: bool) -> bool {
        let ordered = self.ranks == 1 || order == Order::Ordered;
        (self.op.commutative || ordered) && (self.op.exact || consistent || self.per_rank)
    }

    /// True if a candidate of at least `seconds` may still be among the best. With room for rounding.
    pub(super) fn promising(&self, seconds: f64) -> bool {
        let full = self.best.len() >= self.how_many;
        !full || self.best.last().is_some_and(|worst| seconds <= worst.0 * (1.0 + 1e-9))
    }

    /// Tries a candidate that is admitted; of equally fast ones the first stays first.
    pub(super) fn see(&mut self, candidate: Candidate) {
        let cost = candidate.cost(self.ranks);
        let seconds = self.model.predict_s(&cost, self.bytes);
        let at = self.best.partition_point(|b| b.0 <= seconds);
        // the same candidate has the same time, up to the last bits
        let near = self.best[..at].iter().rev().take_while(|b| b.0 >= seconds * (1.0 - 1e-9));
        if at < self.how_many && !near.into_iter().any(|b| b.1 == candidate) {
            self.best.truncate(self.how_many - 1);
            self.best.insert(at, (seconds, candidate, cost));
        }
    }

    /// The candidates found, fastest first.
    pub(super) fn into_ranking(self) -> Vec<RankedSchedule> {
        let ranked = |(seconds, candidate, cost): (f64, Candidate, Cost)| {
            let (algorithm, params) = candidate.params(self.ranks);
            RankedSchedule { algorithm, params, cost, seconds }
        };
        self.best.into_iter().map(ranked).collect()
    }
}
