//! The kernels of one instruction-set level: which loop carries which pair of type and operator.
//!
//! Sums, products, minima and maxima of the 32- and 64-bit types have loops of their own, with two destinations and past
//! the caches; half types have loops that convert; the rest is the loop over single elements, which the compiler
//! vectorises.
#![allow(unsafe_code)]

use super::functions::{FinishFn, FoldFn, Kernels};
use super::generic;
use super::half::{self, BF16, F16, Half};
use super::scalar::{BoolByte, HalfBits};
use super::vector::*;
use super::{body, portable};
use crate::op::{DType, Indexed, Op};

/// The minimum and maximum of a half type are of its own width.
type F16Bits = HalfBits<0x7c00>;
type BF16Bits = HalfBits<0x7f80>;

/// One function per level that finds the kernels of a pair, and one that copies.
macro_rules! level {
    ($find:ident, $copy:ident, $vectors:ident $(, $features:literal)?) => {
        /// The kernels of the level for one pair, if it exists.
        pub(super) fn $find(dtype: DType, op: Op) -> Option<Kernels> {
            use super::$vectors::{F32, F64, I32, I64, U32, U64};

            $(#[target_feature(enable = $features)])?
            unsafe fn fold<V: Vector, F: Operator<V>>(d: *mut u8, a: *const u8, b: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::fold`; the features are enabled here.
                unsafe { body::fold::<V, F>(d, a, b, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn all<V: Vector, F: Operator<V>>(near: &[*mut u8], far: &[*mut u8], srcs: &[*const u8], n: usize) {
                // SAFETY: the contract of `Kernels::fold_all`; the features are enabled here.
                unsafe { body::fold_all::<V, F>(near, far, srcs, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn twice<V: Vector, F: Operator<V>>(d: *mut u8, a: *const u8, b: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::fold` for elements of two parts; the features are enabled here.
                unsafe { fold::<V, F>(d, a, b, 2 * n) }
            }
            #[inline(never)]
            $(#[target_feature(enable = $features)])?
            unsafe fn each<T: Copy, F: Scalar<T>>(d: *mut u8, a: *const u8, b: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::fold`; the features are enabled here.
                unsafe { generic::fold::<T, F>(d, a, b, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn bytes<F: Scalar<u8>, const N: usize>(d: *mut u8, a: *const u8, b: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::fold` for elements of N bytes; the features are enabled here.
                unsafe { each::<u8, F>(d, a, b, N * n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn bools(d: *mut u8, src: *const u8, n: usize, _: usize) {
                // SAFETY: the contract of `Kernels::finish`; the features are enabled here.
                unsafe { generic::map::<BoolByte, LogicalOr>(d, src, n, BoolByte(0)) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn average_32<const PARTS: usize>(d: *mut u8, src: *const u8, n: usize, ranks: usize) {
                // SAFETY: the contract of `Kernels::finish`; the features are enabled here.
                unsafe { generic::map::<f32, Divide>(d, src, PARTS * n, ranks as f32) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn average_64<const PARTS: usize>(d: *mut u8, src: *const u8, n: usize, ranks: usize) {
                // SAFETY: the contract of `Kernels::finish`; the features are enabled here.
                unsafe { generic::map::<f64, Divide>(d, src, PARTS * n, ranks as f64) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn fold_half<H: Half<F32>, F: Operator<F32>>(d: *mut u8, a: *const u8, b: *const u8, n: usize) {
                debug_assert!(core::ptr::eq(d, a), "an accumulator is its own left operand");
                // SAFETY: the contract of `Kernels::fold`; the features are enabled here.
                unsafe { half::fold::<F32, H, F>(d, b, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn widen<H: Half<F32>>(d: *mut u8, src: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::widen`; the features are enabled here.
                unsafe { half::widen::<F32, H>(d, src, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn narrow<H: Half<F32>, const AVERAGE: bool>(d: *mut u8, src: *const u8, n: usize, ranks: usize) {
                // SAFETY: the contract of `Kernels::finish`; the features are enabled here.
                unsafe { half::narrow::<F32, H, AVERAGE>(d, src, n, ranks) }
            }

            fn hot<V: Vector, F: Operator<V>>(dtype: DType) -> Kernels {
                Kernels { fold_all: Some(all::<V, F>), ..Kernels::plain(dtype, fold::<V, F>) }
            }
            fn halves<H: Half<F32>, F: Operator<F32>>(dtype: DType, average: bool) -> Kernels {
                let finish = if average { narrow::<H, true> } else { narrow::<H, false> as FinishFn };
                Kernels {
                    accumulator_bytes: 4,
                    widen: Some(widen::<H>),
                    finish: Some(finish),
                    ..Kernels::plain(dtype, fold_half::<H, F>)
                }
            }
            /// The four operators of a type that has vectors, and of one that has none.
            macro_rules! arithmetic {
                ($make:ident $v:ty) => {
                    match op {
                        Op::Sum => Some($make::<$v, Sum>(dtype)),
                        Op::Product => Some($make::<$v, Product>(dtype)),
                        Op::Min => Some($make::<$v, Min>(dtype)),
                        Op::Max => Some($make::<$v, Max>(dtype)),
                        _ => None,
                    }
                };
            }
            fn cold<T: Copy, F: Scalar<T>>(dtype: DType) -> Kernels {
                Kernels::plain(dtype, each::<T, F>)
            }
            /// The operators on bits of integers of `$n` bytes, whose unsigned form is `$t`.
            macro_rules! bits {
                ($t:ty, $n:literal) => {{
                    let fold: FoldFn = match op {
                        Op::BitAnd => bytes::<BitAnd, $n>,
                        Op::BitOr => bytes::<BitOr, $n>,
                        Op::BitXor => bytes::<BitXor, $n>,
                        Op::LogicalAnd => each::<$t, LogicalAnd>,
                        Op::LogicalOr => each::<$t, LogicalOr>,
                        Op::LogicalXor => each::<$t, LogicalXor>,
                        _ => return None,
                    };
                    Some(Kernels::plain(dtype, fold))
                }};
            }
            /// A half type by its format and its bits.
            macro_rules! half {
                ($format:ty, $bits:ty) => {
                    match op {
                        Op::Sum => Some(halves::<$format, Sum>(dtype, false)),
                        Op::Product => Some(halves::<$format, Product>(dtype, false)),
                        Op::Average => Some(halves::<$format, Sum>(dtype, true)),
                        Op::Min => Some(cold::<$bits, Min>(dtype)),
                        Op::Max => Some(cold::<$bits, Max>(dtype)),
                        _ => None,
                    }
                };
            }
            /// The average of a float or of a pair of floats.
            macro_rules! average {
                ($finish:expr) => {
                    $find(dtype, Op::Sum).map(|sum| Kernels { fold_all: None, finish: Some($finish), ..sum })
                };
            }
            macro_rules! complex {
                ($v:ty, $t:ty, $average:expr) => {
                    match op {
                        Op::Sum => Some(Kernels::plain(dtype, twice::<$v, Sum>)),
                        Op::Product => Some(cold::<[$t; 2], Product>(dtype)),
                        Op::Average => average!($average),
                        _ => None,
                    }
                };
            }
            macro_rules! indexed {
                ($value:ty, $index:ty) => {
                    match op {
                        Op::MinIndex => Some(cold::<Indexed<$value, $index>, MinIndex>(dtype)),
                        Op::MaxIndex => Some(cold::<Indexed<$value, $index>, MaxIndex>(dtype)),
                        _ => None,
                    }
                };
            }
            match dtype {
                DType::I8 => arithmetic!(cold i8).or_else(|| bits!(u8, 1)),
                DType::I16 => arithmetic!(cold i16).or_else(|| bits!(u16, 2)),
                DType::I32 => arithmetic!(hot I32).or_else(|| bits!(u32, 4)),
                DType::I64 => arithmetic!(hot I64).or_else(|| bits!(u64, 8)),
                DType::U8 => arithmetic!(cold u8).or_else(|| bits!(u8, 1)),
                DType::U16 => arithmetic!(cold u16).or_else(|| bits!(u16, 2)),
                DType::U32 => arithmetic!(hot U32).or_else(|| bits!(u32, 4)),
                DType::U64 => arithmetic!(hot U64).or_else(|| bits!(u64, 8)),
                DType::F32 if op == Op::Average => average!(average_32::<1>),
                DType::F32 => arithmetic!(hot F32),
                DType::F64 if op == Op::Average => average!(average_64::<1>),
                DType::F64 => arithmetic!(hot F64),
                DType::F16 => half!(F16, F16Bits),
                DType::BF16 => half!(BF16, BF16Bits),
                DType::ComplexF32 => complex!(F32, f32, average_32::<2>),
                DType::ComplexF64 => complex!(F64, f64, average_64::<2>),
                DType::Bool => {
                    let fold: FoldFn = match op {
                        Op::BitAnd | Op::LogicalAnd => each::<BoolByte, LogicalAnd>,
                        Op::BitOr | Op::LogicalOr => each::<BoolByte, LogicalOr>,
                        Op::BitXor | Op::LogicalXor => each::<BoolByte, LogicalXor>,
                        _ => return None,
                    };
                    Some(Kernels { finish: Some(bools), ..Kernels::plain(dtype, fold) })
                }
                DType::IndexedI32 => indexed!(i32, i32),
                DType::IndexedI64 => indexed!(i64, i64),
                DType::IndexedF32 => indexed!(f32, i32),
                DType::IndexedF64 => indexed!(f64, i64),
            }
        }

        /// Copies past the caches, or asking for lines so many bytes `AHEAD`, if any.
        ///
        /// # Safety
        /// The contract of `copy` of the module above, with the features of the level.
        $(#[target_feature(enable = $features)])?
        pub(super) unsafe fn $copy<const PAST_CACHES: bool, const AHEAD: usize>(
            dst: *mut u8,
            src: *const u8,
            bytes: usize,
        ) {
            // SAFETY: the caller's contract; the features are enabled here.
            unsafe { body::copy::<super::$vectors::U64, PAST_CACHES, AHEAD>(dst, src, bytes) }
        }
    };
}

level!(find_portable, copy_portable, portable);
#[cfg(target_arch = "x86_64")]
level!(find_avx2, copy_avx2, avx2, "avx2,f16c");
#[cfg(target_arch = "x86_64")]
level!(find_avx512, copy_avx512, avx512, "avx512f,avx512vl,avx512dq,avx512bw");

/// The fold for a few elements, one at a time.
pub(super) fn few(dtype: DType, op: Op) -> Option<FoldFn> {
    unsafe fn few<V: Vector, F: Operator<V>>(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        const { assert!(V::LANES == 1) };
        for i in 0..count {
            let at = i * V::ELEMENT_BYTES;
            // SAFETY: the contract of `Kernels::fold`; the vector has one element and no special features.
            unsafe { F::apply(V::load(a.add(at)), V::load(b.add(at))).store(dst.add(at)) }
        }
    }
    macro_rules! arithmetic {
        ($t:ty) => {
            match op {
                Op::Sum => Some(few::<portable::Lanes<$t, 1>, Sum> as FoldFn),
                Op::Product => Some(few::<portable::Lanes<$t, 1>, Product>),
                Op::Min => Some(few::<portable::Lanes<$t, 1>, Min>),
                Op::Max => Some(few::<portable::Lanes<$t, 1>, Max>),
                _ => None,
            }
        };
    }
    match dtype {
        DType::I32 => arithmetic!(i32),
        DType::I64 => arithmetic!(i64),
        DType::U32 => arithmetic!(u32),
        DType::U64 => arithmetic!(u64),
        DType::F32 => arithmetic!(f32),
        DType::F64 => arithmetic!(f64),
        _ => None,
    }
}
