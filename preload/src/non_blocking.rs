//! Requests of non-blocking calls: one that is complete for a call that has ended in its start; for others generalized requests under
//! Open MPI, and receives under MPICH, since MPI_Waitall of MPICH 4.0.2 ends a program that waits for a generalized request.
//!
//! Invariant **R (request)**: the state of a generalized request is freed by `free_state`, which MPI calls once, after the request is
//! complete at the earliest.
#![allow(unsafe_code)]

use crate::abi::{Handle, constants};
use crate::comm_call::CommCall;
use crate::completion::completed_request;
use crate::failure::CallResult;
use crate::under_way;

/// Starts the call and makes its request. One that has ended by then needs none of its own.
///
/// # Safety
/// `request` is where the caller wants the request.
pub unsafe fn start(mut call: CommCall, request: *mut Handle) -> CallResult {
    // A program may wait even for what has failed to start.
    // SAFETY: by the caller's contract.
    unsafe { *request = constants().null_request };
    call.call.start()?;
    if call.call.has_ended()
        && let Some(result) = call.call.try_end()
    {
        result?;
        call.end(Ok(()));
        // SAFETY: by the caller's contract.
        return unsafe { completed_request(request) };
    }
    // SAFETY: by the caller's contract.
    let on_end = unsafe { new_request(request)? };
    under_way::complete_later(call, on_end);
    Ok(())
}

/// Makes a request; returns the function that completes it.
///
/// # Safety
/// `request` is where the caller wants the request.
#[cfg(not(open_mpi))]
unsafe fn new_request(request: *mut Handle) -> Result<impl FnOnce(CommCall, CallResult), crate::failure::CallFailure> {
    // SAFETY: by the caller's contract.
    let receive = unsafe { crate::completion::Completion::new(request, false)? };
    Ok(move |call: CommCall, result| receive.complete(call.end(result) != 0))
}

#[cfg(open_mpi)]
use generalized::new_request;

#[cfg(open_mpi)]
mod generalized {
    use super::*;
    use crate::abi;
    use crate::failure::CallFailure;
    use std::ffi::{c_int, c_void};

    /// The state of a request of MPI, which has its address.
    struct RequestState {
        /// A call that has ended and its result, until MPI queries the status.
        ended: Option<(CommCall, CallResult)>,
        code: c_int,
    }

    /// The handle of a request, and the address of its state.
    struct GeneralizedRequest(Handle, *mut RequestState);

    // SAFETY: R: nobody else uses the state before the request is complete.
    unsafe impl Send for GeneralizedRequest {}

    impl GeneralizedRequest {
        fn complete(self, call: CommCall, result: CallResult) {
            // SAFETY: R: not complete so far.
            unsafe {
                (*self.1).ended = Some((call, result));
                abi::PMPI_Grequest_complete(self.0);
            }
        }
    }

    /// Makes a request; returns the function that completes it.
    ///
    /// # Safety
    /// `request` is where the caller wants the request.
    pub unsafe fn new_request(request: *mut Handle) -> Result<impl FnOnce(CommCall, CallResult) + Send, CallFailure> {
        let state = Box::into_raw(Box::new(RequestState { ended: None, code: 0 }));
        // SAFETY: MPI runs; the functions are those of the state.
        let code = unsafe { abi::PMPI_Grequest_start(query_status, free_state, refuse_cancel, state.cast(), request) };
        if code != 0 {
            // SAFETY: MPI has not taken it.
            drop(unsafe { Box::from_raw(state) });
            return Err(CallFailure::Mpi(code));
        }
        // SAFETY: written by MPI.
        let new = GeneralizedRequest(unsafe { *request }, state);
        Ok(move |call, result| new.complete(call, result))
    }

    /// Writes the status of a request that is complete.
    unsafe extern "C" fn query_status(state: *mut c_void, status: *mut c_void) -> c_int {
        // SAFETY: R.
        let state = unsafe { &mut *state.cast::<RequestState>() };
        if let Some((call, result)) = state.ended.take() {
            state.code = call.end(result);
        }
        // SAFETY: a status of MPI.
        unsafe { abi::eb_set_status(status, state.code) }
    }

    unsafe extern "C" fn free_state(state: *mut c_void) -> c_int {
        // SAFETY: R.
        drop(unsafe { Box::from_raw(state.cast::<RequestState>()) });
        0
    }

    /// MPI forbids to cancel collectives.
    unsafe extern "C" fn refuse_cancel(_state: *mut c_void, _is_complete: c_int) -> c_int {
        constants().err_request
    }
}
