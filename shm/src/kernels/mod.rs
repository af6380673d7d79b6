//! The arithmetic of a reduction: `dst[i] = a[i] op b[i]` on raw bytes, vectorised, chosen at run time.
//!
//! Type-erased on purpose: the protocol moves bytes and looks the functions up once per call. Every level of the
//! instruction set gives the same bits for every address, so ranks on different processors agree.
//! One assumption is left to the process: the floating-point control word (rounding, flush-to-zero) is the default.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod body;
mod copy;
mod functions;
mod generic;
mod half;
mod hints;
mod level;
mod portable;
mod processor;
mod scalar;
#[cfg(test)]
mod tests;
mod vector;

use crate::{DType, Op};
pub use copy::{copy, copy_few, copy_streaming};
pub use functions::{FinishFn, FoldAllFn, FoldFn, Kernels, WidenFn};
pub use hints::{fetch_for_reading, fetch_for_writing};
pub use processor::{Level, Maker, past_caches_min_bytes, taking_lines_is_slow};

/// The kernels of the best level of this processor, or `None` where the operator does not exist for the type:
/// [`DType::has`]. A match: a few nanoseconds.
pub fn kernels(dtype: DType, op: Op) -> Option<Kernels> {
    kernels_at(Level::detected(), dtype, op)
}

/// The kernels of one level, or `None` where the processor lacks it or the pair does not exist: for tests and
/// benchmarks.
pub fn kernels_at(level: Level, dtype: DType, op: Op) -> Option<Kernels> {
    if !level.available() {
        return None;
    }
    let found = match level {
        #[cfg(target_arch = "x86_64")]
        Level::Avx512 => level::find_avx512(dtype, op),
        #[cfg(target_arch = "x86_64")]
        Level::Avx2 => level::find_avx2(dtype, op),
        _ => level::find_portable(dtype, op),
    }?;
    let fold_few = match level::few(dtype, if op == Op::Average { Op::Sum } else { op }) {
        Some(few) => few,
        // A conversion by hand would cost more than the wide vectors.
        None if found.widen.is_some() => found.fold,
        None => level::find_portable(dtype, op)?.fold,
    };
    Some(Kernels { fold_few, ..found })
}

/// The function that turns bytes written by other processes into values of the type; `None` if all bytes are values.
pub fn cleaning(dtype: DType) -> Option<FinishFn> {
    if dtype == DType::Bool { kernels(dtype, Op::BitOr).and_then(|kernels| kernels.finish) } else { None }
}
