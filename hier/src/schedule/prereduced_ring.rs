//! A ring for a known order of arrival, in which the early ranks have reduced all they can before the late ones act.
//!
//! Positions 0 .. P are the ranks in their order of arrival, earliest first; the last K of them are late, E = P - K
//! are early. The vector is cut into k segments, and every message goes to the next position of the ring:
//!
//! - before (rounds h + j, positions h < E - 1): segment j is folded along the early positions, beginning at the first
//!   to arrive. No early rank waits for a late one until the last of these folds is done.
//! - after (from round S = E + k - 2 on, S = 0 if E = 1): segment j passes the late positions, which add themselves,
//!   in rounds S + j and following, and goes on from the last one to position 0 and around, as a result, in rounds
//!   S + K + j and following, until the position before the last has it.
//!
//! A late rank takes part in no round before S, and k + K + P - 2 rounds of one segment remain after it: (k+P-1)·m/k
//! elements after the last arrival of a single late rank, m for many segments, where all 2(P-1) rounds of a ring remain.
//! The price is paid by ranks that arrive together: 2k + 2P - 4 rounds (k + 2P - 3 if E = 1), 2k blocks sent and k
//! reduced by the busiest rank. A chain has the same tail on two ports; here no rank sends in two directions.
//! If K > 1 and k > P, partial and complete segments share the links between late ranks in K + k - P - 2 rounds.
//!
//! Defined for every P, order, 1 ≤ K < P and k·P ≤ 2²⁰. One port. Ordered in rank order, rotated from another rank on,
//! otherwise commutative, so that results depend on the order of arrival. Identical bits.
//! Source: Proficz, J. Supercomput. 2018, has the idea and the name; the schedule is our own formulation of it. What is
//! known of the published one (docs/plans.md) is a ring in the order of arrival over P segments, which start at early
//! ranks ahead of time; in rounds, 2(P-1) are left after the last arrival there.

use super::params::{MAX_CELLS, Params, bad, list, order_along};
use crate::plan::{Action, Blocks, Collective, Plan, PlanError, Side};

const NAME: &str = "pre-reduced-ring";

pub(super) fn plan(params: &Params, _: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let order = params.order_or_ranks(NAME)?;
    let segments = params.segments.unwrap_or((2 * n).min(MAX_CELLS / n));
    if segments == 0 || segments.saturating_mul(n) > MAX_CELLS {
        return Err(bad(NAME, "segments", segments, format!("1 to {}", MAX_CELLS / n)));
    }
    let late = match params.late {
        Some(late) if n == 1 => return Err(bad(NAME, "late", late, "no late ranks, as there is only one rank")),
        Some(late) if !(1..n).contains(&late) => {
            return Err(bad(NAME, "late", late, format!("1 to {}, so that at least one rank is early", n - 1)));
        }
        given => given.unwrap_or(1).min(n - 1),
    };
    let early = n - late;
    let mut b = params.builder(NAME, n, segments);
    b.parameter("segments", segments).parameter("late", late);
    if params.order.is_some() {
        b.parameter("order", list(&order));
    }
    b.claim(order_along(&order), true);
    let before = if early > 1 { early + segments - 2 } else { 0 };
    for j in 0..segments {
        let mut pass = |round: usize, position: usize, action| {
            let (from, to) = (order[position % n], order[(position + 1) % n]);
            b.message(round, from, to, 0, 0, Blocks::range(j, j + 1), action);
        };
        for h in 0..n - 1 {
            let round = if h + 1 < early { h + j } else { before + j + h + 1 - early };
            pass(round, h, Action::Reduce(Side::Left));
        }
        for h in 0..n - 1 {
            pass(before + late + j + h, n - 1 + h, Action::Copy);
        }
    }
    Ok(b.finish())
}
