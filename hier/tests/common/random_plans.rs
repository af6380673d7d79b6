//! Random allreduce plans: every block is reduced along a random tree and sent back along another one, all
//! blocks at once, through buffers and detours that no schedule uses.

use earlybird_hier::plan::{Action, Blocks, Order, Plan, PlanBuilder, Side};
use proptest::prelude::*;

struct Draws(u64);

impl Draws {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        ((self.0 >> 33) as usize) % n
    }
}

/// A plan for 1 to 8 ranks with 1 to 6 blocks.
pub fn plan() -> impl Strategy<Value = Plan> {
    (1usize..=8, 1usize..=6, any::<bool>(), any::<u64>())
        .prop_map(|(ranks, blocks, in_order, seed)| build(ranks, blocks, in_order, &mut Draws(seed)))
}

fn build(ranks: usize, blocks: usize, in_order: bool, draws: &mut Draws) -> Plan {
    let mut plan = PlanBuilder::new("random", ranks, blocks);
    plan.ports(ranks).claim(if in_order { Order::Ordered } else { Order::Commutative }, false);
    // Half of the plans end in another buffer than they begin in.
    let result = draws.below(2);
    plan.result(result);
    for block in 0..blocks {
        let round = reduce(&mut plan, block, in_order, draws);
        hand_back(&mut plan, block, result, round, draws);
    }
    plan.finish()
}

/// Merges neighbours (or any two ranks) until one holds everything; returns the next round and that rank.
fn reduce(plan: &mut PlanBuilder, block: usize, in_order: bool, draws: &mut Draws) -> (usize, usize) {
    // (who holds a partial result, when it is ready), in operand order
    let early = |draws: &mut Draws| if plan.ranks() == 1 { 0 } else { draws.below(3) };
    let mut holders: Vec<(usize, usize)> = (0..plan.ranks()).map(|rank| (rank, early(draws))).collect();
    while holders.len() > 1 {
        let left = draws.below(holders.len() - 1);
        let right = if in_order { left + 1 } else { left + 1 + draws.below(holders.len() - 1 - left) };
        let (a, b) = (holders[left], holders[right]);
        let (from, to, side) = if draws.below(2) == 0 { (a, b, Side::Left) } else { (b, a, Side::Right) };
        let round = from.1.max(to.1) + draws.below(2);
        plan.message(round, from.0, to.0, 0, 0, Blocks::range(block, block + 1), Action::Reduce(side));
        holders[left] = (to.0, round + 1);
        holders.remove(right);
    }
    (holders[0].1, holders[0].0)
}

/// Copies the holder's value to every rank's result buffer, sometimes through a third buffer.
fn hand_back(plan: &mut PlanBuilder, block: usize, result: usize, (ready, root): (usize, usize), draws: &mut Draws) {
    let set = || Blocks::range(block, block + 1);
    if result != 0 {
        // after the messages of the round before
        let round = ready as i32 - 1;
        match draws.below(2) {
            0 => plan.local(round, root, 0, result, set(), Action::Copy),
            _ => {
                plan.local(round, root, 0, 2, set(), Action::Copy);
                plan.local(round, root, 2, result, set(), Action::Copy);
            }
        }
    }
    let mut have = vec![(root, ready)];
    let mut lacking: Vec<usize> = (0..plan.ranks()).filter(|r| *r != root).collect();
    while !lacking.is_empty() {
        let to = lacking.swap_remove(draws.below(lacking.len()));
        let (from, since) = have[draws.below(have.len())];
        let round = since + draws.below(2);
        plan.message(round, from, to, result, result, set(), Action::Copy);
        have.push((to, round + 1));
    }
}
