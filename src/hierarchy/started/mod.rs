//! Calls over several nodes that are started now and completed later.
//!
//! A started call is a future over the steps of the blocking one (`begin.rs`), which the communicator polls in every `test`,
//! `wait` and later call, and the progress engine while a thread waits elsewhere; it never waits itself. Its data are copies, so
//! that its owner's buffers are there whatever happens.
//!
//! ```text
//! in the node     give 0 | give 1 | give 2           started one after the other as the calls are
//! between leaders          ~~ 0 ~~ ~~ 1 ~~ ~~ 2 ~~   one at a time
//! in the node                      take 0   take 1   started in the order of calls, in a group of their own
//! ```
//!
//! So every rank of a node starts the same operations in the same order in either group, whatever is complete when, and leaders
//! exchange in the order of calls. A rank that only starts has given what the others of its node need; a leader that is in no
//! call of the library holds up the exchange, as it does in a blocking call. A blocking call begins when all that was started
//! before has ended.

mod again;
mod begin;
mod driven;
mod prepared;
mod steps;

use super::Hierarchy;
use crate::Error;
pub(crate) use driven::MultiNodeComm;
use earlybird_shm::engine::Pace;
use earlybird_shm::{NodeComm, Progress, enter};
pub(crate) use prepared::Prepared;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::Poll;
use std::thread::{self, ThreadId};
use std::time::Duration;
pub(super) use steps::Steps;

/// Passes that only look again, then passes that give the CPU away, before a waiting rank naps.
const YIELDS: u32 = 500;
/// The shortest and the longest nap.
const NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_micros(400);

/// A started call on its way to the bytes of its receive buffer.
type Work = Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>> + Send>>;

/// What carries on with a call.
enum Course {
    /// A future of this start.
    Anew(Work),
    /// What the call keeps.
    Kept,
}

/// The end of a started call, with its buffers.
pub(crate) type TaskCompletion = (Box<Prepared>, Result<(), Error>);

struct Task {
    number: u64,
    node: Arc<NodeComm>,
    prepared: Box<Prepared>,
    /// Its number among all calls of the communicator, and what runs between leaders.
    report: (u64, &'static str),
    course: Option<Course>,
    result: Result<(), Error>,
}

/// The started calls of a communicator, in their order.
#[derive(Default)]
pub(crate) struct Queue {
    tasks: VecDeque<Task>,
    started: u64,
    /// Passes since something last ended, in whichever calls: the peers are looked after by how long nothing has.
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

/// The turns of started calls, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Turns {
    exchange: AtomicU64,
    deliver: AtomicU64,
}

/// Everything started calls need of their communicator.
#[derive(Debug)]
pub(super) struct StartedCalls {
    queue: Mutex<Queue>,
    /// Numbers of calls whose requests were dropped.
    dropped: Mutex<Vec<u64>>,
    turns: Turns,
    /// Whether what is polled may wait for other ranks: only while its caller waits for it and nothing else is under way.
    waits: AtomicBool,
    /// The node's ranks once more, for what leaders give them.
    deliver: NodeComm,
}

impl StartedCalls {
    pub(super) fn new(deliver: NodeComm) -> Self {
        StartedCalls {
            queue: Mutex::default(),
            dropped: Mutex::default(),
            turns: Turns::default(),
            waits: AtomicBool::new(false),
            deliver,
        }
    }

    pub(super) fn set_progress(&self, progress: Option<Progress>) -> Result<(), Error> {
        self.deliver.set_progress(progress)
    }

    /// Fails the node's ranks in what their leader gives them.
    pub(super) fn fail(&self, error: &Error) {
        self.deliver.fail(error);
    }

    pub(super) fn set_deadline(&self, deadline: Option<Duration>) -> Result<(), Error> {
        self.deliver.set_deadline(deadline)
    }
}

impl Hierarchy {
    /// Starts a call and gives the number to ask for it by. Never waits for another rank.
    pub(crate) fn start(
        self: &Arc<Self>,
        node: &Arc<NodeComm>,
        prepared: Box<Prepared>,
    ) -> Result<u64, (Box<Prepared>, Error)> {
        let (mut queue, number) = self.enlist(node, prepared)?;
        self.advance(&mut queue);
        Ok(number)
    }

    /// Starts a call and completes it.
    pub(crate) fn run(self: &Arc<Self>, node: &Arc<NodeComm>, prepared: Box<Prepared>) -> TaskCompletion {
        match self.enlist(node, prepared) {
            Ok((mut queue, number)) => self.complete(&mut queue, number).expect("what was started"),
            Err((prepared, error)) => (prepared, Err(error)),
        }
    }

    /// Puts a call behind those that are started.
    fn enlist(
        self: &Arc<Self>,
        node: &Arc<NodeComm>,
        mut prepared: Box<Prepared>,
    ) -> Result<(MutexGuard<'_, Queue>, u64), (Box<Prepared>, Error)> {
        let (mut queue, calls) = match self.call().and_then(|queue| Ok((queue, self.may_start()?))) {
            Ok(entered) => entered,
            Err(error) => return Err((prepared, error)),
        };
        let number = queue.started;
        let (course, runs) = match prepared.begin((self, node), (number, calls + 1)) {
            Ok(begun) => begun,
            Err(error) => return Err((prepared, error)),
        };
        if let Ok(mut state) = self.lock() {
            state.calls += 1;
        }
        queue.started += 1;
        let report = (calls + 1, runs);
        let node = node.clone();
        queue.tasks.push_back(Task { number, node, prepared, report, course: Some(course), result: Ok(()) });
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

    /// The same if it has ended by now; never waits.
    pub(crate) fn ask(&self, number: u64) -> Result<Option<TaskCompletion>, Error> {
        let mut queue = self.call()?;
        self.may_call()?;
        let moved = self.advance(&mut queue);
        self.look_after(&mut queue, moved);
        Ok(self.take(&mut queue, number))
    }

    /// Releases the call started under this number: it is completed inside later calls.
    pub(crate) fn detach(&self, number: u64) {
        self.started.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    /// Waits for everything that was started; no call begins before the guard is dropped.
    pub(super) fn settle(&self) -> Result<MutexGuard<'_, Queue>, Error> {
        let mut queue = self.queue()?;
        if !queue.tasks.is_empty() {
            self.wait_until(&mut queue, Queue::is_settled);
            self.let_go(&mut queue);
        }
        Ok(queue)
    }

    /// The same at the end, unless this thread is panicking: others may need what was started.
    pub(crate) fn end_started(&self) {
        let Ok(mut queue) = self.queue() else {
            // Nothing goes on after a panic; what was under way holds this.
            if let Err(TryLockError::Poisoned(queue)) = self.started.queue.try_lock() {
                queue.into_inner().tasks.clear();
            }
            return;
        };
        if !thread::panicking() {
            self.wait_until(&mut queue, Queue::is_settled);
        }
        queue.tasks.clear();
    }

    /// A call of this thread about what is started.
    fn call(&self) -> Result<MutexGuard<'_, Queue>, Error> {
        let mut queue = self.queue()?;
        queue.user = Some(thread::current().id());
        Ok(queue)
    }

    fn queue(&self) -> Result<MutexGuard<'_, Queue>, Error> {
        enter(&self.started.queue)
    }

    fn may_call(&self) -> Result<(), Error> {
        self.lock()?.plans.transport_mut().may_call()
    }

    /// How many calls there were.
    fn may_start(&self) -> Result<u64, Error> {
        let mut state = self.lock()?;
        match state.plans.failed() {
            Some(error) => Err(error.clone()),
            None => state.plans.transport_mut().may_call().map(|()| state.calls),
        }
    }

    fn take(&self, queue: &mut Queue, number: u64) -> Option<TaskCompletion> {
        let done = |task: &Task| task.number == number && task.course.is_none();
        let at = queue.tasks.iter().position(done)?;
        let task = queue.tasks.remove(at)?;
        Some((task.prepared, task.result))
    }

    /// Forgets the calls that have ended and whose requests were dropped.
    fn let_go(&self, queue: &mut Queue) {
        let mut dropped = self.started.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if dropped.is_empty() {
            return;
        }
        queue.tasks.retain(|task| task.course.is_some() || !dropped.contains(&task.number));
        dropped.retain(|number| queue.tasks.iter().any(|task| task.number == *number));
    }

    fn wait_until(&self, queue: &mut Queue, is_done: impl Fn(&Queue) -> bool) {
        let elsewhere = Pace::default();
        loop {
            self.started.waits.store(queue.under_way() == 1, Relaxed);
            let moved = self.advance(queue);
            self.started.waits.store(false, Relaxed);
            if is_done(queue) {
                return;
            }
            elsewhere.drive();
            self.look_after(queue, moved);
            self.rest(queue.passes);
        }
    }

    /// Gives the CPU away.
    fn rest(&self, passes: u32) {
        if passes > YIELDS
            && let Ok(state) = self.lock()
            && let Some(progress) = &state.progress
        {
            progress.run();
        }
        match passes {
            0..=YIELDS => thread::yield_now(),
            _ => thread::sleep((NAP * (passes - YIELDS)).min(LONG_NAP)),
        }
    }

    /// Looks after the other nodes in a caller that waits or asks for what is under way, `moved` saying whether something has
    /// just ended: one that only ever asks has to learn of a death or a deadline too.
    fn look_after(&self, queue: &mut Queue, moved: bool) {
        queue.passes = if moved || queue.is_settled() { 0 } else { queue.passes.saturating_add(1) };
        if queue.passes > 0
            && let Ok(mut state) = self.lock()
        {
            // The findings show in the next pass.
            let _ = state.plans.transport_mut().look(queue.passes);
        }
    }

    /// Polls everything that is under way, in order; whether something ended.
    fn advance(&self, queue: &mut Queue) -> bool {
        self.let_go(queue);
        let mut moved = false;
        for task in &mut queue.tasks {
            let Some(course) = &mut task.course else { continue };
            // What came before a failure completes a call: it is looked for once more.
            let mut poll = || task.prepared.poll(course);
            task.result = match poll() {
                Poll::Ready(result) => result,
                Poll::Pending => match self.heard() {
                    None => continue,
                    Some(error) => match poll() {
                        Poll::Ready(result) => result,
                        Poll::Pending => {
                            self.end_node(&task.node);
                            task.prepared.give_up();
                            Err(error)
                        }
                    },
                },
            };
            (task.course, moved) = (None, true);
            if task.result.is_ok()
                && let Ok(mut state) = self.lock()
            {
                state.plans.transport_mut().end_call(task.report.0);
                state.last = Some(task.report);
            }
        }
        moved
    }

    /// What the job has failed with, by the word of others too.
    fn heard(&self) -> Option<Error> {
        let mut state = self.lock().ok()?;
        let _ = state.plans.transport_mut().look(0);
        state.plans.failed().cloned()
    }
}

impl Turns {
    /// The turn of call `number` has come.
    fn is(turn: &AtomicU64, number: u64) -> bool {
        turn.load(Relaxed) == number
    }

    /// The next one's comes.
    fn pass_on(turn: &AtomicU64) {
        // One thread polls at a time, handed over by the queue's lock.
        turn.fetch_add(1, Relaxed);
    }
}
