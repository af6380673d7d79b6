//! The node layer of earlybird: collectives through shared memory among the processes of one node.
//!
//! Programs use it by the crate `earlybird`, which has the types of this root. [`arrivals`] stands by itself, with
//! [`sync`] to model-check code that uses it. Everything else is public for the other crates of earlybird only: it is
//! not documented here and may change in any version.

#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod args;
pub mod arrivals;
#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod bytes;
#[doc(hidden)]
pub mod bytes_op;
#[cfg(not(earlybird_loom))]
mod call_buffers;
#[doc(hidden)]
pub mod channel;
#[cfg(not(earlybird_loom))]
mod checked_args;
#[cfg(not(earlybird_loom))]
mod clock;
#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod comm;
#[doc(hidden)]
pub mod config;
#[cfg(not(earlybird_loom))]
mod constructors;
#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod engine;
#[doc(hidden)]
pub mod error;
#[doc(hidden)]
#[cfg_attr(earlybird_loom, allow(dead_code))]
pub mod error_codec;
#[cfg(all(feature = "fault", not(earlybird_loom)))]
mod fault_injection;
#[doc(hidden)]
pub mod kernels;
#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod layout;
#[cfg(not(earlybird_loom))]
mod mapped;
#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod mapped_file;
#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod memory;
#[doc(hidden)]
#[cfg(earlybird_loom)]
#[path = "memory/modelled.rs"]
pub mod memory;
#[doc(hidden)]
#[cfg(earlybird_loom)]
pub mod model;
#[doc(hidden)]
pub mod named;
#[doc(hidden)]
pub mod op;
#[cfg(not(earlybird_loom))]
mod owned_args;
#[cfg(not(earlybird_loom))]
mod peer_memory;
#[cfg(not(earlybird_loom))]
mod placed_args;
#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod progress;
#[doc(hidden)]
pub mod protocol;
#[cfg(not(earlybird_loom))]
mod reduce_op;
#[cfg(not(earlybird_loom))]
mod registration_cache;
#[cfg(not(earlybird_loom))]
mod shared_buffer;
#[cfg(not(earlybird_loom))]
mod shared_view;
#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod shrink;
pub mod sync;
#[doc(hidden)]
pub mod text;
#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub mod time_stamp;
#[doc(hidden)]
pub mod user_op;
#[cfg(not(earlybird_loom))]
mod warn;

pub use bytes_op::BytesOp;
pub use config::{Algorithm, WaitPreset};
pub use error::Error;
pub use op::{DType, Element, FoldOrder, Indexed, Op};
pub use protocol::collective::Collective;
pub use protocol::request_buffers::{BufferOwner, Grouped};
pub use user_op::UserOp;
#[cfg(not(earlybird_loom))]
pub use {
    args::{CollectiveArgs, Counts},
    call_buffers::IntoCallBuffers,
    owned_args::OwnedArgs,
    progress::Progress,
    reduce_op::IntoReduceOp,
    shared_buffer::SharedBuffer,
    shared_view::SharedView,
};

#[doc(hidden)]
#[cfg(not(earlybird_loom))]
pub use {
    args::CallOptions,
    call_buffers::CallBuffers,
    checked_args::{CheckedArgs, check_root, even_part},
    clock::now_ns,
    comm::{Completion, Draft, InactiveRequest, JoinOptions, NodeComm},
    constructors::unpack,
    engine::enter,
    memory::{Absent, MAX_RANKS, announce_end, forget_job, probe, refuse, sweep},
    owned_args::{OwnedCall, WithoutBuffers},
    reduce_op::{ReduceOp, SharedReduceOp},
    shared_buffer::MemoryKeeper,
    warn::warn,
};
#[doc(hidden)]
pub use {
    config::nanoseconds,
    protocol::Report,
    protocol::borrowed_bytes::BorrowedBytes,
    protocol::collective::{Prefix, Side, Traits},
    protocol::decide::{SelectionRule, Thresholds, folds_in_rank_order},
    protocol::request_buffers::{BufferRole, OwnedBuffers, OwnedBytes},
    protocol::signature::{Signature, USER_SIZE_SHIFT},
    protocol::started::Started,
};
