//! Shared memory of one node: rendezvous of its processes, the control segment, the arena and its allocator, liveness.
//!
//! [`Segment::attach`] brings the ranks of a job together. Afterwards they share a small control segment ([`Control`]) with
//! an entry per rank, and one arena, a large sparse file of regions. The first region belongs to all ranks; the others are
//! allocated to groups of them ([`Segment::allocate`]).
//! `docs/internals/memory.md` describes the life cycle, and what a killed process leaves behind.

mod agreement;
mod allocation;
mod allocator;
mod allocator_state;
mod announcement;
mod arena;
mod attach;
mod attach_errors;
mod budget;
mod budget_shares;
mod control;
mod control_map;
mod deadline;
mod descriptor;
mod directory;
mod fd_server;
mod grant;
mod headroom;
mod limits;
mod liveness;
mod liveness_word;
mod messages;
mod options;
mod owner_thread;
mod peer;
pub mod probe;
mod process;
mod record_lock;
mod region;
mod rendezvous;
mod segment;
#[doc(hidden)]
pub mod shared_words;
mod sockets;
mod survivors;
#[doc(hidden)]
pub mod table;

pub use agreement::SurvivorsCall;
pub use allocation::{Allocation, BufferUse};
pub use announcement::{announce_end, forget_job, refuse};
pub use budget::{MemoryBudget, Reservation};
pub use control::{CONTROL_BYTES, Control, MAX_RANKS};
pub use directory::sweep;
pub use grant::{AllocationName, BudgetLimits, Claim, Grant, MAX_REGIONS, Origin, POOL_BYTES};
pub use options::{Absent, AttachOptions};
pub use peer::{Peer, PeerState};
pub use region::Region;
pub use segment::Segment;
pub use survivors::{Decision, Vote};
