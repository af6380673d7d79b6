//! The functions of one element type and operator, as types.
#![allow(unsafe_code)]

use crate::DType;

/// Signature of [`Kernels::fold`].
pub type FoldFn = unsafe fn(dst: *mut u8, a: *const u8, b: *const u8, count: usize);
/// Signature of [`Kernels::fold_all`].
pub type FoldAllFn = unsafe fn(near: &[*mut u8], far: &[*mut u8], srcs: &[*const u8], count: usize);
/// Signature of [`Kernels::widen`].
pub type WidenFn = unsafe fn(accumulator: *mut u8, src: *const u8, count: usize);
/// Signature of [`Kernels::finish`].
pub type FinishFn = unsafe fn(dst: *mut u8, accumulator: *const u8, count: usize, ranks: usize);

/// The functions for one element type and operator. `count` is in elements; addresses need no alignment.
///
/// The result is built up in an *accumulator*, whose elements are wider than those of the message where `widen` is
/// given. `None` stands for a plain copy.
#[derive(Clone, Copy, Debug)]
pub struct Kernels {
    /// Bytes of one element of an accumulator.
    pub accumulator_bytes: usize,
    /// `dst[i] = a[i] op b[i]`, `a` being the left operand. Where the accumulator is wider, `dst` and `a` are one
    /// accumulator and `b` has elements of the message.
    ///
    /// Safety: all three buffers hold `count` elements and nobody else writes them (or reads `dst`) meanwhile;
    /// `dst` equals `a`, equals `b`, or is disjoint from them. `a` and `b` may overlap each other unless `dst` is `a`.
    pub fold: FoldFn,
    /// `fold` for a few elements: the same bits without wide vectors, whose loads would wait for a neighbour's narrow
    /// stores to reach the cache and which some processors must wake up first.
    pub fold_few: FoldFn,
    /// `dst[i] = srcs[0][i] op srcs[1][i] op …` into every destination, in one pass over all of them; those in `far` are written
    /// past the caches: what this core does not have in its own and another one may, and results that are larger than the cache.
    /// Only for vectors of which accumulator and result are the same.
    ///
    /// Safety: at least one source; as [`Kernels::fold`] for every destination and all sources; the destinations are
    /// disjoint.
    pub fold_all: Option<FoldAllFn>,
    /// `accumulator[i] = src[i]`.
    ///
    /// Safety: both buffers hold `count` elements and are disjoint; nobody else writes them meanwhile.
    pub widen: Option<WidenFn>,
    /// `dst[i] = accumulator[i]` as the result of `ranks` contributions: rounded, divided.
    ///
    /// Safety: as [`Kernels::widen`].
    pub finish: Option<FinishFn>,
}

impl Kernels {
    /// A fold whose accumulator is of the type of the message.
    pub(super) fn plain(dtype: DType, fold: FoldFn) -> Self {
        let (accumulator_bytes, fold_few) = (dtype.size(), fold);
        Kernels { accumulator_bytes, fold, fold_few, fold_all: None, widen: None, finish: None }
    }
}
