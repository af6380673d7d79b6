//! Publishing and copying out the result, chunk by chunk, as each becomes final.

use super::board::{Board, CHUNKS};
use super::operation::{Operation, Stop};
use super::pieces::Pieces;
use super::step::Step;
use super::wait::Wake;
use super::word::{FoldState, FoldWord};
use crate::sync::SyncPoint;

/// A set of chunk numbers.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Done([u64; CHUNKS / 64]);

impl Done {
    pub(super) fn has(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    pub(super) fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }
}

impl<B: Board> Operation<'_, B> {
    /// Marks chunk `i` as final, with every contribution folded, and wakes the sleepers.
    pub(super) fn publish(&self, i: usize) {
        self.make_final(i);
        self.wake();
    }

    /// Marks chunk `i` as final without waking the sleepers.
    pub(super) fn make_final(&self, i: usize) {
        let word = FoldWord::open(self.epoch, self.me, self.ranks);
        self.board.chunk(self.area, i).store(word.0, SyncPoint::ChunkRelease.order());
        self.board.step(Step::Published);
    }

    /// Copies each chunk that is not in `copied` once it is final, beginning with chunk `first`.
    pub(super) fn copy_out(&mut self, pieces: &Pieces, first: usize, copied: &Done) -> Result<(), Stop> {
        let (board, call, area, epoch, ranks) = (self.board, self.call, self.area, self.epoch, self.ranks);
        for i in (first..pieces.number).chain(0..first).filter(|i| !copied.has(*i)) {
            self.wait(Wake::Event, |board| is_final(board, area, i, epoch, ranks).then_some(()))?;
            board.read(pieces.accumulator(area, i), |sum| call.take(sum, pieces, i));
        }
        Ok(())
    }
}

#[inline]
pub(super) fn is_final<B: Board>(board: &B, area: usize, i: usize, epoch: u64, ranks: usize) -> bool {
    let word = FoldWord(board.chunk(area, i).load(SyncPoint::FinalAcquire.order()));
    word.state(epoch, ranks) == FoldState::Final
}
