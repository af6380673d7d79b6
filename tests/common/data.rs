//! Contributions and the sequential reference that every result is checked against.

use crate::common::mix;
use earlybird::{Element, Indexed, Op};
use half::{bf16, f16};
use num_complex::Complex;

/// An element type with contributions of known reductions.
pub trait Sample: Element {
    /// A value whose reduction with other such values is exact in any order.
    fn exact(random: u64, op: Op) -> Self;
    /// A value whose reduction is rounded (floating point), or any value (integers).
    fn rounded(random: u64) -> Self;
    /// The library's documented fold of two values, for operators whose result is what the fold leaves.
    fn fold(op: Op, a: Self, b: Self) -> Self;
    /// The documented result of several values, folded in this order.
    fn reduced(op: Op, values: &[Self]) -> Self {
        values.iter().copied().reduce(|a, b| Self::fold(op, a, b)).expect("at least one rank")
    }
    /// Its bits, for comparison: zeros and NaNs count.
    fn bits(self) -> u128;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Sample for $t {
            fn exact(random: u64, op: Op) -> Self {
                match op {
                    // Zeros among them.
                    Op::LogicalAnd | Op::LogicalOr | Op::LogicalXor => (random as $t) * (random >> 40 & 1) as $t,
                    _ => random as $t,
                }
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
                    Op::BitAnd => a & b,
                    Op::BitOr => a | b,
                    Op::BitXor => a ^ b,
                    Op::LogicalAnd => <$t>::from(a != 0 && b != 0),
                    Op::LogicalOr => <$t>::from(a != 0 || b != 0),
                    Op::LogicalXor => <$t>::from((a != 0) != (b != 0)),
                    _ => unreachable!("{op:?} on integers"),
                }
            }
            fn bits(self) -> u128 {
                self as u128
            }
        }
    )*};
}
integers!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Sample for bool {
    fn exact(random: u64, _: Op) -> Self {
        random >> 40 & 3 != 0
    }
    fn rounded(random: u64) -> Self {
        random >> 40 & 1 == 1
    }
    fn fold(op: Op, a: Self, b: Self) -> Self {
        match op {
            Op::BitAnd | Op::LogicalAnd => a && b,
            Op::BitOr | Op::LogicalOr => a || b,
            Op::BitXor | Op::LogicalXor => a != b,
            _ => unreachable!("{op:?} on bool"),
        }
    }
    fn bits(self) -> u128 {
        self.into()
    }
}

/// Both zeros, infinities and NaNs among few values, so that they meet.
macro_rules! ordered {
    ($t:ty, $random:expr) => {
        match $random % 97 {
            0 => <$t>::NAN,
            1 => -<$t>::NAN,
            2..6 => <$t>::INFINITY,
            6..10 => <$t>::NEG_INFINITY,
            10..40 => 0.0,
            40..70 => -0.0,
            other => other as $t - 83.0,
        }
    };
}

macro_rules! floats {
    ($($t:ty => $quiet:expr),*) => {$(
        impl Sample for $t {
            fn exact(random: u64, op: Op) -> Self {
                match op {
                    // Powers of two: 64 of them stay in range.
                    Op::Product => [0.5, -0.5, 1.0, -1.0, 2.0, -2.0][(random % 6) as usize],
                    Op::Sum | Op::Average => (random % 2001) as $t - 1000.0,
                    _ => ordered!($t, random),
                }
            }
            fn rounded(random: u64) -> Self {
                (random >> 11) as $t / (1u64 << 53) as $t * 2.0 - 0.9
            }
            fn fold(op: Op, a: Self, b: Self) -> Self {
                let folded = match op {
                    Op::Sum | Op::Average => a + b,
                    Op::Product => a * b,
                    _ if a.is_nan() || b.is_nan() => <$t>::NAN,
                    // The total order has -0 below +0.
                    Op::Min => if a.total_cmp(&b).is_le() { a } else { b },
                    Op::Max => if a.total_cmp(&b).is_ge() { a } else { b },
                    _ => unreachable!("{op:?} on floats"),
                };
                if folded.is_nan() { <$t>::from_bits($quiet) } else { folded }
            }
            fn reduced(op: Op, values: &[Self]) -> Self {
                let folded = values.iter().copied().reduce(|a, b| Self::fold(op, a, b)).expect("at least one rank");
                if op == Op::Average { folded / values.len() as $t } else { folded }
            }
            fn bits(self) -> u128 {
                self.to_bits().into()
            }
        }

        impl Sample for Complex<$t> {
            fn exact(random: u64, op: Op) -> Self {
                match op {
                    // 1 + 2i turned round: products have no zeros, whose signs would tell the order.
                    Op::Product => {
                        let turns = [(1.0, 2.0), (-2.0, 1.0), (-1.0, -2.0), (2.0, -1.0)];
                        let (re, im) = turns[(random % 4) as usize];
                        Complex::new(re, im)
                    }
                    _ => Complex::new(<$t as Sample>::exact(random, op), <$t as Sample>::exact(random >> 20, op)),
                }
            }
            fn rounded(random: u64) -> Self {
                Complex::new(<$t as Sample>::rounded(random), <$t as Sample>::rounded(random.rotate_left(32)))
            }
            fn fold(op: Op, a: Self, b: Self) -> Self {
                match op {
                    Op::Product => Complex::new(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re),
                    _ => a + b,
                }
            }
            fn reduced(op: Op, values: &[Self]) -> Self {
                let folded = values.iter().copied().reduce(|a, b| Self::fold(op, a, b)).expect("at least one rank");
                if op == Op::Average { folded / values.len() as $t } else { folded }
            }
            fn bits(self) -> u128 {
                self.re.bits() << 64 | self.im.bits()
            }
        }
    )*};
}
floats!(f32 => 0x7fc0_0000, f64 => 0x7ff8_0000_0000_0000);

macro_rules! halves {
    ($($t:ty => $quiet:expr),*) => {$(
        impl Sample for $t {
            fn exact(random: u64, op: Op) -> Self {
                match op {
                    // Sums of 64 of them are exact in f32 and rounded only in the end.
                    Op::Sum | Op::Average => <$t>::from_f32((random % 401) as f32 - 200.0),
                    _ => <$t>::from_f32(<f32 as Sample>::exact(random, op)),
                }
            }
            fn rounded(random: u64) -> Self {
                <$t>::from_f32(<f32 as Sample>::rounded(random))
            }
            fn fold(op: Op, a: Self, b: Self) -> Self {
                if a.is_nan() || b.is_nan() {
                    return <$t>::from_bits($quiet);
                }
                match op {
                    Op::Min => if a.total_cmp(&b).is_le() { a } else { b },
                    Op::Max => if a.total_cmp(&b).is_ge() { a } else { b },
                    _ => unreachable!("{op:?} is folded in f32"),
                }
            }
            fn reduced(op: Op, values: &[Self]) -> Self {
                match op {
                    Op::Min | Op::Max => values.iter().copied().reduce(|a, b| Self::fold(op, a, b)).unwrap(),
                    _ => {
                        let wide: Vec<f32> = values.iter().map(|v| v.to_f32()).collect();
                        <$t>::from_f32(<f32 as Sample>::reduced(op, &wide))
                    }
                }
            }
            fn bits(self) -> u128 {
                self.to_bits().into()
            }
        }
    )*};
}
halves!(f16 => 0x7e00, bf16 => 0x7fc0);

macro_rules! indexed {
    ($($v:ty, $i:ty, |$a:ident, $b:ident| $order:expr;)*) => {$(
        impl Sample for Indexed<$v, $i> {
            fn exact(random: u64, _: Op) -> Self {
                // Few values, so that many are equal and the index decides.
                Indexed { value: (random % 7) as $v - 3 as $v, index: (random >> 33) as $i - 1000 }
            }
            fn rounded(random: u64) -> Self {
                Indexed { value: <$v as Sample>::rounded(random), index: (random >> 33) as $i }
            }
            fn fold(op: Op, p: Self, q: Self) -> Self {
                let ($a, $b) = (p.value, q.value);
                let order = if op == Op::MinIndex { $order } else { $order.reverse() };
                if order.then(p.index.cmp(&q.index)).is_le() { p } else { q }
            }
            fn bits(self) -> u128 {
                self.value.bits() << 64 | (self.index as u64 as u128)
            }
        }
    )*};
}
indexed! {
    i32, i32, |a, b| a.cmp(&b);
    i64, i64, |a, b| a.cmp(&b);
    f32, i32, |a, b| a.total_cmp(&b);
    f64, i64, |a, b| a.total_cmp(&b);
}

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
    let all: Vec<Vec<T>> = (0..ranks).map(|rank| contribution::<T>(seed, rank, count, op, exact)).collect();
    let mut values = all[0][..0].to_vec();
    (0..count)
        .map(|i| {
            values.clear();
            values.extend(all.iter().map(|contribution| contribution[i]));
            T::reduced(op, &values)
        })
        .collect()
}

/// A number that differs where the bits of the values differ.
pub fn hash<T: Sample>(values: &[T]) -> u64 {
    values.iter().fold(values.len() as u64, |sum, v| mix(mix(sum ^ v.bits() as u64) ^ (v.bits() >> 64) as u64))
}

/// Fails with the first place where bits differ.
pub fn same_bits<T: Sample>(found: &[T], expected: &[T], what: &dyn Fn() -> String) {
    assert_eq!(found.len(), expected.len(), "{}", what());
    if let Some(i) = (0..found.len()).find(|i| found[*i].bits() != expected[*i].bits()) {
        panic!("{}: element {i} is {:?} and should be {:?}", what(), found[i], expected[i]);
    }
}
