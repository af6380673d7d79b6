//! The loop over single elements for types and operators without vectors of their own: the compiler vectorises it for
//! the level that it is inlined into.
#![allow(unsafe_code)]

use super::vector::Scalar;

/// An element at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Packed<T>(T);

/// # Safety
/// As [`Kernels::fold`](super::Kernels::fold), with the features of the level, for elements of `T`, of which any bits
/// are a value.
#[inline(always)]
pub(super) unsafe fn fold<T: Copy, F: Scalar<T>>(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
    let (d, a, b) = (dst.cast::<Packed<T>>(), a.cast::<Packed<T>>(), b.cast::<Packed<T>>());
    // SAFETY: `count` elements are readable at `a` and `b` and writable at `d`. The slices are made only where `d` is
    // disjoint from `b`; otherwise each element is read before it is written.
    unsafe {
        if core::ptr::eq(d, b) {
            for i in 0..count {
                d.add(i).write(Packed(F::one((*a.add(i)).0, (*b.add(i)).0)));
            }
            return;
        }
        if !core::ptr::eq(d, a) {
            core::ptr::copy_nonoverlapping(a, d, count);
        }
        let (d, b) = (core::slice::from_raw_parts_mut(d, count), core::slice::from_raw_parts(b, count));
        for (d, b) in d.iter_mut().zip(b) {
            *d = Packed(F::one(d.0, b.0));
        }
    }
}

/// `dst[i] = src[i] op right`, for the last step from an accumulator to a result.
///
/// # Safety
/// `count` elements of `T`, of which any bits are a value, are readable at `src` and writable at `dst`; the two are
/// disjoint; the features of the level are present.
#[inline(always)]
pub(super) unsafe fn map<T: Copy, F: Scalar<T>>(dst: *mut u8, src: *const u8, count: usize, right: T) {
    // SAFETY: the caller's contract.
    unsafe {
        let dst = core::slice::from_raw_parts_mut(dst.cast::<Packed<T>>(), count);
        let src = core::slice::from_raw_parts(src.cast::<Packed<T>>(), count);
        for (d, s) in dst.iter_mut().zip(src) {
            *d = Packed(F::one(s.0, right));
        }
    }
}
