//! Failures: deaths, calls that do not fit, latecomers, and damage. Everybody gets one clear error, and nobody hangs.

#[path = "../common/mod.rs"]
mod common;

mod closed_descriptors;
#[cfg(feature = "fault")]
mod crash_at_step;
#[cfg(feature = "fault")]
mod crash_in_split;
mod forked;
#[cfg(feature = "fault")]
mod late_joining;
mod misuse;
mod scribbled;
