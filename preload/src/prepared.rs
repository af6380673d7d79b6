//! A call that does not block, with all that it needs: started once, or again and again.
//!
//! Invariant **M (memory)**: MPI forbids the program to touch a call's buffers while the call is under way.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::call::{CallResult, return_code};
use crate::comm_cache;
use crate::functions::MpiFunction;
use crate::intercepted::CommEntry;
use crate::row::{CallMemory, KeptRow};
use earlybird::{BorrowedBytes, Error, MemoryKeeper, Persistent};
use std::ffi::c_int;
use std::sync::Arc;

/// The memory of a call.
pub struct RequestBuffers {
    /// `None` where the result replaces what lies in `recv`.
    pub send: Option<CallMemory>,
    pub recv: CallMemory,
    /// The caller's blocks that are copied to `send` when the call is started, if it is a copy.
    pub copy_from: Option<KeptRow>,
    /// The caller's blocks that the result is copied to, if it lies in a copy.
    pub deliver_to: Option<KeptRow>,
}

// SAFETY: M: the caller's memory is nobody else's until the call has ended.
unsafe impl Send for RequestBuffers {}

impl MemoryKeeper for RequestBuffers {}

impl RequestBuffers {
    /// Copies the result to the caller's blocks, if it does not lie there.
    fn deliver(&self) -> CallResult {
        match (&self.deliver_to, &self.recv) {
            // SAFETY: M.
            (Some(kept), CallMemory::Owned(result)) => unsafe { kept.row.unpack(result) },
            _ => Ok(()),
        }
    }
}

/// The bytes of a call, with their memory.
pub type CallBytes = BorrowedBytes<RequestBuffers>;

/// A call with all that it needs; its communicator lives as long.
pub struct PreparedCall {
    call: Persistent<'static, CallBytes>,
    /// The copy of what is sent, if there is one: the vector of its buffers.
    copy: Option<*mut [u8]>,
    pub function: MpiFunction,
    comm: Handle,
    /// The communicator may be freed before the call has ended.
    pub entry: Arc<CommEntry>,
}

// SAFETY: the copy belongs to the buffers of the call, which may be sent.
unsafe impl Send for PreparedCall {}

impl PreparedCall {
    /// A call that is not started; `copy` is the vector of its buffers that is filled at each start, if there is one.
    pub fn new(
        call: Persistent<'static, CallBytes>,
        copy: Option<*mut [u8]>,
        (function, comm): (MpiFunction, Handle),
        entry: Arc<CommEntry>,
    ) -> Self {
        PreparedCall { call, copy, function, comm, entry }
    }

    /// Starts the call; waits for no other rank.
    pub fn start(&mut self) -> CallResult {
        let buffers = self.call.buffers_mut()?.keeper();
        if let (Some(kept), Some(copy)) = (&buffers.copy_from, self.copy) {
            // SAFETY: M; the call is not under way, so nobody else uses the copy.
            unsafe { kept.row.pack(&mut *copy)? };
        }
        Ok(self.call.start()?)
    }

    /// Returns whether the call has ended by what is known; `try_end` makes progress in all calls of the communicator.
    pub fn has_ended(&self) -> bool {
        self.call.has_ended()
    }

    /// Returns the result of the call if it has ended, after delivering it.
    pub fn try_end(&mut self) -> Option<CallResult> {
        match self.call.try_wait() {
            // Another call of the communicator waits, in which MPI makes progress.
            Ok(false) | Err(Error::Usage { .. }) => None,
            Ok(true) => Some(match self.call.buffers_mut() {
                Ok(bytes) => bytes.keeper().deliver(),
                Err(error) => Err(error.into()),
            }),
            Err(error) => Some(Err(error.into())),
        }
    }

    /// Returns the return code of the call; a failure is reported to the communicator.
    pub fn return_code(&self, result: CallResult) -> c_int {
        // The error handler of a communicator that was freed is unknown.
        let comm = if comm_cache::is_state(self.comm, &self.entry) { self.comm } else { constants().world };
        return_code(self.function, comm, result)
    }
}
