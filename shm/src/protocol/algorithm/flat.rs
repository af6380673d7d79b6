//! `flat`: every rank deposits, every rank folds all deposits in rank order. No ticket, no leader.
//!
//! Cost on one node: one line transfer after the last deposit; `ranks * bytes` read and folded by every rank. Up to
//! [`INLINE_BYTES`] travel beside the mark of entry, in one line for one to five words. The bits are equal on all
//! ranks because each runs the same instructions over the same operands in rank order and NaNs are canonical.
//!
//! A rank that has seen every deposit wakes the sleepers, after its own fold: a fence between its deposit and its first
//! poll would put the drain of the store buffer on the path of ranks that do not sleep. The last rank to deposit is
//! among those that see all, and by its fence either it sees a sleeper, or the sleeper's last poll sees all deposits.

use crate::protocol::board::{Board, Need, Place};
use crate::protocol::deposit::has_deposited;
use crate::protocol::lines::INLINE_BYTES;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::payload::PreparedPayload;
use crate::protocol::pieces::{PIECE_BYTES, Pieces};
use crate::protocol::step::Step;
use crate::protocol::wait::Wake;
use crate::protocol::word;
use crate::sync::SyncPoint;

pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>) -> Result<(), Stop> {
    if op.call.bytes() <= INLINE_BYTES { inline(op) } else { deposited(op) }
}

/// Runs an operation whose payload travels beside the mark.
fn inline<B: Board>(op: &mut Operation<'_, B>) -> Result<(), Stop> {
    let (board, call, epoch, slot, me, ranks) = (op.board, op.call, op.epoch, op.slot, op.me, op.ranks);
    let mark = word::entered(epoch, op.hash);
    board.write(Place::Inline { slot, rank: me, bytes: call.bytes() }, |line| call.give_few(line));
    board.line(slot, me).entered.store(mark, SyncPoint::DepositRelease.order());
    board.step(Step::Entered);
    for rank in (0..ranks).filter(|r| *r != me) {
        await_mark(op, rank, mark)?;
    }
    match call.small_payload() {
        Some(payload) => fold_lines(board, &payload, slot, me, ranks),
        None => gather_inline(op),
    }
    op.wake();
    Ok(())
}

/// Waits until `rank` has entered the operation with this mark, which is also the flag of its payload. Comparing the whole mark
/// checks the signature at no cost.
#[inline]
pub(in crate::protocol) fn await_mark<B: Board>(op: &mut Operation<'_, B>, rank: usize, mark: u64) -> Result<(), Stop> {
    let (slot, epoch) = (op.slot, op.epoch);
    match op.wait(Wake::Event, |board| entered(board, slot, rank, epoch))? == mark {
        true => Ok(()),
        false => Err(op.mismatch(rank)),
    }
}

/// Folds the payloads of all ranks' lines, in rank order.
#[inline(always)]
pub(in crate::protocol) fn fold_lines<B: Board>(
    board: &B,
    payload: &PreparedPayload<'_>,
    slot: usize,
    me: usize,
    ranks: usize,
) {
    // A barrier's.
    if payload.bytes() == 0 {
        return;
    }
    fold_places(board, payload, |rank| Place::Inline { slot, rank, bytes: payload.bytes() }, me, ranks);
}

/// Folds the payloads of all ranks' places in rank order; this rank's own is read from its private buffer.
#[inline(always)]
pub(in crate::protocol) fn fold_places<B: Board>(
    board: &B,
    payload: &PreparedPayload<'_>,
    place: impl Fn(usize) -> Place,
    me: usize,
    ranks: usize,
) {
    match me {
        0 => board.read(place(1), |second| payload.fold_two(None, Some(second))),
        1 => board.read(place(0), |first| payload.fold_two(Some(first), None)),
        _ => board.read(place(0), |first| board.read(place(1), |second| payload.fold_two(Some(first), Some(second)))),
    }
    for rank in 2..ranks {
        board.read(place(rank), |next| payload.fold_next(next));
    }
}

/// Folds the payloads of all lines through a private accumulator, for results that cannot be accumulated in place.
#[cold]
fn gather_inline<B: Board>(op: &mut Operation<'_, B>) {
    let (board, call, slot, me) = (op.board, op.call, op.slot, op.me);
    if call.count == 0 {
        return;
    }
    let pieces = Pieces::whole(call);
    let sum = op.scratch.accumulator(call.accumulator_bytes());
    for rank in 0..op.ranks {
        match rank == me {
            true => call.gather(sum, rank == 0, None, &pieces, 0),
            false => {
                let at = Place::Inline { slot, rank, bytes: call.bytes() };
                board.read(at, |from| call.gather(sum, rank == 0, Some(from), &pieces, 0));
            }
        }
    }
    call.take_gathered(sum, &pieces, 0);
}

/// The mark of `rank`'s entry into operation `epoch`, once it has entered.
#[inline]
fn entered<B: Board>(board: &B, slot: usize, rank: usize, epoch: u64) -> Option<u64> {
    let mark = board.line(slot, rank).entered.load(SyncPoint::DepositAcquire.order());
    word::has_entered(mark, epoch).then_some(mark)
}

/// Runs an operation whose payload travels through deposits in the arena, piece by piece.
fn deposited<B: Board>(op: &mut Operation<'_, B>) -> Result<(), Stop> {
    let (board, call, epoch, slot, me, ranks) = (op.board, op.call, op.epoch, op.slot, op.me, op.ranks);
    let hash = op.hash;
    let pieces = op.pieces(PIECE_BYTES, word::MAX_PIECES);
    let line = board.line(slot, me);
    line.entered.store(word::entered(epoch, hash), SyncPoint::CallRelease.order());
    board.step(Step::Entered);
    op.until_all_left(crate::protocol::board::AREAS)?;
    op.reserve(Need::of_all(0, call.bytes()))?;
    let place = |rank, i| pieces.deposit(rank, i);
    let stores = op.scratch.stores.begin(call.bytes());
    for i in 0..pieces.number {
        board.write(place(me, i), |deposit| call.give(deposit, &pieces, i, stores));
        line.deposited.store(word::deposited(epoch, hash, i + 1), SyncPoint::DepositRelease.order());
    }
    op.scratch.stores.end(stores, call.bytes());
    board.step(Step::Deposited);
    let there = |r| has_deposited(board, slot, r, epoch, hash, 1);
    if !op.patience.oversubscribed && !(0..ranks).all(there) {
        // A rank has not arrived, so there is time: see `chain`.
        for i in 0..pieces.number {
            board.demote(place(me, i));
        }
    }
    let gathers = call.prepared.fold_few.is_none();
    for i in 0..pieces.number {
        for rank in 0..ranks {
            if rank != me {
                op.until_deposited(rank, i + 1)?;
            }
            let sum = &mut *op.scratch;
            board.read(place(rank, i), |deposit| match rank {
                _ if gathers => {
                    let sum = sum.accumulator(pieces.accumulator_piece_bytes(0));
                    call.gather(sum, rank == 0, Some(deposit), &pieces, i);
                }
                0 => call.take_first(deposit, &pieces, i),
                _ => call.take_fold(deposit, &pieces, i),
            });
        }
        if gathers {
            call.take_gathered(op.scratch.accumulator(pieces.accumulator_piece_bytes(0)), &pieces, i);
        }
    }
    op.wake();
    Ok(())
}
