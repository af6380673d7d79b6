//! Closed forms of the power-of-two exchanges, trees, chains and two-level schedules.

use super::Cost;
use crate::schedule::{ceil_log2, floor_log2, halving_sizes};

/// 1 if the classic fold is needed, else 0.
fn folds(p: usize) -> usize {
    usize::from(!p.is_power_of_two())
}

/// Recursive doubling with the classic fold.
pub fn recursive_doubling(p: usize) -> Cost {
    let levels = floor_log2(p);
    Cost::new(1).add(levels + 2 * folds(p), 1).reduce(levels + folds(p)).done()
}

/// Halving + doubling with the classic fold.
pub fn halving_doubling(p: usize) -> Cost {
    let p2 = 1 << floor_log2(p);
    let mut cost = Cost::new(p2);
    cost.add(2 * folds(p), p2).reduce(folds(p) * p2 + p2 - 1);
    for half in halving_sizes(p2) {
        cost.add(2, half);
    }
    cost
}

/// Chain of `segments`; on two ports both directions overlap.
pub fn chain(p: usize, segments: usize, ports: usize) -> Cost {
    let mut cost = Cost::new(segments);
    if p == 1 {
        return cost;
    }
    let one_way = p - 1 + segments - 1;
    cost.reduce(one_way);
    if ports < 2 {
        return cost.add(2 * one_way, 1).done();
    }
    // position h passes segments up in rounds h .. h + k and down in rounds 2(p-1) - h .. 2(p-1) - h + k; the last but
    // one does both for the longest time, k - 2 rounds, and has received from both sides since the round before
    let both = if p < 3 { 0 } else { segments.saturating_sub(2) };
    let around = usize::from(both > 0);
    let rounds = 2 * (p - 1) + segments - 1;
    cost.add_ports(both, 2, 2).add_ports(around, 1, 2).add(rounds - both - around, 1).done()
}

/// Pre-reduced ring of `segments` with the last `late` ranks late; for p = 1 nothing is late.
pub fn prereduced_ring(p: usize, segments: usize, late: usize) -> Cost {
    let mut cost = Cost::new(segments);
    if p == 1 {
        return cost;
    }
    let before = if p - late > 1 { p - late + segments - 2 } else { 0 };
    let rounds = before + prereduced_ring_tail(p, segments, late);
    // beyond p segments, results reach late ranks that still pass partial segments on: two segments on one link
    let shared = if late > 1 && segments > p { late + segments - p - 2 } else { 0 };
    cost.add(shared, 2).add(rounds - shared, 1).reduce(before + segments + late - 1).done()
}

/// Rounds of a pre-reduced ring in which its late ranks take part, the last ones of the plan.
pub fn prereduced_ring_tail(p: usize, segments: usize, late: usize) -> usize {
    segments + late + p - 2
}

/// Binomial reduce and broadcast.
pub fn binomial(p: usize) -> Cost {
    Cost::new(1).add(2 * ceil_log2(p), 1).reduce(ceil_log2(p)).done()
}

/// Reduce-scatter, gather, broadcast.
pub fn rsg(p: usize) -> Cost {
    let p2 = 1 << floor_log2(p);
    let mut cost = Cost::new(p2);
    cost.add(folds(p) + ceil_log2(p), p2).reduce(folds(p) * p2 + p2 - 1);
    for half in halving_sizes(p2) {
        cost.add(2, half);
    }
    cost
}

/// Trees inside nodes of `per_node` consecutive ranks, a tree between them.
pub fn smp_binomial(p: usize, per_node: usize) -> Cost {
    inside(p, per_node, binomial(p.div_ceil(per_node)))
}

/// Trees inside nodes of `per_node` consecutive ranks, halving + doubling between them.
pub fn smp_butterfly(p: usize, per_node: usize) -> Cost {
    inside(p, per_node, halving_doubling(p.div_ceil(per_node)))
}

fn inside(p: usize, per_node: usize, mut between: Cost) -> Cost {
    let levels = ceil_log2(per_node.min(p));
    let blocks = between.blocks;
    between.add(2 * levels, blocks).reduce(levels * blocks).done()
}
