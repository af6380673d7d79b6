//! Closed forms of schedules that work along a list of factors.

use super::Cost;
use crate::schedule::{ShiftRule, merge_primes, repeated};

/// Direct exchanges in dimensions that multiply to P, the first `split` in bandwidth form.
pub fn radix(dims: &[usize], split: usize) -> Cost {
    let split = split.min(dims.len());
    let mut region: usize = dims[..split].iter().product();
    let mut cost = Cost::new(region);
    for (i, q) in dims.iter().enumerate() {
        let (rounds, part) = if i < split { (2, region / q) } else { (1, region) };
        cost.add_ports(rounds, (q - 1) * part, q - 1).reduce((q - 1) * part);
        region = part;
    }
    cost
}

/// Odd factors by ring in dimensions that multiply to P (2 is a plain pair), the first `split` in bandwidth form. In
/// the bandwidth form `reduced` is what the busiest rank reduces; the sum over rounds is one part more per dimension,
/// because ranks reduce in different rounds.
pub fn odd_ring(dims: &[usize], split: usize) -> Cost {
    let split = split.min(dims.len());
    let mut region: usize = dims[..split].iter().product();
    let mut cost = Cost::new(region);
    for (i, q) in dims.iter().enumerate() {
        let part = if i < split { region / q } else { region };
        cost.reduce((q - 1) * part);
        if i < split {
            cost.add(q - 1, part);
        }
        if i < split || *q > 2 {
            for w in bruck_windows(*q) {
                cost.add(1, w * part);
            }
        } else {
            cost.add(1, part);
        }
        region = part;
    }
    cost
}

/// Blocks sent in the rounds of Bruck's allgather among `q`.
pub(crate) fn bruck_windows(q: usize) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(1), |w| Some(w * 2)).take_while(move |w| *w < q).map(move |w| w.min(q - w))
}

/// Cyclic shift with factors whose product reaches P, none superfluous.
pub fn cyclic_shift(p: usize, factors: &[usize], rule: ShiftRule) -> Cost {
    let mut cost = Cost::new(p);
    let mut live = p;
    for (i, f) in factors.iter().enumerate() {
        let window = match rule {
            ShiftRule::Ceil => live.div_ceil(*f),
            ShiftRule::Cap => factors[i + 1..].iter().fold(1, |w: usize, f| w.saturating_mul(*f)).min(live),
        };
        cost.add_ports(2, live - window, live.div_ceil(window) - 1);
        live = window;
    }
    cost.reduce(p - 1).done()
}

/// One step of a line of prefix sums over `q` ranks, from windows of `w` to windows of `next`: vectors sent, partners,
/// vectors reduced.
///
/// The step makes the sums of length `next` (of length q if it is the last) and of length q mod `next` if that is not
/// 0, each from whole windows and, where the window does not divide it, the sum of length q mod `w`.
pub(crate) fn prefix_step(q: usize, w: usize, next: usize) -> (usize, usize, usize) {
    let last = next >= q;
    let main = if last { q } else { next };
    let rest = if last { 0 } else { q % next };
    // a sum shorter than a window is the old remainder, kept as it is
    let made = [main, rest].into_iter().filter(|length| *length >= w);
    let (mut whole, mut tail, mut reduced) = (1, 0, 0);
    for length in made {
        let (windows, more) = (length / w, !length.is_multiple_of(w));
        whole = whole.max(windows);
        tail = if more { windows } else { tail };
        reduced += windows - 1 + usize::from(more);
    }
    (whole - 1 + usize::from(tail > 0), (whole - 1).max(tail), reduced)
}

/// Prefix sums over one line with factors whose product reaches P with the last one only.
pub fn prefix(p: usize, factors: &[usize]) -> Cost {
    let mut cost = Cost::new(1);
    line(&mut cost, p, factors);
    cost
}

fn line(cost: &mut Cost, q: usize, factors: &[usize]) {
    let mut w = 1usize;
    for f in factors {
        let next = w.saturating_mul(*f);
        let (sent, ports, reduced) = prefix_step(q, w, next);
        cost.add_ports(1, sent, ports).reduce(reduced);
        w = next;
    }
}

/// Prime factors merged up to `target` into direct exchanges, larger primes as lines of prefix sums.
pub fn prefix_target(p: usize, target: usize) -> Cost {
    let mut cost = Cost::new(1);
    for q in merge_primes(p, target) {
        if q <= target {
            cost.add_ports(1, q - 1, q - 1).reduce(q - 1);
        } else {
            line(&mut cost, q, &repeated(q, target));
        }
    }
    cost
}
