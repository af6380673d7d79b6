//! Functions that MPI calls whenever it waits, in any of its own functions. Open MPI has a registry of them; MPICH has not.
#![allow(unsafe_code)]

use crate::abi::{self, constants, query};
use crate::dynamic_linker;
use std::ffi::{CStr, c_int};
use std::sync::OnceLock;

/// A function that MPI calls. It returns how much it has completed.
pub type WaitFn = unsafe extern "C" fn() -> c_int;

const REGISTER: &CStr = c"opal_progress_register";
const UNREGISTER: &CStr = c"opal_progress_unregister";

/// Returns whether functions can be registered that make progress in calls of the library. Where several threads are inside MPI at a
/// time, one may wait in a call of a communicator in which another one would make progress, which the library takes for a mistake.
pub fn can_call() -> bool {
    static CAN: OnceLock<bool> = OnceLock::new();
    *CAN.get_or_init(|| {
        // SAFETY: MPI runs; writes one int.
        let level = query(|level| unsafe { abi::PMPI_Query_thread(level) });
        cfg!(open_mpi)
            && level.is_some_and(|level| level != constants().thread_multiple)
            && [REGISTER, UNREGISTER].iter().all(|name| !dynamic_linker::next_function(name).is_null())
    })
}

/// Adds `function` to the registry, if there is one.
pub fn register(function: WaitFn) {
    call_registry(REGISTER, function);
}

/// Removes `function` from the registry.
pub fn unregister(function: WaitFn) {
    call_registry(UNREGISTER, function);
}

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
