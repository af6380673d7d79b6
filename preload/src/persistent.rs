//! Persistent calls: MPI_Start and MPI_Startall start them, MPI_Request_free frees them. All other functions see the receives that are
//! their requests.
#![allow(unsafe_code)]

use crate::abi::{self, Handle};
use crate::comm_call::CommCall;
use crate::completion::Completion;
use crate::failure::CallResult;
use crate::intercepted::CommEntry;
use crate::under_way;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A persistent call that was not freed.
struct PersistentCall {
    receive: Arc<Completion>,
    /// `None` while it is under way.
    inactive: Option<CommCall>,
    entry: Arc<CommEntry>,
}

/// The calls by their requests.
static CALLS: Mutex<BTreeMap<Handle, PersistentCall>> = Mutex::new(BTreeMap::new());
/// The number of calls: most programs have no persistent calls.
static LEN: AtomicUsize = AtomicUsize::new(0);

fn calls() -> MutexGuard<'static, BTreeMap<Handle, PersistentCall>> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for PersistentCall {
    fn drop(&mut self) {
        self.entry.persistent_requests.fetch_sub(1, Relaxed);
    }
}

/// Returns whether there are no persistent calls.
pub fn is_empty() -> bool {
    LEN.load(Relaxed) == 0
}

/// Makes the request of a call, which is inactive.
///
/// # Safety
/// `request` is where the caller wants the request.
pub unsafe fn create(call: CommCall, request: *mut Handle) -> CallResult {
    // SAFETY: by the caller's contract; written by `Completion::new`.
    let (receive, request) = unsafe { (Arc::new(Completion::new(request, true)?), *request) };
    let entry = call.entry.clone();
    entry.persistent_requests.fetch_add(1, Relaxed);
    let mut calls = calls();
    calls.insert(request, PersistentCall { receive, inactive: Some(call), entry });
    LEN.store(calls.len(), Relaxed);
    Ok(())
}

/// Starts the call of this request and returns the return code; `None` if it is not an inactive call of this library, and MPI is to
/// start it.
///
/// # Safety
/// A request as MPI demands of the caller of MPI_Start.
pub unsafe fn start(request: *mut Handle) -> Option<c_int> {
    if is_empty() {
        return None;
    }
    // SAFETY: by the caller's contract.
    let handle = unsafe { *request };
    let (mut call, receive) = {
        let mut calls = calls();
        let found = calls.get_mut(&handle)?;
        (found.inactive.take()?, found.receive.clone())
    };
    if let Err(failure) = call.call.start() {
        let code = call.return_code(Err(failure));
        put_back(handle, &receive, call);
        return Some(code);
    }
    // SAFETY: MPI runs; a persistent receive that is inactive.
    let code = unsafe { abi::PMPI_Start(request) };
    let on_end = move |call: CommCall, result| {
        let code = call.return_code(result);
        put_back(handle, &receive, call);
        receive.complete(code != 0);
    };
    match call.call.try_end() {
        Some(result) => on_end(call, result),
        None => under_way::complete_later(call, on_end),
    }
    Some(code)
}

/// Makes the call of this request inactive; one that was freed meanwhile is dropped, though another call may have its request's handle.
fn put_back(request: Handle, receive: &Arc<Completion>, call: CommCall) {
    if let Some(found) = calls().get_mut(&request).filter(|found| Arc::ptr_eq(&found.receive, receive)) {
        found.inactive = Some(call);
    }
}

/// Forgets the call of a request that is freed, if it has one. A call under way goes on.
///
/// # Safety
/// A request as MPI demands of the caller of MPI_Request_free.
pub unsafe fn free(request: *const Handle) {
    if is_empty() {
        return;
    }
    let freed = {
        let mut calls = calls();
        // SAFETY: by the caller's contract.
        let freed = calls.remove(unsafe { &*request });
        LEN.store(calls.len(), Relaxed);
        freed
    };
    // Without the lock: leaving a group takes a while.
    drop(freed);
}

/// Forgets all calls, before MPI_Finalize.
pub fn free_all() {
    let all = std::mem::take(&mut *calls());
    LEN.store(0, Relaxed);
    drop(all);
}
