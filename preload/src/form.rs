//! The form of an intercepted call: blocking, or non-blocking with a request. One function intercepts both.

use crate::abi::Handle;
use crate::comm_cache;
use crate::functions::MpiFunction;
use crate::intercepted::InterceptedComm;
use crate::summary::ForwardReason;

/// The form of a call.
#[derive(Debug, Clone, Copy)]
pub enum Form {
    Blocking,
    /// The address at which the caller wants the request.
    NonBlocking(*mut Handle),
}

impl Form {
    /// The function of this form, given the blocking one.
    #[inline(always)]
    pub fn of(self, blocking: MpiFunction) -> MpiFunction {
        match self {
            Form::Blocking => blocking,
            Form::NonBlocking(_) => blocking.non_blocking(),
        }
    }

    /// Returns the state of `comm`. An error is the reason why the call is forwarded.
    #[inline(always)]
    pub fn comm(self, comm: Handle) -> Result<&'static InterceptedComm, ForwardReason> {
        match self {
            Form::Blocking => comm_cache::get(comm),
            Form::NonBlocking(_) => comm_cache::get_ready(comm),
        }
    }
}
