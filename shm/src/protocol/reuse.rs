//! Reuse of memory: an operation touches its slot and its area only after every rank has left the operation that used them
//! before, and reserves the memory that it needs there.

use super::board::{Board, Need};
use super::geometry::Who;
use super::operation::{Operation, Stop};
use super::wait::Wake;
use crate::sync::SyncPoint;

impl<B: Board> Operation<'_, B> {
    /// Returns whether every rank has left the operation `back` operations ago, which used the same memory.
    pub(super) fn have_all_left(&mut self, back: usize) -> bool {
        let due = self.epoch.saturating_sub(back as u64);
        if *self.all_left < due {
            *self.all_left = left_by_all(self.board).clamp(*self.all_left, self.epoch);
        }
        *self.all_left >= due
    }

    /// Waits until every rank has left the operation `back` operations ago, which used the same memory.
    pub(super) fn until_all_left(&mut self, back: usize) -> Result<(), Stop> {
        let due = self.epoch.saturating_sub(back as u64);
        if *self.all_left >= due {
            return Ok(());
        }
        let ranks = self.ranks;
        let mut next = 0;
        let mut least = u64::MAX;
        self.wait(Wake::Poll, |board| {
            while next < ranks {
                let left = board.left(next).load(SyncPoint::LeftAcquire.order());
                if left < due {
                    return None;
                }
                least = least.min(left);
                next += 1;
            }
            Some(())
        })?;
        *self.all_left = least.clamp(*self.all_left, self.epoch);
        Ok(())
    }

    /// Reserves the memory that the operation needs in its area, or fails the group before any of it is touched.
    pub(super) fn reserve(&mut self, need: Need) -> Result<(), Stop> {
        self.reserve_in(self.area, need)
    }

    /// The same for the deposits of an exchange, where they lie.
    pub(super) fn reserve_deposits(&mut self, deposit: usize, whose: Who) -> Result<(), Stop> {
        self.reserve_in(self.deposits_at(deposit).area, Need { accumulator: 0, deposit, whose })
    }

    fn reserve_in(&mut self, area: usize, need: Need) -> Result<(), Stop> {
        let need = self.board.with_all_places(need);
        match self.board.reserve(area, need) {
            Ok(()) => Ok(()),
            Err(crate::Error::NoSpace { needed, free, .. }) => Err(self.no_space(needed, free)),
            Err(crate::Error::System { errno, .. }) => Err(self.refused(errno, need.accumulator + need.deposit, None)),
            Err(_) => Err(self.no_space((need.accumulator + need.deposit) as u64, 0)),
        }
    }
}

/// The last operation that every rank has left, with all before it, as seen now.
pub(super) fn left_by_all<B: Board>(board: &B) -> u64 {
    let left = |rank| board.left(rank).load(SyncPoint::LeftAcquire.order());
    (0..board.ranks()).map(left).min().unwrap_or(0)
}
