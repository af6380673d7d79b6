//! Half types: folded into an accumulator of `f32`, converted when they are read and rounded once when the result is.
//!
//! A NaN becomes the canonical one of the narrow type. Rounding is to nearest, ties to even.
#![allow(unsafe_code)]

use super::portable;
use super::vector::{Divide, Operator, Vector};

/// A half format, and how a vector `V` of as many `f32` is read from it and written to it.
pub(super) trait Half<V> {
    /// # Safety
    /// `V::LANES` halves are readable, at any address, and the features of the level are present.
    unsafe fn widen(from: *const u8) -> V;
    /// # Safety
    /// `V::LANES` halves are writable, at any address, and the features of the level are present.
    unsafe fn narrow(vector: V, to: *mut u8);
}

/// IEEE 754 binary16.
pub(super) struct F16;
/// The upper half of an `f32`.
pub(super) struct BF16;

macro_rules! portable {
    ($format:ident, $half:ty) => {
        impl Half<portable::F32> for $format {
            #[inline(always)]
            unsafe fn widen(from: *const u8) -> portable::F32 {
                // SAFETY: the contract of the trait; any bits are a half.
                let halves = unsafe { from.cast::<[u16; 4]>().read_unaligned() };
                portable::Lanes(halves.map(|bits| <$half>::from_bits(bits).to_f32_const()))
            }
            #[inline(always)]
            unsafe fn narrow(vector: portable::F32, to: *mut u8) {
                let canonical = |v: f32| if v.is_nan() { <$half>::NAN } else { <$half>::from_f32_const(v) };
                // SAFETY: the contract of the trait.
                unsafe { to.cast::<[u16; 4]>().write_unaligned(vector.0.map(|v| canonical(v).to_bits())) }
            }
        }
    };
}
portable!(F16, half::f16);
portable!(BF16, half::bf16);

/// Halves of the widest vector.
const MOST: usize = 16;

/// `sum[i] = sum[i] op halves[i]`.
///
/// # Safety
/// `count` elements of `f32` are readable and writable at `sum` and as many halves readable at `halves`; the two are
/// disjoint; the features of the level are present.
#[inline(always)]
pub(super) unsafe fn fold<V: Vector, H: Half<V>, F: Operator<V>>(sum: *mut u8, halves: *const u8, count: usize) {
    let whole = count / V::LANES * V::LANES;
    // SAFETY: the caller's contract; the last elements go through a buffer of a whole vector.
    unsafe {
        for i in (0..whole).step_by(V::LANES) {
            F::apply(V::load(sum.add(4 * i)), H::widen(halves.add(2 * i))).store(sum.add(4 * i));
        }
        if whole < count {
            let right = H::widen(rest(halves, whole, count).as_ptr().cast());
            let at = sum.add(4 * whole);
            F::apply(V::load_first(at, count - whole), right).store_first(at, count - whole);
        }
    }
}

/// `sum[i] = halves[i]`.
///
/// # Safety
/// As [`fold`].
#[inline(always)]
pub(super) unsafe fn widen<V: Vector, H: Half<V>>(sum: *mut u8, halves: *const u8, count: usize) {
    let whole = count / V::LANES * V::LANES;
    // SAFETY: as in `fold`.
    unsafe {
        for i in (0..whole).step_by(V::LANES) {
            H::widen(halves.add(2 * i)).store(sum.add(4 * i));
        }
        if whole < count {
            H::widen(rest(halves, whole, count).as_ptr().cast()).store_first(sum.add(4 * whole), count - whole);
        }
    }
}

/// `halves[i] = sum[i]`, divided by `ranks` first if `AVERAGE`.
///
/// # Safety
/// As [`fold`], with `sum` read and `halves` written.
#[inline(always)]
pub(super) unsafe fn narrow<V: Vector, H: Half<V>, const AVERAGE: bool>(
    halves: *mut u8,
    sum: *const u8,
    count: usize,
    ranks: usize,
) where
    Divide: Operator<V>,
{
    let whole = count / V::LANES * V::LANES;
    let divisors = [ranks as f32; MOST];
    // SAFETY: as in `fold`; a vector has at most MOST elements.
    unsafe {
        let divisor = V::load(divisors.as_ptr().cast());
        let result = |sum: V| if AVERAGE { Divide::apply(sum, divisor) } else { sum };
        for i in (0..whole).step_by(V::LANES) {
            H::narrow(result(V::load(sum.add(4 * i))), halves.add(2 * i));
        }
        if whole < count {
            let mut last = [0u16; MOST];
            H::narrow(result(V::load_first(sum.add(4 * whole), count - whole)), last.as_mut_ptr().cast());
            let to = halves.add(2 * whole);
            core::ptr::copy_nonoverlapping(last.as_ptr().cast(), to, 2 * (count - whole));
        }
    }
}

/// The halves from `whole` to `count`, fewer than a vector, followed by zeros.
///
/// # Safety
/// They are readable, and fewer than [`MOST`].
#[inline(always)]
unsafe fn rest(halves: *const u8, whole: usize, count: usize) -> [u16; MOST] {
    let mut rest = [0u16; MOST];
    // SAFETY: the caller's contract.
    unsafe {
        core::ptr::copy_nonoverlapping(halves.add(2 * whole), rest.as_mut_ptr().cast::<u8>(), 2 * (count - whole))
    };
    rest
}
