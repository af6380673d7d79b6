//! The fast path of a scatter of which only the root knows all lengths.

use super::algorithm::announced_scatter;
use super::board::{Board, Place};
use super::event;
use super::lengths::Announced;
use super::lines::INLINE_BYTES;
use super::member::Member;
use super::operation::{Report, Stop};
use super::payload::PreparedScatter;
use super::step::Step;
use crate::sync::SyncPoint;

impl<B: Board> Member<B> {
    /// Runs the first operation of such a scatter; `None`, with nothing done, where [`Member::run`] must be asked.
    #[inline(always)]
    pub fn run_fast_scatter(&mut self, scatter: PreparedScatter<'_>) -> Option<Result<Report, Stop>> {
        let slot = self.fast_path_slot()?;
        let done = match scatter.is_root() {
            true => Ok(self.give_bundle(&scatter, slot)?),
            false => self.receive_bundle(&scatter, slot),
        };
        let leave = |announced| Report { announced, ..self.leave(scatter.hash(), scatter.receives_from_all()) };
        Some(done.map(leave))
    }

    /// Announces and deposits the bundle; `None`, with nothing done, where its memory is not known to be free and there.
    #[inline(always)]
    fn give_bundle(&mut self, scatter: &PreparedScatter<'_>, slot: usize) -> Option<Option<Announced>> {
        let bytes = scatter.bundle_bytes();
        let at = match bytes <= INLINE_BYTES {
            true => None,
            false => Some(self.fast_path_deposits(scatter.need(bytes))?),
        };
        let mark = self.begin(scatter.hash());
        scatter.describe(self.board.line(slot, self.board.rank()));
        self.deposit_announced((slot, at, bytes), (mark, scatter.hash()), |to| scatter.write(to));
        Some(scatter.keep_own())
    }

    /// Receives the block of this rank.
    #[inline(always)]
    fn receive_bundle(&mut self, scatter: &PreparedScatter<'_>, slot: usize) -> Result<Option<Announced>, Stop> {
        let mark = self.begin(scatter.hash());
        let (board, rank) = (&self.board, scatter.root());
        let line = board.line(slot, board.rank());
        scatter.describe(line);
        line.entered.store(mark, SyncPoint::CallRelease.order());
        board.step(Step::Entered);
        event::wake(board, slot);
        let word = self.await_announced((slot, rank), mark, || scatter.call())?;
        let (mut outcome, mut list) = (None, Vec::new());
        let is_received = match scatter.announced(word) {
            None => false,
            Some(bytes) => {
                let read = |bundle: *const u8| outcome = scatter.read(bundle, bytes, &mut list);
                match bytes <= INLINE_BYTES {
                    true => {
                        self.board.read(Place::Inline { slot, rank, bytes }, read);
                        true
                    }
                    false => self.receive_piece((slot, rank, bytes), scatter.hash(), || scatter.call(), read)?,
                }
            }
        };
        if !is_received {
            return self.receive_in_general(scatter);
        }
        if outcome == Some(Announced::Listed) {
            self.scratch.lengths = list;
        }
        Ok(outcome)
    }

    #[cold]
    #[inline(never)]
    fn receive_in_general(&mut self, scatter: &PreparedScatter<'_>) -> Result<Option<Announced>, Stop> {
        let call = scatter.call();
        let (mut operation, _) = self.operation(&call);
        announced_scatter::collect(&mut operation, scatter)
    }
}
