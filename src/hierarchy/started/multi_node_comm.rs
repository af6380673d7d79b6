//! The queue of started calls, and the blocking calls that wait for it.

use super::due::Due;
use super::prepared::{Course, Prepared};
use crate::Error;
use crate::hierarchy::{Hierarchy, State};
use earlybird_shm::engine::{Drive, Pace};
use earlybird_shm::enter;
use std::collections::VecDeque;
use std::fmt;
use std::ops::Deref;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Poll;
use std::thread::{self, ThreadId};
use std::time::Duration;

/// Passes of a wait that only yield the CPU; after them a rank sleeps in each pass.
const YIELDS: u32 = 500;
/// The shortest and the longest sleep of a pass.
const SHORT_SLEEP: Duration = Duration::from_micros(50);
const LONG_SLEEP: Duration = Duration::from_micros(400);

/// The end of a started call, with its buffers.
pub(crate) type TaskCompletion = (Box<Prepared>, Result<(), Error>);

/// A call under way.
struct Task {
    number: u64,
    prepared: Box<Prepared>,
    /// The number of the call among all calls of the communicator, and the name of the exchange between leaders.
    report: (u64, &'static str),
    course: Course,
    /// True if its request was dropped: no caller takes its result.
    is_released: bool,
}

/// The started calls of a communicator, in their order.
#[derive(Default)]
pub(crate) struct Queue {
    tasks: VecDeque<Task>,
    /// The calls that have ended and were not taken, in the order of their numbers.
    ended: VecDeque<(u64, TaskCompletion)>,
    started: u64,
    /// The number of the first call that was never polled.
    unpolled: u64,
    /// Passes since a call last ended: the peers are checked by this count.
    passes: u32,
    /// The thread that was inside a call last.
    user: Option<ThreadId>,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("tasks", &self.tasks.len()).field("started", &self.started).finish()
    }
}

impl Queue {
    fn is_settled(&self) -> bool {
        self.tasks.is_empty()
    }

    /// The place of a call that is under way.
    fn find(&self, number: u64) -> Option<usize> {
        self.tasks.binary_search_by_key(&number, |task| task.number).ok()
    }

    /// The place of a call that has ended.
    fn find_ended(&self, number: u64) -> Option<usize> {
        self.ended.binary_search_by_key(&number, |(number, _)| *number).ok()
    }

    /// Removes a call that has ended.
    fn take(&mut self, number: u64) -> Option<TaskCompletion> {
        let place = self.find_ended(number)?;
        self.ended.remove(place).map(|(_, completion)| completion)
    }

    /// Keeps the result of the call at this place, which has ended, for its caller. Returns its report.
    fn end(&mut self, place: usize, result: Result<(), Error>) -> Option<(u64, &'static str)> {
        let Task { number, prepared, report, is_released, .. } = self.tasks.remove(place)?;
        if !is_released {
            let behind = self.ended.partition_point(|(earlier, _)| *earlier < number);
            self.ended.insert(behind, (number, (prepared, result)));
        }
        Some(report)
    }
}

/// The nodes of a communicator with its started calls, which end when it is dropped.
#[derive(Debug)]
pub(crate) struct MultiNodeComm {
    hierarchy: Arc<Hierarchy>,
    queue: Mutex<Queue>,
    /// Numbers of calls whose requests were dropped.
    dropped: Mutex<Vec<u64>>,
}

impl MultiNodeComm {
    pub(crate) fn new(hierarchy: Hierarchy) -> Self {
        MultiNodeComm { hierarchy: Arc::new(hierarchy), queue: Mutex::default(), dropped: Mutex::default() }
    }

    /// Starts a call and returns its number. Never waits for another rank.
    pub(crate) fn start(&self, prepared: Box<Prepared>) -> Result<u64, (Box<Prepared>, Error)> {
        let (mut queue, number) = self.enlist(prepared)?;
        self.advance(&mut queue);
        Ok(number)
    }

    /// Starts a call and completes it.
    pub(crate) fn run(&self, prepared: Box<Prepared>) -> TaskCompletion {
        match self.enlist(prepared) {
            Ok((mut queue, number)) => self.complete(&mut queue, number).expect("what was started"),
            Err((prepared, error)) => (prepared, Err(error)),
        }
    }

    /// Starts a call behind those that are started, without progress.
    fn enlist(&self, mut prepared: Box<Prepared>) -> Result<(MutexGuard<'_, Queue>, u64), (Box<Prepared>, Error)> {
        let (mut queue, mut state) = match self.call().and_then(|queue| Ok((queue, self.may_start()?))) {
            Ok(entered) => entered,
            Err(error) => return Err((prepared, error)),
        };
        let (number, call) = (queue.started, state.history.calls + 1);
        let (course, runs) = match prepared.begin((number, call)) {
            Ok(begun) => begun,
            Err(error) => return Err((prepared, error)),
        };
        state.history.add(prepared.signature());
        queue.started += 1;
        let report = (call, runs);
        queue.tasks.push_back(Task { number, prepared, report, course, is_released: false });
        Ok((queue, number))
    }

    /// The call started under this number, when it has ended.
    pub(crate) fn finish(&self, number: u64) -> Result<TaskCompletion, Error> {
        let mut queue = self.call()?;
        self.may_call()?;
        self.complete(&mut queue, number)
            .ok_or_else(|| Error::usage(format!("no call was started under the number {number}")))
    }

    fn complete(&self, queue: &mut Queue, number: u64) -> Option<TaskCompletion> {
        self.wait_until(queue, |queue| queue.find(number).is_none());
        queue.take(number)
    }

    /// The call started under this number, if it has ended by now; never waits.
    pub(crate) fn ask(&self, number: u64) -> Result<Option<TaskCompletion>, Error> {
        let mut queue = self.call()?;
        self.may_call()?;
        let moved = self.advance(&mut queue);
        self.check_peers(&mut queue, moved);
        Ok(queue.take(number))
    }

    /// Returns whether the call started under this number has ended, by what was found so far: makes no progress.
    pub(crate) fn has_ended(&self, number: u64) -> bool {
        self.queue().is_ok_and(|queue| queue.find_ended(number).is_some())
    }

    /// Releases the call started under this number: it is completed inside later calls.
    pub(crate) fn detach(&self, number: u64) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    /// Makes a blocking call once all started calls have ended; no other call begins before its end.
    pub(crate) fn block<R>(&self, call: impl FnOnce(&Hierarchy) -> Result<R, Error>) -> Result<R, Error> {
        let mut queue = self.queue()?;
        if !queue.is_settled() {
            self.wait_until(&mut queue, Queue::is_settled);
        }
        call(&self.hierarchy)
    }

    /// The queue, for a call of this thread, which counts as its user.
    fn call(&self) -> Result<MutexGuard<'_, Queue>, Error> {
        let mut queue = self.queue()?;
        queue.user = Some(thread::current().id());
        Ok(queue)
    }

    fn queue(&self) -> Result<MutexGuard<'_, Queue>, Error> {
        enter(&self.queue)
    }

    fn may_call(&self) -> Result<(), Error> {
        self.hierarchy.lock()?.plans.transport_mut().may_call()
    }

    /// The state, if another call may start.
    fn may_start(&self) -> Result<MutexGuard<'_, State>, Error> {
        let mut state = self.hierarchy.lock()?;
        if let Some(error) = state.plans.failed() {
            return Err(error.clone());
        }
        state.plans.transport_mut().may_call()?;
        Ok(state)
    }

    /// Discards the calls whose requests were dropped, those under way when they have ended.
    fn discard_released(&self, queue: &mut Queue) {
        for number in std::mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner)) {
            match queue.find(number) {
                Some(place) => queue.tasks[place].is_released = true,
                None => drop(queue.take(number)),
            }
        }
    }

    fn wait_until(&self, queue: &mut Queue, is_done: impl Fn(&Queue) -> bool) {
        let pace = Pace::default();
        loop {
            self.hierarchy.turns.waits.store(queue.tasks.len() == 1, Relaxed);
            let moved = self.advance(queue);
            self.hierarchy.turns.waits.store(false, Relaxed);
            if is_done(queue) {
                return;
            }
            pace.drive();
            self.check_peers(queue, moved);
            self.rest(queue.passes);
        }
    }

    /// Yields the CPU or sleeps, after the user's progress function in long waits.
    fn rest(&self, passes: u32) {
        if passes > YIELDS
            && let Ok(state) = self.hierarchy.lock()
            && let Some(progress) = &state.progress
        {
            progress.run();
        }
        match passes {
            0..=YIELDS => thread::yield_now(),
            _ => thread::sleep((SHORT_SLEEP * (passes - YIELDS)).min(LONG_SLEEP)),
        }
    }

    /// Checks the other nodes in a caller that waits for a call or tests it, also for deaths and deadlines. `moved` is whether
    /// a call has just ended.
    fn check_peers(&self, queue: &mut Queue, moved: bool) {
        queue.passes = if moved || queue.is_settled() { 0 } else { queue.passes.saturating_add(1) };
        if queue.passes > 0
            && let Ok(mut state) = self.hierarchy.lock()
        {
            // Its error is seen in the next pass.
            let _ = state.plans.transport_mut().check(queue.passes);
        }
    }

    /// Polls the calls under way that may have something to do, in order. Returns whether one has ended.
    fn advance(&self, queue: &mut Queue) -> bool {
        self.discard_released(queue);
        let (mut due, mut moved, turns) = (Due::new(), false, &self.hierarchy.turns);
        while let Some(place) = due.next(
            &queue.tasks,
            |task| task.number,
            [turns.deliver.load(Relaxed), turns.exchange.load(Relaxed), queue.unpolled],
        ) {
            match self.poll(queue, place) {
                true => moved = true,
                false => due.pass(),
            }
        }
        queue.unpolled = queue.started;
        if !queue.is_settled()
            && let Some(error) = self.job_error()
        {
            self.fail_all(queue, &error);
            return true;
        }
        moved
    }

    /// Ends all calls under way with the error of the job, but for those that packets complete which came before the failure.
    fn fail_all(&self, queue: &mut Queue, error: &Error) {
        while !queue.is_settled() {
            if !self.poll(queue, 0) {
                self.hierarchy.end_node();
                queue.tasks[0].prepared.give_up();
                queue.end(0, Err(error.clone()));
            }
        }
    }

    /// Polls the call at this place. Returns whether it has ended.
    fn poll(&self, queue: &mut Queue, place: usize) -> bool {
        let Task { prepared, course, .. } = &mut queue.tasks[place];
        let Poll::Ready(result) = prepared.poll(course) else { return false };
        let is_ok = result.is_ok();
        let report = queue.end(place, result);
        // Calls end in any order, but have contributed in that of their numbers: the last one counts.
        if let Some(report) = report.filter(|_| is_ok)
            && let Ok(mut state) = self.hierarchy.lock()
            && state.last.is_none_or(|(last, _)| last < report.0)
        {
            state.plans.transport_mut().end_call(report.0);
            state.last = Some(report);
        }
        true
    }

    /// The error of the job, also where another rank has reported it.
    fn job_error(&self) -> Option<Error> {
        let mut state = self.hierarchy.lock().ok()?;
        let _ = state.plans.transport_mut().check(0);
        state.plans.failed().cloned()
    }
}

impl Deref for MultiNodeComm {
    type Target = Arc<Hierarchy>;

    fn deref(&self) -> &Arc<Hierarchy> {
        &self.hierarchy
    }
}

/// Progress by the progress engine, while a thread waits in another communicator.
impl Drive for MultiNodeComm {
    fn drive(&self) -> bool {
        match self.queue.try_lock() {
            Ok(_) if self.hierarchy.deliver.is_forked() => false,
            Ok(mut queue) => {
                let was_here_last = queue.user == Some(thread::current().id());
                let may = |mut state: MutexGuard<'_, State>| state.plans.transport_mut().may_be_driven(was_here_last);
                if self.hierarchy.lock().is_ok_and(may) {
                    self.advance(&mut queue);
                }
                !queue.is_settled()
            }
            Err(TryLockError::WouldBlock) => true,
            Err(TryLockError::Poisoned(_)) => false,
        }
    }
}

/// Completes the started calls, which other ranks may need, unless this thread is panicking.
impl Drop for MultiNodeComm {
    fn drop(&mut self) {
        if !thread::panicking()
            && let Ok(mut queue) = self.queue()
        {
            self.wait_until(&mut queue, Queue::is_settled);
        }
    }
}
