//! Hypercubes of factors: the best list of dimensions, in the best order, for every way of splitting.
//!
//! A hypercube splits the vector in its first dimensions and keeps the region whole in the others. The cost of
//! a split dimension depends on itself and on the product of those before it, that of a whole one on itself and on the
//! product of all split ones. So the best split dimensions are shortest paths from 1 over the divisors of P, and for
//! each divisor where splitting may end, the best whole ones are a shortest path from there to P.

use super::candidate::Candidate;
use super::search::Search;
use crate::cost::{Model, bruck_windows};
use crate::schedule::ceil_log2;

/// The divisors of P, ascending, and the multiples of each among them.
pub(super) struct DivisorLattice {
    pub(super) divisors: Vec<usize>,
    /// The proper multiples of each divisor: (index of the multiple, index of the quotient).
    pub(super) up: Vec<Vec<(usize, usize)>>,
}

impl DivisorLattice {
    pub(super) fn new(p: usize) -> Self {
        let small: Vec<usize> = (1..).take_while(|d| d * d <= p).filter(|d| p.is_multiple_of(*d)).collect();
        let large = small.iter().rev().map(|d| p / d).filter(|d| d * d != p);
        let divisors: Vec<usize> = small.iter().copied().chain(large).collect();
        let quotient = |n: usize, d: usize| divisors.binary_search(&(n / d)).expect("a divisor of a divisor");
        let above = |(i, d): (usize, &usize)| {
            let multiples = (i + 1..divisors.len()).filter(|j| divisors[*j].is_multiple_of(*d));
            multiples.map(|j| (j, quotient(divisors[j], *d))).collect()
        };
        let up = divisors.iter().enumerate().map(above).collect();
        Self { divisors, up }
    }
}

/// The exchange within a dimension.
#[derive(Clone, Copy, PartialEq)]
enum DimensionKind {
    OddRing,
    Direct,
}

impl DimensionKind {
    /// A dimension of `q` that splits, `part` bytes being what each rank is left with.
    fn split_s(self, model: &Model, q: usize, part: f64) -> f64 {
        let others = (q - 1) as f64;
        let reduced = others * part * model.gamma_s_per_byte;
        reduced
            + match self {
                DimensionKind::Direct => 2.0 * model.round_s(others * part, q - 1),
                DimensionKind::OddRing => others * model.message_s(part) + windows_s(model, q, part),
            }
    }

    /// A dimension of `q` that keeps a region of `bytes` whole.
    fn whole_s(self, model: &Model, q: usize, bytes: f64) -> f64 {
        let others = (q - 1) as f64;
        let reduced = others * bytes * model.gamma_s_per_byte;
        reduced
            + match self {
                DimensionKind::Direct => model.round_s(others * bytes, q - 1),
                DimensionKind::OddRing => windows_s(model, q, bytes),
            }
    }
}

fn windows_s(model: &Model, q: usize, bytes: f64) -> f64 {
    match model.is_linear() {
        true => ceil_log2(q) as f64 * model.alpha_s + (q - 1) as f64 * bytes * model.beta_s_per_byte,
        false => bruck_windows(q).map(|w| model.message_s(w as f64 * bytes)).sum(),
    }
}

/// Tries the best hypercube for every product of split dimensions. All are ordered and give identical bits.
pub(super) fn visit(search: &mut Search<'_>, lattice: &DivisorLattice) {
    for kind in [DimensionKind::OddRing, DimensionKind::Direct] {
        visit_kind(search, lattice, kind);
    }
}

fn visit_kind(search: &mut Search<'_>, lattice: &DivisorLattice, kind: DimensionKind) {
    let model = search.model;
    let divisors = &lattice.divisors;
    let last = divisors.len() - 1;
    // seconds to reach a product of split dimensions, and from where
    let mut split = vec![(f64::INFINITY, 0); divisors.len()];
    split[0].0 = 0.0;
    for i in 0..last {
        for (j, q) in &lattice.up[i] {
            let part = search.bytes / divisors[*j] as f64;
            let seconds = split[i].0 + kind.split_s(model, divisors[*q], part);
            if seconds < split[*j].0 {
                split[*j] = (seconds, i);
            }
        }
    }
    let mut whole = vec![(f64::INFINITY, 0); divisors.len()];
    let mut step = vec![0.0; divisors.len()];
    for start in 0..=last {
        if !search.promising(split[start].0) {
            continue;
        }
        let region = search.bytes / divisors[start] as f64;
        whole[start..].fill((f64::INFINITY, 0));
        whole[start].0 = 0.0;
        for (_, q) in &lattice.up[start] {
            step[*q] = kind.whole_s(model, divisors[*q], region);
        }
        for i in start..last {
            if whole[i].0.is_finite() {
                for (j, q) in &lattice.up[i] {
                    let seconds = whole[i].0 + step[*q];
                    if seconds < whole[*j].0 {
                        whole[*j] = (seconds, i);
                    }
                }
            }
        }
        if search.promising(split[start].0 + whole[last].0) {
            let mut dims = path(divisors, &split, 0, start);
            let count = dims.len();
            dims.extend(path(divisors, &whole, start, last));
            search.see(match kind {
                DimensionKind::OddRing => Candidate::OddRing { dims, split: count },
                DimensionKind::Direct => Candidate::Radix { dims, split: count },
            });
        }
    }
}

/// The factors on the way from one divisor to another, in order.
fn path(divisors: &[usize], from: &[(f64, usize)], start: usize, end: usize) -> Vec<usize> {
    let mut factors = Vec::new();
    let mut at = end;
    while at != start {
        factors.push(divisors[at] / divisors[from[at].1]);
        at = from[at].1;
    }
    factors.reverse();
    factors
}
