//! Which schedule is the fastest for a shape: the argmin over every family, factor list and step count.
//!
//! No plan is built. Families with a handful of members are tried one by one (`families`); lists of factors are
//! shortest paths: hypercubes and product groups over the divisors of the number of ranks (`hypercubes`, `groups`),
//! cyclic shifts and prefixes over what is left after each step (`windows`). Each path's cost is a sum over its factors,
//! so the best path is the best of all lists, orders and splits, though their number grows with every divisor.
//!
//! Not tried, and why: pre-reduced rings and chains along an order of arrival, because how late ranks are is no part
//! of the question and without it they only cost more; `keep-order` butterflies with r > 0 for other than powers of two,
//! which have no closed form and send more than the others; halving-doubling with distance halving and the bandwidth form
//! under another name, which cost the same. Of the `cap` rule of cyclic shifts only repeated factors are tried: for a
//! linear model every list of it has one under `ceil` that is no worse.
//!
//! Cost: below a millisecond to 10 000 ranks (`benches/plans.rs`); [`Chooser`] remembers shapes.

mod families;
mod groups;
mod hypercubes;
mod windows;

pub use crate::model::Model;

use crate::admit::{Consistency, OpTraits};
use crate::cost::Cost;
use crate::plan::Order;
use crate::schedule::Params;
use families::Candidate;
use std::collections::HashMap;

/// A candidate with its predicted time.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Name of the schedule.
    pub algorithm: &'static str,
    /// What to ask it for.
    pub params: Params,
    /// Its closed form.
    pub cost: Cost,
    /// Predicted seconds.
    pub seconds: f64,
}

/// The question, and the best answers so far, fastest first.
struct Search<'a> {
    ranks: usize,
    bytes: f64,
    op: OpTraits,
    per_rank: bool,
    model: &'a Model,
    how_many: usize,
    best: Vec<(f64, Candidate, Cost)>,
}

impl Search<'_> {
    /// True if a plan with this order and consistency may be used.
    fn admits(&self, order: Order, consistent: bool) -> bool {
        let ordered = self.ranks == 1 || order == Order::Ordered;
        (self.op.commutative || ordered) && (self.op.exact || consistent || self.per_rank)
    }

    /// True if a candidate of at least `seconds` may still be among the best. With room for rounding.
    fn promising(&self, seconds: f64) -> bool {
        let full = self.best.len() >= self.how_many;
        !full || self.best.last().is_some_and(|worst| seconds <= worst.0 * (1.0 + 1e-9))
    }

    /// Tries a candidate that is admitted; ties go to what was seen first.
    fn see(&mut self, candidate: Candidate) {
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
}

/// The best candidates for an allreduce of `bytes` over `ranks`, at most `how_many`, fastest first; ties to what was
/// seen first (fewer bytes, plain forms before others). Only what the operator and caller admit. All members of small
/// families are in it if there is room, of families with lists of factors the best for each way of splitting.
pub fn ranking(
    ranks: usize,
    bytes: f64,
    op: OpTraits,
    consistency: Consistency,
    model: &Model,
    how_many: usize,
) -> Vec<Choice> {
    let ranks = ranks.max(1);
    let per_rank = consistency == Consistency::PerRank;
    let how_many = how_many.max(1);
    let mut search = Search { ranks, bytes, op, per_rank, model, how_many, best: Vec::new() };
    families::visit(&mut search);
    if ranks > 1 {
        let lattice = hypercubes::Lattice::new(ranks);
        hypercubes::visit(&mut search, &lattice);
        groups::visit(&mut search, &lattice);
        windows::visit(&mut search);
    }
    let written = |(seconds, candidate, cost): (f64, Candidate, Cost)| {
        let (algorithm, params) = candidate.params(ranks);
        Choice { algorithm, params, cost, seconds }
    };
    search.best.into_iter().map(written).collect()
}

/// The fastest candidate. There always is one: recursive doubling is ordered and gives identical bits.
pub fn choose(ranks: usize, bytes: f64, op: OpTraits, consistency: Consistency, model: &Model) -> Choice {
    ranking(ranks, bytes, op, consistency, model, 1).pop().expect("an ordered, consistent candidate exists")
}

/// Remembers choices by shape.
#[derive(Debug)]
pub struct Chooser {
    model: Model,
    known: HashMap<(usize, u64, bool, bool, bool), Choice>,
}

impl Chooser {
    /// A chooser that knows nothing yet.
    pub fn new(model: Model) -> Self {
        Self { model, known: HashMap::new() }
    }

    /// As [`choose`], computed once per shape.
    pub fn choose(&mut self, ranks: usize, bytes: u64, op: OpTraits, consistency: Consistency) -> &Choice {
        let key = (ranks, bytes, op.commutative, op.exact, consistency == Consistency::PerRank);
        self.known.entry(key).or_insert_with(|| choose(ranks, bytes as f64, op, consistency, &self.model))
    }
}
