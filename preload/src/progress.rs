//! A communicator of this process alone, and what lets MPI look after the messages that the process has under way.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::settings;
use std::ffi::c_int;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

/// Tags in the private communicator: of copies, and of the message that never comes.
pub const COPIES: c_int = 0;
const NEVER: c_int = 1;

/// A communicator of this process alone that nobody else knows.
pub fn private() -> Handle {
    static PRIVATE: OnceLock<Handle> = OnceLock::new();
    *PRIVATE.get_or_init(|| {
        let mut private = constants().no_comm;
        // SAFETY: MPI runs: a call of it is under way. Writes one handle.
        match unsafe { abi::PMPI_Comm_dup(constants().this, &mut private) } {
            0 => private,
            _ => settings::die("MPI_Comm_dup of MPI_COMM_SELF failed"),
        }
    })
}

/// A receive that no message matches.
static PENDING: Mutex<Option<Handle>> = Mutex::new(None);

/// Tests the receive: MPI makes progress with everything then. (A probe does not in MPICH, where the communicator has
/// one rank.) While one thread does, others need not.
pub fn drive() {
    let Ok(mut pending) = PENDING.try_lock() else { return };
    let request = pending.get_or_insert_with(|| {
        let mut request = constants().no_request;
        // SAFETY: MPI runs: a rank waits inside a call of it. No message means no buffer. Writes one handle.
        let code =
            unsafe { abi::PMPI_Irecv(ptr::null_mut(), 0, constants().integer, 0, NEVER, private(), &mut request) };
        if code != 0 {
            settings::die("MPI_Irecv failed");
        }
        request
    });
    // SAFETY: as above; the request is pending, and this thread alone uses it. The status is one that MPI ignores.
    let _ = abi::asked(|flag| unsafe { abi::PMPI_Test(request, flag, constants().ignore_status) });
}

/// Takes the receive back, before MPI_Finalize.
pub fn stop() {
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(mut request) = pending.take() {
        // SAFETY: MPI runs; the request is pending, and after this nobody has it.
        unsafe {
            abi::PMPI_Cancel(&mut request);
            abi::PMPI_Wait(&mut request, constants().ignore_status);
        }
    }
}
