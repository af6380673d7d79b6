//! The generalised butterfly: any number of ranks, any product of cyclic groups, any number of steps.
//!
//! Ranks and blocks are group elements, blocks = P. The reduction folds the slots to slot 0, the distribution undoes
//! it; the last r folds may be made latency-optimal instead (every rank keeps copies), which trades bytes for rounds.
//!
//! Cost on the cyclic group, s = ⌈P / 2^(L-r)⌉, E of `cost::double_steps`: rounds 2L - r; for r < L
//! 2(P-1) + (s-1)(L-1) blocks sent and (P-1) + (s-1)(L+E) reduced; for r = L, P·L sent and P·(L+E) reduced.
//! Products of groups: `cost::butterfly`.
//! `cap` bounds a message in blocks at more rounds, still 2(P-1) and P-1 blocks; `rounds` asks for a total between L
//! and 2(P-1). `keep-order` folds at distances 1, 2, 4, …: rotated order instead of commutative.
//! Bits are identical on all ranks if r = 0 or every factor touched by the last r folds is a power of two; with
//! `keep-order` only if r = 0, or r = 1 and P is a power of two. Restrictions: cap, rounds and keep-order on the cyclic
//! group only; r > 0 without ring factors and for allreduce only.
//! Source: KZ sections 5 to 9.

use super::arithmetic::ceil_log2;
use super::fold;
use super::group::Group;
use super::latency;
use super::params::{Factor, GroupSpec, Params, bad};
use super::slots::{self, Shift};
use crate::plan::{Collective, Order, Plan, PlanBuilder, PlanError};

const NAME: &str = "butterfly";

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let ranks = params.ranks;
    let spec = params.group.clone().unwrap_or_default();
    let factors = factors(&spec, ranks)?;
    let group = Group::new(factors.iter().map(|f| f.size).collect());
    let halving_only = factors.iter().all(|f| !f.ring);
    let mut b = params.builder(NAME, ranks, ranks);
    b.collective(collective, 0).parameter("group", &spec);
    let cyclic = spec == GroupSpec::Cyclic;
    if !cyclic && (params.cap.is_some() || params.rounds.is_some() || params.keep_order) {
        return Err(bad(NAME, "group", &spec, "cyclic together with cap, rounds or keep-order"));
    }
    let exclusive = [params.r.is_some(), params.rounds.is_some(), params.cap.is_some()];
    if exclusive.iter().filter(|given| **given).count() > 1 || (params.keep_order && (exclusive[1] || exclusive[2])) {
        return Err(bad(NAME, "r", "several of r, rounds, cap, keep-order", "one of them (keep-order goes with r)"));
    }
    let least = ceil_log2(ranks);
    let (mut r, mut step_counts) = (params.r.unwrap_or(0), None);
    if let Some(rounds) = params.rounds {
        if collective != Collective::Allreduce {
            return Err(bad(NAME, "rounds", rounds, format!("allreduce, not {collective}, as it counts both phases")));
        }
        if rounds < least || rounds > 2 * (ranks - 1) {
            return Err(bad(NAME, "rounds", rounds, format!("{least} to {}", 2 * (ranks - 1))));
        }
        match rounds < 2 * least {
            true => r = 2 * least - rounds,
            false => step_counts = Some((rounds.div_ceil(2), rounds / 2)),
        }
    }
    if let Some(cap) = params.cap.filter(|cap| *cap == 0) {
        return Err(bad(NAME, "cap", cap, "at least 1 block"));
    }
    let (folds, undone) = if params.keep_order {
        b.parameter("keep-order", true);
        (fold::ordered(ranks), fold::ordered(ranks))
    } else if let Some(cap) = params.cap {
        b.parameter("cap", cap);
        let folds = fold::cyclic(ranks, &fold::capped(ranks, cap));
        (folds.clone(), folds)
    } else if let Some((down, up)) = step_counts {
        b.parameter("rounds", down + up);
        (fold::cyclic(ranks, &fold::exactly(ranks, down)), fold::cyclic(ranks, &fold::exactly(ranks, up)))
    } else {
        b.parameter("r", r);
        let folds = fold::product(&group, &factors);
        (folds.clone(), folds)
    };
    if r > folds.len() {
        return Err(bad(NAME, "r", r, format!("0 to {}", folds.len())));
    }
    if r > 0 && !halving_only {
        return Err(bad(NAME, "r", r, "0 with a ring factor: copies of a ring fold cost more bytes at equal rounds"));
    }
    if r > 0 && collective != Collective::Allreduce {
        return Err(bad(NAME, "r", r, format!("0 for {collective}, which has one phase only")));
    }
    let single_slots = params.cap == Some(1) || step_counts.is_some_and(|(down, _)| down + 1 == ranks);
    let one_by_one = params.keep_order || single_slots;
    let order = match ranks {
        1 => Order::Ordered,
        _ if collective == Collective::Allgather => Order::Ordered,
        _ if one_by_one || ranks == 2 => Order::Rotated,
        _ => Order::Commutative,
    };
    // shifts at distances 1, 2, 4, … give two ranks the same tree only if the last one swaps them
    let same_trees =
        if params.keep_order { r == 0 || (r == 1 && ranks.is_power_of_two()) } else { consistent(&factors, r) };
    b.claim(order, same_trees);
    build(&mut b, &group, collective, &folds, &undone, r);
    Ok(b.finish())
}

fn build(b: &mut PlanBuilder, group: &Group, collective: Collective, folds: &[Shift], undone: &[Shift], r: usize) {
    let rounds = |folds: &[Shift]| folds.iter().map(|f| vec![f.clone()]).collect::<Vec<_>>();
    let mut next = 0;
    let mut buffer = 0;
    if collective != Collective::Allgather {
        if r == 0 {
            next = slots::scatter(b, group, &rounds(folds), 0);
        } else {
            buffer = latency::reduce(b, group, folds, r);
            next = folds.len();
        }
    }
    b.result(buffer);
    if collective != Collective::ReduceScatter {
        slots::gather(b, group, &rounds(&undone[..undone.len() - r]), buffer, next);
    }
}

fn factors(spec: &GroupSpec, ranks: usize) -> Result<Vec<Factor>, PlanError> {
    let halved = |size| Factor { size, ring: false };
    match spec {
        GroupSpec::Cyclic => Ok(vec![halved(ranks)]),
        GroupSpec::Xor if ranks.is_power_of_two() => Ok(vec![halved(2); ceil_log2(ranks)]),
        GroupSpec::Xor => Err(bad(NAME, "group", spec, format!("a power of two ranks for xor, not {ranks}"))),
        GroupSpec::Factors(factors) => {
            let product = factors.iter().try_fold(1usize, |n, f| n.checked_mul(f.size));
            match product == Some(ranks) && factors.iter().all(|f| f.size >= 2) {
                true => Ok(factors.clone()),
                false => Err(bad(NAME, "group", spec, format!("factors of at least 2 whose product is {ranks}"))),
            }
        }
    }
}

/// True if all ranks get identical bits: the factors touched by the last `r` folds are powers of two.
fn consistent(factors: &[Factor], r: usize) -> bool {
    let mut left = r;
    for factor in factors.iter().rev() {
        if left == 0 {
            return true;
        }
        if !factor.size.is_power_of_two() {
            return false;
        }
        left = left.saturating_sub(ceil_log2(factor.size));
    }
    true
}
