//! Cyclic shifts and prefix sums with a free list of factors.
//!
//! A cyclic shift (rule `ceil`) goes from N live slots to ⌈N/f⌉. Whatever the factors, only the numbers ⌈P/k⌉ occur,
//! about 2√P of them, so the best list is a shortest path. A prefix goes from windows of w to windows of w·f; all lists
//! are tried that can still beat the best with equal factors.

use super::candidate::Candidate;
use super::search::Search;
use crate::cost::{self, prefix_step};
use crate::plan::Order;
use crate::schedule::{ShiftRule, ceil_log2, repeated};
use std::collections::BTreeMap;

pub(super) fn visit(search: &mut Search<'_>) {
    if search.admits(Order::Commutative, true) {
        let factors = shift_factors(search);
        search.see(Candidate::CyclicShift { factors, rule: ShiftRule::Ceil });
        for factors in equal_factors(search.ranks) {
            search.see(Candidate::CyclicShift { factors, rule: ShiftRule::Ceil });
        }
    }
    if search.admits(Order::Rotated, false) {
        let equal: Vec<Vec<usize>> = equal_factors(search.ranks).collect();
        let times = equal.iter().map(|f| search.model.predict_s(&cost::prefix(search.ranks, f), search.bytes));
        let bound = times.fold(f64::INFINITY, f64::min);
        let factors = prefix_factors(search, bound);
        factors.into_iter().chain(equal).for_each(|factors| search.see(Candidate::Prefix { factors }));
    }
}

/// The smallest factor for every number of steps, repeated.
fn equal_factors(p: usize) -> impl Iterator<Item = Vec<usize>> {
    let smallest = move |steps: u32| (2..p).find(|f| f.checked_pow(steps).is_none_or(|reach| reach >= p)).unwrap_or(p);
    let most = ceil_log2(p) as u32;
    (1..=most).map(move |steps| if steps == 1 { p } else { smallest(steps) }).map(move |f| repeated(p, f))
}

/// The best factors of a cyclic shift, each the smallest that leaves its number of slots.
fn shift_factors(search: &Search<'_>) -> Vec<usize> {
    let (p, unit) = (search.ranks, search.bytes / search.ranks as f64);
    let root = p.isqrt();
    // the index of the state n = ⌈p/k⌉: n itself for small n, otherwise by k
    let place = |n: usize| if n <= root { n } else { root + p.div_ceil(n) };
    let mut states: Vec<(f64, usize)> = vec![(f64::INFINITY, 0); 2 * root + 3];
    states[place(p)].0 = 0.0;
    let large = (1..=root + 1).map(|k| p.div_ceil(k)).filter(|n| *n > root);
    for n in large.chain((2..=root).rev()) {
        let (so_far, _) = states[place(n)];
        let mut f = 2;
        while so_far.is_finite() {
            let window = n.div_ceil(f);
            let seconds = so_far + 2.0 * search.model.round_s((n - window) as f64 * unit, n.div_ceil(window) - 1);
            let state = &mut states[place(window)];
            if seconds < state.0 {
                *state = (seconds, n);
            }
            if window == 1 {
                break;
            }
            f = n.div_ceil(window - 1);
        }
    }
    let mut factors = Vec::new();
    let mut at = 1;
    while at != p {
        let before = states[place(at)].1;
        factors.push(before.div_ceil(at));
        at = before;
    }
    factors.reverse();
    factors
}

/// The best factors of a line of prefix sums, if they take less than `bound` seconds.
fn prefix_factors(search: &Search<'_>, mut bound: f64) -> Option<Vec<usize>> {
    let (p, model) = (search.ranks, search.model);
    let vector = search.bytes;
    let mut states: BTreeMap<usize, (f64, usize)> = BTreeMap::from([(1, (0.0, 0))]);
    let mut best = None;
    let mut done: BTreeMap<usize, usize> = BTreeMap::new();
    let step_s = |w: usize, next: usize| {
        let (sent, ports, reduced) = prefix_step(p, w, next);
        model.round_s(sent as f64 * vector, ports) + reduced as f64 * vector * model.gamma_s_per_byte
    };
    // no step is faster than sending one vector, or none
    let least = model.message_s(vector).min(model.message_s(0.0));
    while let Some((w, (so_far, before))) = states.pop_first() {
        done.insert(w, before);
        let last = so_far + step_s(w, w * p.div_ceil(w));
        if last < bound {
            (bound, best) = (last, Some(w));
        }
        for f in 2..p.div_ceil(w) {
            let seconds = so_far + step_s(w, w * f);
            if seconds + least >= bound {
                // more pieces for a larger factor never cost less
                if so_far + model.round_s((f - 1) as f64 * vector, f - 1) + least >= bound {
                    break;
                }
                continue;
            }
            let state = states.entry(w * f).or_insert((f64::INFINITY, 0));
            if seconds < state.0 {
                *state = (seconds, w);
            }
        }
    }
    let mut at = best?;
    let mut factors = vec![p.div_ceil(at)];
    while at > 1 {
        let before = done[&at];
        factors.push(at / before);
        at = before;
    }
    factors.reverse();
    Some(factors)
}
