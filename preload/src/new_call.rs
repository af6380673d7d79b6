//! A new call that does not block, prepared from the arguments of MPI, and the request that the program gets for it.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::call::NewRequest;
use crate::comm_call::CommCall;
use crate::description::StartDescription;
use crate::failure::{CallFailure, CallResult};
use crate::intercepted::InterceptedComm;
use crate::prepared::{PreparedCall, RequestBuffers};
use crate::{comm_cache, non_blocking, persistent};

/// A call that does not block, of a communicator.
pub struct NewCall<'a> {
    pub intercepted: &'static InterceptedComm,
    pub comm: Handle,
    pub call: StartDescription<'a>,
}

impl NewCall<'_> {
    /// Makes the request of the call on these buffers; a non-blocking call is started.
    ///
    /// # Safety
    /// The buffers are what MPI demands of the caller, and `request` is where it wants the request.
    #[inline(never)]
    pub unsafe fn begin(self, buffers: RequestBuffers, request: NewRequest) -> CallResult {
        let NewCall { intercepted, comm, call } = self;
        let lost = CallFailure::Argument(constants().err_other, "the communicator has no state");
        let entry = comm_cache::hold(comm).ok_or(lost)?;
        // SAFETY: by the caller's contract: M of `prepared`; what is sent and received lies apart.
        let call = unsafe {
            match entry.kept_calls.take(&call, buffers.lengths()) {
                Some(mut kept) => kept.set_buffers(buffers, call.dtype).map(|()| kept)?,
                None => Box::new(PreparedCall::new(&intercepted.comm, call, buffers)?),
            }
        };
        let call = CommCall { call, comm, entry };
        // SAFETY: by the caller's contract.
        unsafe {
            match request {
                NewRequest::NonBlocking(request) => non_blocking::start(call, request),
                NewRequest::Persistent(request) => persistent::create(call, request),
            }
        }
    }
}
