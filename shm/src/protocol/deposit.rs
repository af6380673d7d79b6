//! Deposits: a rank's contribution in an area is announced and awaited piece by piece.

use super::board::Board;
use super::event;
use super::operation::{Operation, Stop};
use super::wait::Wake;
use super::word;
use crate::sync::SyncPoint;

impl<B: Board> Operation<'_, B> {
    /// Waits until `pieces` pieces of `rank`'s deposit are ready.
    pub(super) fn until_deposited(&mut self, rank: usize, pieces: usize) -> Result<(), Stop> {
        let (slot, epoch, hash) = (self.slot, self.epoch, self.hash);
        self.wait(Wake::Event, |board| has_deposited(board, slot, rank, epoch, hash, pieces).then_some(()))
    }

    /// Wakes the sleepers if all ranks but `except` have deposited: the rank that stores last sees all others.
    pub(super) fn wake_if_all_deposited(&self, pieces: usize, except: usize) {
        let (board, slot, epoch, hash) = (self.board, self.slot, self.epoch, self.hash);
        let there = |r| r == except || has_deposited(board, slot, r, epoch, hash, pieces);
        if event::sleepers(board, slot) && (0..self.ranks).all(there) {
            event::wake_all(board, slot);
        }
    }
}

/// Returns whether `pieces` pieces of `rank`'s deposit for operation `epoch` are ready. A deposit for another call does not
/// count, and the wait for it ends with the mismatch.
#[inline]
pub(super) fn has_deposited<B: Board>(
    board: &B,
    slot: usize,
    rank: usize,
    epoch: u64,
    hash: u32,
    pieces: usize,
) -> bool {
    deposited(board, slot, rank, epoch, hash) >= pieces
}

/// Pieces of `rank`'s deposit for operation `epoch` that are ready; none of a deposit for another call.
#[inline]
pub(super) fn deposited<B: Board>(board: &B, slot: usize, rank: usize, epoch: u64, hash: u32) -> usize {
    word::pieces(board.line(slot, rank).deposited.load(SyncPoint::DepositAcquire.order()), epoch, hash)
}

/// Pieces that every rank has deposited.
pub(super) fn deposited_by_all<B: Board>(board: &B, slot: usize, epoch: u64, hash: u32, ranks: usize) -> usize {
    (0..ranks).map(|rank| deposited(board, slot, rank, epoch, hash)).min().unwrap_or(0)
}
