//! Vectors as plain arrays of 16 bytes: what every processor of the architecture has.
#![allow(unsafe_code)]

use super::vector::{Operator, Scalar, Vector};

/// Types of which any bits are a value.
pub(super) trait Bits: Copy + Default {}
macro_rules! bits {
    ($($t:ty)*) => {$(
        impl Bits for $t {}
    )*};
}
bits!(i32 i64 u32 u64 f32 f64);

/// A vector of `W` elements.
#[derive(Clone, Copy)]
pub(super) struct Lanes<T, const W: usize>(pub(super) [T; W]);

// SAFETY: the loads and stores below touch exactly LANES, or `n`, elements, unaligned.
unsafe impl<T: Bits, const W: usize> Vector for Lanes<T, W> {
    const LANES: usize = W;
    const ELEMENT_BYTES: usize = size_of::<T>();
    const STREAMS: bool = false;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> Self {
        // SAFETY: LANES elements are readable; any bits are a value.
        Lanes(unsafe { from.cast::<[T; W]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u8) {
        // SAFETY: LANES elements are writable.
        unsafe { to.cast::<[T; W]>().write_unaligned(self.0) }
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
        let mut lanes = [T::default(); W];
        for (i, lane) in lanes.iter_mut().enumerate().take(n) {
            // SAFETY: the first n elements are readable; any bits are a value.
            *lane = unsafe { from.cast::<T>().add(i).read_unaligned() };
        }
        Lanes(lanes)
    }
    #[inline(always)]
    unsafe fn store_first(self, to: *mut u8, n: usize) {
        for (i, lane) in self.0.into_iter().enumerate().take(n) {
            // SAFETY: the first n elements are writable.
            unsafe { to.cast::<T>().add(i).write_unaligned(lane) };
        }
    }
}

impl<T: Copy, F: Scalar<T>, const W: usize> Operator<Lanes<T, W>> for F {
    #[inline(always)]
    unsafe fn apply(mut left: Lanes<T, W>, right: Lanes<T, W>) -> Lanes<T, W> {
        for i in 0..W {
            left.0[i] = F::one(left.0[i], right.0[i]);
        }
        left
    }
}

pub(super) type I32 = Lanes<i32, 4>;
pub(super) type I64 = Lanes<i64, 2>;
pub(super) type U32 = Lanes<u32, 4>;
pub(super) type U64 = Lanes<u64, 2>;
pub(super) type F32 = Lanes<f32, 4>;
pub(super) type F64 = Lanes<f64, 2>;
