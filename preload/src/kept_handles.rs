//! Operators and derived types that calls under way use. MPI lets the program free them meanwhile, has no copy of an operator, and
//! an operator is to be given the handle of the type that was passed: so the program's MPI_Op_free and MPI_Type_free of such a handle
//! take effect when the last of these calls is gone.
//!
//! Invariant **F (free)**: a handle whose release is deferred is the program's no more, and is freed as often as the program did.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The kind of a handle, which is freed by a function of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum HandleKind {
    Op,
    Type,
}

impl HandleKind {
    /// Frees the handle by MPI.
    ///
    /// # Safety
    /// The handle is the caller's, as MPI demands.
    unsafe fn free(self, handle: *mut Handle) -> c_int {
        // SAFETY: by the caller's contract.
        unsafe {
            match self {
                HandleKind::Op => abi::PMPI_Op_free(handle),
                HandleKind::Type => abi::PMPI_Type_free(handle),
            }
        }
    }

    fn null(self) -> Handle {
        match self {
            HandleKind::Op => constants().null_op,
            HandleKind::Type => constants().null_type,
        }
    }
}

/// The calls that use a handle, and how often the program has freed it since: MPI_Type_get_contents gives one handle again.
#[derive(Default)]
struct Uses {
    calls: usize,
    frees: usize,
}

static USED: Mutex<BTreeMap<(HandleKind, Handle), Uses>> = Mutex::new(BTreeMap::new());

fn used() -> MutexGuard<'static, BTreeMap<(HandleKind, Handle), Uses>> {
    USED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A handle of the program's that stays valid until this is dropped.
pub struct KeptHandle(HandleKind, Handle);

impl KeptHandle {
    /// A handle that is valid now, and not predefined.
    pub fn new(kind: HandleKind, handle: Handle) -> KeptHandle {
        used().entry((kind, handle)).or_default().calls += 1;
        KeptHandle(kind, handle)
    }
}

impl Drop for KeptHandle {
    fn drop(&mut self) {
        let KeptHandle(kind, handle) = *self;
        let mut used = used();
        let Some(uses) = used.get_mut(&(kind, handle)) else { return };
        uses.calls -= 1;
        if uses.calls > 0 {
            return;
        }
        let frees = used.remove(&(kind, handle)).map_or(0, |uses| uses.frees);
        drop(used);
        for _ in 0..if abi::is_running() { frees } else { 0 } {
            let mut freed = handle;
            // SAFETY: F.
            unsafe { kind.free(&mut freed) };
        }
    }
}

/// Frees a handle of the program's, or defers its release if calls use it. Returns MPI's code.
///
/// # Safety
/// A handle as MPI demands of the caller of MPI_Op_free or MPI_Type_free.
pub unsafe fn free(kind: HandleKind, handle: *mut Handle) -> c_int {
    // SAFETY: by the caller's contract.
    if let Some(uses) = used().get_mut(&(kind, unsafe { *handle })) {
        uses.frees += 1;
        // SAFETY: as above.
        unsafe { *handle = kind.null() };
        return 0;
    }
    // SAFETY: by the caller's contract.
    unsafe { kind.free(handle) }
}
