//! The table of all schedules, and the way from a name and parameters to a plan.

use super::params::{Params, bad};
use super::{
    binomial, bruck, butterfly, census, chain, cyclic_shift, direct, dissemination, elimination, halving_doubling,
    odd_ring, prefix, prereduced_ring, recursive_doubling, ring, rsg, smp,
};
use crate::plan::Collective::{self, Allgather, Allreduce, Barrier, Broadcast, Reduce, ReduceScatter};
use crate::plan::{Plan, PlanError};

/// Most ranks a plan is built for. A ring over more would need gigabytes as a plan of all ranks.
pub const MAX_RANKS: usize = 1024;

/// A schedule: its name, its parameters and the collectives that it carries out.
#[derive(Debug, Clone, Copy)]
pub struct Algorithm {
    /// Name on the command line.
    pub name: &'static str,
    /// Parameters that it uses, by command line name.
    pub uses: &'static [&'static str],
    /// Collectives that it makes plans for; the first is the default.
    pub collectives: &'static [Collective],
    pub(super) make: fn(&Params, Collective) -> Result<Plan, PlanError>,
}

macro_rules! algorithm {
    ($name:literal, $uses:expr, $collectives:expr, $make:path) => {
        Algorithm { name: $name, uses: &$uses, collectives: &$collectives, make: $make }
    };
}

/// All schedules.
pub const ALGORITHMS: &[Algorithm] = &[
    algorithm!("ring", ["order"], [Allreduce, ReduceScatter, Allgather], ring::plan),
    algorithm!(
        "butterfly",
        ["group", "r", "rounds", "cap", "keep-order"],
        [Allreduce, ReduceScatter, Allgather],
        butterfly::plan
    ),
    algorithm!("recursive-doubling", [], [Allreduce], recursive_doubling::plan),
    algorithm!("halving-doubling", ["distance"], [Allreduce, ReduceScatter, Allgather], halving_doubling::plan),
    algorithm!("elimination-3-2", ["protocol"], [Allreduce], elimination::plan_3_2),
    algorithm!("elimination-2-1", ["protocol"], [Allreduce], elimination::plan_2_1),
    algorithm!("odd-ring", ["protocol", "radices"], [Allreduce], odd_ring::plan),
    algorithm!("cyclic-shift", ["radices", "rule", "ports"], [Allreduce, ReduceScatter, Allgather], cyclic_shift::plan),
    algorithm!("radix", ["protocol", "radices", "target"], [Allreduce], direct::plan_radix),
    algorithm!("direct", ["protocol"], [Allreduce, ReduceScatter, Allgather], direct::plan_direct),
    algorithm!("prefix", ["radices", "target", "ports"], [Allreduce], prefix::plan),
    algorithm!("census", [], [Allreduce], census::plan),
    algorithm!("chain", ["order", "segments", "ports"], [Allreduce, Reduce, Broadcast], chain::plan),
    algorithm!("pre-reduced-ring", ["order", "segments", "late"], [Allreduce], prereduced_ring::plan),
    algorithm!("binomial", ["keep-order"], [Allreduce, Reduce, Broadcast], binomial::plan),
    algorithm!("rsg", [], [Allreduce, Reduce], rsg::plan),
    algorithm!("smp-binomial", ["ranks-per-node"], [Allreduce], smp::plan_binomial),
    algorithm!("smp-butterfly", ["ranks-per-node"], [Allreduce], smp::plan_butterfly),
    algorithm!("dissemination", [], [Barrier], dissemination::plan),
    algorithm!("bruck", [], [Allgather], bruck::plan),
];

/// Finds a schedule by its name.
pub fn algorithm(name: &str) -> Result<&'static Algorithm, PlanError> {
    ALGORITHMS.iter().find(|a| a.name == name).ok_or_else(|| PlanError::UnknownAlgorithm {
        given: name.to_string(),
        known: ALGORITHMS.iter().map(|a| a.name).collect::<Vec<_>>().join(" "),
    })
}

/// Makes the plan of a schedule, not yet verified. Cost: linear in the number of steps of all ranks.
pub fn build(name: &str, params: &Params) -> Result<Plan, PlanError> {
    let entry = algorithm(name)?;
    if let Some((first, end)) = params.window {
        return Err(bad(name, "window", format!("{first}..{end}"), "no window; LazyPlan makes windows"));
    }
    let collective = checked(entry, params, MAX_RANKS)?;
    (entry.make)(params, collective)
}

/// Checks a request and returns the collective to make a plan for.
pub(super) fn checked(entry: &Algorithm, params: &Params, most_ranks: usize) -> Result<Collective, PlanError> {
    let name = entry.name;
    if !(1..=most_ranks).contains(&params.ranks) {
        return Err(bad(name, "ranks", params.ranks, format!("1 to {most_ranks}")));
    }
    if let Some(parameter) = params.given().into_iter().find(|p| !entry.uses.contains(p)) {
        let known = if entry.uses.is_empty() { "nothing but ranks".to_string() } else { entry.uses.join(", ") };
        return Err(PlanError::UnusedParameter { algorithm: name.to_string(), parameter, known });
    }
    let collective = params.collective.unwrap_or(entry.collectives[0]);
    if !entry.collectives.contains(&collective) {
        let known = entry.collectives.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ");
        return Err(PlanError::UnsupportedCollective { algorithm: name.to_string(), collective, known });
    }
    match params.root {
        Some(root) if !collective.has_root() => {
            return Err(bad(name, "root", root, format!("no root, as {collective} has none")));
        }
        Some(root) if root >= params.ranks => {
            return Err(bad(name, "root", root, format!("a rank below {}", params.ranks)));
        }
        _ => {}
    }
    Ok(collective)
}
