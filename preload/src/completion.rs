//! Requests of MPI that this library completes. Programs wait for them and test them, among other requests, by all functions that MPI
//! has for that.
//!
//! A request is a receive of no bytes on the communicator of this process alone, which a message completes; that message is one byte
//! too long if the call has failed. Persistent requests are persistent receives. Non-blocking calls under Open MPI have generalized
//! requests instead, which cost less and return the error code; MPI_Waitall of MPICH 4.0.2 ends a program that has one.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::failure::{CallFailure, CallResult};
use crate::progress::{FIRST_CALL_TAG, own_comm};
use std::ffi::c_int;
#[cfg(not(open_mpi))]
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, PoisonError};

/// The largest tag that every MPI has.
const LAST_TAG: c_int = 32767;

/// The tags that are free below the one that has never been used.
static FREE_TAGS: Mutex<(Vec<c_int>, c_int)> = Mutex::new((Vec::new(), FIRST_CALL_TAG));

/// The tag of a receive and of the messages that complete it.
pub struct Completion {
    tag: c_int,
}

impl Completion {
    /// Makes a request, a receive that is started or a persistent one, and its completion.
    ///
    /// # Safety
    /// `request` is where the caller wants the request.
    pub unsafe fn new(request: *mut Handle, is_persistent: bool) -> Result<Completion, CallFailure> {
        let too_many = CallFailure::Argument(constants().err_other, "there are too many requests");
        let completion = Completion { tag: free_tag().ok_or(too_many)? };
        let receive = if is_persistent { abi::PMPI_Recv_init } else { abi::PMPI_Irecv };
        // SAFETY: MPI runs; no bytes are received.
        match unsafe { receive(ptr::null_mut(), 0, constants().byte, 0, completion.tag, own_comm(), request) } {
            0 => Ok(completion),
            code => Err(CallFailure::Mpi(code)),
        }
    }

    /// Completes the receive, which has been started.
    pub fn complete(&self, has_failed: bool) {
        let byte = 0u8;
        // SAFETY: MPI runs; the byte is there, and the receive is posted.
        unsafe {
            abi::PMPI_Send((&raw const byte).cast(), has_failed.into(), constants().byte, 0, self.tag, own_comm())
        };
        #[cfg(not(open_mpi))]
        wake_wait();
    }
}

/// Makes MPICH's wait look at its request again, which it does when a request is completed, but not for a message of a process to
/// itself: completes a generalized request of no meaning.
#[cfg(not(open_mpi))]
fn wake_wait() {
    unsafe extern "C" fn query(_state: *mut c_void, _status: *mut c_void) -> c_int {
        0
    }
    unsafe extern "C" fn free(_state: *mut c_void) -> c_int {
        0
    }
    unsafe extern "C" fn cancel(_state: *mut c_void, _is_complete: c_int) -> c_int {
        0
    }
    let mut request = constants().null_request;
    // SAFETY: MPI runs; the functions use no state.
    unsafe {
        if abi::PMPI_Grequest_start(query, free, cancel, ptr::null_mut(), &mut request) == 0 {
            abi::PMPI_Grequest_complete(request);
            abi::PMPI_Request_free(&mut request);
        }
    }
}

/// Makes a request that is complete: a receive from no process, for which MPI has one that costs next to nothing.
///
/// # Safety
/// `request` is where the caller wants the request.
pub unsafe fn completed_request(request: *mut Handle) -> CallResult {
    let nobody = constants().proc_null;
    // SAFETY: MPI runs; no bytes are received.
    match unsafe { abi::PMPI_Irecv(ptr::null_mut(), 0, constants().byte, nobody, 0, own_comm(), request) } {
        0 => Ok(()),
        code => Err(CallFailure::Mpi(code)),
    }
}

fn free_tag() -> Option<c_int> {
    let (free, next) = &mut *FREE_TAGS.lock().unwrap_or_else(PoisonError::into_inner);
    free.pop().or_else(|| {
        let tag = *next;
        *next += 1;
        (tag <= LAST_TAG).then_some(tag)
    })
}

impl Drop for Completion {
    fn drop(&mut self) {
        FREE_TAGS.lock().unwrap_or_else(PoisonError::into_inner).0.push(self.tag);
    }
}
