//! The node layer of earlybird: collectives through shared memory among the processes of one node.

#[cfg(not(earlybird_loom))]
pub mod args;
pub mod arrivals;
#[cfg(not(earlybird_loom))]
pub mod bytes;
pub mod bytes_op;
pub mod channel;
#[cfg(not(earlybird_loom))]
mod checked_args;
#[cfg(not(earlybird_loom))]
mod clock;
#[cfg(not(earlybird_loom))]
pub mod comm;
pub mod config;
#[cfg(not(earlybird_loom))]
pub mod engine;
pub mod error;
#[cfg(not(earlybird_loom))]
mod error_codec;
#[cfg(all(feature = "fault", not(earlybird_loom)))]
mod fault_injection;
pub mod kernels;
#[cfg(not(earlybird_loom))]
pub mod layout;
#[cfg(not(earlybird_loom))]
mod mapped;
#[cfg(not(earlybird_loom))]
pub mod memory;
#[cfg(earlybird_loom)]
pub mod model;
pub mod op;
#[cfg(not(earlybird_loom))]
pub mod progress;
pub mod protocol;
#[cfg(not(earlybird_loom))]
mod registration_cache;
#[cfg(not(earlybird_loom))]
pub mod shrink;
pub mod sync;
#[doc(hidden)]
pub mod text;
pub mod user_op;
#[cfg(not(earlybird_loom))]
mod warn;

#[cfg(not(earlybird_loom))]
pub use args::{CallBuffers, CallOptions, CollectiveArgs, Counts, IntoReduceOp, ReduceOp, unpack};
pub use bytes_op::BytesOp;
#[cfg(not(earlybird_loom))]
pub use checked_args::{CheckedArgs, check_root, even_part};
#[cfg(not(earlybird_loom))]
pub use comm::{Completion, Draft, InactiveRequest, JoinOptions, NodeComm, SharedBuffer, SharedView};
pub use config::{Algorithm, WaitPreset, nanoseconds};
#[cfg(not(earlybird_loom))]
pub use engine::enter;
pub use error::Error;
#[cfg(not(earlybird_loom))]
pub use memory::{Absent, MAX_RANKS, announce_end, forget_job, refuse, sweep};
pub use op::{DType, Element, FoldOrder, Indexed, Op};
#[cfg(not(earlybird_loom))]
pub use progress::Progress;
pub use protocol::Report;
pub use protocol::decide::algorithms;
pub use protocol::request_buffers::{GroupedBuffers, OwnedBuffers};
pub use protocol::signature::{Collective, Signature, USER_SIZE_SHIFT};
pub use user_op::UserOp;
#[cfg(not(earlybird_loom))]
pub use warn::warn;
