//! The fast path of an alltoall of unequal blocks, of which each rank knows its own and announces them.

use super::algorithm::announced;
use super::board::{Board, DepositsAt, Place};
use super::call::Call;
use super::lengths::{Announced, Lengths};
use super::lines::INLINE_BYTES;
use super::member::Member;
use super::operation::{Report, Stop};
use super::payload::PreparedPairs;
use crate::config::Algorithm;

impl<B: Board> Member<B> {
    /// Runs the first operation of such an alltoall; `None`, with nothing done, where [`Member::run`] must be asked. Blocks are received in
    /// the order of the ranks while deposits are one piece at most; after the first one that is not, the general way receives them all.
    #[inline(always)]
    pub fn run_fast_pairs(&mut self, pairs: PreparedPairs<'_>) -> Option<Result<Report, Stop>> {
        let slot = self.fast_path_slot()?;
        let at = match pairs.deposit_bytes() <= INLINE_BYTES {
            true => None,
            false => Some(self.fast_path_deposits(pairs.need())?),
        };
        let done = self.exchange_pairs(&pairs, slot, at);
        Some(done.map(|done| {
            let Report { epoch, .. } = self.leave(pairs.hash(), true);
            Report { epoch, ..done }
        }))
    }

    #[inline(always)]
    fn exchange_pairs(
        &mut self,
        pairs: &PreparedPairs<'_>,
        slot: usize,
        at: Option<DepositsAt>,
    ) -> Result<Report, Stop> {
        let mark = self.begin(pairs.hash());
        let board = &self.board;
        let me = board.rank();
        pairs.describe(board.line(slot, me));
        self.deposit_announced((slot, at, pairs.deposit_bytes()), (mark, pairs.hash()), |to| pairs.deposit(to));
        pairs.keep_own();
        let (mut all, mut next) = (pairs.lengths(), 0);
        for rank in 0..board.ranks() {
            let (at, count) = (next, pairs.expected(rank));
            next += count;
            if rank == me {
                continue;
            }
            let theirs = Lengths::from_word(self.await_announced((slot, rank), mark, || pairs.call())?);
            all = all.and(theirs);
            if count == 0 || theirs.largest == 0 {
                continue;
            }
            let bytes = pairs.deposit_bytes_of(theirs);
            let receive = |from: *const u8| pairs.receive(from, rank, at, theirs);
            if bytes <= INLINE_BYTES {
                self.board.read(Place::Inline { slot, rank, bytes }, receive);
                continue;
            }
            let is_piece = bytes <= pairs.most_of_a_piece();
            if !(is_piece && self.receive_piece((slot, rank, bytes), pairs.hash(), || pairs.call(), receive)?) {
                return self.pairs_in_general(pairs);
            }
        }
        if pairs.reads(all) {
            return self.pairs_in_general(pairs);
        }
        Ok(Report { announced: Some(Announced::Pairs(all)), ..Report::ticketless(0, Algorithm::Flat) })
    }

    /// Receives what all ranks have for this one, again where it was received before: it stays until this rank has left.
    #[cold]
    #[inline(never)]
    fn pairs_in_general(&mut self, pairs: &PreparedPairs<'_>) -> Result<Report, Stop> {
        let starts = pairs.starts();
        let exchange = pairs.exchange(&starts);
        let window = pairs.window(&exchange);
        let call = Call { window: Some(&window), ..pairs.call() };
        let (mut operation, _) = self.operation(&call);
        announced::collect(&mut operation, &window, Report::ticketless(0, Algorithm::Flat))
    }
}
