//! The queue of started calls, and the blocking calls that wait for it.

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

struct Task {
    number: u64,
    prepared: Box<Prepared>,
    /// The number of the call among all calls of the communicator, and the name of the exchange between leaders.
    report: (u64, &'static str),
    course: Option<Course>,
    result: Result<(), Error>,
}

/// The started calls of a communicator, in their order.
#[derive(Default)]
pub(crate) struct Queue {
    tasks: VecDeque<Task>,
    started: u64,
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
    fn under_way(&self) -> usize {
        self.tasks.iter().filter(|task| task.course.is_some()).count()
    }

    fn is_settled(&self) -> bool {
        self.under_way() == 0
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
        let (course, runs) = match prepared.begin(&self.hierarchy, (number, call)) {
            Ok(begun) => begun,
            Err(error) => return Err((prepared, error)),
        };
        state.history.add(prepared.signature());
        queue.started += 1;
        let report = (call, runs);
        queue.tasks.push_back(Task { number, prepared, report, course: Some(course), result: Ok(()) });
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
        let at = |queue: &Queue| queue.tasks.iter().position(|task| task.number == number);
        self.wait_until(queue, |queue| at(queue).is_none_or(|at| queue.tasks[at].course.is_none()));
        self.take(queue, number)
    }

    /// The call started under this number, if it has ended by now; never waits.
    pub(crate) fn ask(&self, number: u64) -> Result<Option<TaskCompletion>, Error> {
        let mut queue = self.call()?;
        self.may_call()?;
        let moved = self.advance(&mut queue);
        self.check_peers(&mut queue, moved);
        Ok(self.take(&mut queue, number))
    }

    /// Releases the call started under this number: it is completed inside later calls.
    pub(crate) fn detach(&self, number: u64) {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    /// Makes a blocking call once all started calls have ended; no other call begins before its end.
    pub(crate) fn block<R>(&self, call: impl FnOnce(&Hierarchy) -> Result<R, Error>) -> Result<R, Error> {
        let mut queue = self.queue()?;
        if !queue.tasks.is_empty() {
            self.wait_until(&mut queue, Queue::is_settled);
            self.discard_released(&mut queue);
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

    fn take(&self, queue: &mut Queue, number: u64) -> Option<TaskCompletion> {
        let done = |task: &Task| task.number == number && task.course.is_none();
        let at = queue.tasks.iter().position(done)?;
        let task = queue.tasks.remove(at)?;
        Some((task.prepared, task.result))
    }

    /// Discards the calls that have ended and whose requests were dropped.
    fn discard_released(&self, queue: &mut Queue) {
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if dropped.is_empty() {
            return;
        }
        queue.tasks.retain(|task| task.course.is_some() || !dropped.contains(&task.number));
        dropped.retain(|number| queue.tasks.iter().any(|task| task.number == *number));
    }

    fn wait_until(&self, queue: &mut Queue, is_done: impl Fn(&Queue) -> bool) {
        let pace = Pace::default();
        loop {
            self.hierarchy.turns.waits.store(queue.under_way() == 1, Relaxed);
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

    /// Polls all calls under way, in order. Returns whether one has ended.
    fn advance(&self, queue: &mut Queue) -> bool {
        self.discard_released(queue);
        let mut moved = false;
        for task in &mut queue.tasks {
            let Some(course) = &mut task.course else { continue };
            let mut ended = task.prepared.poll(course);
            if ended.is_pending()
                && let Some(error) = self.job_error()
            {
                // Packets that came before the failure may complete the call.
                ended = task.prepared.poll(course);
                if ended.is_pending() {
                    self.hierarchy.end_node();
                    task.prepared.give_up();
                    ended = Poll::Ready(Err(error));
                }
            }
            let Poll::Ready(result) = ended else { continue };
            (task.result, task.course, moved) = (result, None, true);
            // Calls end in any order, but have contributed in that of their numbers: the last one counts.
            if task.result.is_ok()
                && let Ok(mut state) = self.hierarchy.lock()
                && state.last.is_none_or(|(last, _)| last < task.report.0)
            {
                state.plans.transport_mut().end_call(task.report.0);
                state.last = Some(task.report);
            }
        }
        moved
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
