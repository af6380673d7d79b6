//! Messages between two ranks beside the collectives: over rings of their own where the ranks share memory, else over messages of
//! their own between the nodes.

use super::transfers::{Delivery, Transfer, Transfers};
use crate::hierarchy::{LeaderChannel, LeaderTransport, Topology};
use crate::plans::GroupTransport;
use crate::{Error, Progress};
use earlybird_hier::exec::{Failure, Transport};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// The interval at which a rank that waits in a collective makes progress in its messages.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Messages between the ranks of a communicator ([`Communicator::point_to_point`](crate::Communicator::point_to_point)).
///
/// A message is sent to a rank under a tag and received from a rank, or from any, under that tag; messages of one sender and one tag
/// come in the order in which they were sent. What was started makes progress while its rank waits for a message or in a collective of
/// the communicator. Several threads may send, receive and wait at the same time. The first error is final, for all ranks that wait.
pub struct PointToPoint {
    state: Mutex<PointToPointState>,
    /// Threads that wait for the lock.
    entering: AtomicUsize,
    /// False while nothing is under way.
    is_busy: AtomicBool,
    rank: usize,
    size: usize,
    /// The deadline of a wait, where the channel does not know it itself.
    deadline: Option<Duration>,
}

struct PointToPointState {
    channel: LeaderChannel,
    transfers: Transfers,
    /// Passes without progress, and the beginning of them.
    passes: u32,
    since: Option<Instant>,
}

impl PointToPoint {
    /// Messages over a transport that nothing else uses.
    pub(super) fn over(
        transport: LeaderTransport,
        rank: usize,
        size: usize,
        timeout: Option<Duration>,
    ) -> Result<Self, Error> {
        let deadline = timeout.filter(|_| transport.is_a_network());
        // Every rank for itself: the number of a node is that of its rank.
        let topology = Topology::new((0..size).map(|rank| vec![rank]).collect(), rank)?;
        let channel = LeaderChannel::new(transport, &topology, timeout);
        let state = PointToPointState { channel, transfers: Transfers::new(size), passes: 0, since: None };
        let (state, entering, is_busy) = (Mutex::new(state), AtomicUsize::new(0), AtomicBool::new(false));
        Ok(PointToPoint { state, entering, is_busy, rank, size, deadline })
    }

    /// The progress function of the messages for waits in collectives: [`Communicator::set_progress`](crate::Communicator::set_progress).
    ///
    /// # Errors
    /// None; a `Result` as [`Progress::new`] has one.
    pub fn progress(self: &Arc<Self>) -> Result<Progress, Error> {
        let this = Arc::downgrade(self);
        Progress::new(LOOK_EVERY, move || {
            if let Some(this) = this.upgrade() {
                this.try_progress();
            }
        })
    }

    /// Makes progress if anything is under way and no other thread makes it.
    fn try_progress(&self) {
        if !self.is_busy.load(Relaxed) {
            return;
        }
        if let Ok(mut state) = self.state.try_lock() {
            // The error is kept, and returned by the next wait for a message.
            let _ = state.pass();
            self.is_busy.store(!state.transfers.is_empty(), Relaxed);
        }
    }

    /// Starts sending `data`, which is kept until it has gone.
    ///
    /// # Errors
    /// [`Error::Usage`] for a rank that is not there or this one; the error that the messages have failed with.
    pub fn send(&self, to: usize, tag: u32, data: impl AsRef<[u8]> + Send + 'static) -> Result<Transfer, Error> {
        self.check(to)?;
        self.start(|transfers| transfers.send(to, tag, Box::new(data)))
    }

    /// Starts receiving a message of exactly the length of `buffer` from `from`, or from any rank.
    ///
    /// # Errors
    /// The errors of [`PointToPoint::send`]; [`Error::Unsupported`] for any rank where the ranks share no memory.
    pub fn receive(
        &self,
        from: Option<usize>,
        tag: u32,
        buffer: impl AsMut<[u8]> + Send + 'static,
    ) -> Result<Transfer, Error> {
        match from {
            Some(from) => self.check(from)?,
            None if self.enter().channel.is_a_network() => {
                return Err(Error::Unsupported {
                    what: "receiving from any rank over several nodes".into(),
                    hint: "name the rank".into(),
                });
            }
            None => {}
        }
        self.start(|transfers| transfers.receive(from, tag, Box::new(buffer)))
    }

    /// Returns the end of a transfer that has ended by now; never waits for another rank.
    ///
    /// # Errors
    /// [`Error::Usage`] for a message of another length, which is lost; the error that the messages have failed with.
    pub fn test(&self, transfer: &Transfer) -> Result<Option<Delivery>, Error> {
        let mut state = self.enter();
        let moved = state.pass();
        if let Some(ended) = transfer.ended() {
            return ended.map(Some);
        }
        if !moved? {
            let passes = state.idle();
            let looked = state.channel.check(passes);
            looked.map_err(|failure| state.fail(failure))?;
        }
        Ok(None)
    }

    /// Waits for the end of a transfer, at most for about `most`.
    ///
    /// # Errors
    /// The errors of [`PointToPoint::test`]; [`Error::PeerDied`] when a rank is gone that a message needs, [`Error::Timeout`] after
    /// the deadline of the communicator without any progress.
    pub fn wait(&self, transfer: &Transfer, most: Duration) -> Result<Option<Delivery>, Error> {
        let begun = Instant::now();
        loop {
            let mut state = self.enter();
            let moved = state.pass();
            if let Some(ended) = transfer.ended() {
                return ended.map(Some);
            }
            if !moved? {
                if begun.elapsed() > most {
                    return Ok(None);
                }
                if self.entering.load(Relaxed) == 0 {
                    state.rest(self.deadline)?;
                }
            }
            drop(state);
            while self.entering.load(Relaxed) > 0 {
                std::thread::yield_now();
            }
        }
    }

    fn start(&self, begin: impl FnOnce(&mut Transfers) -> Transfer) -> Result<Transfer, Error> {
        let mut state = self.enter();
        if let Some(error) = state.error() {
            return Err(error);
        }
        let transfer = begin(&mut state.transfers);
        (state.passes, state.since) = (0, None);
        state.pass()?;
        self.is_busy.store(!state.transfers.is_empty(), Relaxed);
        Ok(transfer)
    }

    fn check(&self, peer: usize) -> Result<(), Error> {
        match peer < self.size && peer != self.rank {
            true => Ok(()),
            false => Err(Error::usage(format!(
                "a message between rank {} and rank {peer} of {}; name another rank of the communicator",
                self.rank, self.size
            ))),
        }
    }

    /// Locks the state, which a waiting thread releases as soon as another one wants it.
    fn enter(&self) -> MutexGuard<'_, PointToPointState> {
        match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::Poisoned(state)) => state.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.entering.fetch_add(1, Relaxed);
                let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                self.entering.fetch_sub(1, Relaxed);
                state
            }
        }
    }
}

impl PointToPointState {
    /// Sends and receives without waiting. Returns whether anything moved.
    fn pass(&mut self) -> Result<bool, Error> {
        match self.transfers.pass(&mut self.channel) {
            Ok(true) => {
                (self.passes, self.since) = (0, None);
                Ok(true)
            }
            Ok(false) => Ok(false),
            Err(failure) => Err(self.fail(failure)),
        }
    }

    /// Counts a pass without progress, and sets the ranks that are waited for.
    fn idle(&mut self) -> u32 {
        self.passes = self.passes.saturating_add(1);
        let (channel, transfers) = (&mut self.channel, &self.transfers);
        let (ranks, any_of) = transfers.awaited(channel.rank(), |rank| channel.has_left(rank));
        channel.wait_for(&ranks, any_of);
        self.passes
    }

    /// Rests until something may have changed.
    fn rest(&mut self, deadline: Option<Duration>) -> Result<(), Error> {
        let passes = self.idle();
        let rested = self.channel.idle(passes);
        rested.map_err(|failure| self.fail(failure))?;
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        match deadline.filter(|after| waited > *after) {
            Some(after) => {
                let (ranks, any_of) = self.transfers.awaited(self.channel.rank(), |_| false);
                let missing = ranks.first().or(any_of.first()).copied();
                Err(self.fail(Failure::Timeout { missing: missing.unwrap_or(self.channel.rank()), after }))
            }
            None => Ok(()),
        }
    }

    /// Ends all transfers, here and on the other ranks. Returns the first error.
    fn fail(&mut self, failure: Failure) -> Error {
        if self.channel.error().is_none() {
            self.channel.raise(failure.clone());
        }
        self.error().unwrap_or_else(|| Error::Poisoned { cause: failure.to_string() })
    }

    /// The error that the messages have failed with; the channel knows of calls only.
    fn error(&self) -> Option<Error> {
        let during = || "a message".to_owned();
        self.channel.error().cloned().map(|error| match error {
            Error::PeerDied { rank, pid, host, .. } => Error::PeerDied { rank, pid, host, during: during() },
            Error::Timeout { missing, after, .. } => Error::Timeout { missing, after, during: during() },
            other => other,
        })
    }
}

impl fmt::Debug for PointToPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PointToPoint").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}
