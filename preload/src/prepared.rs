//! A call that does not block, with all that it needs but its communicator: started once, or again and again.
//!
//! Invariant **M (memory)**: MPI forbids the program to touch a call's buffers while the call is under way.
#![allow(unsafe_code)]

use crate::description::{Lengths, StartDescription, StartKey};
use crate::failure::{CallFailure, CallResult};
use crate::functions::MpiFunction;
use crate::row::{CallSide, RowCopy};
use earlybird::{BorrowedBytes, CollectiveArgs, Communicator, DType, Datatype, Error, MemoryKeeper, Persistent};
use std::ptr;

/// The memory of a call.
pub struct RequestBuffers {
    /// `None` where the result replaces what lies in `recv`.
    pub send: Option<CallSide>,
    pub recv: CallSide,
}

impl RequestBuffers {
    /// No memory.
    pub fn none() -> RequestBuffers {
        RequestBuffers { send: None, recv: CallSide::of_bytes(ptr::null_mut(), 0) }
    }

    /// The bytes of both sides.
    pub fn lengths(&self) -> Lengths {
        (self.send.as_ref().map(|send| send.bytes.len()), self.recv.bytes.len())
    }

    /// The bytes of a call.
    ///
    /// # Safety
    /// M, and both sides lie apart.
    unsafe fn into_bytes(self, dtype: Datatype) -> CallBytes {
        let RequestBuffers { send, recv } = self;
        let sent = send.as_ref().map(|send| send.bytes.cast_const());
        let copies = CallCopies { send: send.and_then(|send| send.copy), recv: recv.copy };
        // SAFETY: M; copies are boxed.
        unsafe { BorrowedBytes::new(sent, recv.bytes, dtype, copies) }
    }
}

/// The sides of a call that are copies of the caller's memory.
pub struct CallCopies {
    send: Option<Box<RowCopy>>,
    recv: Option<Box<RowCopy>>,
}

// SAFETY: M: the caller's memory is nobody else's until the call has ended.
unsafe impl Send for CallCopies {}

impl MemoryKeeper for CallCopies {}

/// The bytes of a call, with their memory.
type CallBytes = BorrowedBytes<CallCopies>;

/// A call that was checked, with its buffers.
pub struct PreparedCall {
    call: Persistent<'static, CallBytes>,
    pub function: MpiFunction,
    /// What it was prepared for, if it is kept when it has ended.
    pub key: Option<StartKey>,
}

impl PreparedCall {
    /// Prepares a call on these buffers.
    ///
    /// # Safety
    /// M of the buffers, and what they send lies apart from what they receive.
    pub unsafe fn new(
        comm: &'static Communicator,
        call: StartDescription<'_>,
        buffers: RequestBuffers,
    ) -> Result<PreparedCall, CallFailure> {
        // Over several nodes it owns copies of its buffers.
        let key = if comm.nodes() == 1 { call.key(buffers.lengths()) } else { None };
        let StartDescription { function, root, counts, dtype, op } = call;
        // SAFETY: by the caller's contract.
        let bytes = unsafe { buffers.into_bytes(dtype) };
        let args = CollectiveArgs::describe(function.collective(), root, counts, bytes, &op);
        Ok(PreparedCall { call: comm.init(args)?, function, key })
    }

    /// Gives a call that is not under way other buffers, of the lengths that it was prepared for.
    ///
    /// # Safety
    /// The contract of `new`.
    pub unsafe fn set_buffers(&mut self, buffers: RequestBuffers, dtype: Datatype) -> CallResult {
        // SAFETY: by the caller's contract.
        *self.call.buffers_mut()? = unsafe { buffers.into_bytes(dtype) };
        Ok(())
    }

    /// Lets go of the buffers of a call that is not under way.
    pub fn forget_buffers(&mut self) -> CallResult {
        // SAFETY: no memory.
        unsafe { self.set_buffers(RequestBuffers::none(), DType::U8.into()) }
    }

    /// Starts the call; waits for no other rank.
    pub fn start(&mut self) -> CallResult {
        if let Some(copy) = &self.call.buffers_mut()?.keeper().send {
            // SAFETY: M, and the call is not under way.
            unsafe { copy.fill()? };
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
                // SAFETY: M.
                Ok(bytes) => bytes.keeper().recv.as_ref().map_or(Ok(()), |copy| unsafe { copy.deliver() }),
                Err(error) => Err(error.into()),
            }),
            Err(error) => Some(Err(error.into())),
        }
    }
}
