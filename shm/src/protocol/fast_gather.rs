//! The fast path of the root of a gather whose owners announce the lengths of their blocks. The owners take that of all exchanges.

use super::algorithm::announced_gather;
use super::board::{Board, Place};
use super::call::Call;
use super::event;
use super::lengths::Announced;
use super::lines::INLINE_BYTES;
use super::member::Member;
use super::operation::{Report, Stop};
use super::payload::PreparedGather;
use super::step::Step;
use super::wait;
use crate::sync::{Ordering, SyncPoint};

impl<B: Board> Member<B> {
    /// Runs one gather as its root; `None`, with nothing done, where [`Member::run`] must be asked. Blocks are received in the order of
    /// the ranks while they lie beside the marks; at the first one that does not, or has another length than is expected, the rest is
    /// left to the general way.
    #[inline(always)]
    pub fn run_fast_gather(&mut self, gather: PreparedGather<'_>) -> Option<Result<Report, Stop>> {
        let slot = self.fast_path_slot()?;
        Some(self.gather_lines(&gather, slot).map(|announced| Report {
            announced,
            ..self.leave(gather.hash(), true)
        }))
    }

    #[inline(always)]
    fn gather_lines(&mut self, gather: &PreparedGather<'_>, slot: usize) -> Result<Option<Announced>, Stop> {
        let mark = self.begin(gather.hash());
        let board = &self.board;
        let (me, line) = (board.rank(), board.line(slot, board.rank()));
        gather.describe(line);
        line.entered.store(mark, SyncPoint::CallRelease.order());
        board.step(Step::Entered);
        event::wake(board, slot);
        let mut at = 0;
        let mut in_general = false;
        for rank in 0..board.ranks() {
            let (count, begin) = (gather.count(rank), at);
            let bytes = gather.bytes(count);
            at += bytes;
            if rank == me {
                gather.keep_own(begin, bytes);
                continue;
            }
            if in_general {
                continue;
            }
            let theirs = self.board.line(slot, rank);
            let there = || theirs.entered.load(SyncPoint::DepositAcquire.order()) == mark;
            if !wait::spin(&self.patience, there, || {}) {
                self.await_mark(&gather.call(), rank, mark)?;
            }
            let announced = self.board.line(slot, rank).call[1].load(Ordering::Relaxed);
            if announced != count as u64 || bytes > INLINE_BYTES {
                in_general = true;
                continue;
            }
            self.board.read(Place::Inline { slot, rank, bytes }, |from| gather.receive(from, begin, bytes));
        }
        if in_general { self.gather_in_general(gather) } else { Ok(None) }
    }

    /// Receives what all ranks have for this one, again where it was received before: it stays until this rank has left.
    #[cold]
    #[inline(never)]
    fn gather_in_general(&mut self, gather: &PreparedGather<'_>) -> Result<Option<Announced>, Stop> {
        let starts = gather.starts();
        let exchange = gather.exchange(&starts);
        let window = gather.window(&exchange);
        let call = Call { window: Some(&window), ..gather.call() };
        let (mut operation, _) = self.operation(&call);
        announced_gather::collect(&mut operation, &window)
    }
}
