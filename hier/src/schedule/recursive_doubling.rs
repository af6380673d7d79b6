//! Recursive doubling with the classic fold: whole vectors, partners at distance 1, 2, 4, …
//!
//! Cost ⌊log₂ P⌋(α + mβ + mγ), and 2α + 2mβ + mγ more if P is not a power of two. One block. Defined for every P.
//! Ordered, identical bits. Source: RS; Thakur, Rabenseifner, Gropp, IJHPCA 2005.

use super::arithmetic::floor_log2;
use super::params::Params;
use super::surplus::Surplus;
use crate::plan::{Action, Blocks, Collective, Plan, PlanError, Side};

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let ranks: Vec<usize> = (0..params.ranks).collect();
    let mut b = params.builder("recursive-doubling", ranks.len(), 1);
    b.collective(collective, 0);
    let surplus = Surplus::of(&ranks);
    let mut round = surplus.fold_in(&mut b, 1, 0);
    let participants = &surplus.participants;
    for k in 0..floor_log2(ranks.len()) {
        for (i, rank) in participants.iter().enumerate() {
            let partner = participants[i ^ (1 << k)];
            // the sender's interval lies before the receiver's exactly if its bit is clear
            let side = if i >> k & 1 == 0 { Side::Left } else { Side::Right };
            b.message(round, *rank, partner, 0, 0, Blocks::range(0, 1), Action::Reduce(side));
        }
        round += 1;
    }
    surplus.fold_out(&mut b, 1, round);
    Ok(b.finish())
}
