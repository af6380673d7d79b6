//! The operations that a rank has started and not yet collected, in the order of their numbers, and the `left` word that
//! follows from them.
//!
//! Operations become complete in any order, but the next user of their memory needs a prefix of them to be left: `left` is the
//! last operation before all active ones. For the same reason a contribution to an operation does not show that its rank has
//! left the one before, if that was a non-blocking call: a rank infers this from blocking calls only.

use super::active_request::{ActiveRequest, State};
use super::board::Board;
use super::operation::Pending;
use super::patience::Patience;
use super::step::Step;
use super::wait_counts::WaitCounts;
use crate::sync::{Ordering, Rule, SyncPoint};
use std::collections::VecDeque;

/// The started operations of a rank.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct RequestQueue {
    /// Complete requests that are not yet collected, in the order of their numbers.
    pub(super) done: VecDeque<Box<ActiveRequest>>,
    /// Requests that are not complete, in the order of their numbers.
    pub(super) active: VecDeque<Box<ActiveRequest>>,
    /// Number of the last operation that was started.
    pub(super) last: u64,
}

impl RequestQueue {
    /// Returns whether no request is active.
    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    /// The queue for a waiting operation to make progress in, if any request is active.
    #[inline(always)]
    pub(super) fn as_pending<B: Board>(&mut self) -> Option<&mut (dyn Pending<B> + 'static)> {
        if self.is_empty() { None } else { Some(self) }
    }

    /// The last operation before `next` and before all active ones: this rank's `left` once it has left all others before
    /// `next`.
    #[inline(always)]
    pub(super) fn prefix(&self, next: u64) -> u64 {
        match self.active.front() {
            Some(first) if Rule::LeftIsAPrefix.is_kept() => next.min(first.epoch) - 1,
            _ => next - 1,
        }
    }

    /// Keeps a complete call for its caller, or ends it if it was detached.
    pub(super) fn keep(&mut self, mut request: Box<ActiveRequest>) {
        match request.detached {
            true => request.release(),
            false => {
                let place = self.done.partition_point(|earlier| earlier.id < request.id);
                self.done.insert(place, request);
            }
        }
    }

    /// Removes the call of this number, if it is complete and not yet collected.
    pub(super) fn take_done(&mut self, id: u64) -> Option<Box<ActiveRequest>> {
        find(&self.done, id).and_then(|place| self.done.remove(place))
    }

    /// Publishes the prefix in this rank's `left` word, unless the group has failed: then operations end without being left.
    pub(super) fn leave<B: Board>(&self, board: &B, next: u64) {
        let (left, prefix) = (board.left(board.rank()), self.prefix(next));
        if left.load(Ordering::Relaxed) < prefix && board.poison().load(Ordering::Relaxed) == board.healthy() {
            left.store(prefix, SyncPoint::LeftRelease.order());
            board.step(Step::Left);
        }
    }
}

/// The place of the request of this number in a list of the queue.
pub(super) fn find(requests: &VecDeque<Box<ActiveRequest>>, id: u64) -> Option<usize> {
    requests.binary_search_by_key(&id, |request| request.id).ok()
}

impl<B: Board> Pending<B> for RequestQueue {
    fn is_empty(&self) -> bool {
        self.active.is_empty()
    }

    fn progress(
        &mut self,
        board: &B,
        patience: &Patience,
        all_left: &mut u64,
        counts: &mut WaitCounts,
        now: u64,
    ) -> bool {
        let (before, mut any, mut i) = (counts.moves(), false, 0);
        while let Some(request) = self.active.get_mut(i) {
            if request.failed.is_some() || !request.progress_now(board, *patience, all_left, counts) {
                if matches!(request.state, State::Queued) {
                    // The memory of later requests becomes free no earlier. So a step costs no more than the slots of the ring.
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
        any || counts.moves() != before
    }
}
