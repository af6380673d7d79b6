//! Butterflies on product groups: the best list of factors for every position where copying may begin.
//!
//! Factors come first that are folded and undone, then at most one whose last folds copy, then those that copy as a
//! whole. A factor of the first kind costs what it is and what comes after it: shortest paths down the divisors of P. The
//! last kind all move the same number of copies, so of a list only the number of folds and of double reductions
//! matters: a few lists that are best in one or the other for each divisor. It remains to try every factor, and
//! every number of its folds, in the position between.

use super::candidate::Candidate;
use super::hypercubes::DivisorLattice;
use super::search::Search;
use crate::cost::{Model, copies, double_steps};
use crate::plan::Order;
use crate::schedule::{ceil_log2, halving_sizes};

/// A list of factors that copy as a whole: its folds and double reductions, its first factor and the index of the rest.
#[derive(Clone, Copy)]
struct CopiedFactors {
    folds: usize,
    double: usize,
    first: usize,
    rest: usize,
}

struct ProductGroups<'a> {
    lattice: &'a DivisorLattice,
    /// Per remaining divisor: seconds of messages to get there, the divisor before, true if folded as a ring.
    undone: Vec<(f64, usize, bool)>,
    tails: Vec<Vec<CopiedFactors>>,
}

/// Tries butterflies. Results are identical bits only if every factor that copies is a power of two.
pub(super) fn visit(search: &mut Search<'_>, lattice: &DivisorLattice) {
    if !search.admits(Order::Commutative, true) {
        return;
    }
    let mut groups = ProductGroups { lattice, undone: undone(search, lattice, false), tails: tails(lattice) };
    let divisors = &lattice.divisors;
    let any_bits = search.admits(Order::Commutative, false);
    let same_bits = |low: usize| any_bits || divisors[low].is_power_of_two();
    search.see(Candidate::Butterfly { factors: groups.before(0).into_iter().map(|(q, _)| q).collect(), r: 0 });
    for low in (1..divisors.len()).filter(|low| same_bits(*low)) {
        groups.whole(search, low);
    }
    for low in (0..divisors.len()).filter(|low| same_bits(*low)) {
        for (before, q) in lattice.up[low].iter().filter(|(_, q)| same_bits(*q)) {
            if divisors[*q] > 2 && search.promising(groups.undone[*before].0) {
                groups.partly(search, *before, divisors[*q], low);
            }
        }
    }
    if !search.model.is_linear() {
        groups.undone = undone(search, lattice, true);
        let factors = groups.before(0);
        if factors.iter().any(|(_, ring)| *ring) {
            search.see(Candidate::RingFactors(factors));
        }
    }
}

/// Time of the messages of the folds of `q` slots of `bytes` each.
fn folds_s(model: &Model, q: usize, bytes: f64) -> f64 {
    match model.is_linear() {
        true => ceil_log2(q) as f64 * model.alpha_s + (q - 1) as f64 * bytes * model.beta_s_per_byte,
        false => halving_sizes(q).map(|n| model.message_s(n as f64 * bytes)).sum(),
    }
}

fn undone(search: &Search<'_>, lattice: &DivisorLattice, rings: bool) -> Vec<(f64, usize, bool)> {
    let divisors = &lattice.divisors;
    let last = divisors.len() - 1;
    let unit = search.bytes / search.ranks as f64;
    let mut best = vec![(f64::INFINITY, last, false); divisors.len()];
    best[last].0 = 0.0;
    for low in (0..last).rev() {
        for (before, q) in &lattice.up[low] {
            let (q, bytes) = (divisors[*q], divisors[low] as f64 * unit);
            let halved = best[*before].0 + 2.0 * folds_s(search.model, q, bytes);
            if halved < best[low].0 {
                best[low] = (halved, *before, false);
            }
            let ring = best[*before].0 + 2.0 * (q - 1) as f64 * search.model.message_s(bytes);
            if rings && ring < best[low].0 {
                best[low] = (ring, *before, true);
            }
        }
    }
    best
}

/// Per divisor, the lists that no other beats in both folds and double reductions.
fn tails(lattice: &DivisorLattice) -> Vec<Vec<CopiedFactors>> {
    let mut tails: Vec<Vec<CopiedFactors>> = vec![Vec::new(); lattice.divisors.len()];
    tails[0].push(CopiedFactors { folds: 0, double: 0, first: 1, rest: 0 });
    for rest in 0..lattice.divisors.len() {
        for (whole, q) in &lattice.up[rest] {
            let q = lattice.divisors[*q];
            let (folds, double) = (ceil_log2(q), double_steps(q));
            for i in 0..tails[rest].len() {
                let after = tails[rest][i];
                let new = CopiedFactors { folds: folds + after.folds, double: double + after.double, first: q, rest };
                let list = &mut tails[*whole];
                if !list.iter().any(|t| t.folds <= new.folds && t.double <= new.double) {
                    list.retain(|t| t.folds < new.folds || t.double < new.double);
                    list.push(new);
                }
            }
        }
    }
    tails
}

impl ProductGroups<'_> {
    /// The factors folded and undone before `low` is left.
    fn before(&self, low: usize) -> Vec<(usize, bool)> {
        let divisors = &self.lattice.divisors;
        let mut factors = Vec::new();
        let mut at = low;
        while at + 1 != divisors.len() {
            let (_, before, ring) = self.undone[at];
            factors.push((divisors[before] / divisors[at], ring));
            at = before;
        }
        factors.reverse();
        factors
    }

    /// The factors of a tail.
    fn after(&self, mut tail: CopiedFactors) -> Vec<usize> {
        let mut factors = Vec::new();
        while tail.first > 1 {
            factors.push(tail.first);
            let (folds, double) = (tail.folds - ceil_log2(tail.first), tail.double - double_steps(tail.first));
            let rest = self.tails[tail.rest].iter().find(|t| t.folds == folds && t.double == double);
            // a list that was beaten after this one was made of it is replaced by one that is as good
            let rest = rest.or(self.tails[tail.rest].iter().find(|t| t.folds <= folds && t.double <= double));
            tail = *rest.expect("the rest of a list is a list");
        }
        factors
    }

    fn tail_s(search: &Search<'_>, tail: CopiedFactors, copied: f64) -> f64 {
        let (folds, all) = (tail.folds as f64, (tail.folds + tail.double) as f64);
        folds * search.model.message_s(copied) + all * copied * search.model.gamma_s_per_byte
    }

    /// Tries lists in which all factors that are left are copied.
    fn whole(&self, search: &mut Search<'_>, low: usize) {
        let unit = search.bytes / search.ranks as f64;
        let left = self.lattice.divisors[low];
        let reduced = (search.ranks - left) as f64 * unit * search.model.gamma_s_per_byte;
        for tail in &self.tails[low] {
            let seconds = self.undone[low].0 + reduced + Self::tail_s(search, *tail, left as f64 * unit);
            if search.promising(seconds) {
                let mut factors: Vec<usize> = self.before(low).into_iter().map(|(q, _)| q).collect();
                factors.extend(self.after(*tail));
                search.see(Candidate::Butterfly { factors, r: tail.folds });
            }
        }
    }

    /// Tries lists in which some folds of `q` are copied, and all of `low`.
    fn partly(&self, search: &mut Search<'_>, before: usize, q: usize, low: usize) {
        let model = search.model;
        let unit = search.bytes / search.ranks as f64;
        let left = self.lattice.divisors[low] as f64 * unit;
        let (steps, double) = (ceil_log2(q), double_steps(q));
        for v in 1..steps {
            let s = copies(q, v);
            let messages = match model.is_linear() {
                true => {
                    let sent = 2 * q - 1 - s + (s - 1) * steps;
                    (2 * steps - v) as f64 * model.alpha_s + sent as f64 * left * model.beta_s_per_byte
                }
                false => {
                    let reduce = halving_sizes(q).map(|n| model.message_s((n + s - 1) as f64 * left));
                    let undo = halving_sizes(q).take(steps - v).map(|n| model.message_s(n as f64 * left));
                    reduce.sum::<f64>() + undo.sum::<f64>()
                }
            };
            let here = (q - 1 + (s - 1) * (steps + double)) as f64 * left;
            let reduced = here + (search.ranks - self.lattice.divisors[before]) as f64 * unit;
            let base = self.undone[before].0 + messages + reduced * model.gamma_s_per_byte;
            for tail in &self.tails[low] {
                if search.promising(base + Self::tail_s(search, *tail, s as f64 * left)) {
                    let mut factors: Vec<usize> = self.before(before).into_iter().map(|(q, _)| q).collect();
                    factors.push(q);
                    factors.extend(self.after(*tail));
                    search.see(Candidate::Butterfly { factors, r: v + tail.folds });
                }
            }
        }
    }
}
