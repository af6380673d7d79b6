//! The two ends of a call: forwarded to MPI with a reason that is counted, or intercepted with a return code.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::comm_cache;
use crate::functions::MpiFunction;
use crate::stderr;
use crate::summary::{self, ForwardReason};
use earlybird::Error;
use std::ffi::c_int;

/// The error of an intercepted call.
#[derive(Debug)]
pub enum CallFailure {
    /// An error of earlybird.
    Earlybird(Error),
    /// An error code of MPI, which has already called the communicator's error handler.
    Mpi(c_int),
    /// Invalid arguments: the class of MPI's error, and a description.
    Argument(c_int, &'static str),
}

/// The result of an intercepted call.
pub type CallResult = Result<(), CallFailure>;

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        CallFailure::Earlybird(error)
    }
}

/// Counts a call that is forwarded to MPI, and returns `None`, which makes the caller forward it.
#[inline]
pub fn forward<T>(call: MpiFunction, reason: ForwardReason, count: i64, dtype: Handle) -> Option<T> {
    summary::count_forwarded(call, reason, || match count {
        1.. => count as usize * abi::type_size(dtype).unwrap_or(0),
        _ => 0,
    });
    None
}

/// Return code of an intercepted call.
#[inline]
pub fn return_code(call: MpiFunction, comm: Handle, result: CallResult) -> c_int {
    match result {
        Ok(()) => 0,
        Err(failure) => report(call, comm, failure),
    }
}

/// Prints the failure and calls the communicator's error handler, which by default ends the job.
#[cold]
fn report(call: MpiFunction, comm: Handle, failure: CallFailure) -> c_int {
    comm_cache::note_failure(comm);
    let code = match failure {
        CallFailure::Mpi(code) => return code,
        CallFailure::Argument(code, what) => {
            stderr::print_and_drain(&format!("earlybird: {}: {what}", call.name()));
            code
        }
        CallFailure::Earlybird(error) => {
            stderr::print_and_drain(&format!("earlybird: {}: {} {error}", call.name(), error.code()));
            constants().err_other
        }
    };
    // SAFETY: MPI runs and the communicator is the caller's.
    unsafe { abi::PMPI_Comm_call_errhandler(comm, code) };
    code
}
