//! Two levels: trees inside nodes of consecutive ranks, another schedule between the first ranks of the nodes.
//!
//! Inside: binomial reduce to the node's first rank, and at the end binomial broadcast, ⌈log₂ ppn⌉ rounds each.
//! Between: binomial reduce + broadcast (`smp-binomial`, one block) or halving + doubling with distance doubling
//! (`smp-butterfly`, p₂ blocks of the number of nodes). The last node may have fewer ranks.
//! Cost: 2⌈log₂ ppn⌉(α + mβ) + ⌈log₂ ppn⌉mγ and that of the schedule between the nodes. Defined for every P and ranks
//! per node. Ordered, identical bits. Source: PY section 5.

use super::arithmetic::{ceil_log2, floor_log2};
use super::binomial;
use super::halving_doubling::HalvingDoubling;
use super::params::{Distance, Params, bad};
use super::surplus::Surplus;
use crate::plan::{Collective, Plan, PlanBuilder, PlanError};

pub(super) fn plan_binomial(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    two_levels(
        "smp-binomial",
        params,
        collective,
        |_| 1,
        |b, leaders, _, round| {
            let round = binomial::reduce(b, leaders, 1, round);
            binomial::broadcast(b, leaders, 1, round)
        },
    )
}

pub(super) fn plan_butterfly(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    two_levels(
        "smp-butterfly",
        params,
        collective,
        |nodes| 1 << floor_log2(nodes),
        |b, leaders, blocks, round| {
            let surplus = Surplus::of(leaders);
            let exchange =
                HalvingDoubling { participants: &surplus.participants, distance: Distance::Doubling, natural: true };
            let round = surplus.fold_in(b, blocks, round);
            let round = exchange.halve(b, round);
            let round = exchange.double(b, round);
            surplus.fold_out(b, blocks, round)
        },
    )
}

fn two_levels(
    name: &str,
    params: &Params,
    collective: Collective,
    blocks_for: impl Fn(usize) -> usize,
    between: impl Fn(&mut PlanBuilder, &[usize], usize, usize) -> usize,
) -> Result<Plan, PlanError> {
    let ranks: Vec<usize> = (0..params.ranks).collect();
    let Some(per_node) = params.ranks_per_node.filter(|k| *k > 0) else {
        let given = params.ranks_per_node.map_or("nothing".to_string(), |k| k.to_string());
        return Err(bad(name, "ranks-per-node", given, "at least 1"));
    };
    let nodes: Vec<&[usize]> = ranks.chunks(per_node).collect();
    let leaders: Vec<usize> = nodes.iter().map(|node| node[0]).collect();
    let blocks = blocks_for(nodes.len());
    let mut b = params.builder(name, ranks.len(), blocks);
    b.collective(collective, 0).parameter("ranks-per-node", per_node);
    for node in &nodes {
        binomial::reduce(&mut b, node, blocks, 0);
    }
    let inside = ceil_log2(nodes[0].len());
    let round = between(&mut b, &leaders, blocks, inside);
    for node in &nodes {
        // a smaller last node needs fewer rounds and starts with the others
        binomial::broadcast(&mut b, node, blocks, round);
    }
    Ok(b.finish())
}
