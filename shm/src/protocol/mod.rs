//! The node protocol: how the ranks of one node carry out an operation through shared words. See `docs/internals/protocol.md`.
//!
//! ```text
//! arrive -> decide -> fold (flat, leader, chain, slices, static_leader) -> publish -> leave
//! arrive -> exchange (geometry; announced, announced_gather and announced_scatter, where each rank knows its own lengths) -> leave
//! start -> progress (slices or exchange) -> leave
//! ```
//!
//! Rules, cited by number elsewhere:
//!
//! 1. Words only move forward; nothing is reset. A word of another epoch means "nothing yet".
//! 2. Written by several ranks, by read-modify-write only: the arrival word, the fold words (a rank that holds one
//!    busy may store), the sleepers and event words, the poison word. Every other line has one writer.
//! 3. A rank writes memory of operation `e` only when all have left the operation that used that memory before:
//!    `e - SLOTS` for a slot's lines, `e - AREAS` for an area, as many back as they have turns for small deposits.
//! 4. A rank never waits while it holds a fold word busy.
//! 5. A wait looks at completion first, at the poison word second, and when slow at the peers it waits for.
//! 6. No decision that ranks must share depends on observed times, but for those in the arrival word.
//! 7. `left` is the last operation before all active ones of its rank: started operations become complete in any order.
//! 8. A wait that no rank can end any more fails the group, whatever values the words have.
//! 9. Bounds come from the agreed signature; nothing read from shared memory is used as an index unchecked.

pub mod active_request;
mod algorithm;
mod arrive;
pub mod board;
pub mod borrowed_bytes;
pub mod call;
pub mod collective;
pub mod decide;
mod deposit;
mod dispatch;
mod end;
mod event;
mod fast_gather;
mod fast_pairs;
mod fast_path;
mod fast_scatter;
mod fast_start;
mod fault;
pub mod geometry;
pub mod lengths;
pub mod lines;
mod member;
mod operation;
mod patience;
pub mod payload;
pub mod pieces;
mod polling;
mod publish;
pub mod request_buffers;
mod request_queue;
mod reuse;
pub mod rotation;
mod scratch;
pub mod shared_result;
pub mod signature;
pub mod started;
pub mod step;
mod store_pace;
#[cfg(not(earlybird_loom))]
pub mod stuck;
mod wait;
pub mod wait_counts;
pub mod window;
pub mod word;

pub(crate) use arrive::take_place;
pub use fault::NAMED_MOST;
pub use member::Member;
pub use operation::{Report, Stop};
pub use patience::Patience;
