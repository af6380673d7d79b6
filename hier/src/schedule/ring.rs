//! Ring: reduce-scatter and allgather around a logical order of the ranks, neighbours only.
//!
//! Cost 2(P-1)α + 2(P-1)uβ + (P-1)uγ, blocks = P: the fewest bytes possible, the most rounds. Defined for every P and
//! every order. Rotated in rank order (for another order: commutative), identical bits. On a tree of switches the
//! depth-first order of the machines is free of contention.
//! Source: PY section 4.1.

use super::params::{Params, list, order_along};
use crate::plan::{Action, Blocks, Collective, Order, Plan, PlanError, Side};

const NAME: &str = "ring";

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let order = params.order_or_ranks(NAME)?;
    let n = params.ranks;
    let mut b = params.builder(NAME, n, n);
    b.collective(collective, 0);
    if params.order.is_some() {
        b.parameter("order", list(&order));
    }
    // segments start at different ranks: rotated at best
    let ordered = n == 1 || collective == Collective::Allgather;
    b.claim(if ordered { Order::Ordered } else { order_along(&order).max(Order::Rotated) }, true);
    // the segment that ends at position i is the block of the rank there
    let segment = |i: usize| Blocks::range(order[i % n], order[i % n] + 1);
    let mut round = 0;
    if collective != Collective::Allgather {
        for j in 1..n {
            for i in 0..n {
                let to = order[(i + 1) % n];
                b.message(round, order[i], to, 0, 0, segment(i + n - j), Action::Reduce(Side::Left));
            }
            round += 1;
        }
    }
    if collective != Collective::ReduceScatter {
        for j in 0..n - 1 {
            for i in 0..n {
                b.message(round, order[i], order[(i + 1) % n], 0, 0, segment(i + n - j), Action::Copy);
            }
            round += 1;
        }
    }
    Ok(b.finish())
}
