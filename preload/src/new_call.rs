//! A new call that does not block, prepared from the arguments of MPI, and the request that the program gets for it.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::call::{CallFailure, CallResult, NewRequest};
use crate::functions::MpiFunction;
use crate::intercepted::InterceptedComm;
use crate::prepared::{CallBytes, PreparedCall, RequestBuffers};
use crate::row::CallMemory;
use crate::{comm_cache, non_blocking, persistent};
use earlybird::{BorrowedBytes, CollectiveArgs, Counts, Datatype, SharedReduceOp};

/// The description of a call that does not block; the counts are in elements of `dtype`.
pub struct NewCall<'a> {
    pub intercepted: &'static InterceptedComm,
    pub function: MpiFunction,
    pub comm: Handle,
    pub root: Option<usize>,
    pub counts: Counts<'a>,
    pub dtype: Datatype,
    pub op: SharedReduceOp,
}

impl NewCall<'_> {
    /// Makes the request of the call on these buffers; a non-blocking call is started.
    ///
    /// # Safety
    /// The buffers are what MPI demands of the caller, and `request` is where it wants the request.
    #[cold]
    pub unsafe fn begin(self, buffers: RequestBuffers, request: NewRequest) -> CallResult {
        let call = Box::new(self.prepare(buffers)?);
        // SAFETY: by the caller's contract.
        unsafe {
            match request {
                NewRequest::NonBlocking(request) => non_blocking::start(call, request),
                NewRequest::Persistent(request) => persistent::create(call, request),
            }
        }
    }

    fn prepare(self, mut buffers: RequestBuffers) -> Result<PreparedCall, CallFailure> {
        let lost = CallFailure::Argument(constants().err_other, "the communicator has no state");
        let entry = comm_cache::hold(self.comm).ok_or(lost)?;
        let (send, recv) = (buffers.send.as_mut().map(CallMemory::bytes), buffers.recv.bytes());
        let copy = send.filter(|_| buffers.copy_from.is_some());
        // SAFETY: M of `prepared`; the two lie apart, and vectors stay where they are when `buffers` moves.
        let bytes: CallBytes =
            unsafe { BorrowedBytes::new(send.map(<*mut [u8]>::cast_const), recv, self.dtype, buffers) };
        let args = CollectiveArgs::describe(self.function.collective(), self.root, self.counts, bytes, &self.op);
        let call = self.intercepted.comm.init(args)?;
        Ok(PreparedCall::new(call, copy, (self.function, self.comm), entry))
    }
}
