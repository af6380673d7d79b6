//! Folds: how a butterfly shrinks the set of live slots to slot 0, one shift per step (KZ sections 5 to 7).
//!
//! With N live slots of a cyclic factor, the top b slots are sent down by b, 1 ≤ b ≤ ⌊N/2⌋. b = ⌊N/2⌋ throughout
//! needs ⌈log₂ N⌉ steps; b = 1 is the ring; a cap bounds the message; any step count between can be met exactly.
//! Any fold sends P - 1 blocks and reduces P - 1.

use super::arithmetic::ceil_log2;
use super::group::Group;
use super::params::Factor;
use super::slots::Shift;

/// Steps needed to fold `n` slots with at most `cap` per step.
fn steps_with_cap(n: usize, cap: usize) -> usize {
    if n < 2 * cap {
        return ceil_log2(n);
    }
    let full = n / cap - 1;
    full + ceil_log2(n - full * cap)
}

/// Sizes of the shifts of a fold of `n` slots by halves: ⌊N/2⌋ with N = n, ⌈n/2⌉, …
pub(crate) fn halving_sizes(n: usize) -> impl Iterator<Item = usize> {
    let live = std::iter::successors(Some(n), |n| Some(n.div_ceil(2)));
    live.take_while(|n| *n > 1).map(|n| n / 2)
}

/// Sizes with at most `cap` slots per step.
pub(crate) fn capped(mut n: usize, cap: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    while n > 1 {
        let b = cap.min(n / 2);
        sizes.push(b);
        n -= b;
    }
    sizes
}

/// Sizes for exactly `steps` steps, ⌈log₂ n⌉ ≤ steps ≤ n - 1, with the largest size as small as it can be.
pub(crate) fn exactly(mut n: usize, steps: usize) -> Vec<usize> {
    let mut sizes = Vec::new();
    for left in (1..=steps).rev() {
        // the smallest cap that leaves enough steps; a larger cap never takes more
        let (mut cap, mut enough) = (1, n);
        while cap < enough {
            let middle = (cap + enough) / 2;
            match steps_with_cap(n, middle) <= left {
                true => enough = middle,
                false => cap = middle + 1,
            }
        }
        let b = cap.min(n / 2).min(n - left);
        sizes.push(b);
        n -= b;
    }
    sizes
}

/// Shifts that fold digit `j` of the group from `n` values by the given sizes, later digits free, earlier ones 0.
fn shifts_of_digit(group: &Group, j: usize, mut n: usize, sizes: &[usize]) -> Vec<Shift> {
    let weight = group.weight(j);
    let mut shifts = Vec::with_capacity(sizes.len());
    for b in sizes {
        shifts.push(Shift { by: b * weight, slots: ((n - b) * weight..n * weight).collect() });
        n -= b;
    }
    shifts
}

/// A fold of a cyclic group by the given sizes.
pub(super) fn cyclic(ranks: usize, sizes: &[usize]) -> Vec<Shift> {
    shifts_of_digit(&Group::new(vec![ranks]), 0, ranks, sizes)
}

/// A fold of a product group, factor by factor, each by halves or as a ring.
pub(super) fn product(group: &Group, factors: &[Factor]) -> Vec<Shift> {
    let mut shifts = Vec::new();
    for (j, factor) in factors.iter().enumerate() {
        let sizes = if factor.ring { vec![1; factor.size - 1] } else { halving_sizes(factor.size).collect() };
        shifts.extend(shifts_of_digit(group, j, factor.size, &sizes));
    }
    shifts
}

/// The fold that keeps partial results contiguous: distances 1, 2, 4, …
pub(super) fn ordered(ranks: usize) -> Vec<Shift> {
    (0..ceil_log2(ranks)).map(|i| Shift { by: 1 << i, slots: (1 << i..ranks).step_by(2 << i).collect() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caps_take_the_stated_number_of_steps() {
        let rounds = [(1, 252), (2, 128), (4, 66), (8, 36), (16, 22), (32, 16), (63, 14)];
        for (cap, rounds) in rounds {
            assert_eq!(2 * capped(127, cap).len(), rounds);
        }
        for n in 1..200 {
            for cap in 1..=n {
                assert_eq!(capped(n, cap).len(), steps_with_cap(n, cap), "n {n} cap {cap}");
                assert!(steps_with_cap(n, cap + 1) <= steps_with_cap(n, cap), "n {n} cap {cap}");
            }
        }
    }

    #[test]
    fn every_step_count_is_met_exactly() {
        for n in 2..64 {
            for steps in ceil_log2(n)..n {
                let sizes = exactly(n, steps);
                assert_eq!((sizes.len(), sizes.iter().sum::<usize>()), (steps, n - 1), "n {n} steps {steps}");
                let mut live = n;
                for b in sizes {
                    assert!(b >= 1 && 2 * b <= live);
                    live -= b;
                }
            }
        }
        assert_eq!(exactly(300, 9).into_iter().max(), Some(86));
        assert_eq!(exactly(128, 8).into_iter().max(), Some(32));
    }
}
