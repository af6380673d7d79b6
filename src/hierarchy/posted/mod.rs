//! Calls over several nodes that are posted now and completed later.
//!
//! A posted call is a future over the phases of the blocking one (`calls.rs`), which the communicator polls in every `test`,
//! `wait` and later call; it never waits itself. Its data are copies, so that its owner's buffers are there whatever happens.
//!
//! ```text
//! in the node     give 0 | give 1 | give 2           posted one after the other as the calls are
//! between leaders          ~~ 0 ~~ ~~ 1 ~~ ~~ 2 ~~   one at a time
//! in the node                      take 0   take 1   posted in the order of calls, in a group of their own
//! ```
//!
//! So every rank of a node posts the same operations in the same order in either group, whatever is complete when, and leaders
//! exchange in the order of calls. A rank that only posts has given what the others of its node need; a leader that is away
//! holds up the exchange, as it does in a blocking call. A blocking call begins when all that was posted before has ended.

mod calls;
mod operators;
mod pairs;
mod prepared;
mod steps;

use super::Hierarchy;
use crate::Error;
pub(crate) use calls::Asked;
use earlybird_shm::{NodeComm, enter};
pub(crate) use operators::Kept;
pub(crate) use pairs::KeptCounts;
pub(crate) use prepared::Prepared;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use steps::Steps;

/// Passes that only look again, then passes that give the CPU away, before a waiting rank naps.
const YIELDS: u32 = 500;
/// The shortest and the longest nap.
const NAP: Duration = Duration::from_micros(50);
const LONG_NAP: Duration = Duration::from_micros(400);

/// What a rank that gets nothing gets, or the bytes of its result.
type Outcome = Result<Option<Vec<u8>>, Error>;
type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A call on its way, and what runs between leaders in it.
type Begun = (Work, &'static str);

/// How a posted call ended, with its buffers.
pub(crate) type Ended = (Box<Prepared>, Result<(), Error>);

struct Task {
    number: u64,
    prepared: Box<Prepared>,
    /// Its number among all calls of the communicator, and what runs between leaders.
    report: (u64, &'static str),
    work: Option<Work>,
    result: Result<(), Error>,
}

/// What a communicator has posted, in the order of calls.
#[derive(Default)]
pub(crate) struct Queue {
    tasks: VecDeque<Task>,
    posted: u64,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("tasks", &self.tasks.len()).field("posted", &self.posted).finish()
    }
}

impl Queue {
    fn is_settled(&self) -> bool {
        self.tasks.iter().all(|task| task.work.is_none())
    }
}

/// Whose turn it is: numbers of posted calls.
#[derive(Debug, Default)]
pub(super) struct Turns {
    exchange: AtomicU64,
    deliver: AtomicU64,
}

/// Everything posted calls need of their communicator.
#[derive(Debug)]
pub(super) struct Postings {
    queue: Mutex<Queue>,
    /// Numbers of calls that nobody asks for any more.
    dropped: Mutex<Vec<u64>>,
    turns: Turns,
    /// The node's ranks once more, for what leaders give them.
    deliver: NodeComm,
}

impl Postings {
    pub(super) fn new(deliver: NodeComm) -> Self {
        Postings { queue: Mutex::default(), dropped: Mutex::default(), turns: Turns::default(), deliver }
    }

    pub(super) fn set_deadline(&self, deadline: Option<Duration>) -> Result<(), Error> {
        self.deliver.set_deadline(deadline)
    }
}

impl Hierarchy {
    /// Posts a call and gives the number to ask for it by. Never waits for another rank.
    pub(crate) fn post(
        self: &Arc<Self>,
        node: &Arc<NodeComm>,
        prepared: Box<Prepared>,
    ) -> Result<u64, (Box<Prepared>, Error)> {
        let (mut queue, calls) = match self.queue().and_then(|queue| Ok((queue, self.may_post()?))) {
            Ok(entered) => entered,
            Err(error) => return Err((prepared, error)),
        };
        let number = queue.posted;
        let steps = Steps::new(self, node, &prepared, (number, calls + 1));
        let (work, runs) = match prepared.begin(steps) {
            Ok(begun) => begun,
            Err(error) => return Err((prepared, error)),
        };
        if let Ok(mut state) = self.lock() {
            state.calls += 1;
        }
        queue.posted += 1;
        let report = (calls + 1, runs);
        queue.tasks.push_back(Task { number, prepared, report, work: Some(work), result: Ok(()) });
        self.advance(&mut queue);
        Ok(number)
    }

    /// The call posted under this number, when it has ended.
    pub(crate) fn finish(&self, number: u64) -> Result<Ended, Error> {
        let mut queue = self.queue()?;
        self.may_call()?;
        let at = |queue: &Queue| queue.tasks.iter().position(|task| task.number == number);
        let is_done = |queue: &Queue| at(queue).is_none_or(|at| queue.tasks[at].work.is_none());
        self.wait_until(&mut queue, is_done);
        self.take(&mut queue, number)
            .ok_or_else(|| Error::usage(format!("no call is posted under the number {number}")))
    }

    /// The same if it has ended by now; never waits.
    pub(crate) fn ask(&self, number: u64) -> Result<Option<Ended>, Error> {
        let mut queue = self.queue()?;
        self.may_call()?;
        self.advance(&mut queue);
        Ok(self.take(&mut queue, number))
    }

    /// Nobody will ask for the call posted under this number: it is completed inside later calls.
    pub(crate) fn detach(&self, number: u64) {
        self.postings.dropped.lock().unwrap_or_else(PoisonError::into_inner).push(number);
    }

    /// Waits for everything that was posted; no call begins before the guard is dropped.
    pub(super) fn settle(&self) -> Result<MutexGuard<'_, Queue>, Error> {
        let mut queue = self.queue()?;
        if !queue.tasks.is_empty() {
            self.wait_until(&mut queue, Queue::is_settled);
            self.let_go(&mut queue);
        }
        Ok(queue)
    }

    /// The same at the end, unless this thread is panicking: others may need what was posted.
    pub(crate) fn end_postings(&self) {
        let Ok(mut queue) = self.queue() else { return };
        if !std::thread::panicking() {
            self.wait_until(&mut queue, Queue::is_settled);
        }
        queue.tasks.clear();
    }

    fn queue(&self) -> Result<MutexGuard<'_, Queue>, Error> {
        enter(&self.postings.queue)
    }

    fn may_call(&self) -> Result<(), Error> {
        self.lock()?.plans.transport_mut().may_call()
    }

    /// How many calls there were.
    fn may_post(&self) -> Result<u64, Error> {
        let mut state = self.lock()?;
        match state.plans.failed() {
            Some(error) => Err(error.clone()),
            None => state.plans.transport_mut().may_call().map(|()| state.calls),
        }
    }

    fn take(&self, queue: &mut Queue, number: u64) -> Option<Ended> {
        let done = |task: &Task| task.number == number && task.work.is_none();
        let at = queue.tasks.iter().position(done)?;
        let task = queue.tasks.remove(at)?;
        Some((task.prepared, task.result))
    }

    /// Forgets the calls that have ended and nobody asks for.
    fn let_go(&self, queue: &mut Queue) {
        let mut dropped = self.postings.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        if dropped.is_empty() {
            return;
        }
        queue.tasks.retain(|task| task.work.is_some() || !dropped.contains(&task.number));
        dropped.retain(|number| queue.tasks.iter().any(|task| task.number == *number));
    }

    fn wait_until(&self, queue: &mut Queue, is_done: impl Fn(&Queue) -> bool) {
        let mut passes = 0;
        loop {
            let moved = self.advance(queue);
            if is_done(queue) {
                return;
            }
            passes = if moved { 0 } else { passes + 1 };
            self.rest(passes);
        }
    }

    /// Looks at the other nodes and gives the CPU away.
    fn rest(&self, passes: u32) {
        if let Ok(mut state) = self.lock() {
            // What it finds shows in the next pass.
            let _ = state.plans.transport_mut().look(passes);
            if passes > YIELDS
                && let Some(progress) = &state.progress
            {
                progress.run();
            }
        }
        match passes {
            0..=YIELDS => std::thread::yield_now(),
            _ => std::thread::sleep((NAP * (passes - YIELDS)).min(LONG_NAP)),
        }
    }

    /// Polls everything that is under way, in order; whether something ended.
    fn advance(&self, queue: &mut Queue) -> bool {
        self.let_go(queue);
        let mut moved = false;
        let mut context = Context::from_waker(Waker::noop());
        for task in &mut queue.tasks {
            let Some(work) = &mut task.work else { continue };
            // What came before a failure completes a call: it is looked for once more.
            let mut poll = || work.as_mut().poll(&mut context);
            let result = match poll() {
                Poll::Ready(result) => result,
                Poll::Pending => match self.heard() {
                    None => continue,
                    Some(error) => match poll() {
                        Poll::Ready(result) => result,
                        Poll::Pending => Err(error),
                    },
                },
            };
            (task.work, moved) = (None, true);
            if result.is_ok()
                && let Ok(mut state) = self.lock()
            {
                state.last = Some(task.report);
            }
            task.result = result.map(|bytes| {
                if let Some(bytes) = bytes {
                    task.prepared.put(&bytes);
                }
            });
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

/// The nodes of a communicator, whose posted calls end with it.
#[derive(Debug)]
pub(crate) struct Between(pub Arc<Hierarchy>);

impl std::ops::Deref for Between {
    type Target = Arc<Hierarchy>;

    fn deref(&self) -> &Arc<Hierarchy> {
        &self.0
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.0.end_postings();
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
