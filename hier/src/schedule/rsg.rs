//! Reduce-scatter, gather to rank 0, broadcast.
//!
//! Odd ranks below 2·rem fold into the even one before them (so that rank 0 takes part), recursive halving, binomial
//! gather, binomial broadcast of the whole vector to all P. Blocks = p₂.
//! Cost [P≠p₂] + 2⌊log₂ P⌋ + L rounds, (2(1 - 1/p₂) + L + [P≠p₂])mβ, (1 - 1/p₂ + [P≠p₂])mγ. As a reduce (to rank 0)
//! without the broadcast. Defined for every P. Ordered, identical bits. Source: RS, AL.

use super::arithmetic::floor_log2;
use super::binomial;
use super::halving_doubling::HalvingDoubling;
use super::params::{Distance, Params, bad};
use crate::plan::{Action, Blocks, Collective, Plan, PlanError, Side};

const NAME: &str = "rsg";

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    if let Some(root) = params.root.filter(|root| *root != 0) {
        return Err(bad(NAME, "root", root, "0; for another root use binomial"));
    }
    let p2 = 1 << floor_log2(n);
    let rem = n - p2;
    let mut b = params.builder(NAME, n, p2);
    b.collective(collective, 0);
    for i in 0..rem {
        b.message(0, 2 * i + 1, 2 * i, 0, 0, Blocks::range(0, p2), Action::Reduce(Side::Right));
    }
    let participants: Vec<usize> = (0..rem).map(|i| 2 * i).chain(2 * rem..n).collect();
    let exchange = HalvingDoubling { participants: &participants, distance: Distance::Doubling, natural: true };
    let round = exchange.halve(&mut b, usize::from(rem > 0));
    let round = exchange.gather(&mut b, round);
    if collective == Collective::Allreduce {
        binomial::broadcast(&mut b, &(0..n).collect::<Vec<_>>(), p2, round);
    }
    Ok(b.finish())
}
