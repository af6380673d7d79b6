//! Bruck's allgather, blocks addressed in place: no rotation at the end.
//!
//! Window w = 1, 2, 4, … < P: rank ρ receives from ρ + w the blocks ρ + w .. ρ + w + min(w, P - w).
//! Cost Lα + (P-1)uβ, blocks = P. Defined for every P. Source: Bruck and others, TPDS 1997.

use super::params::Params;
use crate::plan::{Action, Blocks, Collective, Plan, PlanError};

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let mut b = params.builder("bruck", n, n);
    b.collective(collective, 0);
    for (round, window) in windows(n).into_iter().enumerate() {
        for rank in 0..n {
            let moved = (window.first..window.end).map(|t| (rank + t) % n);
            let from = (rank + window.first) % n;
            b.message(round, from, rank, 0, 0, Blocks::from_indices(moved), Action::Copy);
        }
    }
    Ok(b.finish())
}

/// Offsets received in one round: from the position `first` ahead, what lies `first..end` ahead.
pub(super) struct Window {
    pub(super) first: usize,
    pub(super) end: usize,
}

/// The rounds of Bruck's allgather among `n`.
pub(super) fn windows(n: usize) -> Vec<Window> {
    let mut rounds = Vec::new();
    let mut w = 1;
    while w < n {
        rounds.push(Window { first: w, end: w + w.min(n - w) });
        w *= 2;
    }
    rounds
}
