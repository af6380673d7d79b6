//! Communicators themselves: who is in one, how it comes to be, what it says of its choices, and what becomes of it.

#[path = "../common/mod.rs"]
mod common;

mod explain;
mod groups;
mod job;
mod launchers;
#[cfg(feature = "fault")]
mod shrink;
mod split;
mod trace;
