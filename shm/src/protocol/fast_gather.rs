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
use crate::sync::SyncPoint;

impl<B: Board> Member<B> {
    /// Runs one gather as its root; `None`, with nothing done, where [`Member::run`] must be asked. Blocks are received in the order of
    /// the ranks while each is one piece at most; after the first one that is not, or has another length than is expected, the general way
    /// receives them all.
    #[inline(always)]
    pub fn run_fast_gather(&mut self, gather: PreparedGather<'_>) -> Option<Result<Report, Stop>> {
        let slot = self.fast_path_slot()?;
        Some(self.gather_lines(&gather, slot).map(|announced| Report { announced, ..self.leave(gather.hash(), true) }))
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
        gather.keep_own(me);
        let mut next = 0;
        for rank in 0..board.ranks() {
            let (at, bytes) = (next, gather.bytes(gather.count(rank)));
            next += bytes;
            if rank == me {
                continue;
            }
            let announced = self.await_announced((slot, rank), mark, || gather.call())?;
            let is_expected = announced == gather.count(rank) as u64;
            if is_expected && bytes <= INLINE_BYTES {
                self.board.read(Place::Inline { slot, rank, bytes }, |from| gather.receive(from, at, bytes));
                continue;
            }
            let is_piece = is_expected && bytes <= gather.most_of_a_piece();
            let receive = |from: *const u8| gather.receive_larger(from, at, bytes);
            if !(is_piece && self.receive_piece((slot, rank, bytes), gather.hash(), || gather.call(), receive)?) {
                return self.gather_in_general(gather);
            }
        }
        Ok(None)
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
