//! A pipelined chain along any order of the ranks; with an order of arrival, the sorted linear tree.
//!
//! In round j + h position h passes segment j to h + 1, which reduces it; the last position has the result and it goes
//! back along the chain. Blocks = segments k. Cost: reduce or broadcast alone P - 1 + k - 1 rounds; allreduce
//! 2(P-1+k-1) rounds on one port, 2(P-1) + k - 1 overlapped on two. A rank sends at most 2m and reduces m. Order is
//! kept along the chain: ordered for rank order, rotated for rank order from another rank on, otherwise commutative, so
//! that with an order of arrival results depend on it. Identical bits. A reduce ends at the last position, a broadcast starts at the first.
//! Source: AL algorithm 2; Proficz, J. Supercomput. 2018 (sorted linear tree).

use super::params::{MAX_CELLS, Params, bad, list, order_along};
use crate::plan::{Action, Blocks, Collective, Order, Plan, PlanError, Side};

const NAME: &str = "chain";

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let segments = params.segments.unwrap_or(1);
    if segments == 0 || segments.saturating_mul(n) > MAX_CELLS {
        return Err(bad(NAME, "segments", segments, format!("1 to {}", MAX_CELLS / n)));
    }
    let ports = params.ports.unwrap_or(1);
    let most = if collective == Collective::Allreduce { 2 } else { 1 };
    if ports == 0 || ports > most {
        return Err(bad(NAME, "ports", ports, format!("1 to {most} for {collective}; 2 overlap both directions")));
    }
    let order = positions(params, collective)?;
    let mut b = params.builder(NAME, n, segments);
    let root = match collective {
        Collective::Reduce => order[n - 1],
        Collective::Broadcast => order[0],
        _ => 0,
    };
    b.collective(collective, root).ports(ports).parameter("segments", segments);
    if params.order.is_some() {
        b.parameter("order", list(&order));
    }
    let claim = if collective == Collective::Broadcast { Order::Ordered } else { order_along(&order) };
    b.claim(claim, true);
    let segment = |j: usize| Blocks::range(j, j + 1);
    let mut start = 0;
    if collective != Collective::Broadcast {
        for j in 0..segments {
            for h in 0..n - 1 {
                b.message(j + h, order[h], order[h + 1], 0, 0, segment(j), Action::Reduce(Side::Left));
            }
        }
        start = if ports == 2 { n - 1 } else { b.rounds() };
    }
    if collective != Collective::Reduce {
        let back: Vec<usize> = match collective {
            Collective::Broadcast => order,
            _ => order.into_iter().rev().collect(),
        };
        for j in 0..segments {
            for h in 0..n - 1 {
                b.message(start + j + h, back[h], back[h + 1], 0, 0, segment(j), Action::Copy);
            }
        }
    }
    Ok(b.finish())
}

/// The chain's order: as given, or rank order turned so that the root stands where the collective needs it.
fn positions(params: &Params, collective: Collective) -> Result<Vec<usize>, PlanError> {
    let n = params.ranks;
    let order = params.order_or_ranks(NAME)?;
    let end = if collective == Collective::Reduce { n - 1 } else { 0 };
    match params.root {
        Some(root) if params.order.is_some() && order[end] != root => {
            let place = if end == 0 { "first" } else { "last" };
            Err(bad(NAME, "root", root, format!("the {place} rank of the order, {}", order[end])))
        }
        Some(root) if params.order.is_none() => Ok((0..n).map(|i| (root + n - end + i) % n).collect()),
        None if params.order.is_none() && collective == Collective::Reduce => {
            // default root 0, as everywhere
            Ok((0..n).map(|i| (1 + i) % n).collect())
        }
        _ => Ok(order),
    }
}
