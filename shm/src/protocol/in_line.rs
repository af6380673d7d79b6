//! The in-line lane made straight: `flat` for a payload that fits in a line, by a rank that has nothing else to see to.
//!
//! A program calls small collectives between its own work, so it finds their code cold: the time of such a call grows with
//! the instructions on its way. This is the way of [`Member::run`] and [`super::flat`] without the turnings that such a call
//! never takes. The words, their order and their sync points are the same, so ranks on this way meet ranks on the
//! general one; a rank takes it only when nothing is pending, the group is well, the memory is known to be free and every
//! rank has a CPU of its own.

use super::board::{Board, Place, SLOTS};
use super::operation::{Member, Report, Stop};
use super::payload::Bound;
use super::step::Step;
use super::wait;
use super::{flat, word};
use crate::config::Algorithm;
use crate::sync::SyncPoint;

impl<B: Board> Member<B> {
    /// Runs one operation whose payload travels in the lines; `None`, with nothing done, where [`Member::run`] must be
    /// asked.
    #[inline(always)]
    pub fn run_in_line(&mut self, few: &Bound<'_>) -> Option<Result<Report, Stop>> {
        let (board, epoch) = (&self.board, self.epoch + 1);
        if self.patience.oversubscribed
            || self.all_left + (SLOTS as u64) < epoch
            || !self.pending.is_empty()
            || board.poison().load(SyncPoint::PoisonAcquire.order()) != 0
        {
            return None;
        }
        self.epoch = epoch;
        board.step(Step::Begin);
        let (slot, me, ranks) = ((epoch % SLOTS as u64) as usize, board.rank(), board.ranks());
        let mark = word::entered(epoch, few.hash() ^ self.history);
        let line = board.line(slot, me);
        few.describe(line);
        board.write(Place::Inline { slot, rank: me }, |place| few.give(place));
        line.entered.store(mark, SyncPoint::DepositRelease.order());
        board.step(Step::Entered);
        for rank in (0..ranks).filter(|rank| *rank != me) {
            let theirs = self.board.line(slot, rank);
            if !wait::glance(|| theirs.entered.load(SyncPoint::DepositAcquire.order()) == mark)
                && let Err(stop) = self.await_mark(few, rank, mark)
            {
                return Some(Err(stop));
            }
        }
        let board = &self.board;
        flat::fold_lines(board, few, slot, me, ranks);
        wait::wake(board, slot);
        board.step(Step::Copied);
        board.left(me).store(epoch, SyncPoint::LeftRelease.order());
        board.step(Step::Left);
        self.heard_all(epoch);
        self.board.prepare_line(((epoch + 1) % SLOTS as u64) as usize);
        Some(Ok(Report { epoch, algorithm: Algorithm::Flat, place: None }))
    }

    /// Waits for the mark of `rank`, which is late or another one.
    #[cold]
    #[inline(never)]
    fn await_mark(&mut self, few: &Bound<'_>, rank: usize, mark: u64) -> Result<(), Stop> {
        let call = few.call();
        let (mut operation, _) = self.operation(&call);
        flat::await_mark(&mut operation, rank, mark)
    }
}
