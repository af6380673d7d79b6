//! The ranking of all families of schedules by predicted time.

use super::hypercubes::DivisorLattice;
use super::search::{RankedSchedule, Search};
use super::{families, groups, hypercubes, windows};
use crate::cost::Model;
use crate::verify::{Consistency, OpTraits};

/// The best schedules for an allreduce of `bytes` over `ranks`, at most `how_many`, fastest first; of equally fast ones
/// those with fewer bytes and plain forms come first. Only schedules that the operator and `consistency` admit. All
/// members of small families are listed if there is room, of families with lists of factors the best for each split.
pub fn ranking(
    ranks: usize,
    bytes: f64,
    op: OpTraits,
    consistency: Consistency,
    model: &Model,
    how_many: usize,
) -> Vec<RankedSchedule> {
    let ranks = ranks.max(1);
    let mut search = Search::new(ranks, bytes, op, consistency, model, how_many);
    families::visit(&mut search);
    if ranks > 1 {
        let lattice = DivisorLattice::new(ranks);
        hypercubes::visit(&mut search, &lattice);
        groups::visit(&mut search, &lattice);
        windows::visit(&mut search);
    }
    search.into_ranking()
}

/// The fastest schedule. There always is one: recursive doubling is ordered and gives identical bits.
pub fn select(ranks: usize, bytes: f64, op: OpTraits, consistency: Consistency, model: &Model) -> RankedSchedule {
    ranking(ranks, bytes, op, consistency, model, 1).pop().expect("an ordered, consistent candidate exists")
}
