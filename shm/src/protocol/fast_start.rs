//! The fast path of a small call that does not block: it deposits at once, and receives when all deposits are there, in the call that
//! starts it on the last rank. The words and their order are those of a blocking exchange.

use super::active_request::{ActiveRequest, State};
use super::board::{Board, SLOTS};
use super::call::Prepared;
use super::deposit::has_deposited;
use super::geometry::Exchange;
use super::member::Member;
use super::payload::{BlockSizes, PreparedExchange, SmallBlocks, SmallExchange};
use super::pieces::PIECE_BYTES;
use super::word;
use crate::sync::SyncPoint;

/// Bytes of the largest deposit of a small call: one piece.
const MOST_BYTES: usize = PIECE_BYTES;

impl<B: Board> Member<B> {
    /// Begins a small call under the conditions of the fast path: returns whether it is complete; `None`, with nothing done, where it cannot.
    #[inline(always)]
    pub(super) fn start_small(&mut self, request: &mut ActiveRequest) -> Option<bool> {
        let (exchange, prepared, blocks) = request.small(self.board.rank())?;
        let slot = self.fast_path_slot()?;
        let is_complete = match blocks.are_equal() {
            true => self.start_exchange(exchange.with(prepared, blocks)?, slot)?,
            false => self.start_exchange(exchange.with_unequal(prepared, blocks)?, slot)?,
        };
        request.state = State::Deposited;
        Some(is_complete)
    }

    #[inline(always)]
    fn start_exchange<S: BlockSizes>(&mut self, exchange: PreparedExchange<'_, S>, slot: usize) -> Option<bool> {
        match exchange.is_inline() {
            true => {
                self.deposit_line(&exchange, slot);
            }
            false => {
                self.begin_deposited(&exchange, slot)?;
            }
        }
        Some(receive(&self.board, exchange, self.epoch, exchange.hash() ^ self.history))
    }
}

impl ActiveRequest {
    /// The blocks that rank `me` sends and receives, if they are small.
    pub(super) fn small_blocks(&mut self, me: usize) -> Option<SmallBlocks> {
        let ActiveRequest { buffers, prepared, root, blocks, room, segments: 1, .. } = self else { return None };
        // A user's operator is added in each call that makes progress.
        if prepared.is_by_user() {
            return None;
        }
        let exchange = Exchange::new(prepared.collective, *root, prepared.ranks, blocks.lens());
        let bytes = buffers.as_buffers().own_parts(&exchange, me).small_exchange()?.bytes();
        SmallBlocks::new(prepared, bytes, me, MOST_BYTES.min(room.deposit), exchange.known_lengths()?)
    }

    /// The buffers of a small call, and what is prepared of it.
    #[inline(always)]
    fn small(&mut self, me: usize) -> Option<(SmallExchange<'_>, &Prepared<'static>, &SmallBlocks)> {
        let ActiveRequest { buffers, prepared, root, blocks, small: Some(small), .. } = self else { return None };
        let exchange = Exchange::new(prepared.collective, *root, prepared.ranks, blocks.lens());
        Some((buffers.as_buffers().own_parts(&exchange, me).small_exchange()?, prepared, small))
    }

    /// Receives what is for this rank of a small call that is deposited, if all of it is there; returns whether it was.
    pub(super) fn receive_small<B: Board>(&mut self, board: &B) -> bool {
        let (epoch, hash) = (self.epoch, self.prepared.hash ^ self.history);
        let Some((exchange, prepared, blocks)) = self.small(board.rank()) else { return false };
        let received = match blocks.are_equal() {
            true => exchange.with(prepared, blocks).map(|exchange| receive(board, exchange, epoch, hash)),
            false => exchange.with_unequal(prepared, blocks).map(|exchange| receive(board, exchange, epoch, hash)),
        };
        received.unwrap_or(false)
    }
}

/// Receives the deposits of operation `epoch` if all are there; returns whether they are. `hash` is that of its marks.
#[inline(always)]
fn receive<B: Board, S: BlockSizes>(board: &B, exchange: PreparedExchange<'_, S>, epoch: u64, hash: u32) -> bool {
    let slot = (epoch % SLOTS as u64) as usize;
    match exchange.is_inline() {
        true => receive_lines(board, exchange, slot, word::entered(epoch, hash)),
        false => receive_pieces(board, exchange, slot, (epoch, hash)),
    }
}

/// Receives deposits that lie beside their marks.
#[inline(always)]
fn receive_lines<B: Board, S: BlockSizes>(
    board: &B,
    exchange: PreparedExchange<'_, S>,
    slot: usize,
    mark: u64,
) -> bool {
    let is_there = |rank| board.line(slot, rank).entered.load(SyncPoint::DepositAcquire.order()) == mark;
    if !exchange.sources().all(is_there) {
        return false;
    }
    exchange.keep_own();
    for rank in exchange.sources() {
        board.read(exchange.line(slot, rank), |deposit| exchange.receive(deposit, rank, 0));
    }
    true
}

/// Receives deposits that are announced piece by piece.
#[inline(never)]
fn receive_pieces<B: Board, S: BlockSizes>(
    board: &B,
    exchange: PreparedExchange<'_, S>,
    slot: usize,
    (epoch, hash): (u64, u32),
) -> bool {
    let is_there =
        |rank: usize| exchange.pieces_from(rank).all(|piece| has_deposited(board, slot, rank, epoch, hash, piece + 1));
    if !exchange.sources().all(is_there) {
        return false;
    }
    let at = board.deposits_at(epoch, exchange.need().deposit);
    exchange.keep_own();
    for rank in exchange.sources() {
        for piece in exchange.pieces_from(rank) {
            board.read(exchange.place(at, rank, piece), |from| exchange.receive(from, rank, piece));
        }
    }
    true
}
