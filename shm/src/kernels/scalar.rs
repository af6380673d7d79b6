//! The definition of each operator for one element of each type, in plain Rust without branches, so that the compiler can
//! vectorise loops over it.

use super::vector::{
    BitAnd, BitOr, BitXor, Divide, LogicalAnd, LogicalOr, LogicalXor, Max, MaxIndex, Min, MinIndex, Product, Scalar,
    Sum,
};
use crate::op::Indexed;

macro_rules! scalar {
    ($op:ident, $t:ty, |$a:ident, $b:ident| $result:expr) => {
        impl Scalar<$t> for $op {
            #[inline(always)]
            fn one($a: $t, $b: $t) -> $t {
                $result
            }
        }
    };
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        scalar!(Sum, $t, |a, b| a.wrapping_add(b));
        scalar!(Product, $t, |a, b| a.wrapping_mul(b));
        scalar!(Min, $t, |a, b| if a < b { a } else { b });
        scalar!(Max, $t, |a, b| if a > b { a } else { b });
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

/// Bits do not know a sign.
macro_rules! bits {
    ($($t:ty)*) => {$(
        scalar!(BitAnd, $t, |a, b| a & b);
        scalar!(BitOr, $t, |a, b| a | b);
        scalar!(BitXor, $t, |a, b| a ^ b);
        scalar!(LogicalAnd, $t, |a, b| ((a != 0) & (b != 0)) as $t);
        scalar!(LogicalOr, $t, |a, b| ((a | b) != 0) as $t);
        scalar!(LogicalXor, $t, |a, b| ((a != 0) ^ (b != 0)) as $t);
    )*};
}
bits!(u8 u16 u32 u64);

// Minimum: each of the two selections alone is the machine's own minimum, which returns its second operand for
// equal values. Both agree unless the operands are +0 and -0; there OR keeps the sign (minimum), AND drops it
// (maximum). For all other equal values the bits are equal, and OR and AND change nothing.
macro_rules! floats {
    ($($t:ty, $quiet_nan:literal)*) => {$(
        scalar!(Sum, $t, |a, b| {
            let sum = a + b;
            if sum.is_nan() { <$t>::from_bits($quiet_nan) } else { sum }
        });
        scalar!(Product, $t, |a, b| {
            let product = a * b;
            if product.is_nan() { <$t>::from_bits($quiet_nan) } else { product }
        });
        scalar!(Min, $t, |a, b| {
            let (one, other) = (if a < b { a } else { b }, if b < a { b } else { a });
            let bits = one.to_bits() | other.to_bits();
            <$t>::from_bits(if a.is_nan() | b.is_nan() { $quiet_nan } else { bits })
        });
        scalar!(Max, $t, |a, b| {
            let (one, other) = (if a > b { a } else { b }, if b > a { b } else { a });
            let bits = one.to_bits() & other.to_bits();
            <$t>::from_bits(if a.is_nan() | b.is_nan() { $quiet_nan } else { bits })
        });
        scalar!(Divide, $t, |a, b| {
            let quotient = a / b;
            if quotient.is_nan() { <$t>::from_bits($quiet_nan) } else { quotient }
        });
        // Complex numbers are pairs; sums of them are sums of twice as many floats. A product is by the definition,
        // without the recovery of infinities of C's Annex G.
        scalar!(Product, [$t; 2], |a, b| {
            let canonical = |part: $t| if part.is_nan() { <$t>::from_bits($quiet_nan) } else { part };
            [canonical(a[0] * b[0] - a[1] * b[1]), canonical(a[0] * b[1] + a[1] * b[0])]
        });
    )*};
}
floats!(f32, 0x7fc0_0000 f64, 0x7ff8_0000_0000_0000);

/// The bits of a half type whose infinity is `INFINITY`: its minimum and maximum need no conversion, since the bits
/// order as integers once the negative ones are turned round.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct HalfBits<const INFINITY: u16>(u16);

impl<const INFINITY: u16> HalfBits<INFINITY> {
    /// The quiet NaN: infinity with the first bit of its fraction set.
    const QUIET: u16 = INFINITY | (INFINITY & INFINITY.wrapping_neg()) >> 1;

    #[inline(always)]
    fn key(self) -> i16 {
        let bits = self.0 as i16;
        bits ^ ((bits >> 15) & 0x7fff)
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.0 & 0x7fff > INFINITY
    }

    #[inline(always)]
    fn chosen(a: Self, b: Self, left: bool) -> Self {
        let value = if left { a.0 } else { b.0 };
        HalfBits(if a.is_nan() | b.is_nan() { Self::QUIET } else { value })
    }
}

impl<const INFINITY: u16> Scalar<HalfBits<INFINITY>> for Min {
    #[inline(always)]
    fn one(a: HalfBits<INFINITY>, b: HalfBits<INFINITY>) -> HalfBits<INFINITY> {
        HalfBits::chosen(a, b, a.key() < b.key())
    }
}
impl<const INFINITY: u16> Scalar<HalfBits<INFINITY>> for Max {
    #[inline(always)]
    fn one(a: HalfBits<INFINITY>, b: HalfBits<INFINITY>) -> HalfBits<INFINITY> {
        HalfBits::chosen(a, b, a.key() > b.key())
    }
}

/// A byte that is read as "zero or not" and written as 0 or 1: whatever a peer wrote, a `bool` comes out.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub(super) struct BoolByte(pub(super) u8);

macro_rules! bools {
    ($($op:ident as $like:ident)*) => {$(
        scalar!($op, BoolByte, |a, b| BoolByte(<$like as Scalar<u8>>::one(a.0, b.0)));
    )*};
}
bools!(BitAnd as LogicalAnd BitOr as LogicalOr BitXor as LogicalXor
        LogicalAnd as LogicalAnd LogicalOr as LogicalOr LogicalXor as LogicalXor);

/// A value with the order of `MinIndex` and `MaxIndex`.
trait Ordered: Copy {
    /// A NaN comes before everything.
    fn is_nan(self) -> bool;
    fn less(self, other: Self) -> bool;
    fn canonical(self) -> Self;
}
macro_rules! ordered {
    ($($t:ty, |$a:ident, $b:ident| $nan:expr, $less:expr, $canonical:expr;)*) => {$(
        impl Ordered for $t {
            #[inline(always)]
            fn is_nan(self) -> bool {
                let $a = self;
                $nan
            }
            #[inline(always)]
            fn less(self, other: Self) -> bool {
                let ($a, $b) = (self, other);
                $less
            }
            #[inline(always)]
            fn canonical(self) -> Self {
                let $a = self;
                $canonical
            }
        }
    )*};
}
ordered! {
    i32, |a, b| { let _ = a; false }, a < b, a;
    i64, |a, b| { let _ = a; false }, a < b, a;
    f32, |a, b| a.is_nan(), a.total_cmp(&b).is_lt(), if a.is_nan() { f32::from_bits(0x7fc0_0000) } else { a };
    f64, |a, b| a.is_nan(), a.total_cmp(&b).is_lt(), if a.is_nan() { f64::from_bits(0x7ff8 << 48) } else { a };
}

/// The pair whose value comes first by `before`; of equal ones, the pair with the lower index.
#[inline(always)]
fn first<V: Ordered, I: Copy + Ord>(
    a: Indexed<V, I>,
    b: Indexed<V, I>,
    before: impl Fn(V, V) -> bool,
) -> Indexed<V, I> {
    let (x, y) = (a.value, b.value);
    let numbers = !x.is_nan() & !y.is_nan();
    let wins = |p: V, q: V| (p.is_nan() & !q.is_nan()) | (numbers & before(p, q));
    let chosen = if wins(x, y) | (!wins(y, x) & (a.index <= b.index)) { a } else { b };
    Indexed { value: chosen.value.canonical(), ..chosen }
}

impl<V: Ordered, I: Copy + Ord> Scalar<Indexed<V, I>> for MinIndex {
    #[inline(always)]
    fn one(a: Indexed<V, I>, b: Indexed<V, I>) -> Indexed<V, I> {
        first(a, b, |p, q| p.less(q))
    }
}
impl<V: Ordered, I: Copy + Ord> Scalar<Indexed<V, I>> for MaxIndex {
    #[inline(always)]
    fn one(a: Indexed<V, I>, b: Indexed<V, I>) -> Indexed<V, I> {
        first(a, b, |p, q| q.less(p))
    }
}
