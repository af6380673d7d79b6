//! Odd factors by exchange among all members of a line: ordered, identical bits.
//!
//! Latency: Bruck's allgather of whole vectors, then every rank reduces them in rank order: ⌈log₂ q⌉ rounds, q - 1
//! vectors sent and reduced, q buffers. Bandwidth: pairwise exchange of parts (in round t position i sends part i + t
//! to i + t), reduced in rank order, then Bruck's allgather in place: q - 1 + ⌈log₂ q⌉ rounds, 2(q-1)/q of the region.
//! Factors of two come first and are plain pairs; `radices` sets the dimensions, one per prime or coarser.
//! Cost for P = 2^k·q: latency k + ⌈log₂ q⌉ rounds, k + q - 1 vectors; bandwidth 2k + q - 1 + ⌈log₂ q⌉ rounds,
//! 2(P-1)/P of m. Defined for every P. Source: RS.

use super::bruck;
use super::elimination;
use super::frame::{self, Dimension, FoldedLine, Line, ReturnMessage};
use super::params::{Params, bad, list};
use crate::plan::{Action, Blocks, Collective, Plan, PlanBuilder, PlanError, Side};

const NAME: &str = "odd-ring";

pub(super) fn plan(params: &Params, collective: Collective) -> Result<Plan, PlanError> {
    let n = params.ranks;
    let sizes = match &params.radices {
        Some(radices) => exact(NAME, radices, n)?,
        None => {
            let twos = n.trailing_zeros() as usize;
            let odd = Some(n >> twos).filter(|q| *q > 1);
            vec![2; twos].into_iter().chain(odd).collect()
        }
    };
    let dimension = |q: &usize| if *q == 2 { elimination::pairs() } else { Dimension::new(*q, fold, *q) };
    let mut dims: Vec<Dimension> = sizes.iter().map(dimension).collect();
    let protocol = params.protocol.unwrap_or_default();
    frame::split(NAME, &mut dims, protocol)?;
    let blocks = frame::blocks(&dims);
    let mut b = params.builder(NAME, n, blocks);
    b.collective(collective, 0).parameter("protocol", protocol).parameter("radices", list(&sizes));
    frame::allreduce(&mut b, &dims, blocks);
    Ok(b.finish())
}

/// The radices, if they are factors of at least 2 with product `n`.
pub(super) fn exact(name: &str, radices: &[usize], n: usize) -> Result<Vec<usize>, PlanError> {
    let product = radices.iter().try_fold(1usize, |p, f| p.checked_mul(*f));
    match product == Some(n) && radices.iter().all(|f| *f >= 2) {
        true => Ok(radices.to_vec()),
        false => Err(bad(name, "radices", list(radices), format!("factors of at least 2 whose product is {n}"))),
    }
}

fn fold(b: &mut PlanBuilder, line: &Line<'_>) -> FoldedLine {
    if line.bandwidth { exchange_parts(b, line) } else { gather_vectors(b, line) }
}

fn gather_vectors(b: &mut PlanBuilder, line: &Line<'_>) -> FoldedLine {
    let q = line.ranks.len();
    let windows = bruck::windows(q);
    for (round, window) in windows.iter().enumerate() {
        for i in 0..q {
            // the vector of the position t ahead is kept in buffer t
            for t in window.first..window.end {
                let from = line.ranks[(i + window.first) % q];
                let whole = Blocks::range(line.region.0, line.region.1);
                b.message(line.round + round, from, line.ranks[i], t - window.first, t, whole, Action::Copy);
            }
        }
    }
    reduce_vectors(b, line, windows.len());
    FoldedLine { rounds: windows.len(), regions: vec![Some(line.region); q], back: Vec::new() }
}

/// Reduces, at every position, the vectors of the positions t ahead in buffers t into buffer 0, in rank order.
pub(super) fn reduce_vectors(b: &mut PlanBuilder, line: &Line<'_>, rounds: usize) {
    let q = line.ranks.len();
    let whole = || Blocks::range(line.region.0, line.region.1);
    let round = (line.round + rounds) as i32 - 1;
    for (i, rank) in line.ranks.iter().enumerate() {
        // all positions use the same tree, starting at position 0's vector
        let first = (q - i) % q;
        for j in 1..q {
            b.local(round, *rank, (first + j) % q, first, whole(), Action::Reduce(Side::Right));
        }
        if first != 0 {
            b.local(round, *rank, first, 0, whole(), Action::Copy);
        }
    }
}

fn exchange_parts(b: &mut PlanBuilder, line: &Line<'_>) -> FoldedLine {
    let q = line.ranks.len();
    let (lo, hi) = line.region;
    let width = (hi - lo) / q;
    let part = |i: usize| (lo + i % q * width, lo + (i % q + 1) * width);
    for t in 1..q {
        for i in 0..q {
            let from = (i + q - t) % q;
            let mine = Blocks::range(part(i).0, part(i).1);
            // first come the positions before mine, nearest first, then those after, farthest first; the latter are
            // collected aside so that each partial result stays an interval
            let (target, action) = match t {
                t if t <= i => (0, Action::Reduce(Side::Left)),
                t if t == i + 1 => (1, Action::Copy),
                _ => (1, Action::Reduce(Side::Left)),
            };
            b.message(line.round + t - 1, line.ranks[from], line.ranks[i], 0, target, mine, action);
        }
    }
    for i in 0..q - 1 {
        let mine = Blocks::range(part(i).0, part(i).1);
        b.local((line.round + q) as i32 - 2, line.ranks[i], 1, 0, mine, Action::Reduce(Side::Right));
    }
    let mut back = Vec::new();
    for (round, window) in bruck::windows(q).into_iter().enumerate() {
        for i in 0..q {
            let parts = (window.first..window.end).flat_map(|t| part(i + t).0..part(i + t).1);
            let (from, to) = (line.ranks[(i + window.first) % q], line.ranks[i]);
            back.push(ReturnMessage { round, from, to, blocks: Blocks::from_indices(parts) });
        }
    }
    FoldedLine { rounds: q - 1, regions: (0..q).map(|i| Some(part(i))).collect(), back }
}
