//! The partition of a vector's elements into blocks.
//!
//! Block b of n over m elements is `[⌊b·m/n⌋, ⌊(b+1)·m/n⌋)`: sizes differ by at most one and the larger blocks are
//! spread, so that any interval of blocks is within one element of its share. A block may be empty; an empty message
//! is neither sent nor awaited.

use super::Blocks;

/// First element of `block` when `elements` are cut into `blocks`; `elements` for `block == blocks`.
pub fn offset(block: usize, blocks: usize, elements: usize) -> usize {
    // The product needs up to 128 bits; the result is at most `elements`.
    (block as u128 * elements as u128 / blocks.max(1) as u128) as usize
}

/// Number of elements in a set of blocks.
pub fn elements_in(set: &Blocks, blocks: usize, elements: usize) -> usize {
    set.runs()
        .iter()
        .map(|run| offset(run.end as usize, blocks, elements) - offset(run.first as usize, blocks, elements))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_element_once_and_differ_by_one() {
        for blocks in 1..20 {
            for elements in 0..60 {
                let sizes: Vec<usize> =
                    (0..blocks).map(|b| offset(b + 1, blocks, elements) - offset(b, blocks, elements)).collect();
                assert_eq!(sizes.iter().sum::<usize>(), elements);
                assert!(sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn the_product_does_not_overflow() {
        assert_eq!(offset(3, 4, usize::MAX), (usize::MAX / 4) * 3 + 2);
        assert_eq!(offset(4, 4, usize::MAX), usize::MAX);
    }
}
