//! Census: the fewest rounds with rank order kept up to rotation.
//!
//! Every rank holds C, the reduction of the k ranks after it, with k running through the binary prefixes of P - 1.
//! Next bit 0: it receives C from ρ + k and k doubles. Next bit 1: it receives own ⊕ C from ρ + k + 1 and k doubles
//! plus one. At the end the result is own ⊕ C. Cost L(α + mβ) + (L - 1 + popcount(P-1))mγ, one block, three buffers.
//! Defined for every P. Rotated; bits differ between ranks. Source: Bar-Noy, Kipnis, Schieber, cited by KZ.

use super::params::Params;
use crate::plan::{Action, Blocks, Collective, Order, Plan, PlanError, Side};

const OWN: usize = 0;
const AFTER: usize = 1;
const BOTH: usize = 2;

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let mut b = params.builder("census", n, 1);
    b.collective(collective, 0);
    b.claim(if n == 1 { Order::Ordered } else { Order::Rotated }, n <= 2);
    let all = || Blocks::range(0, 1);
    let mut k = 0;
    let bits = usize::BITS as usize - (n - 1).leading_zeros() as usize;
    for (round, bit) in (0..bits).rev().enumerate() {
        let one = (n - 1) >> bit & 1;
        let source = match (k, one) {
            (0, _) => OWN,
            (_, 0) => AFTER,
            _ => BOTH,
        };
        for rank in 0..n {
            if source == BOTH {
                b.local(round as i32 - 1, rank, AFTER, BOTH, all(), Action::Copy);
                b.local(round as i32 - 1, rank, OWN, BOTH, all(), Action::Reduce(Side::Left));
            }
            let action = if k == 0 { Action::Copy } else { Action::Reduce(Side::Right) };
            b.message(round, (rank + k + one) % n, rank, source, AFTER, all(), action);
        }
        k = 2 * k + one;
    }
    for rank in 0..n {
        if n > 1 {
            b.local(bits as i32 - 1, rank, AFTER, OWN, all(), Action::Reduce(Side::Right));
        }
    }
    Ok(b.finish())
}
