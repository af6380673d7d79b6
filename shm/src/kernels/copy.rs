//! The copies of bytes between a rank's own memory and memory that it shares with others, each for the lengths and processors that it suits.
#![allow(unsafe_code)]

use super::level;
use super::processor::{Level, Maker};

/// Copies at least 32 bytes without a call: in a program that computes between calls, the system's function is not cached.
///
/// # Safety
/// The contract of [`copy`], and `bytes` is at least 32.
#[inline(always)]
pub(super) unsafe fn copy_some(dst: *mut u8, src: *const u8, bytes: usize) {
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
/// The contract of [`copy`].
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

/// Copies `bytes` bytes; the addresses need no alignment.
///
/// # Safety
/// `src` is readable and `dst` writable for `bytes`, nobody else writes meanwhile, and the two are disjoint.
#[inline]
pub unsafe fn copy(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the contract of this function.
    unsafe {
        match bytes {
            ..32 => copy_few(dst, src, bytes),
            32..=MOST_BYTES_WITHOUT_CALL => copy_some(dst, src, bytes),
            _ => match Maker::of_this_processor() {
                Maker::Intel => copy_in_vectors::<false, AHEAD>(dst, src, bytes),
                Maker::Other => copy_in_vectors::<false, 0>(dst, src, bytes),
            },
        }
    }
}

/// Bytes that are copied without a call: exchanges of 1 KiB took 0.87 to 0.94 of the time that they took with the C library's function, which is
/// found cold (`docs/results/2026-11-29.md`). That takes one instruction (`rep movsb`) from 2112 bytes on, which on AMD's Zen 4 copies 2 GB/s
/// instead of 50 where the destination lies a few bytes further in its line than the source, as memory of `malloc` does beside a page
/// (`docs/results/2026-11-25.md`); on Zen 3 exchanges of 16 to 256 KiB mostly took two to five times as long so (`docs/results/2026-11-28.md`).
const MOST_BYTES_WITHOUT_CALL: usize = 2048;

/// Bytes that a copy asks for before it comes to them, on Intel's processors. Two ranks took 0.85 to 0.95 of the time for exchanges of 64
/// and 256 KiB, in pieces of 8 KiB (`docs/results/2026-11-27.md`). On Zen 3 calls of 64 KiB took 0.66 to 1.25 of the time with it, of 2 to
/// 8 KiB 0.9 to 1.5 (`docs/results/2026-11-28.md`).
const AHEAD: usize = 512;

/// Copies past the caches, for results that are larger than the cache. Ordinary stores first read the lines that they replace.
///
/// # Safety
/// The contract of [`copy`].
pub unsafe fn copy_streaming(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the contract of this function.
    unsafe { copy_in_vectors::<true, 0>(dst, src, bytes) }
}

/// Copies by the vectors of the best level.
///
/// # Safety
/// The contract of [`copy`].
#[inline(never)]
unsafe fn copy_in_vectors<const PAST_CACHES: bool, const AHEAD: usize>(dst: *mut u8, src: *const u8, bytes: usize) {
    // SAFETY: the contract of this function; the level was detected.
    unsafe {
        match Level::detected() {
            #[cfg(target_arch = "x86_64")]
            Level::Avx512 => level::copy_avx512::<PAST_CACHES, AHEAD>(dst, src, bytes),
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => level::copy_avx2::<PAST_CACHES, AHEAD>(dst, src, bytes),
            _ => level::copy_portable::<PAST_CACHES, AHEAD>(dst, src, bytes),
        }
    }
}
