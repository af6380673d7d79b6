//! Schedules: pure functions from parameters to plans, one algorithm per file.
//!
//! Costs in the files' headers are α per message, β per element sent, γ per element reduced, with m elements in
//! blocks of u = m / blocks, P ranks, L = ⌈log₂ P⌉, p₂ = 2^⌊log₂ P⌋. Sources by short name:
//!
//! - KZ: Kolmakov, Zhang, *A Generalization of the Allreduce Operation*
//! - JO: Jocksch and others, *Towards an optimal allreduce communication in message-passing systems*, EuroMPI 2020
//! - RS: Rabenseifner, Träff, slides and papers on reductions for any number of processes
//! - AL: Alizadeh and others, process arrival pattern aware collectives, EuroMPI/USA 2022
//! - PY: Patarasuk, Yuan, *Bandwidth optimal all-reduce algorithms for clusters of workstations*, JPDC 2009

mod binomial;
mod bruck;
mod butterfly;
mod census;
mod chain;
mod cyclic_shift;
mod direct;
mod dissemination;
mod elimination;
mod fold;
mod frame;
mod group;
mod halving_doubling;
mod latency;
mod lazy;
mod named;
mod odd_ring;
mod params;
mod prefix;
mod prereduced_ring;
mod recursive_doubling;
mod ring;
mod rsg;
mod slot_set;
mod slots;
mod smp;
mod surplus;

pub(crate) use cyclic_shift::repeated;
pub(crate) use direct::merge_primes;
pub(crate) use fold::{capped as capped_sizes, exactly as exact_sizes, halving_sizes};
pub use lazy::{LazyPlan, MAX_LAZY_RANKS};
pub use named::{Named, Pairs, pairs};
pub use params::{Distance, Factor, GroupSpec, Params, Protocol, Rule};

use crate::error::PlanError;
use crate::plan::{Contract, Plan};
use Contract::{Allgather, Allreduce, Barrier, Broadcast, Reduce, ReduceScatter};
use params::bad;

/// Most ranks a plan is built for. A ring over more would need gigabytes as a plan of all ranks.
pub const MAX_RANKS: usize = 1024;

/// Most segments times ranks of a pipelined schedule.
pub(crate) const MAX_CELLS: usize = 1 << 20;

/// A schedule's entry: what it is called, what it reads, what it can promise.
#[derive(Debug, Clone, Copy)]
pub struct Algorithm {
    /// Name on the command line.
    pub name: &'static str,
    /// One line for help.
    pub summary: &'static str,
    /// Parameters it uses, by command line name.
    pub uses: &'static [&'static str],
    /// Contracts it makes plans for; the first is the default.
    pub contracts: &'static [Contract],
    make: fn(&Params, Contract) -> Result<Plan, PlanError>,
}

macro_rules! algorithm {
    ($name:literal, $summary:literal, $uses:expr, $contracts:expr, $make:path) => {
        Algorithm { name: $name, summary: $summary, uses: &$uses, contracts: &$contracts, make: $make }
    };
}

/// All schedules.
pub const ALGORITHMS: &[Algorithm] = &[
    algorithm!("ring", "neighbours only, fewest bytes", ["order"], [Allreduce, ReduceScatter, Allgather], ring::plan),
    algorithm!(
        "butterfly",
        "any number of ranks, any abelian group, any step count",
        ["group", "r", "rounds", "cap", "keep-order"],
        [Allreduce, ReduceScatter, Allgather],
        butterfly::plan
    ),
    algorithm!("recursive-doubling", "whole vectors, ordered", [], [Allreduce], recursive_doubling::plan),
    algorithm!(
        "halving-doubling",
        "few bytes, ordered, best for powers of two",
        ["distance"],
        [Allreduce, ReduceScatter, Allgather],
        halving_doubling::plan
    ),
    algorithm!("elimination-3-2", "any number of ranks, ordered", ["protocol"], [Allreduce], elimination::plan_3_2),
    algorithm!("elimination-2-1", "any number of ranks, ordered", ["protocol"], [Allreduce], elimination::plan_2_1),
    algorithm!("odd-ring", "odd factors, ordered", ["protocol", "radices"], [Allreduce], odd_ring::plan),
    algorithm!(
        "cyclic-shift",
        "fewest bytes, a factor per step, several ports",
        ["radices", "rule", "ports"],
        [Allreduce, ReduceScatter, Allgather],
        cyclic_shift::plan
    ),
    algorithm!(
        "radix",
        "a hypercube of direct exchanges, ordered",
        ["protocol", "radices", "target"],
        [Allreduce],
        direct::plan_radix
    ),
    algorithm!(
        "direct",
        "everybody to everybody in one round",
        ["protocol"],
        [Allreduce, ReduceScatter, Allgather],
        direct::plan_direct
    ),
    algorithm!(
        "prefix",
        "short messages, cyclic shift with prefix sums",
        ["radices", "target", "ports"],
        [Allreduce],
        prefix::plan
    ),
    algorithm!("census", "fewest rounds, order kept up to rotation", [], [Allreduce], census::plan),
    algorithm!(
        "chain",
        "pipelined, in a given order (a sorted linear tree for an order of arrival)",
        ["order", "segments", "ports"],
        [Allreduce, Reduce, Broadcast],
        chain::plan
    ),
    algorithm!(
        "pre-reduced-ring",
        "a ring for an order of arrival; the early ranks reduce before the late ones act",
        ["order", "segments", "late"],
        [Allreduce],
        prereduced_ring::plan
    ),
    algorithm!("binomial", "trees", ["keep-order"], [Allreduce, Reduce, Broadcast], binomial::plan),
    algorithm!("rsg", "reduce-scatter, gather, broadcast", [], [Allreduce, Reduce], rsg::plan),
    algorithm!(
        "smp-binomial",
        "trees inside nodes, trees between",
        ["ranks-per-node"],
        [Allreduce],
        smp::plan_binomial
    ),
    algorithm!(
        "smp-butterfly",
        "trees inside nodes, halving + doubling between",
        ["ranks-per-node"],
        [Allreduce],
        smp::plan_butterfly
    ),
    algorithm!("dissemination", "barrier", [], [Barrier], dissemination::plan),
    algorithm!("bruck", "allgather in few rounds", [], [Allgather], bruck::plan),
];

/// The entry of a name.
pub fn algorithm(name: &str) -> Result<&'static Algorithm, PlanError> {
    ALGORITHMS.iter().find(|a| a.name == name).ok_or_else(|| PlanError::UnknownAlgorithm {
        given: name.to_string(),
        known: ALGORITHMS.iter().map(|a| a.name).collect::<Vec<_>>().join(" "),
    })
}

/// The plan of a schedule, not yet verified. Cost: linear in the number of steps of all ranks.
pub fn build(name: &str, params: &Params) -> Result<Plan, PlanError> {
    let entry = algorithm(name)?;
    lazy::whole(name, params)?;
    let contract = checked(entry, params, MAX_RANKS)?;
    (entry.make)(params, contract)
}

/// The contract to make a plan for, if the request makes sense.
fn checked(entry: &Algorithm, params: &Params, most_ranks: usize) -> Result<Contract, PlanError> {
    let name = entry.name;
    if !(1..=most_ranks).contains(&params.ranks) {
        return Err(bad(name, "ranks", params.ranks, format!("1 to {most_ranks}")));
    }
    if let Some(parameter) = params.given().into_iter().find(|p| !entry.uses.contains(p)) {
        let known = if entry.uses.is_empty() { "nothing but ranks".to_string() } else { entry.uses.join(", ") };
        return Err(PlanError::UnusedParameter { algorithm: name.to_string(), parameter, known });
    }
    let contract = params.contract.unwrap_or(entry.contracts[0]);
    if !entry.contracts.contains(&contract) {
        let known = entry.contracts.iter().map(|c| c.name()).collect::<Vec<_>>().join(", ");
        return Err(PlanError::UnknownContract { algorithm: name.to_string(), contract, known });
    }
    match params.root {
        Some(root) if !contract.has_root() => {
            return Err(bad(name, "root", root, format!("no root, as {contract} has none")));
        }
        Some(root) if root >= params.ranks => {
            return Err(bad(name, "root", root, format!("a rank below {}", params.ranks)));
        }
        _ => {}
    }
    Ok(contract)
}

/// ⌈log₂ n⌉; 0 for n ≤ 1.
pub(crate) fn ceil_log2(n: usize) -> usize {
    n.max(1).next_power_of_two().trailing_zeros() as usize
}

/// ⌊log₂ n⌋ for n ≥ 1.
pub(crate) fn floor_log2(n: usize) -> usize {
    n.max(1).ilog2() as usize
}

/// Prime factors, ascending; empty for 1.
pub(crate) fn primes(mut n: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut p = 2;
    while p * p <= n {
        while n.is_multiple_of(p) {
            found.push(p);
            n /= p;
        }
        p += 1;
    }
    if n > 1 {
        found.push(n);
    }
    found
}
