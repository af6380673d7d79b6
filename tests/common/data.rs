//! Contributions and the sequential reference that every result is checked against.
#![allow(dead_code)]

use crate::common::mix;
use earlybird::{Element, Op};

/// An element type with contributions of known reductions.
pub trait Sample: Element {
    /// A value whose reduction with other such values is exact in any order.
    fn exact(random: u64, op: Op) -> Self;
    /// A value whose reduction is rounded (floating point), or any value (integers).
    fn rounded(random: u64) -> Self;
    /// The library's documented fold of two values.
    fn fold(op: Op, a: Self, b: Self) -> Self;
    /// Its bits, for comparison: zeros and NaNs count.
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Sample for $t {
            fn exact(random: u64, _: Op) -> Self {
                random as $t
            }
            fn rounded(random: u64) -> Self {
                random as $t
            }
            fn fold(op: Op, a: Self, b: Self) -> Self {
                match op {
                    Op::Sum => a.wrapping_add(b),
                    Op::Product => a.wrapping_mul(b),
                    Op::Min => a.min(b),
                    Op::Max => a.max(b),
                }
            }
            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}
integers!(i32, i64, u32, u64);

macro_rules! floats {
    ($($t:ty => $quiet:expr),*) => {$(
        impl Sample for $t {
            fn exact(random: u64, op: Op) -> Self {
                match op {
                    // Powers of two: 64 of them stay in range.
                    Op::Product => [0.5, -0.5, 1.0, -1.0, 2.0, -2.0][(random % 6) as usize],
                    Op::Sum => (random % 2001) as $t - 1000.0,
                    // Both zeros, infinities and NaNs among few values, so that they meet.
                    Op::Min | Op::Max => match random % 97 {
                        0 => <$t>::NAN,
                        1 => -<$t>::NAN,
                        2..6 => <$t>::INFINITY,
                        6..10 => <$t>::NEG_INFINITY,
                        10..40 => 0.0,
                        40..70 => -0.0,
                        other => other as $t - 83.0,
                    },
                }
            }
            fn rounded(random: u64) -> Self {
                (random >> 11) as $t / (1u64 << 53) as $t * 2.0 - 0.9
            }
            fn fold(op: Op, a: Self, b: Self) -> Self {
                let folded = match op {
                    Op::Sum => a + b,
                    Op::Product => a * b,
                    _ if a.is_nan() || b.is_nan() => <$t>::NAN,
                    // The total order has -0 below +0.
                    Op::Min => if a.total_cmp(&b).is_le() { a } else { b },
                    Op::Max => if a.total_cmp(&b).is_ge() { a } else { b },
                };
                if folded.is_nan() { <$t>::from_bits($quiet) } else { folded }
            }
            fn bits(self) -> u64 {
                self.to_bits() as u64
            }
        }
    )*};
}
floats!(f32 => 0x7fc0_0000, f64 => 0x7ff8_0000_0000_0000);

/// The contribution of `rank` to call `seed`.
pub fn contribution<T: Sample>(seed: u64, rank: usize, count: usize, op: Op, exact: bool) -> Vec<T> {
    let base = mix(seed.wrapping_mul(1031).wrapping_add(rank as u64));
    let value = |i: u64| match exact {
        true => T::exact(mix(base ^ i), op),
        false => T::rounded(mix(base ^ i)),
    };
    (0..count as u64).map(value).collect()
}

/// The sequential fold in rank order.
pub fn reference<T: Sample>(seed: u64, ranks: usize, count: usize, op: Op, exact: bool) -> Vec<T> {
    let mut sum = contribution::<T>(seed, 0, count, op, exact);
    for rank in 1..ranks {
        for (a, b) in sum.iter_mut().zip(contribution::<T>(seed, rank, count, op, exact)) {
            *a = T::fold(op, *a, b);
        }
    }
    sum
}

/// A number that differs where the bits of the values differ.
pub fn hash<T: Sample>(values: &[T]) -> u64 {
    values.iter().fold(values.len() as u64, |sum, v| mix(sum ^ v.bits()))
}

/// Fails with the first place where bits differ.
pub fn same_bits<T: Sample>(found: &[T], expected: &[T], what: &dyn Fn() -> String) {
    assert_eq!(found.len(), expected.len(), "{}", what());
    if let Some(i) = (0..found.len()).find(|i| found[*i].bits() != expected[*i].bits()) {
        panic!("{}: element {i} is {:?} and should be {:?}", what(), found[i], expected[i]);
    }
}
