//! One call of an intercepted function, and its two ends: forwarded to MPI with a reason that is counted, or intercepted with a
//! return code.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::comm_cache;
use crate::failure::{CallFailure, CallResult};
use crate::functions::MpiFunction;
use crate::intercepted::InterceptedComm;
use crate::summary::{self, ForwardReason};
use crate::{forwarded, stderr};
use earlybird::Collective;
use std::ffi::c_int;

/// The function, the communicator, and the request of a call that does not block. Functions that are not inlined take the fields, so
/// that those of a small call stay in registers.
#[derive(Clone, Copy)]
pub struct MpiCall {
    pub function: MpiFunction,
    pub comm: Handle,
    pub request: Option<NewRequest>,
}

/// The request that the caller wants, and the address at which it wants the handle.
#[derive(Clone, Copy)]
pub enum NewRequest {
    NonBlocking(*mut Handle),
    Persistent(*mut Handle),
}

impl MpiCall {
    #[inline(always)]
    pub fn collective(self) -> Collective {
        self.function.collective()
    }

    /// Returns the state of the communicator. An error is the reason why the call is forwarded.
    #[inline(always)]
    pub fn intercepted(self) -> Result<&'static InterceptedComm, ForwardReason> {
        match self.request {
            None => comm_cache::get(self.comm),
            Some(NewRequest::NonBlocking(_)) => comm_cache::get_ready(self.comm),
            Some(NewRequest::Persistent(_)) => comm_cache::get(self.comm).and_then(InterceptedComm::startable),
        }
    }

    /// Returns the state of the communicator and the root, if the call has one.
    #[inline(always)]
    pub fn with_root(self, root: Option<c_int>) -> Result<(&'static InterceptedComm, Option<usize>), ForwardReason> {
        let (intercepted, root) = (self.intercepted()?, root.map(|root| root as usize));
        match root.is_none_or(|root| root < intercepted.size) {
            true => Ok((intercepted, root)),
            false => Err(ForwardReason::Argument),
        }
    }

    /// Counts the call, with a block of `count` elements unless an argument is invalid, as one that is forwarded to MPI, records it in
    /// a trace, and returns `None`, which makes the caller forward it.
    #[inline(always)]
    pub fn forward<T>(self, reason: ForwardReason, count: i64, dtype: Handle) -> Option<T> {
        count_forwarded((self.function, self.comm, self.request), reason, count, dtype);
        None
    }

    /// Returns the return code of the call, which was intercepted.
    #[inline(always)]
    pub fn finish(self, result: CallResult) -> Option<c_int> {
        Some(return_code(self.function, self.comm, result))
    }
}

/// Counts a call that is forwarded, and records its arrival.
#[inline]
fn count_forwarded(
    (function, comm, request): (MpiFunction, Handle, Option<NewRequest>),
    reason: ForwardReason,
    count: i64,
    dtype: Handle,
) {
    let bytes = || match count {
        1.. if reason != ForwardReason::Argument => count as usize * abi::type_size(dtype).unwrap_or(0),
        _ => 0,
    };
    summary::count_forwarded(function, reason, bytes);
    if forwarded::is_recorded(reason) {
        match request {
            None => forwarded::begin(comm, function.collective(), bytes()),
            Some(NewRequest::NonBlocking(_)) => forwarded::start(comm, function.collective(), bytes()),
            // Its calls are made by MPI_Start, and are MPI's own.
            Some(NewRequest::Persistent(_)) => {}
        }
    }
}

/// Refuses MPI_IN_PLACE on a rank that is not the root.
#[inline(always)]
pub fn check_not_in_place(is_in_place: bool) -> CallResult {
    let what = "MPI_IN_PLACE on a rank that is not the root";
    match is_in_place {
        false => Ok(()),
        true => Err(CallFailure::Argument(constants().err_buffer, what)),
    }
}

/// Returns the return code of an intercepted call.
#[inline]
pub fn return_code(function: MpiFunction, comm: Handle, result: CallResult) -> c_int {
    match result {
        Ok(()) => 0,
        Err(failure) => report(function, comm, failure),
    }
}

/// Prints the failure and calls the communicator's error handler, which by default ends the job.
#[cold]
fn report(function: MpiFunction, comm: Handle, failure: CallFailure) -> c_int {
    comm_cache::note_failure(comm);
    let code = match failure {
        CallFailure::Mpi(code) => return code,
        CallFailure::Argument(code, what) => {
            stderr::print_and_drain(&format!("earlybird: {}: {what}", function.name()));
            code
        }
        CallFailure::Earlybird(error) => {
            stderr::print_and_drain(&format!("earlybird: {}: {} {error}", function.name(), error.code()));
            constants().err_other
        }
    };
    // SAFETY: MPI runs and the communicator is the caller's.
    unsafe { abi::PMPI_Comm_call_errhandler(comm, code) };
    code
}
