//! Packets between the processes of a node: a ring of slots for every ordered pair of ranks, with one producer and one
//! consumer each, and what a waiting rank needs besides: sleep, detection of dead peers, the group's one error.
//!
//! ```text
//! ring (words, model-checked by loom) -> mapped (lines in memory) -> rings (join, wait, fail)
//! ```
//!
//! `docs/internals/channel.md` lists the words and their orderings.

#[cfg(not(earlybird_loom))]
mod close;
#[cfg(not(earlybird_loom))]
mod fault;
#[cfg(not(earlybird_loom))]
mod layout;
pub mod lines;
#[cfg(not(earlybird_loom))]
mod mapped;
pub mod ring;
#[cfg(not(earlybird_loom))]
mod rings;
#[cfg(not(earlybird_loom))]
mod wait;
#[cfg(not(earlybird_loom))]
mod wait_state;

#[cfg(not(earlybird_loom))]
pub use crate::memory::{MemoryBudget, Peer};
#[cfg(not(earlybird_loom))]
pub use fault::{CallDescription, Fault, FaultRecord};
#[cfg(not(earlybird_loom))]
pub use layout::RingLayout;
#[cfg(not(earlybird_loom))]
pub use rings::{RingOptions, Rings};
