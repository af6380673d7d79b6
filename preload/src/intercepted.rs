//! A communicator whose calls are intercepted, and the entry that MPI keeps of each communicator.

use crate::handles::{PredefinedHandles, TypeOpTable};
use crate::kept_calls::KeptCalls;
use crate::selection::Selection;
use crate::summary::ForwardReason;
use earlybird::Communicator;
use earlybird::trace::OutsideCalls;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock};

/// The state of one communicator of MPI.
pub struct CommEntry {
    /// Dropped before the communicator that they belong to.
    pub kept_calls: KeptCalls,
    /// The communicator, or the reason why its calls are forwarded.
    pub state: Result<InterceptedComm, ForwardReason>,
    /// Calls that were forwarded for `ForwardReason::FirstCalls`: the same number on all ranks, which make the same calls.
    pub first_calls: AtomicU64,
    /// Persistent requests that exist, active or not.
    pub persistent_requests: AtomicUsize,
    /// The calls that MPI carries out, once one of them was to be recorded; nothing for an intercommunicator.
    pub forwarded: OnceLock<Option<OutsideCalls>>,
}

impl CommEntry {
    pub fn new(state: Result<InterceptedComm, ForwardReason>) -> Arc<CommEntry> {
        Arc::new(CommEntry {
            kept_calls: KeptCalls::default(),
            state,
            first_calls: AtomicU64::new(0),
            persistent_requests: AtomicUsize::new(0),
            forwarded: OnceLock::new(),
        })
    }
}

/// A communicator whose calls are intercepted. The fields that a small call reads come first, in one cache line.
#[repr(C, align(64))]
pub struct InterceptedComm {
    pub type_ops: &'static TypeOpTable,
    pub selection: Selection,
    pub comm: Communicator,
    pub rank: usize,
    pub size: usize,
    pub handles: &'static PredefinedHandles,
    /// A number that no other communicator of these processes has.
    pub key: u64,
    /// Its processes by rank, each by its random number.
    pub processes: Box<[u64]>,
    /// True if non-blocking and persistent calls are intercepted, on all ranks.
    pub starts_calls: bool,
    /// Set when a call has failed on this rank.
    pub has_failed: AtomicBool,
}

impl InterceptedComm {
    /// Returns the communicator if its non-blocking and persistent calls are intercepted.
    pub fn startable(&self) -> Result<&InterceptedComm, ForwardReason> {
        match self.starts_calls {
            true => Ok(self),
            false => Err(ForwardReason::NonBlocking),
        }
    }
}
