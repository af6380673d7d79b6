//! Wake-ups: the event count of a slot, on which the ranks that wait in its operation sleep.
//!
//! A publisher pays one fence and one load when no rank sleeps.

use super::board::Board;
use super::operation::Operation;
use crate::sync::{Ordering, SyncPoint, futex};

impl<B: Board> Operation<'_, B> {
    /// Wakes the ranks that sleep in this operation; called after storing the change they wait for.
    #[inline]
    pub(super) fn wake(&self) {
        wake(self.board, self.slot);
    }
}

/// Wakes the ranks that sleep in `slot`; called after storing the change they wait for.
#[inline]
pub(super) fn wake<B: Board>(board: &B, slot: usize) {
    if sleepers(board, slot) {
        wake_all(board, slot);
    }
}

/// Returns whether a rank sleeps in `slot`; the fence orders this load after all earlier stores.
#[inline]
pub(super) fn sleepers<B: Board>(board: &B, slot: usize) -> bool {
    SyncPoint::PublisherFence.fence();
    board.event(slot).sleepers.load(Ordering::Relaxed) > 0
}

/// Wakes the sleepers of `slot`.
#[cold]
pub(super) fn wake_all<B: Board>(board: &B, slot: usize) {
    let line = board.event(slot);
    line.event.fetch_add(1, Ordering::Relaxed);
    futex::wake_all(&line.event);
}
