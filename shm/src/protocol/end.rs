//! The end of a rank's membership: its call history is compared with those of the ranks that have ended before.
//!
//! A rank that needs no other, such as the root of a broadcast, may end without meeting the others again. So every rank stores
//! the number of its operations and its call history hash, and a rank that finds different ones fails the group. No rank
//! waits: of two that end at the same time, at least one sees the other's words.

use super::board::{Board, SLOTS};
use super::fault;
use super::member::Member;
use super::operation::Stop;
use super::word::{self, Cause};
use crate::sync::{Ordering, SyncPoint};

impl<B: Board> Member<B> {
    /// Ends this rank's membership. No operation may be pending, and none may follow. `in_order` is true if all ranks end after
    /// the same calls; otherwise a rank with fewer calls is no error.
    ///
    /// # Errors
    /// The group's one error: that of an earlier operation, or a mismatch of the calls.
    pub fn end(&mut self, in_order: bool) -> Result<(), Stop> {
        self.has_ended = true;
        let board = &self.board;
        if board.ranks() == 1 {
            return Ok(());
        }
        if let Some(stop) = fault::failed(board) {
            return Err(stop);
        }
        let mine = word::ended(self.epoch, self.history);
        board.member(board.rank()).ended.store(mine, SyncPoint::CallRelease.order());
        SyncPoint::EndFence.fence();
        for rank in (0..board.ranks()).filter(|rank| *rank != board.rank()) {
            let theirs = board.member(rank).ended.load(SyncPoint::CallAcquire.order());
            if theirs != 0 && theirs != mine && (in_order || theirs >> 32 == mine >> 32) {
                return Err(self.differs_from(rank, theirs));
            }
        }
        Ok(())
    }

    /// Returns whether [`Member::end`] was called.
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The group's one error, if it has failed.
    pub fn failure(&self) -> Option<Stop> {
        fault::failed(&self.board)
    }

    #[cold]
    fn differs_from(&mut self, other: usize, theirs: u64) -> Stop {
        let last = |rank: usize, calls: u64| {
            let call = &self.board.line((calls % SLOTS as u64) as usize, rank).call;
            call.each_ref().map(|word| word.load(Ordering::Relaxed))
        };
        let calls = theirs >> 32;
        let ([kind, count], [my_kind, my_count]) = (last(other, calls), last(self.board.rank(), self.epoch));
        self.fail(Cause::Mismatch, &[other as u64, kind, count, my_kind, my_count, calls, self.epoch])
    }
}
