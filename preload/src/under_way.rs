//! Calls under way, which proceed while the program is elsewhere.
//!
//! Progress comes from MPI, which calls `make_progress` whenever it waits in any function, so a rank that receives a message meanwhile
//! does its part of all calls under way.
#![allow(unsafe_code)]

use crate::call::CallResult;
use crate::prepared::PreparedCall;
use crate::waits;
use std::ffi::c_int;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Completes the request of a call that has ended with this result.
type OnEnd = Box<dyn FnOnce(Box<PreparedCall>, CallResult) + Send>;

struct UnderWay {
    call: Box<PreparedCall>,
    on_end: OnEnd,
}

static CALLS: Mutex<Vec<UnderWay>> = Mutex::new(Vec::new());

fn calls() -> MutexGuard<'static, Vec<UnderWay>> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl UnderWay {
    /// Completes the request if the call has ended; returns a call that has not.
    fn advance(mut self) -> Option<UnderWay> {
        let Some(result) = self.call.try_end() else { return Some(self) };
        (self.on_end)(self.call, result);
        None
    }
}

/// Makes progress in a call that was started until it has ended, and calls `on_end` then, perhaps at once.
pub fn complete_later(call: Box<PreparedCall>, on_end: OnEnd) {
    static REGISTERED: Once = Once::new();
    if let Some(call) = (UnderWay { call, on_end }).advance() {
        calls().push(call);
        REGISTERED.call_once(|| waits::register(make_progress));
    }
}

/// Removes `make_progress` from MPI's registry, before MPI_Finalize.
pub fn stop() {
    waits::unregister(make_progress);
}

/// Completes the requests of calls that have ended; returns how many. The list is empty meanwhile for MPI's calls of this function while
/// it waits inside this one.
unsafe extern "C" fn make_progress() -> c_int {
    let before = std::mem::take(&mut *calls());
    if before.is_empty() {
        return 0;
    }
    let count = before.len();
    let mut left: Vec<UnderWay> = before.into_iter().filter_map(UnderWay::advance).collect();
    let ended = count - left.len();
    let mut calls = calls();
    left.append(&mut calls);
    *calls = left;
    ended as c_int
}
