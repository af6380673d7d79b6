//! `slices` with one result for all ranks: the result is folded into memory that all of them read, and is not copied out.
//!
//! A rank may go on reading a result while the next operations run, so a group has several *places* for results, and every rank
//! publishes beside its deposit which of them it still reads. Rank 0 offers memory for the result under the number of a place.
//! Once all have deposited, all have the same words: the result goes to the place offered if no rank reads there, and
//! otherwise into the accumulator, from which each rank copies it. No rank waits for a reader.

use super::slices;
use crate::protocol::board::{Board, Need};
use crate::protocol::deposit::deposited_by_all;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::shared_result::{Agreed, RESULTS, SharedResult};
use crate::protocol::wait::Wake;
use crate::sync::{Ordering, Rule};

const NUMBER_SHIFT: u32 = 32;

pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>, shared: &SharedResult) -> Result<(), Stop> {
    op.reserve(Need::of_all(0, op.call.bytes()))?;
    let pieces = slices::pieces(op);
    let line = op.board.line(op.slot, op.me);
    let words = [shared.held | (shared.offer.0 as u64) << NUMBER_SHIFT, shared.offer.1];
    for (word, value) in line.registered.iter().zip(words) {
        word.store(value, Ordering::Relaxed);
    }
    slices::deposit(op, &pieces);
    if shared.agreed().is_none() {
        agree(op, shared)?;
    }
    if !shared.is_taken() {
        op.reserve(Need::of_all(op.call.accumulator_bytes(), op.call.bytes()))?;
    }
    slices::complete(op, &pieces)
}

/// Decides the place of the result, the same on all ranks, from the words beside their deposits.
fn agree<B: Board>(op: &mut Operation<'_, B>, shared: &SharedResult) -> Result<(), Stop> {
    let (slot, epoch, hash, ranks) = (op.slot, op.epoch, op.hash, op.ranks);
    op.wait(Wake::Event, |board| (deposited_by_all(board, slot, epoch, hash, ranks) > 0).then_some(()))?;
    let board = op.board;
    let read = |rank: usize, word: usize| board.line(slot, rank).registered[word].load(Ordering::Relaxed);
    let all = (1 << RESULTS) - 1;
    let held = (0..ranks).fold(0, |held, rank| held | read(rank, 0) & all);
    let offer = ((read(0, 0) >> NUMBER_SHIFT) as usize, read(0, 1));
    let is_free = offer.0 < RESULTS && (held >> offer.0 & 1 == 0 || !Rule::HeldIsNotWritten.is_kept());
    let taken = offer.1 != 0 && is_free;
    if taken {
        board.register(core::ptr::null_mut(), core::ptr::null_mut(), shared.bytes);
        if let Err(error) = board.open(0, [offer.1; 2]) {
            return Err(op.cannot_open(0, &error));
        }
    }
    shared.agree(Agreed { held, offer, taken });
    Ok(())
}
