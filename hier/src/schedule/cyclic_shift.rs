//! Cyclic shift with a factor per step: fewest bytes, several ports per round.
//!
//! A reduce-scatter step with factor f and window W sends slots [jW, (j+1)W) by jW for j = 1..f-1 in one round and
//! leaves W slots. `ceil`: W = ⌈N/f⌉. `cap` (Bruck): W = product of the factors still to come, so the ragged step is
//! the first. The allgather is the reverse. Blocks = P. Cost 2s rounds for s factors, 2(P-1)uβ, (P-1)uγ, up to f - 1
//! ports. Defined for every P and factors whose product reaches P. Commutative, identical bits. Source: JO.

use super::arithmetic::repeated;
use super::group::Group;
use super::params::{Params, ShiftRule, bad, list};
use super::slots::{self, Shift};
use crate::plan::{Collective, Order, Plan, PlanError};

const NAME: &str = "cyclic-shift";

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let factors = factors(params)?;
    let rule = params.rule.unwrap_or_default();
    let group = Group::new(vec![n]);
    let mut rounds = Vec::new();
    let mut live = n;
    for (i, f) in factors.iter().enumerate() {
        let window = match rule {
            ShiftRule::Ceil => live.div_ceil(*f),
            ShiftRule::Cap => factors[i + 1..].iter().fold(1usize, |w, f| w.saturating_mul(*f)),
        };
        let piece = |j: usize| Shift { by: j * window, slots: (j * window..live.min((j + 1) * window)).collect() };
        rounds.push((1..*f).take_while(|j| j * window < live).map(piece).collect::<Vec<_>>());
        live = window;
    }
    if rounds.iter().any(Vec::is_empty) {
        return Err(bad(NAME, "radices", list(&factors), format!("no factor more than needed for {n} ranks")));
    }
    let needed = rounds.iter().map(Vec::len).max().unwrap_or(1);
    if let Some(ports) = params.ports.filter(|ports| *ports < needed) {
        return Err(bad(NAME, "ports", ports, format!("at least {needed} for factors {}", list(&factors))));
    }
    let mut b = params.builder(NAME, n, n);
    b.collective(collective, 0).ports(needed).parameter("radices", list(&factors));
    b.parameter("rule", if rule == ShiftRule::Ceil { "ceil" } else { "cap" });
    let claim = match (n, collective) {
        (1, _) | (_, Collective::Allgather) => Order::Ordered,
        (2, _) => Order::Rotated,
        _ => Order::Commutative,
    };
    b.claim(claim, true);
    let mut next = 0;
    if collective != Collective::Allgather {
        next = slots::scatter(&mut b, &group, &rounds, 0);
    }
    if collective != Collective::ReduceScatter {
        slots::gather(&mut b, &group, &rounds, 0, next);
    }
    Ok(b.finish())
}

/// The given factors, or as many of ports + 1 (2 without ports) as are needed.
pub(super) fn given_or_repeated(name: &str, params: &Params) -> Result<Vec<usize>, PlanError> {
    match (&params.radices, params.ports) {
        (_, Some(0)) => Err(bad(name, "ports", 0, "at least 1")),
        (Some(radices), _) => Ok(radices.clone()),
        (None, ports) => Ok(repeated(params.ranks, ports.unwrap_or(1).saturating_add(1))),
    }
}

fn factors(params: &Params) -> Result<Vec<usize>, PlanError> {
    let n = params.ranks;
    let factors = given_or_repeated(NAME, params)?;
    let product = factors.iter().fold(1usize, |p, f| p.saturating_mul(*f));
    match factors.iter().all(|f| *f >= 2) && product >= n {
        true => Ok(factors),
        false => Err(bad(NAME, "radices", list(&factors), format!("factors of at least 2 whose product reaches {n}"))),
    }
}
