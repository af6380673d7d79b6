//! Cost of schedules in closed form, without building plans. Tests compare them with the counts of the plans.
//!
//! Cost in seconds = rounds·α + sent·u·β + reduced·u·γ, u = bytes / blocks, with `sent` and `reduced` in blocks on the
//! critical path (sum over rounds of the largest value in the round). Every form also lists its rounds, because a
//! table of message times and a price per port need the size and the ports of each. Source: KZ for the butterflies
//! (with s in place of 2^r, see [`butterfly`]), RS for eliminations and odd factors, JO for cyclic shifts, direct
//! exchanges and prefixes.

mod factors;
mod model;
mod topology;
mod trees;

pub(crate) use factors::{bruck_windows, prefix_step};
pub use factors::{cyclic_shift, odd_ring, prefix, prefix_target, radix};
pub use model::{Level, Model, levels_from_toml};
pub use topology::{Contention, Topology};
pub use trees::{
    binomial, chain, halving_doubling, prereduced_ring, prereduced_ring_tail, recursive_doubling, rsg, smp_binomial,
    smp_butterfly,
};

use crate::schedule::{capped_sizes, ceil_log2, exact_sizes, floor_log2, halving_sizes};

/// A number of rounds of equal cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EqualRounds {
    /// Number of rounds.
    pub count: usize,
    /// Blocks the busiest rank sends in each.
    pub sent: usize,
    /// Ports used in each.
    pub ports: usize,
}

/// A schedule's cost in blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cost {
    /// Blocks the vector is cut into.
    pub blocks: usize,
    /// Rounds.
    pub rounds: usize,
    /// Blocks sent on the critical path.
    pub sent: usize,
    /// Block reductions on the critical path.
    pub reduced: usize,
    /// Most ports used in a round, at least 1.
    pub ports: usize,
    /// The rounds, in no particular order.
    pub profile: Vec<EqualRounds>,
}

impl Cost {
    fn new(blocks: usize) -> Self {
        Self { blocks, rounds: 0, sent: 0, reduced: 0, ports: 1, profile: Vec::new() }
    }

    /// Adds `count` rounds on one port.
    fn add(&mut self, count: usize, sent: usize) -> &mut Self {
        self.add_ports(count, sent, 1)
    }

    fn add_ports(&mut self, count: usize, sent: usize, ports: usize) -> &mut Self {
        if count > 0 {
            self.rounds += count;
            self.sent += count * sent;
            self.ports = self.ports.max(ports);
            self.profile.push(EqualRounds { count, sent, ports });
        }
        self
    }

    fn reduce(&mut self, blocks: usize) -> &mut Self {
        self.reduced += blocks;
        self
    }

    fn done(&mut self) -> Self {
        self.clone()
    }
}

/// E of a factor q: the steps in which results in the making and partial results are both reduced, beyond the first
/// and the last. Number of steps 1 ≤ i ≤ L-2 with bit i of q-1 set after some bit below was clear.
pub fn double_steps(q: usize) -> usize {
    if q < 2 {
        return 0;
    }
    let bits = q - 1;
    bits.count_ones() as usize - 1 - (bits.trailing_ones() as usize).min(ceil_log2(q) - 1)
}

/// Copies of a result per rank after the reduction, where the last `v` of the folds of a factor `q` are
/// latency-optimal. KZ print 2^v; these are enough and never more.
pub(crate) fn copies(q: usize, v: usize) -> usize {
    q.div_ceil(1 << (ceil_log2(q) - v))
}

/// Ring.
pub fn ring(p: usize) -> Cost {
    Cost::new(p).add(2 * (p - 1), 1).reduce(p - 1).done()
}

/// Butterfly folded by halves, factor by factor, the last `r` folds latency-optimal; `[p]` is the cyclic group.
/// None if `r` exceeds the number of folds.
pub fn butterfly(factors: &[usize], r: usize) -> Option<Cost> {
    let mut left = r;
    // factors after `j` are latency-optimal as a whole, factor j in its last v folds
    let (mut j, mut v) = (factors.len(), 0);
    while left > 0 {
        j = j.checked_sub(1)?;
        v = left.min(ceil_log2(factors[j]));
        left -= v;
    }
    let mut low: usize = factors.iter().product();
    let mut cost = Cost::new(low);
    let mut copied = 1;
    for (i, q) in factors.iter().enumerate() {
        low /= q;
        let steps = ceil_log2(*q);
        if i < j {
            for n in halving_sizes(*q) {
                cost.add(2, low * n);
            }
            cost.reduce(low * (q - 1));
            continue;
        }
        let own = if i == j { v } else { steps };
        let s = copies(*q, own);
        if own == steps {
            // all folds of the factor exchange copies; nothing of it is undone
            copied = if i == j { *q * low } else { copied };
            cost.add(steps, copied).reduce(copied * (steps + double_steps(*q)));
        } else {
            for (step, n) in halving_sizes(*q).enumerate() {
                cost.add(1, low * (n + s - 1)).add(usize::from(step < steps - own), low * n);
            }
            cost.reduce(low * (q - 1 + (s - 1) * (steps + double_steps(*q))));
            copied = s * low;
        }
    }
    Some(cost)
}

/// Butterfly with r = 0 on a product group, some factors folded as rings.
pub fn butterfly_with_rings(factors: &[(usize, bool)]) -> Cost {
    let mut low: usize = factors.iter().map(|(q, _)| q).product();
    let mut cost = Cost::new(low);
    for (q, ring) in factors {
        low /= q;
        let sizes: Vec<usize> = if *ring { vec![1; q - 1] } else { halving_sizes(*q).collect() };
        for n in sizes {
            cost.add(2, low * n);
        }
        cost.reduce(low * (q - 1));
    }
    cost
}

/// Butterfly on the cyclic group with messages of at most `cap` blocks.
pub fn capped_butterfly(p: usize, cap: usize) -> Cost {
    by_sizes(p, &capped_sizes(p, cap), &capped_sizes(p, cap))
}

/// Butterfly on the cyclic group with `rounds` rounds in all, 2L ≤ `rounds` ≤ 2(P-1).
pub fn exact_butterfly(p: usize, rounds: usize) -> Cost {
    by_sizes(p, &exact_sizes(p, rounds.div_ceil(2)), &exact_sizes(p, rounds / 2))
}

fn by_sizes(p: usize, down: &[usize], up: &[usize]) -> Cost {
    let mut cost = Cost::new(p);
    for run in down.chunk_by(|a, b| a == b).chain(up.chunk_by(|a, b| a == b)) {
        cost.add(run.len(), run[0]);
    }
    cost.reduce(p - 1).done()
}

/// 3-2 or 2-1 elimination of P = 2^k·q, q odd, its first `split` dimensions in bandwidth form: 0 is the latency form
/// of L + (1 if q > 1) rounds, k + 1 the bandwidth form, which sends 2(1 - 2^-k) + 2^-k·2(3/2 - 1/q') of the vector. The
/// dimensions are k pairs and, if q > 1, q.
pub fn elimination(p: usize, split: usize) -> Cost {
    let (twos, odd) = (p.trailing_zeros() as usize, p >> p.trailing_zeros());
    let power = 1 << floor_log2(odd);
    let mut region = if split > twos { (1 << twos) * power } else { 1 << split };
    let mut cost = Cost::new(region);
    for pair in 0..twos {
        region = if pair < split { region / 2 } else { region };
        cost.add(if pair < split { 2 } else { 1 }, region).reduce(region);
    }
    if odd > 1 && split > twos {
        // the triple takes two rounds, so all that follows is one round late
        for half in std::iter::once(power / 2).chain(halving_sizes(power)) {
            cost.add(2, half).reduce(half);
        }
    } else if odd > 1 {
        cost.add(ceil_log2(odd) + 1, 1).reduce(ceil_log2(odd));
    }
    cost
}

/// Census.
pub fn census(p: usize) -> Cost {
    let levels = ceil_log2(p);
    let reduced = if p == 1 { 0 } else { levels - 1 + (p - 1).count_ones() as usize };
    Cost::new(1).add(levels, 1).reduce(reduced).done()
}
