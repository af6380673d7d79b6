//! Binomial trees: reduce to a root, broadcast from a root, or both.
//!
//! Reduce: at distance d = 1, 2, 4, … position i + d gives its vector to i, for i ≡ 0 mod 2d. Broadcast: reversed.
//! Cost L(α + mβ + mγ) and L(α + mβ). One block. Defined for every P and root; positions are ranks from the root on,
//! cyclically, so for a root other than 0 the order is rotated. With `keep-order` such a reduce goes to rank 0 first
//! and costs one message more. Identical bits. Source: AL; Thakur and others, IJHPCA 2005.

use super::arithmetic::ceil_log2;
use super::params::{Params, bad};
use crate::plan::{Action, Blocks, Collective, Order, Plan, PlanBuilder, PlanError, Side};

const NAME: &str = "binomial";

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let root = params.root.unwrap_or(0);
    if params.keep_order && collective != Collective::Reduce {
        return Err(bad(NAME, "keep-order", collective, "the collective reduce, the only one with a choice"));
    }
    let mut b = params.builder(NAME, n, 1);
    b.collective(collective, root);
    if params.keep_order {
        b.parameter("keep-order", true);
    }
    let moved = root != 0 && !params.keep_order;
    let first = if moved { root } else { 0 };
    let positions: Vec<usize> = match collective {
        Collective::Broadcast => (0..n).map(|i| (root + i) % n).collect(),
        _ => (0..n).map(|i| (first + i) % n).collect(),
    };
    let keeps = !moved || collective == Collective::Broadcast || n == 1;
    b.claim(if keeps { Order::Ordered } else { Order::Rotated }, true);
    let mut round = 0;
    if collective != Collective::Broadcast {
        round = reduce(&mut b, &positions, 1, round);
        if params.keep_order && root != 0 {
            b.message(round, 0, root, 0, 0, Blocks::range(0, 1), Action::Copy);
        }
    }
    if collective != Collective::Reduce {
        broadcast(&mut b, &positions, 1, round);
    }
    Ok(b.finish())
}

/// Reduces to the first of `positions`. Returns the next round.
pub(super) fn reduce(b: &mut PlanBuilder, positions: &[usize], blocks: usize, first: usize) -> usize {
    let levels = ceil_log2(positions.len());
    for k in 0..levels {
        for i in (0..positions.len() - (1 << k)).step_by(2 << k) {
            let from = positions[i + (1 << k)];
            b.message(first + k, from, positions[i], 0, 0, Blocks::range(0, blocks), Action::Reduce(Side::Right));
        }
    }
    first + levels
}

/// Broadcasts from the first of `positions`. Returns the next round.
pub(super) fn broadcast(b: &mut PlanBuilder, positions: &[usize], blocks: usize, first: usize) -> usize {
    let levels = ceil_log2(positions.len());
    for k in 0..levels {
        for i in (0..positions.len() - (1 << k)).step_by(2 << k) {
            let to = positions[i + (1 << k)];
            b.message(first + levels - 1 - k, positions[i], to, 0, 0, Blocks::range(0, blocks), Action::Copy);
        }
    }
    first + levels
}
