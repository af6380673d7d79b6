//! Closed forms: what a schedule costs without building it. Tests hold them equal to the counts of the plans.
//!
//! Cost in seconds = rounds·α + sent·u·β + reduced·u·γ, u = bytes / blocks, with `sent` and `reduced` in blocks on the
//! critical path (sum over rounds of the largest value in the round). Source: KZ for the butterflies (with s in place
//! of 2^r, see [`butterfly`]), RS for eliminations and odd factors, JO for the rest.

use crate::schedule::{ceil_log2, floor_log2};

/// A schedule's cost in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Blocks the vector is cut into.
    pub blocks: usize,
    /// Rounds.
    pub rounds: usize,
    /// Blocks sent on the critical path.
    pub sent: usize,
    /// Block reductions on the critical path.
    pub reduced: usize,
    /// Ports used.
    pub ports: usize,
}

const fn one_port(blocks: usize, rounds: usize, sent: usize, reduced: usize) -> Cost {
    Cost { blocks, rounds, sent, reduced, ports: 1 }
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

/// Ring.
pub fn ring(p: usize) -> Cost {
    one_port(p, 2 * (p - 1), 2 * (p - 1), p - 1)
}

/// Butterfly folded by halves, factor by factor, the last `r` folds latency-optimal; `[p]` is the cyclic group.
///
/// With s_j = ⌈q_j / 2^(L_j - v)⌉ copies where v of the L_j folds of factor j are latency-optimal. KZ print 2^r
/// copies; s are enough and never more. Nothing is returned if `r` exceeds the number of folds.
pub fn butterfly(factors: &[usize], r: usize) -> Option<Cost> {
    let p: usize = factors.iter().product();
    let levels: usize = factors.iter().map(|q| ceil_log2(*q)).sum();
    let mut left = r;
    // factors after `j` are latency-optimal as a whole, factor j in its last v folds
    let (mut j, mut v) = (factors.len(), 0);
    while left > 0 {
        j = j.checked_sub(1)?;
        v = left.min(ceil_log2(factors[j]));
        left -= v;
    }
    let whole = j < factors.len() && v == ceil_log2(factors[j]);
    let split = if whole { j } else { (j + 1).min(factors.len()) };
    let low = |i: usize| factors[i + 1..].iter().product::<usize>();
    let (mut sent, mut reduced, mut copies) = (0, 0, 1);
    for (i, q) in factors.iter().enumerate().take(split) {
        let steps = ceil_log2(*q);
        let s = if i == j && v > 0 { q.div_ceil(1 << (steps - v)) } else { 1 };
        sent += low(i) * (q - 1 + (s - 1) * steps);
        reduced += low(i) * (q - 1 + (s - 1) * (steps + double_steps(*q)));
        copies = s;
    }
    if r == 0 {
        return Some(one_port(p, 2 * levels, 2 * (p - 1), p - 1));
    }
    let after: usize = factors[split..].iter().product();
    copies *= after;
    for q in &factors[split..] {
        sent += copies * ceil_log2(*q);
        reduced += copies * (ceil_log2(*q) + double_steps(*q));
    }
    sent += p - copies;
    Some(one_port(p, 2 * levels - r, sent, reduced))
}

/// Butterfly on the cyclic group with messages of at most `cap` blocks.
pub fn capped_butterfly(p: usize, cap: usize) -> Cost {
    let rounds = 2 * crate::schedule::steps_with_cap(p, cap);
    one_port(p, rounds, 2 * (p - 1), p - 1)
}

/// Recursive doubling with the classic fold.
pub fn recursive_doubling(p: usize) -> Cost {
    let (levels, fold) = (floor_log2(p), usize::from(!p.is_power_of_two()));
    one_port(1, levels + 2 * fold, levels + 2 * fold, levels + fold)
}

/// Halving + doubling with the classic fold.
pub fn halving_doubling(p: usize) -> Cost {
    let (levels, fold) = (floor_log2(p), usize::from(!p.is_power_of_two()));
    let p2 = 1 << levels;
    one_port(p2, 2 * (levels + fold), 2 * (p2 - 1 + fold * p2), p2 - 1 + fold * p2)
}

/// 3-2 or 2-1 elimination, latency form.
pub fn elimination_latency(p: usize) -> Cost {
    let rounds = ceil_log2(p) + usize::from(!p.is_power_of_two());
    one_port(1, rounds, rounds, ceil_log2(p))
}

/// 3-2 or 2-1 elimination, bandwidth form: 2(1 - 2^-k) + 2^-k·2(3/2 - 1/q') of the vector for P = 2^k·q.
pub fn elimination_bandwidth(p: usize) -> Cost {
    let odd = p >> p.trailing_zeros();
    let power = 1 << floor_log2(odd);
    let blocks = (p / odd) * power;
    let sent = if odd == 1 { 2 * (blocks - 1) } else { 2 * blocks + power - 2 };
    one_port(blocks, 2 * ceil_log2(p), sent, sent / 2)
}

/// Odd factor by ring, latency form, one dimension for the odd part.
pub fn odd_ring_latency(p: usize) -> Cost {
    let (twos, odd) = (p.trailing_zeros() as usize, p >> p.trailing_zeros());
    one_port(1, twos + ceil_log2(odd), twos + odd - 1, twos + odd - 1)
}

/// Odd factor by ring, bandwidth form. The busiest rank reduces P - 1 blocks.
pub fn odd_ring_bandwidth(p: usize) -> Cost {
    let (twos, odd) = (p.trailing_zeros() as usize, p >> p.trailing_zeros());
    one_port(p, 2 * twos + odd - 1 + ceil_log2(odd), 2 * (p - 1), p - 1)
}

/// Direct exchanges in dimensions, latency form.
pub fn radix_latency(dims: &[usize]) -> Cost {
    let vectors = dims.iter().map(|q| q - 1).sum();
    Cost { ports: dims.iter().max().map_or(1, |q| q - 1), ..one_port(1, dims.len(), vectors, vectors) }
}

/// Direct exchanges in dimensions, bandwidth form.
pub fn radix_bandwidth(dims: &[usize]) -> Cost {
    let p: usize = dims.iter().product();
    Cost { ports: dims.iter().max().map_or(1, |q| q - 1), ..one_port(p, 2 * dims.len(), 2 * (p - 1), p - 1) }
}

/// Cyclic shift of `steps` factors of at most ports + 1.
pub fn cyclic_shift(p: usize, steps: usize, ports: usize) -> Cost {
    Cost { ports, ..one_port(p, 2 * steps, 2 * (p - 1), p - 1) }
}

/// Prefix sums, all factors 2, one port.
pub fn prefix_by_twos(p: usize) -> Cost {
    let levels = ceil_log2(p);
    let twice = (0..levels.saturating_sub(1)).filter(|i| p >> i & 1 == 1 && !p.is_multiple_of(1 << i)).count();
    one_port(1, levels, levels + twice, levels + twice)
}

/// Census.
pub fn census(p: usize) -> Cost {
    let levels = ceil_log2(p);
    let reduced = if p == 1 { 0 } else { levels - 1 + (p - 1).count_ones() as usize };
    one_port(1, levels, levels, reduced)
}

/// Chain of `segments`; on two ports both directions overlap.
pub fn chain(p: usize, segments: usize, ports: usize) -> Cost {
    let one_way = p - 1 + segments - 1;
    if p == 1 {
        return Cost { ports, ..one_port(segments, 0, 0, 0) };
    }
    match ports {
        2 => {
            let rounds = 2 * (p - 1) + segments - 1;
            Cost { ports: 2, ..one_port(segments, rounds, rounds + both_ways(p, segments), one_way) }
        }
        _ => one_port(segments, 2 * one_way, 2 * one_way, one_way),
    }
}

/// Rounds of an overlapped chain in which some rank sends in both directions: position h passes segments up in rounds
/// h .. h + segments and down in rounds 2(p-1) - h .. 2(p-1) - h + segments; the last but one has most of them, and
/// its rounds include those of all others.
fn both_ways(p: usize, segments: usize) -> usize {
    if p < 3 {
        return 0;
    }
    (p - 2 + segments).saturating_sub(p)
}

/// Pre-reduced ring of `segments` with the last `late` ranks late; for p = 1 nothing is late.
pub fn prereduced_ring(p: usize, segments: usize, late: usize) -> Cost {
    if p == 1 {
        return one_port(segments, 0, 0, 0);
    }
    let before = if p - late > 1 { p - late + segments - 2 } else { 0 };
    let rounds = before + prereduced_ring_tail(p, segments, late);
    // beyond p segments, results reach late ranks that still pass partial segments on: two segments on one link
    let shared = if late > 1 && segments > p { late + segments - p - 2 } else { 0 };
    one_port(segments, rounds, rounds + shared, before + segments + late - 1)
}

/// Rounds of a pre-reduced ring in which its late ranks take part, the last ones of the plan.
pub fn prereduced_ring_tail(p: usize, segments: usize, late: usize) -> usize {
    segments + late + p - 2
}

/// Binomial reduce and broadcast.
pub fn binomial(p: usize) -> Cost {
    one_port(1, 2 * ceil_log2(p), 2 * ceil_log2(p), ceil_log2(p))
}

/// Reduce-scatter, gather, broadcast.
pub fn rsg(p: usize) -> Cost {
    let (levels, fold) = (floor_log2(p), usize::from(!p.is_power_of_two()));
    let p2 = 1 << levels;
    let rounds = fold + 2 * levels + ceil_log2(p);
    one_port(p2, rounds, 2 * (p2 - 1) + (ceil_log2(p) + fold) * p2, p2 - 1 + fold * p2)
}
