//! What a rank has posted and not yet completed, in the order of its numbers, and what it may say to have left.
//!
//! Operations become complete in any order, and the next user of their memory asks for a prefix: `left` is the last
//! operation before all that are under way. Nor does a contribution to an operation show any more that its rank has
//! left the one before, if that one was posted: [`Member::run`] infers it of blocking calls only.

use super::active_request::{ActiveRequest, Effort, RankContext, State};
use super::board::Board;
use super::fault;
use super::operation::{Member, Report, Stop, mix};
use super::step::Step;
use super::wait::Patience;
use crate::config::Algorithm;
use crate::sync::{Ordering, Rule, SyncPoint};
use std::collections::VecDeque;

/// The posted operations of a rank.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Pending {
    /// Those that are complete and not yet asked for.
    done: VecDeque<Box<ActiveRequest>>,
    /// Those that are not complete, in the order of their numbers.
    active: VecDeque<Box<ActiveRequest>>,
    /// Number of the last operation that was posted.
    pub(super) last: u64,
}

impl Pending {
    /// Whether nothing is under way.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// The last operation before `next` and before all that is under way: what this rank has left when it has left
    /// everything else before `next`.
    #[inline(always)]
    pub(super) fn prefix(&self, next: u64) -> u64 {
        match self.active.front() {
            Some(first) if Rule::LeftIsAPrefix.is_kept() => next.min(first.epoch) - 1,
            _ => next - 1,
        }
    }

    /// Says so, unless the group has failed: then operations end without being left.
    fn leave<B: Board>(&self, board: &B, next: u64) {
        let (left, prefix) = (board.left(board.rank()), self.prefix(next));
        if left.load(Ordering::Relaxed) < prefix && board.poison().load(Ordering::Relaxed) == board.healthy() {
            left.store(prefix, SyncPoint::LeftRelease.order());
            board.step(Step::Left);
        }
    }

    /// Carries on with everything that is under way, in order, without waiting; whether an operation became complete.
    /// This rank is inside operation `now`, or has left everything before it that is not under way.
    pub(super) fn carry_on<B: Board>(&mut self, board: &B, patience: &Patience, all_left: &mut u64, now: u64) -> bool {
        let (mut any, mut i) = (false, 0);
        while let Some(posted) = self.active.get_mut(i) {
            if posted.failed.is_some() || !posted.carry_on_alone(board, *patience, all_left) {
                if matches!(posted.state, State::Queued) {
                    // Those after it need memory that is free no earlier.
                    break;
                }
                i += 1;
                continue;
            }
            any = true;
            if !posted.next_segment()
                && let Some(posted) = self.active.remove(i)
                && !posted.detached
            {
                self.done.push_back(posted);
            }
            self.leave(board, now);
        }
        any
    }
}

impl<B: Board> Member<B> {
    /// Posts `posted` and gives the number to ask for it by; never waits. What cannot be posted now is queued, and
    /// posted inside a later call.
    ///
    /// # Errors
    /// The group has failed: the call with its buffers comes back.
    pub fn post(&mut self, mut posted: Box<ActiveRequest>) -> Result<u64, (Box<ActiveRequest>, Stop)> {
        let first = self.epoch + 1;
        posted.start(first, self.history);
        self.epoch += posted.segments;
        self.pending.last = self.epoch;
        if self.board.ranks() == 1 {
            posted.held().lend().copy();
            self.pending.done.push_back(posted);
            return Ok(first);
        }
        // Once for all its operations, in the order of the calls.
        self.history = mix(self.history ^ posted.prepared.hash);
        if let Some(stop) = fault::failed(&self.board).filter(|stop| stop.0.epoch() <= first) {
            return Err((posted, stop));
        }
        self.pending.active.push_back(posted);
        self.carry_on();
        Ok(first)
    }

    /// Carries on with everything that is posted, without waiting.
    pub fn carry_on(&mut self) {
        self.carry_on_before(self.epoch + 1);
    }

    /// The same on the way into operation `next`.
    #[cold]
    pub(super) fn carry_on_before(&mut self, next: u64) {
        let Member { board, patience, all_left, pending, .. } = self;
        pending.carry_on(board, patience, all_left, next);
    }

    /// The call posted under this number, if it is complete or has failed by now; peers are inspected now and then.
    pub fn ask(&mut self, id: u64) -> Option<(Box<ActiveRequest>, Result<Report, Stop>)> {
        self.carry_on();
        self.complete(id, Effort::Glance)
    }

    /// The same without a look at the peers.
    pub fn take(&mut self, id: u64) -> Option<(Box<ActiveRequest>, Result<Report, Stop>)> {
        self.carry_on();
        self.complete(id, Effort::Now)
    }

    /// The call posted under this number, when it is complete or has failed; `None` if nothing was posted under it, or it
    /// has been taken.
    pub fn finish(&mut self, id: u64) -> Option<(Box<ActiveRequest>, Result<Report, Stop>)> {
        if !self.pending.is_empty() {
            self.carry_on();
        }
        self.complete(id, Effort::Wait)
    }

    fn complete(&mut self, id: u64, effort: Effort) -> Option<(Box<ActiveRequest>, Result<Report, Stop>)> {
        let Member { board, patience, all_left, pending, epoch, .. } = self;
        if let Some(i) = pending.done.iter().position(|posted| posted.id == id) {
            let posted = pending.done.swap_remove_back(i)?;
            let result = match (posted.failed, board.ranks()) {
                (Some(stop), _) => Err(stop),
                (None, 1) => Ok(Report { epoch: 0, algorithm: Algorithm::Flat, place: None }),
                (None, _) => Ok(posted.report()),
            };
            return Some((posted, result));
        }
        let i = pending.active.iter().position(|posted| posted.id == id)?;
        let mut posted = pending.active.remove(i)?;
        loop {
            let around = RankContext { board, patience, all_left, pending };
            let ended = match posted.failed {
                Some(stop) => Err(stop),
                None => posted.carry_on(around, effort),
            };
            match ended {
                Ok(true) if posted.next_segment() => pending.leave(board, posted.epoch),
                Ok(true) => {
                    pending.leave(board, *epoch + 1);
                    let report = posted.report();
                    return Some((posted, Ok(report)));
                }
                Ok(false) => {
                    pending.active.insert(i, posted);
                    return None;
                }
                Err(stop) => {
                    posted.failed = Some(stop);
                    return Some((posted, Err(stop)));
                }
            }
        }
    }

    /// Lets go of the call posted under this number: it is completed inside later calls, and its buffers are freed then.
    pub fn detach(&mut self, id: u64) {
        self.pending.done.retain(|posted| posted.id != id);
        if let Some(posted) = self.pending.active.iter_mut().find(|posted| posted.id == id) {
            posted.detached = true;
        }
    }

    /// Completes everything that is posted.
    ///
    /// # Errors
    /// The group has failed.
    pub fn settle(&mut self) -> Result<(), Stop> {
        while let Some(first) = self.pending.active.front() {
            let id = first.id;
            let Some((posted, result)) = self.finish(id) else { continue };
            let failed = result.err();
            if !posted.detached {
                self.pending.done.push_back(posted);
            }
            if let Some(stop) = failed {
                return Err(stop);
            }
        }
        Ok(())
    }

    /// Whether something is posted and not complete.
    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }
}
