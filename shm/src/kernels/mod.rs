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
mod functions;
mod generic;
mod half;
mod level;
mod portable;
mod scalar;
#[cfg(test)]
mod tests;
mod vector;

use crate::{DType, Op};
pub use functions::{FinishFn, FoldAllFn, FoldFn, Kernels, WidenFn};
use std::sync::OnceLock;

/// Instruction sets that the kernels are compiled for, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Level {
    /// The instructions of every processor of the architecture.
    Portable = 0,
    /// x86-64 with AVX2 and F16C.
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

    /// Returns whether this processor and its operating system can run the level.
    pub fn available(self) -> bool {
        match self {
            Level::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("f16c"),
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

/// Bytes of a message from which its result is better written past the caches: one MiB on Intel's processors (2 MiB of
/// cache per core: slower at 256 KiB, 9 to 35 % faster from there on), two on others (EPYC, 1 MiB per core and 32 MiB for
/// two: at 1 MiB ordinary stores take 0.62 to 0.78 of the time, from 2 MiB on neither is always faster).
pub fn streaming_min_bytes() -> usize {
    if is_intel() { 1 << 20 } else { 2 << 20 }
}

/// Returns whether a result of so many bytes that is moved, not reduced, is better written past the caches: where also a program that reads it
/// right afterwards gains. On an EPYC such a call took 0.5 to 0.7 of the time from 4 MiB on, with the reading 0.53 to 0.95; of 2 MiB
/// 0.4 to 1.2, with the reading up to 1.7 (`docs/results/2026-11-27.md`). On Intel's processors it was not measured.
pub fn moves_past_caches(bytes: usize) -> bool {
    bytes >= 2 * streaming_min_bytes()
}

/// Returns whether a store whose line other processors have in their caches takes much longer than one whose line nobody has: on all
/// processors but Intel's, where that was not measured.
pub fn taking_lines_is_slow() -> bool {
    !is_intel()
}

/// Returns whether the processor is made by Intel; asked once, which under a hypervisor takes as long as a call.
fn is_intel() -> bool {
    static IS_INTEL: OnceLock<bool> = OnceLock::new();
    #[cfg(target_arch = "x86_64")]
    let ask = || {
        // SAFETY: every x86-64 processor has the instruction. Newer compilers know that and call the function safe.
        #[allow(unused_unsafe)]
        let leaf = unsafe { std::arch::x86_64::__cpuid(0) };
        [leaf.ebx, leaf.edx, leaf.ecx].map(u32::to_le_bytes).as_flattened() == b"GenuineIntel"
    };
    #[cfg(not(target_arch = "x86_64"))]
    let ask = || false;
    *IS_INTEL.get_or_init(ask)
}

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

/// Copies at least 32 bytes without a call: in a program that computes between calls, the system's function is not cached.
///
/// # Safety
/// As [`copy`], and `bytes` is at least 32.
#[inline(always)]
pub unsafe fn copy_some(dst: *mut u8, src: *const u8, bytes: usize) {
    debug_assert!(bytes >= 32);
    // The last block overlaps what was copied before.
    let block = |at: usize| {
        // SAFETY: the caller's contract; every block ends at `bytes` or before.
        unsafe { dst.add(at).cast::<[u64; 4]>().write_unaligned(src.add(at).cast::<[u64; 4]>().read_unaligned()) }
    };
    let mut at = 0;
    while at + 32 < bytes {
        block(at);
        at += 32;
    }
    block(bytes - 32);
}

/// Copies a few bytes without a call.
///
/// # Safety
/// As [`copy`].
#[inline(always)]
pub unsafe fn copy_few(dst: *mut u8, src: *const u8, bytes: usize) {
    /// # Safety
    /// The bytes of a `T` at `at` are readable and writable.
    #[inline(always)]
    unsafe fn word<T>(dst: *mut u8, src: *const u8, at: usize) {
        // SAFETY: the contract of this function.
        unsafe { dst.add(at).cast::<T>().write_unaligned(src.add(at).cast::<T>().read_unaligned()) }
    }
    // The last word of each size overlaps bytes copied before: two stores and no loop for most lengths.
    // SAFETY: all accesses lie in `0..bytes`, which the contract makes readable and writable.
    unsafe {
        match bytes {
            0 => {}
            1..4 => {
                word::<u8>(dst, src, 0);
                word::<u8>(dst, src, bytes / 2);
                word::<u8>(dst, src, bytes - 1);
            }
            4..8 => {
                word::<u32>(dst, src, 0);
                word::<u32>(dst, src, bytes - 4);
            }
            _ => {
                let mut at = 0;
                while at + 8 < bytes {
                    word::<u64>(dst, src, at);
                    at += 8;
                }
                word::<u64>(dst, src, bytes - 8);
            }
        }
    }
}

/// Asks for the cache line at `address` in a writable state. A hint: it reads and writes nothing.
#[inline(always)]
pub fn fetch_for_writing(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHW never faults and has no architectural effect; processors without it execute it as a no-op.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Asks for the cache line at `address`. A hint, as above.
#[inline(always)]
pub fn fetch_for_reading(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHT0 never faults and has no architectural effect.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Copies `bytes` bytes; the addresses need no alignment.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes`, nobody else writes meanwhile, and the two are disjoint.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the contract of this function.
    unsafe {
        match bytes {
            PIECE_BYTES.. if !is_intel() => copy_in_pieces(dst, src, bytes),
            _ => std::ptr::copy_nonoverlapping(src, dst, bytes),
        }
    }
}

/// Bytes that the C library copies by vectors, whatever processor it knows: from some size on, 4 KiB and more, it takes one instruction
/// (`rep movsb`), which copies 2 GB/s instead of 50 on AMD's Zen 4 where the destination lies a few bytes further in its line than the
/// source, as memory of `malloc` does beside a page (`docs/results/2026-11-25.md`). On Intel's processors the instruction is the faster
/// way between two cores: a move of 64 KiB takes 1.2 to 1.7 times as long in pieces (`docs/results/2026-11-26.md`).
const PIECE_BYTES: usize = 2048;

/// # Safety
/// As [`copy`].
#[inline(never)]
unsafe fn copy_in_pieces(mut dst: *mut u8, mut src: *const u8, mut bytes: usize) {
    while bytes > 0 {
        // Opaque to the compiler, which would make one copy of a loop of equal ones.
        let piece = std::hint::black_box(bytes.min(PIECE_BYTES));
        // SAFETY: both buffers hold the rest, of which this is the first part.
        unsafe {
            std::ptr::copy_nonoverlapping(src, dst, piece);
            (dst, src) = (dst.add(piece), src.add(piece));
        }
        bytes -= piece;
    }
}

/// As [`copy`], the destination written past the caches: for results that are larger than the cache. Ordinary stores
/// first read the lines that they replace.
///
/// # Safety
/// As [`copy`].
pub unsafe fn copy_streaming(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the contract of this function; the level was detected.
    unsafe {
        match Level::detected() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => level::copy_avx512(dst, src, bytes),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => level::copy_avx2(dst, src, bytes),
            _ => level::copy_portable(dst, src, bytes),
        }
    }
}
