//! Progress of the program's own messages while a rank waits in this library: a test of a request on a communicator of this process alone.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::settings;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

/// The tag of copies on the communicator of this process alone.
pub const COPY_TAG: c_int = 0;
/// The tag of the receive that no message matches.
const UNMATCHED_TAG: c_int = 1;
/// The first tag of the receives that are requests of calls.
pub const FIRST_CALL_TAG: c_int = 2;

/// Returns a communicator of this process alone, for this library only.
pub fn own_comm() -> Handle {
    static OWN_COMM: OnceLock<Handle> = OnceLock::new();
    *OWN_COMM.get_or_init(|| {
        let mut own = constants().null_comm;
        // SAFETY: MPI runs: a call of it is under way. Writes one handle; its errors are those of requests of calls that failed.
        match unsafe { abi::PMPI_Comm_dup(constants().comm_self, &mut own) | abi::eb_return_errors(own) } {
            0 => own,
            _ => settings::die("MPI_Comm_dup of MPI_COMM_SELF failed"),
        }
    })
}

/// The receive that no message matches.
static UNMATCHED: Mutex<Option<Handle>> = Mutex::new(None);

/// Tests the receive, in which MPI makes progress on all messages. (In MPICH a probe does not, on a communicator of one rank.) Returns
/// at once while another thread does the same.
pub fn poll() {
    let Ok(mut pending) = UNMATCHED.try_lock() else { return };
    let request = pending.get_or_insert_with(|| {
        let mut request = constants().null_request;
        // SAFETY: MPI runs: a rank waits inside a call of it. No message means no buffer. Writes one handle.
        let code = unsafe {
            abi::PMPI_Irecv(ptr::null_mut(), 0, constants().integer, 0, UNMATCHED_TAG, own_comm(), &mut request)
        };
        if code != 0 {
            settings::die("MPI_Irecv failed");
        }
        request
    });
    // SAFETY: MPI runs; the request is pending, and this thread alone uses it. The status is one that MPI ignores.
    let _ = abi::query(|flag| unsafe { abi::PMPI_Test(request, flag, constants().ignore_status) });
}

/// Cancels the receive, before MPI_Finalize.
pub fn stop() {
    let mut pending = UNMATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut request) = pending.take() {
        // SAFETY: MPI runs; the request is pending, and is not used again.
        unsafe {
            abi::PMPI_Cancel(&mut request);
            abi::PMPI_Wait(&mut request, constants().ignore_status);
        }
    }
}
