//! The counts of plans, and closed forms held against them.

use earlybird_hier::cost::{self, Cost};
use earlybird_hier::plan::{Counters, Plan};
use earlybird_hier::schedule::{self, Params};
use std::collections::BTreeSet;

/// The counts of a schedule's plan.
pub fn counters(name: &str, params: Params) -> Counters {
    schedule::build(name, &params).unwrap_or_else(|e| panic!("{name}: {e}")).counters()
}

/// The busiest rank's blocks and the ports of each round, most first.
fn rounds_of(plan: &Plan) -> Vec<(usize, usize)> {
    let messages = plan.messages().expect("messages pair up");
    let mut rounds = Vec::new();
    for round in messages.chunk_by(|a, b| a.round == b.round) {
        let mut sent = vec![0; plan.ranks()];
        let mut partners = vec![[BTreeSet::new(), BTreeSet::new()]; plan.ranks()];
        for m in round {
            sent[m.from] += m.blocks.len();
            partners[m.from][0].insert(m.to);
            partners[m.to][1].insert(m.from);
        }
        rounds.push((*sent.iter().max().unwrap(), partners.iter().flatten().map(BTreeSet::len).max().unwrap()));
    }
    rounds.sort_unstable_by(|a, b| b.cmp(a));
    rounds
}

fn rounds_said(cost: &Cost) -> Vec<(usize, usize)> {
    let of = |r: &cost::EqualRounds| std::iter::repeat_n((r.sent, r.ports), r.count);
    let mut rounds: Vec<_> = cost.profile.iter().flat_map(of).collect();
    rounds.sort_unstable_by(|a, b| b.cmp(a));
    rounds
}

/// Blocks, rounds, sizes and ports of every round are those of the plan; returns what is reduced.
pub fn same_rounds(name: &str, params: &Params, cost: &Cost) -> Counters {
    let plan = schedule::build(name, params).unwrap_or_else(|e| panic!("{name}: {e}"));
    let c = plan.counters();
    let counted = (plan.blocks, c.rounds, c.critical_blocks_sent);
    assert_eq!(counted, (cost.blocks, cost.rounds, cost.sent), "{name} {params:?}");
    assert_eq!(rounds_of(&plan), rounds_said(cost), "{name} {params:?}");
    c
}

/// Checks [`same_rounds`] and the reductions on the critical path.
pub fn same(name: &str, params: Params, cost: Cost) {
    let counted = same_rounds(name, &params, &cost);
    assert_eq!(counted.critical_blocks_reduced, cost.reduced, "{name} {params:?}");
}

/// The numbers of ranks in which closed forms are exact.
pub fn ranks() -> impl Iterator<Item = usize> {
    (1..=64).chain([127, 128, 255, 300])
}
