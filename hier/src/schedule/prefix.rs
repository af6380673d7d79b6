//! Cyclic shift with prefix sums, for short messages: few rounds, whole vectors.
//!
//! S_l(ρ) is the reduction of the l ranks from ρ on. Windows w₀ = 1, w_{i+1} = w_i·f_i; step i makes S of length
//! w_{i+1}, and of P mod w_{i+1} if needed later, from S of length w_i and P mod w_i. The piece of length w_i comes
//! from ρ + j·w_i on port j. One block; rounds = number of factors; for factors 2 the vectors sent and reduced are
//! L + #{0 ≤ i ≤ L-2 : bit i of P set and P mod 2^i ≠ 0}, for others see `cost::prefix`. Defined for every P and factors
//! whose product reaches P with the last one only.
//!
//! Without `target` one cyclic line of all P with the given `radices` (default: ports + 1, repeated). With `target` P
//! is split into primes, merged up to the target into direct exchanges; a larger prime becomes such a line.
//! One line: rotated; beside other dimensions commutative; either way bits differ between ranks. Direct exchanges
//! only: ordered, identical bits. Source: JO.

use super::arithmetic::{merge_primes, repeated};
use super::cyclic_shift::given_or_repeated;
use super::direct;
use super::frame::{self, Dimension, FoldedLine, Line};
use super::params::{Params, bad, list};
use crate::plan::{Action, Blocks, Collective, Order, Plan, PlanBuilder, PlanError, Side};

const NAME: &str = "prefix";

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let mut b = params.builder(NAME, n, 1);
    b.collective(collective, 0);
    let dims = match params.target {
        Some(target) => combined(params, target)?,
        None => {
            let factors = factors(params)?;
            b.parameter("radices", list(&factors));
            Some(dimension(n, factors)).filter(|_| n > 1).into_iter().collect()
        }
    };
    if let Some(target) = params.target {
        b.parameter("target", target);
    }
    let lines = dims.iter().filter(|d| !d.factors.is_empty()).count();
    let claim = match (lines, dims.len()) {
        (0, _) => Order::Ordered,
        (1, 1) => Order::Rotated,
        _ => Order::Commutative,
    };
    b.claim(claim, lines == 0);
    let ports = |d: &Dimension| if d.factors.is_empty() { d.size - 1 } else { partners(d.size, &d.factors) };
    let needed = dims.iter().map(ports).max().unwrap_or(1);
    if let Some(ports) = params.ports.filter(|ports| *ports < needed) {
        return Err(bad(NAME, "ports", ports, format!("at least {needed} for these factors")));
    }
    b.ports(needed);
    frame::allreduce(&mut b, &dims, 1);
    Ok(b.finish())
}

fn combined(params: &Params, target: usize) -> Result<Vec<Dimension>, PlanError> {
    if target < 2 || params.radices.is_some() {
        return Err(bad(NAME, "target", target, "at least 2, and no radices beside it"));
    }
    let dim = |size: usize| match size <= target {
        true => direct::dimension(size),
        false => dimension(size, repeated(size, target)),
    };
    Ok(merge_primes(params.ranks, target).into_iter().map(dim).collect())
}

/// A dimension of cyclic lines with these factors.
fn dimension(size: usize, factors: Vec<usize>) -> Dimension {
    Dimension { factors, ..Dimension::new(size, fold, 1) }
}

fn factors(params: &Params) -> Result<Vec<usize>, PlanError> {
    let n = params.ranks;
    let factors = given_or_repeated(NAME, params)?;
    let before_last = factors.iter().rev().skip(1).fold(1usize, |p, f| p.saturating_mul(*f));
    let product = factors.iter().fold(1usize, |p, f| p.saturating_mul(*f));
    match factors.iter().all(|f| *f >= 2) && product >= n && (before_last < n || n == 1) {
        true => Ok(factors),
        false => {
            let expected = format!("factors of at least 2 whose product reaches {n} with the last one only");
            Err(bad(NAME, "radices", list(&factors), expected))
        }
    }
}

/// One step of the prefix sums, made from pieces of length `window` and of the remainder.
struct PrefixStep {
    window: usize,
    // whole pieces and whether the remainder follows, for the next window (or the end) and for the next remainder
    main: (usize, bool),
    rest: Option<(usize, bool)>,
}

fn steps(q: usize, factors: &[usize]) -> Vec<PrefixStep> {
    let mut window = 1;
    let mut steps = Vec::new();
    for (i, f) in factors.iter().enumerate() {
        let last = i + 1 == factors.len();
        let pieces = |length: usize| (length / window, !length.is_multiple_of(window));
        let next = window.saturating_mul(*f);
        let rest = Some(q % next).filter(|l| !last && *l > 0).map(pieces);
        steps.push(PrefixStep { window, main: pieces(if last { q } else { next }), rest });
        window = next;
    }
    steps
}

fn partners(q: usize, factors: &[usize]) -> usize {
    let of = |(whole, more): (usize, bool)| (whole + usize::from(more)).max(1) - 1;
    steps(q, factors).iter().map(|s| of(s.main).max(s.rest.map_or(0, of))).max().unwrap_or(0).max(1)
}

fn fold(b: &mut PlanBuilder, line: &Line<'_>) -> FoldedLine {
    let q = line.ranks.len();
    let all = || Blocks::range(line.region.0, line.region.1);
    let steps = steps(q, line.factors);
    // buffer 0: the piece of length w; 1 and 2 in turn: the remainder; 3: an arriving remainder; 3 + j: port j
    let (mut rest_buffer, aside) = (1, 3);
    for (i, step) in steps.iter().enumerate() {
        let round = line.round + i;
        let made = [Some(step.main), step.rest];
        let whole = made.iter().flatten().map(|(whole, _)| *whole).max().unwrap_or(1);
        // a remainder made from no whole piece is the old remainder and stays where it is
        let tail = made.iter().flatten().find(|(whole, more)| *more && *whole > 0).map(|(whole, _)| *whole);
        for p in 0..q {
            let from = |j: usize| line.ranks[(p + j * step.window) % q];
            for j in 1..whole {
                b.message(round, from(j), line.ranks[p], 0, aside + j, all(), Action::Copy);
            }
            if let Some(j) = tail {
                b.message(round, from(j), line.ranks[p], rest_buffer, aside, all(), Action::Copy);
            }
        }
        let next_rest = match step.rest {
            Some((whole, _)) if whole > 0 => 3 - rest_buffer,
            _ => rest_buffer,
        };
        for rank in line.ranks {
            let append = |b: &mut PlanBuilder, target: usize, (whole, more): (usize, bool)| {
                for j in 1..whole {
                    b.local(round as i32, *rank, aside + j, target, all(), Action::Reduce(Side::Right));
                }
                if more {
                    b.local(round as i32, *rank, aside, target, all(), Action::Reduce(Side::Right));
                }
            };
            if let Some(rest) = step.rest.filter(|(whole, _)| *whole > 0) {
                b.local(round as i32, *rank, 0, next_rest, all(), Action::Copy);
                append(b, next_rest, rest);
            }
            append(b, 0, step.main);
        }
        rest_buffer = next_rest;
    }
    FoldedLine { rounds: steps.len(), regions: vec![Some(line.region); q], back: Vec::new() }
}
