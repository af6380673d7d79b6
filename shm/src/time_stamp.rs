//! The processor's time-stamp counter, for readings that cost less than those of the monotonic clock: that is the same counter
//! behind a function call, a fence, a lock and a conversion.
#![allow(unsafe_code)]

/// The kernel's own clock.
const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Returns whether the kernel keeps time by the counter. It has then found that the counter runs at one rate in all states of the
/// processor and is the same on all processors, and goes on watching it.
pub fn is_kernel_clock() -> bool {
    let source = || std::fs::read_to_string(CLOCK_SOURCE).unwrap_or_default();
    cfg!(target_arch = "x86_64") && source().trim() == "tsc"
}

/// The counter. It may be read before earlier loads are complete; stores that follow become visible afterwards.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks() -> u64 {
    // SAFETY: C: every x86-64 processor has the instruction, which touches no memory.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The counter, read once all earlier loads are complete.
#[cfg(target_arch = "x86_64")]
#[inline]
pub fn ticks_after_loads() -> u64 {
    // SAFETY: C: every x86-64 processor has the instruction, which touches no memory.
    unsafe { core::arch::x86_64::_mm_lfence() };
    ticks()
}

/// Elsewhere the kernel's clock is another one.
#[cfg(not(target_arch = "x86_64"))]
pub use crate::clock::{now_ns as ticks, now_ns as ticks_after_loads};
