//! Direct exchange and the hypercube of direct exchanges (radix-k, recursive multiplying): ordered, identical bits.
//!
//! In a line of q ranks each sends to the q - 1 others in one round, on q - 1 ports. Latency: whole vectors,
//! reduced in rank order, q buffers. Bandwidth: parts, reduced as they come, returned by the reverse round.
//! Cost of dimensions q_j: latency one round and q_j - 1 vectors each; bandwidth two rounds each, 2(P-1)/P of m sent
//! and half of it reduced. `direct` is one dimension of P. `radices` multiply to P (default: primes, ascending);
//! `target` merges primes greedily into factors of at most that size. Source: JO.

use super::arithmetic::{merge_primes, primes};
use super::frame::{self, Dimension, FoldedLine, Line, ReturnMessage};
use super::odd_ring::{exact, reduce_vectors};
use super::params::{Params, Protocol, bad, list};
use crate::plan::{Action, Blocks, Collective, Plan, PlanBuilder, PlanError, Side};

pub(super) fn plan_radix(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let name = "radix";
    let n = params.ranks;
    let sizes = match (&params.radices, params.target) {
        (Some(radices), None) => exact(name, radices, n)?,
        (None, None) => primes(n),
        (None, Some(target)) => {
            let largest = primes(n).pop().unwrap_or(1);
            if target < largest {
                let expected = format!("at least the largest prime factor, {largest}; prefix takes larger ones");
                return Err(bad(name, "target", target, expected));
            }
            merge_primes(n, target)
        }
        (Some(radices), Some(_)) => return Err(bad(name, "radices", list(radices), "either radices or target")),
    };
    make(name, params, collective, &sizes)
}

pub(super) fn plan_direct(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let name = "direct";
    let n = params.ranks;
    let sizes: Vec<usize> = Some(n).filter(|q| *q > 1).into_iter().collect();
    if collective == Collective::Allreduce {
        return make(name, params, collective, &sizes);
    }
    // one phase of the bandwidth form; part i belongs to rank i
    if let Some(protocol) = params.protocol.filter(|p| *p != Protocol::Bandwidth) {
        return Err(bad(name, "protocol", protocol, format!("bandwidth for {collective}")));
    }
    let mut b = params.builder(name, n, n);
    b.collective(collective, 0).ports(n.max(2) - 1);
    let ranks: Vec<usize> = (0..n).collect();
    let line = Line { ranks: &ranks, region: (0, n), bandwidth: true, factors: &[], round: 0 };
    if collective == Collective::ReduceScatter {
        fold(&mut b, &line);
    } else {
        for from in 0..n {
            for to in (0..n).filter(|to| *to != from) {
                b.message(0, from, to, 0, 0, Blocks::range(from, from + 1), Action::Copy);
            }
        }
    }
    Ok(b.finish())
}

fn make(name: &str, params: &Params, collective: Collective, sizes: &[usize]) -> Result<Plan, PlanError> {
    let mut dims: Vec<Dimension> = sizes.iter().map(|q| dimension(*q)).collect();
    let protocol = params.protocol.unwrap_or_default();
    frame::split(name, &mut dims, protocol)?;
    let blocks = frame::blocks(&dims);
    let mut b = params.builder(name, params.ranks, blocks);
    b.collective(collective, 0).parameter("protocol", protocol).parameter("radices", list(sizes));
    b.ports(sizes.iter().max().map_or(1, |q| q - 1));
    frame::allreduce(&mut b, &dims, blocks);
    Ok(b.finish())
}

/// A dimension in which every rank of a line exchanges with every other one.
pub(super) fn dimension(size: usize) -> Dimension {
    Dimension::new(size, fold, size)
}

fn fold(b: &mut PlanBuilder, line: &Line<'_>) -> FoldedLine {
    let q = line.ranks.len();
    let (lo, hi) = line.region;
    if !line.bandwidth {
        for i in 0..q {
            for t in 1..q {
                let from = line.ranks[(i + t) % q];
                b.message(line.round, from, line.ranks[i], 0, t, Blocks::range(lo, hi), Action::Copy);
            }
        }
        reduce_vectors(b, line, 1);
        return FoldedLine { rounds: 1, regions: vec![Some(line.region); q], back: Vec::new() };
    }
    let width = (hi - lo) / q;
    let mut back = Vec::new();
    for (i, rank) in line.ranks.iter().enumerate() {
        let mine = || Blocks::range(lo + i * width, lo + (i + 1) * width);
        // only this rank computes this part, so nearest first on both sides keeps intervals and needs no other buffer
        let before = (0..i).rev().map(|j| (j, Side::Left));
        for (j, side) in before.chain((i + 1..q).map(|j| (j, Side::Right))) {
            b.message(line.round, line.ranks[j], *rank, 0, 0, mine(), Action::Reduce(side));
            back.push(ReturnMessage { round: 0, from: *rank, to: line.ranks[j], blocks: mine() });
        }
    }
    let regions = (0..q).map(|i| Some((lo + i * width, lo + (i + 1) * width))).collect();
    FoldedLine { rounds: 1, regions, back }
}
