//! Calls under way, which proceed while the program is elsewhere.
//!
//! Progress comes from MPI, which calls `make_progress` whenever it waits in any function, so a rank that receives a message meanwhile
//! does its part of all calls under way.
#![allow(unsafe_code)]

use crate::comm_call::CommCall;
use crate::failure::CallResult;
use crate::waits;
use std::collections::VecDeque;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

struct UnderWay {
    call: CommCall,
    /// Completes the request of the call, which has ended with this result.
    on_end: Box<dyn FnOnce(CommCall, CallResult) + Send>,
}

/// The calls of one communicator, at least one, in the order in which they were started.
type CommCalls = VecDeque<UnderWay>;

static CALLS: Mutex<Vec<CommCalls>> = Mutex::new(Vec::new());

/// The calls of a communicator, from the first that has not ended, of which any may end next: as many as have their contributions in
/// the memory of a node at a time. A later call cannot end before one of them, but for one over several nodes, which is found to have
/// ended with them.
const MAY_END: usize = 8;

fn calls() -> MutexGuard<'static, Vec<CommCalls>> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The calls under way of the communicator that `call` belongs to, perhaps none, behind which the caller puts at least one.
fn calls_beside<'a>(calls: &'a mut Vec<CommCalls>, call: &CommCall) -> &'a mut CommCalls {
    let is_beside = |calls: &CommCalls| calls.front().is_some_and(|first| Arc::ptr_eq(&first.call.entry, &call.entry));
    let place = calls.iter().position(is_beside).unwrap_or_else(|| {
        calls.push(CommCalls::new());
        calls.len() - 1
    });
    &mut calls[place]
}

/// Asks those calls of a communicator that may end next, in order, and hands over each that has ended; returns how many have. So a
/// step costs the same however many calls are under way. `try_end` is told whether it asks the first call.
fn take_ended<C, R>(
    calls: &mut VecDeque<C>,
    mut try_end: impl FnMut(&mut C, bool) -> Option<R>,
    mut on_end: impl FnMut(C, R),
) -> usize {
    let (mut under_way, mut ended) = (0, 0);
    while under_way < MAY_END
        && let Some(call) = calls.get_mut(under_way)
    {
        match try_end(call, under_way == 0) {
            None => under_way += 1,
            Some(result) => {
                ended += 1;
                if let Some(call) = calls.remove(under_way) {
                    on_end(call, result);
                }
            }
        }
    }
    ended
}

/// Makes progress in a call that was started and has not ended until it has, and calls `on_end` then.
pub fn complete_later(call: CommCall, on_end: impl FnOnce(CommCall, CallResult) + Send + 'static) {
    static REGISTERED: Once = Once::new();
    calls_beside(&mut calls(), &call).push_back(UnderWay { call, on_end: Box::new(on_end) });
    REGISTERED.call_once(|| waits::register(make_progress));
}

/// Removes `make_progress` from MPI's registry, before MPI_Finalize.
pub fn stop() {
    waits::unregister(make_progress);
}

/// Completes the requests of calls that have ended; returns how many. The list is empty meanwhile for MPI's calls of this function while
/// it waits inside this one.
unsafe extern "C" fn make_progress() -> c_int {
    let mut before = std::mem::take(&mut *calls());
    if before.is_empty() {
        return 0;
    }
    // A question to the first call makes progress in all of its communicator.
    let try_end = |asked: &mut UnderWay, is_first| match is_first || asked.call.call.has_ended() {
        true => asked.call.call.try_end(),
        false => None,
    };
    let mut ended = 0;
    before.retain_mut(|calls| {
        ended += take_ended(calls, try_end, |done, result| (done.on_end)(done.call, result));
        !calls.is_empty()
    });
    let mut calls = calls();
    for mut started in std::mem::replace(&mut *calls, before) {
        calls_beside(&mut calls, &started[0].call).append(&mut started);
    }
    ended as c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_questions_for_a_call_do_not_grow_with_the_calls_under_way() {
        for number in [10, 100, 1000] {
            let (mut calls, mut asked, mut ended) = (VecDeque::from_iter(0..number), 0, 0);
            for last in 0..number {
                // One call has ended since the last step.
                let may_end = |call: &mut usize, _| {
                    asked += 1;
                    (*call <= last).then_some(())
                };
                assert_eq!(take_ended(&mut calls, may_end, |call, ()| ended += usize::from(call == last)), 1);
            }
            assert!(ended == number && calls.is_empty() && asked <= number * (1 + MAY_END), "{number}: {asked}");
        }
    }

    #[test]
    fn a_call_need_not_wait_for_those_before() {
        let (mut calls, mut ended) = (VecDeque::from_iter(0..10), Vec::new());
        take_ended(&mut calls, |call, _| (*call != 0).then_some(()), |call, ()| ended.push(call));
        assert_eq!((ended, calls), (Vec::from_iter(1..10), VecDeque::from([0])));
    }
}
