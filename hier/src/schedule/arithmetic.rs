//! Arithmetic of ranks: logarithms, prime factors, lists of factors.

/// ⌈log₂ n⌉; 0 for n ≤ 1.
pub(crate) fn ceil_log2(n: usize) -> usize {
    n.max(1).next_power_of_two().trailing_zeros() as usize
}

/// ⌊log₂ n⌋ for n ≥ 1.
pub(crate) fn floor_log2(n: usize) -> usize {
    n.max(1).ilog2() as usize
}

/// Prime factors, ascending; empty for 1.
pub(crate) fn primes(mut n: usize) -> Vec<usize> {
    let mut found = Vec::new();
    let mut p = 2;
    while p * p <= n {
        while n.is_multiple_of(p) {
            found.push(p);
            n /= p;
        }
        p += 1;
    }
    if n > 1 {
        found.push(n);
    }
    found
}

/// Prime factors of `n`, largest first, each merged into the largest group whose product stays within `target`; a
/// prime above it stays alone. Groups come out in the order in which they were opened.
pub(crate) fn merge_primes(n: usize, target: usize) -> Vec<usize> {
    let mut groups: Vec<usize> = Vec::new();
    for p in primes(n).into_iter().rev() {
        match groups.iter_mut().filter(|g| **g * p <= target).max() {
            Some(group) => *group *= p,
            None => groups.push(p),
        }
    }
    groups
}

/// The fewest factors `f` whose product reaches `n`.
pub(crate) fn repeated(n: usize, f: usize) -> Vec<usize> {
    let (mut factors, mut product) = (Vec::new(), 1usize);
    while product < n {
        factors.push(f);
        product = product.saturating_mul(f);
    }
    factors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primes_merge_up_to_the_target() {
        assert_eq!(merge_primes(360, 13), [10, 9, 4]);
        assert_eq!(merge_primes(167, 13), [167]);
        assert_eq!(merge_primes(1, 13), [0usize; 0]);
    }
}
