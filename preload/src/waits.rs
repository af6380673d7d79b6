//! Functions that MPI calls whenever it waits, in any of its own functions. Open MPI has a registry of them. MPICH has none, but where it
//! communicates by UCX it calls `ucp_worker_progress` whenever it waits, which this library defines in front of UCX's.
#![allow(unsafe_code)]

use crate::abi::{self, constants, query};
#[cfg(open_mpi)]
use crate::dynamic_linker;
#[cfg(open_mpi)]
use std::ffi::CStr;
use std::ffi::c_int;
use std::sync::OnceLock;

/// A function that MPI calls. It returns how much it has completed.
pub type WaitFn = unsafe extern "C" fn() -> c_int;

/// Returns whether functions can be registered that make progress in calls of the library. Where several threads are inside MPI at a
/// time, one may wait in a call of a communicator in which another one would make progress, which the library takes for a mistake.
pub fn can_call() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        // SAFETY: MPI runs; writes one int.
        let level = query(|level| unsafe { abi::PMPI_Query_thread(level) });
        level.is_some_and(|level| level != constants().thread_multiple) && has_calls()
    })
}

#[cfg(open_mpi)]
const REGISTER: &CStr = c"opal_progress_register";
#[cfg(open_mpi)]
const UNREGISTER: &CStr = c"opal_progress_unregister";

#[cfg(open_mpi)]
fn has_calls() -> bool {
    [REGISTER, UNREGISTER].iter().all(|name| !dynamic_linker::next_function(name).is_null())
}

/// Makes MPI call `function` whenever it waits, if it can.
#[cfg(open_mpi)]
pub fn register(function: WaitFn) {
    call_registry(REGISTER, function);
}

/// Ends the calls of `function`.
#[cfg(open_mpi)]
pub fn unregister(function: WaitFn) {
    call_registry(UNREGISTER, function);
}

#[cfg(open_mpi)]
fn call_registry(name: &CStr, function: WaitFn) {
    if !can_call() {
        return;
    }
    // SAFETY: Open MPI's functions of these names take such a function and return an int.
    unsafe {
        let change: unsafe extern "C" fn(WaitFn) -> c_int = std::mem::transmute(dynamic_linker::next_function(name));
        change(function);
    }
}

#[cfg(not(open_mpi))]
pub use ucx::{has_calls, register, unregister};

/// MPICH's waits.
#[cfg(not(open_mpi))]
mod ucx {
    use super::WaitFn;
    use crate::{dynamic_linker, progress, settings};
    use std::ffi::{c_uint, c_void};
    use std::ptr;
    use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

    /// The registered function; null if there is none.
    static REGISTERED: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    /// UCX's own function, which is looked up in the first call; null before.
    static NEXT: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

    /// Returns whether MPI calls UCX when it tests a request. (By what it communicates is chosen when it starts.)
    pub fn has_calls() -> bool {
        progress::poll();
        !NEXT.load(Relaxed).is_null()
    }

    pub fn register(function: WaitFn) {
        REGISTERED.store(function as *mut c_void, Relaxed);
    }

    pub fn unregister(_: WaitFn) {
        REGISTERED.store(ptr::null_mut(), Relaxed);
    }

    /// The function of UCX of this name.
    ///
    /// # Safety
    /// The caller keeps the rules of UCX.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn ucp_worker_progress(worker: *mut c_void) -> c_uint {
        let (registered, mut next) = (REGISTERED.load(Relaxed), NEXT.load(Relaxed));
        if next.is_null() {
            next = dynamic_linker::next_function(c"ucp_worker_progress");
            if next.is_null() {
                settings::die("UCX has no ucp_worker_progress");
            }
            NEXT.store(next, Relaxed);
        }
        // SAFETY: a function of type `WaitFn`, or null; UCX's function of this name, with the argument of the caller.
        unsafe {
            if let Some(function) = std::mem::transmute::<*mut c_void, Option<WaitFn>>(registered) {
                function();
            }
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_void) -> c_uint>(next)(worker)
        }
    }
}
