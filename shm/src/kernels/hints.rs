//! Hints for cache lines that are needed soon. They read and write nothing.
#![allow(unsafe_code)]

/// Asks for the cache line at `address` in a writable state.
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

/// Asks for the cache line at `address`.
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
