//! Packets between the processes of a node: a ring of slots for every ordered pair of ranks, one producer and one
//! consumer each, and what a waiting rank needs besides: sleep, news of dead peers, the group's one error.
//!
//! ```text
//! lane (ring words, what loom checks) -> mapped (where they lie) -> group (join, wait, fail)
//! ```
//!
//! `docs/rings.md` has the words and their orderings.

#[cfg(not(earlybird_loom))]
mod close;
#[cfg(not(earlybird_loom))]
mod fault;
#[cfg(not(earlybird_loom))]
mod group;
pub mod lane;
#[cfg(not(earlybird_loom))]
mod layout;
pub mod lines;
#[cfg(not(earlybird_loom))]
mod mapped;
#[cfg(not(earlybird_loom))]
mod wait;

#[cfg(not(earlybird_loom))]
pub use crate::segment::{Peer, Purse};
#[cfg(not(earlybird_loom))]
pub use fault::{Fault, Said, Verdict};
#[cfg(not(earlybird_loom))]
pub use group::{RingOptions, Rings};
