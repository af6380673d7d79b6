//! Matrices, whose product is associative and not commutative: an operator of users whose result shows the order.

use super::mix;

/// A 2 x 2 matrix of wrapping integers.
pub type Matrix = [u32; 4];

pub fn product(a: &Matrix, b: &Matrix) -> Matrix {
    let dot = |i: usize, j: usize| a[i].wrapping_mul(b[j]).wrapping_add(a[i + 1].wrapping_mul(b[j + 2]));
    [dot(0, 0), dot(0, 1), dot(2, 0), dot(2, 1)]
}

/// The contribution of `rank` to a call.
pub fn matrices(seed: u64, rank: usize, count: usize) -> Vec<Matrix> {
    (0..count as u64).map(|i| std::array::from_fn(|k| mix(seed ^ i << 20 ^ (rank * 4 + k) as u64) as u32)).collect()
}

/// The product of the contributions of all ranks to a call, in the order of the ranks.
pub fn serial_product(seed: u64, ranks: usize, count: usize) -> Vec<Matrix> {
    let first = matrices(seed, 0, count);
    (1..ranks)
        .fold(first, |left, rank| left.iter().zip(matrices(seed, rank, count)).map(|(a, b)| product(a, &b)).collect())
}
