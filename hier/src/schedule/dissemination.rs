//! Dissemination barrier: in round k every rank sends all its contributions to the rank 2^k after it.
//!
//! Cost Lα, one token block. Defined for every P. Contributions may arrive more than once: a barrier's operator is
//! idempotent. Source: Hensgen, Finkel, Manber, *Two algorithms for barrier synchronization*, 1988.

use super::arithmetic::ceil_log2;
use super::params::Params;
use crate::plan::{Action, Blocks, Collective, Order, Plan, PlanError, Side};

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let mut b = params.builder("dissemination", n, 1);
    b.collective(collective, 0).claim(Order::Commutative, true);
    for k in 0..ceil_log2(n) {
        for rank in 0..n {
            b.message(k, rank, (rank + (1 << k)) % n, 0, 0, Blocks::range(0, 1), Action::Reduce(Side::Left));
        }
    }
    Ok(b.finish())
}
