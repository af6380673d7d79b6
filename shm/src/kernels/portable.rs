//! Vectors as plain arrays of 16 bytes: what every processor of the architecture has, and the reference in Rust
//! of what each operator means.
#![allow(unsafe_code)]

use super::vector::Vector;

/// The operators on one element, without branches so that the compiler can vectorise them.
trait Scalar: Copy + Default {
    fn sum(self, right: Self) -> Self;
    fn product(self, right: Self) -> Self;
    fn min(self, right: Self) -> Self;
    fn max(self, right: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        impl Scalar for $t {
            #[inline(always)]
            fn sum(self, right: Self) -> Self {
                self.wrapping_add(right)
            }
            #[inline(always)]
            fn product(self, right: Self) -> Self {
                self.wrapping_mul(right)
            }
            #[inline(always)]
            fn min(self, right: Self) -> Self {
                if self < right { self } else { right }
            }
            #[inline(always)]
            fn max(self, right: Self) -> Self {
                if self > right { self } else { right }
            }
        }
        lanes!($t);
    )*};
}

// Minimum: each of the two selections alone is the machine's own minimum, which returns its second operand for
// equal values. Both agree unless the operands are +0 and -0; there OR keeps the sign (minimum), AND drops it
// (maximum). For all other equal values the bits are equal, and OR and AND change nothing.
macro_rules! floats {
    ($($t:ty, $quiet_nan:literal)*) => {$(
        impl Scalar for $t {
            #[inline(always)]
            fn sum(self, right: Self) -> Self {
                let sum = self + right;
                if sum.is_nan() { <$t>::from_bits($quiet_nan) } else { sum }
            }
            #[inline(always)]
            fn product(self, right: Self) -> Self {
                let product = self * right;
                if product.is_nan() { <$t>::from_bits($quiet_nan) } else { product }
            }
            #[inline(always)]
            fn min(self, right: Self) -> Self {
                let one = if self < right { self } else { right };
                let other = if right < self { right } else { self };
                let bits = one.to_bits() | other.to_bits();
                <$t>::from_bits(if self.is_nan() | right.is_nan() { $quiet_nan } else { bits })
            }
            #[inline(always)]
            fn max(self, right: Self) -> Self {
                let one = if self > right { self } else { right };
                let other = if right > self { right } else { self };
                let bits = one.to_bits() & other.to_bits();
                <$t>::from_bits(if self.is_nan() | right.is_nan() { $quiet_nan } else { bits })
            }
        }
        lanes!($t);
    )*};
}

/// The vector of one element type.
#[derive(Clone, Copy)]
pub(super) struct Lanes<T, const W: usize>([T; W]);

macro_rules! lanes {
    ($t:ty) => {
        // SAFETY: the loads and stores below touch exactly LANES, or `n`, elements, unaligned.
        unsafe impl<const W: usize> Vector for Lanes<$t, W> {
            const LANES: usize = W;
            const ELEMENT_BYTES: usize = size_of::<$t>();

            #[inline(always)]
            unsafe fn load(from: *const u8) -> Self {
                // SAFETY: LANES elements are readable; any bits are a value.
                Lanes(unsafe { from.cast::<[$t; W]>().read_unaligned() })
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut u8) {
                // SAFETY: LANES elements are writable.
                unsafe { to.cast::<[$t; W]>().write_unaligned(self.0) }
            }
            #[inline(always)]
            unsafe fn stream(self, to: *mut u8) {
                // SAFETY: LANES elements are writable.
                unsafe { self.store(to) }
            }
            #[inline(always)]
            unsafe fn fence() {}
            #[inline(always)]
            unsafe fn load_first(from: *const u8, n: usize) -> Self {
                let mut lanes = [<$t>::default(); W];
                for (i, lane) in lanes.iter_mut().enumerate().take(n) {
                    // SAFETY: the first n elements are readable; any bits are a value.
                    *lane = unsafe { from.cast::<$t>().add(i).read_unaligned() };
                }
                Lanes(lanes)
            }
            #[inline(always)]
            unsafe fn store_first(self, to: *mut u8, n: usize) {
                for (i, lane) in self.0.into_iter().enumerate().take(n) {
                    // SAFETY: the first n elements are writable.
                    unsafe { to.cast::<$t>().add(i).write_unaligned(lane) };
                }
            }
            lanes!(@ $t, sum);
            lanes!(@ $t, product);
            lanes!(@ $t, min);
            lanes!(@ $t, max);
        }
    };
    (@ $t:ty, $method:ident) => {
        #[inline(always)]
        unsafe fn $method(mut self, right: Self) -> Self {
            for i in 0..Self::LANES {
                self.0[i] = <$t as Scalar>::$method(self.0[i], right.0[i]);
            }
            self
        }
    };
}

integers!(i32 i64 u32 u64);
floats!(f32, 0x7fc0_0000 f64, 0x7ff8_0000_0000_0000);

pub(super) type I32 = Lanes<i32, 4>;
pub(super) type I64 = Lanes<i64, 2>;
pub(super) type U32 = Lanes<u32, 4>;
pub(super) type U64 = Lanes<u64, 2>;
pub(super) type F32 = Lanes<f32, 4>;
pub(super) type F64 = Lanes<f64, 2>;
