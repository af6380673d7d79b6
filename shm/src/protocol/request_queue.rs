//! The operations that a rank has started and not yet collected, in the order of their numbers, and what it may say to have
//! left.
//!
//! Operations become complete in any order, and the next user of their memory asks for a prefix: `left` is the last
//! operation before all that are under way. Nor does a contribution to an operation show any more that its rank has
//! left the one before, if that one was started as a non-blocking call: the membership infers it of blocking calls only.

use super::active_request::{ActiveRequest, State};
use super::board::Board;
use super::operation::Pending;
use super::patience::Patience;
use super::step::Step;
use crate::sync::{Ordering, Rule, SyncPoint};
use std::collections::VecDeque;

/// The started operations of a rank.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct RequestQueue {
    /// Those that are complete and not yet collected.
    pub(super) done: VecDeque<Box<ActiveRequest>>,
    /// Those that are not complete, in the order of their numbers.
    pub(super) active: VecDeque<Box<ActiveRequest>>,
    /// Number of the last operation that was started.
    pub(super) last: u64,
}

impl RequestQueue {
    /// Returns whether nothing is under way.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// The queue as a waiting operation sees it, if something is under way.
    #[inline(always)]
    pub(super) fn as_pending<B: Board>(&mut self) -> Option<&mut (dyn Pending<B> + 'static)> {
        if self.is_empty() { None } else { Some(self) }
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

    /// Keeps a complete call for its caller; one that was released ends here.
    pub(super) fn keep(&mut self, mut request: Box<ActiveRequest>) {
        match request.detached {
            true => request.release(),
            false => self.done.push_back(request),
        }
    }

    /// Says so, unless the group has failed: then operations end without being left.
    pub(super) fn leave<B: Board>(&self, board: &B, next: u64) {
        let (left, prefix) = (board.left(board.rank()), self.prefix(next));
        if left.load(Ordering::Relaxed) < prefix && board.poison().load(Ordering::Relaxed) == board.healthy() {
            left.store(prefix, SyncPoint::LeftRelease.order());
            board.step(Step::Left);
        }
    }
}

impl<B: Board> Pending<B> for RequestQueue {
    fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    fn progress(&mut self, board: &B, patience: &Patience, all_left: &mut u64, moves: &mut u32, now: u64) -> bool {
        let (before, mut any, mut i) = (*moves, false, 0);
        while let Some(request) = self.active.get_mut(i) {
            if request.failed.is_some() || !request.progress_alone(board, *patience, all_left, moves) {
                if matches!(request.state, State::Queued) {
                    // Those after it need memory that is free no earlier.
                    break;
                }
                i += 1;
                continue;
            }
            any = true;
            if !request.next_segment()
                && let Some(request) = self.active.remove(i)
            {
                self.keep(request);
            }
            self.leave(board, now);
        }
        any || *moves != before
    }
}
