//! The arithmetic of a reduction: `dst[i] = a[i] op b[i]` on raw bytes, vectorised, chosen at run time.
//!
//! Type-erased on purpose: the protocol moves bytes and looks the functions up once per call. Every level of the
//! instruction set gives the same bits for every address, so ranks on different processors agree.
//! One assumption is left to the process: the floating-point control word (rounding, flush-to-zero) is the default.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod body;
mod portable;
#[cfg(test)]
mod tests;
mod vector;

use crate::{DType, Op};
use std::sync::OnceLock;
use vector::{Max, Min, Operator, Product, Sum, Vector};

/// Signature of [`Kernels::fold`].
pub type FoldFn = unsafe fn(dst: *mut u8, a: *const u8, b: *const u8, count: usize);
/// Signature of [`Kernels::fold_both`].
pub type FoldBothFn = unsafe fn(dst: *mut u8, dst2: *mut u8, a: *const u8, b: *const u8, count: usize);
/// Signature of [`Kernels::fold_all`].
pub type FoldAllFn = unsafe fn(dst: *mut u8, sources: *const *const u8, source_count: usize, count: usize);
/// Signature of [`Kernels::copy_streaming`].
pub type CopyFn = unsafe fn(dst: *mut u8, src: *const u8, count: usize);

/// The functions for one element type and operator. `count` is in elements; addresses need no alignment.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    /// `dst[i] = a[i] op b[i]`, `a` being the left operand.
    ///
    /// Safety: all three buffers hold `count` elements and nobody else writes them (or reads `dst`) meanwhile;
    /// `dst` equals `a`, equals `b`, or is disjoint from them. `a` and `b` may overlap each other.
    pub fold: FoldFn,
    /// The same result into two destinations, in one pass.
    ///
    /// Safety: as [`Kernels::fold`]; `dst2` is disjoint from `dst` and equals `a` or `b` or is disjoint from them.
    pub fold_both: FoldBothFn,
    /// `dst[i] = (s0[i] op s1[i]) op s2[i] ...`: the bits of repeated [`Kernels::fold`], in one pass.
    /// One source is copied as it is; with no source nothing happens.
    ///
    /// Safety: `sources` points to `source_count` pointers to `count` elements each; `dst` equals any number of
    /// the sources or is disjoint from them, and from the pointer array; nobody else writes meanwhile.
    pub fold_all: FoldAllFn,
    /// As [`Kernels::fold`] with the same bits, `dst` written past the caches: for results that are larger than the
    /// cache and not a source. Ordinary stores first read the lines that they replace.
    ///
    /// Safety: as [`Kernels::fold`].
    pub fold_streaming: FoldFn,
    /// As [`Kernels::fold_both`] with the same bits, `dst2` written past the caches.
    ///
    /// Safety: as [`Kernels::fold_both`].
    pub fold_both_streaming: FoldBothFn,
    /// `dst[i] = src[i]`, `dst` written past the caches.
    ///
    /// Safety: both buffers hold `count` elements and are disjoint; nobody else writes them meanwhile.
    pub copy_streaming: CopyFn,
}

/// Instruction sets that the kernels are compiled for, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// What every processor of the architecture has.
    Portable = 0,
    /// x86-64 with AVX2.
    Avx2 = 1,
    /// x86-64 with AVX-512 F, VL, DQ and BW.
    Avx512 = 2,
}

impl Level {
    /// Every level, ascending.
    pub const ALL: [Level; 3] = [Level::Portable, Level::Avx2, Level::Avx512];

    /// Name as printed in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Portable => "portable",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
        }
    }

    /// Whether this processor (and its operating system) can run the level.
    pub fn available(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512vl")
                    && is_x86_feature_detected!("avx512dq")
                    && is_x86_feature_detected!("avx512bw")
            }
            #[cfg(not(target_arch = "x86_64"))]
            _ => false,
        }
    }

    /// The highest level available here; decided once.
    pub fn detected() -> Level {
        static DETECTED: OnceLock<Level> = OnceLock::new();
        *DETECTED.get_or_init(|| Level::ALL.into_iter().rev().find(|l| l.available()).unwrap_or(Level::Portable))
    }
}

/// The kernels of the best level of this processor. A table lookup: a few nanoseconds.
pub fn kernels(dtype: DType, op: Op) -> Kernels {
    table(Level::detected())[dtype as usize - 1][op as usize - 1]
}

/// The fold for a few elements: the same bits without wide vectors, whose loads would wait for a neighbour's narrow
/// stores to reach the cache and which some processors must wake up first.
pub fn fold_few(dtype: DType, op: Op) -> FoldFn {
    FEW[dtype as usize - 1][op as usize - 1]
}

/// Copies a few elements of 4 or 8 bytes without a call.
///
/// # Safety
/// As [`copy`]; `bytes` is a multiple of 4.
#[inline(always)]
pub unsafe fn copy_few(dst: *mut u8, src: *const u8, bytes: usize) {
    let mut at = 0;
    // SAFETY: all accesses lie in `0..bytes`, which the contract makes readable and writable.
    unsafe {
        while at + 8 <= bytes {
            dst.add(at).cast::<u64>().write_unaligned(src.add(at).cast::<u64>().read_unaligned());
            at += 8;
        }
        if at < bytes {
            dst.add(at).cast::<u32>().write_unaligned(src.add(at).cast::<u32>().read_unaligned());
        }
    }
}

/// The kernels of one level, or `None` where the processor lacks it: for tests and benchmarks.
pub fn kernels_at(level: Level, dtype: DType, op: Op) -> Option<Kernels> {
    level.available().then(|| table(level)[dtype as usize - 1][op as usize - 1])
}

/// Copies `bytes` bytes; the addresses need no alignment.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes`, nobody else writes meanwhile, and the two are disjoint.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the contract of this function.
    unsafe { std::ptr::copy_nonoverlapping(src, dst, bytes) }
}

/// By discriminants, minus one, of the type and of the operator.
type Table = [[Kernels; Op::ALL.len()]; DType::ALL.len()];

fn table(level: Level) -> &'static Table {
    match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => &AVX512,
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => &AVX2,
        _ => &PORTABLE,
    }
}

/// One table per level: the loops compiled for its instruction set.
macro_rules! level {
    ($table:ident, $vectors:ident $(, $features:literal)?) => {
        static $table: Table = {
            $(#[target_feature(enable = $features)])?
            unsafe fn fold<V: Vector, F: Operator>(d: *mut u8, a: *const u8, b: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::fold`; the features are enabled here.
                unsafe { body::fold::<V, F>(d, a, b, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn both<V: Vector, F: Operator>(d: *mut u8, d2: *mut u8, a: *const u8, b: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::fold_both`; the features are enabled here.
                unsafe { body::fold_both::<V, F>(d, d2, a, b, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn all<V: Vector, F: Operator>(d: *mut u8, s: *const *const u8, m: usize, n: usize) {
                // SAFETY: the contract of `Kernels::fold_all`; the features are enabled here.
                unsafe { body::fold_all::<V, F>(d, s, m, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn fold_s<V: Vector, F: Operator>(d: *mut u8, a: *const u8, b: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::fold_streaming`; the features are enabled here.
                unsafe { body::fold_streaming::<V, F>(d, a, b, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn both_s<V: Vector, F: Operator>(d: *mut u8, d2: *mut u8, a: *const u8, b: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::fold_both_streaming`; the features are enabled here.
                unsafe { body::fold_both_streaming::<V, F>(d, d2, a, b, n) }
            }
            $(#[target_feature(enable = $features)])?
            unsafe fn copy_s<V: Vector>(d: *mut u8, s: *const u8, n: usize) {
                // SAFETY: the contract of `Kernels::copy_streaming`; the features are enabled here.
                unsafe { body::copy_streaming::<V>(d, s, n) }
            }
            const fn entry<V: Vector, F: Operator>() -> Kernels {
                Kernels {
                    fold: fold::<V, F>,
                    fold_both: both::<V, F>,
                    fold_all: all::<V, F>,
                    fold_streaming: fold_s::<V, F>,
                    fold_both_streaming: both_s::<V, F>,
                    copy_streaming: copy_s::<V>,
                }
            }
            const fn row<V: Vector>() -> [Kernels; Op::ALL.len()] {
                [entry::<V, Sum>(), entry::<V, Product>(), entry::<V, Min>(), entry::<V, Max>()]
            }
            use $vectors::{F32, F64, I32, I64, U32, U64};
            [row::<I32>(), row::<I64>(), row::<U32>(), row::<U64>(), row::<F32>(), row::<F64>()]
        };
    };
}

level!(PORTABLE, portable);

/// One element at a time.
static FEW: [[FoldFn; Op::ALL.len()]; DType::ALL.len()] = {
    unsafe fn few<V: Vector, F: Operator>(dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        for i in 0..count {
            let at = i * V::ELEMENT_BYTES;
            // SAFETY: the contract of `Kernels::fold`; the vector has one element and no special features.
            unsafe { F::apply(V::load(a.add(at)), V::load(b.add(at))).store(dst.add(at)) }
        }
    }
    const fn row<V: Vector>() -> [FoldFn; Op::ALL.len()] {
        assert!(V::LANES == 1);
        [few::<V, Sum>, few::<V, Product>, few::<V, Min>, few::<V, Max>]
    }
    use portable::Lanes;
    [
        row::<Lanes<i32, 1>>(),
        row::<Lanes<i64, 1>>(),
        row::<Lanes<u32, 1>>(),
        row::<Lanes<u64, 1>>(),
        row::<Lanes<f32, 1>>(),
        row::<Lanes<f64, 1>>(),
    ]
};
#[cfg(target_arch = "x86_64")]
level!(AVX2, avx2, "avx2");
#[cfg(target_arch = "x86_64")]
level!(AVX512, avx512, "avx512f,avx512vl,avx512dq,avx512bw");
