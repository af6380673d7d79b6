//! `slices` with one result for all ranks: it is folded where each of them can read it, and nobody copies it out.
//!
//! A rank may go on reading a result while the next operations run, so a group has a few *places* for results, and beside its
//! deposit every rank says in which of them it still reads. Rank 0 offers memory for the result under the number of a place.
//! Once all have deposited, everybody knows the same: the result goes where rank 0 said if nobody reads there, and otherwise
//! into the accumulator, from where each rank copies it. Nobody ever waits for a reader.

use super::board::{Board, Need, Place};
use super::operation::{Operation, Stop};
use super::pieces::Pieces;
use super::slices;
use super::wait::Wake;
use crate::sync::{Ordering, Rule};
use std::cell::Cell;

/// Places for results that a group has.
pub const RESULTS: usize = 2;

const NUMBER_SHIFT: u32 = 32;

/// A call whose result is to be one for all ranks, as one of them sees it.
#[derive(Debug, Default)]
pub struct SharedResult {
    /// Places in which this rank still reads a result, a bit each.
    pub held: u64,
    /// The number of the place and the name of the memory that rank 0 offers. A name of 0 is no offer.
    pub offer: (usize, u64),
    /// Bytes of the whole result.
    pub bytes: usize,
    agreed: Cell<Option<Agreed>>,
}

/// What all ranks know once all have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Places in which some rank still reads.
    pub held: u64,
    /// What rank 0 offered.
    pub offer: (usize, u64),
    /// Whether the result lies there; otherwise every rank has a copy.
    pub taken: bool,
}

impl SharedResult {
    /// A result of `bytes`.
    pub fn new(held: u64, offer: (usize, u64), bytes: usize) -> Self {
        SharedResult { held, offer, bytes, agreed: Cell::new(None) }
    }

    /// What was agreed on, if the call has come so far.
    pub fn agreed(&self) -> Option<Agreed> {
        self.agreed.get()
    }

    /// Whether the result is folded in the place that was offered.
    pub(super) fn is_taken(&self) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.taken)
    }
}

pub(super) fn run<B: Board>(op: &mut Operation<'_, B>, shared: &SharedResult) -> Result<(), Stop> {
    op.reserve(Need::of_all(0, op.call.bytes()))?;
    let pieces = slices::pieces(op);
    let line = op.board.line(op.slot, op.me);
    let said = [shared.held | (shared.offer.0 as u64) << NUMBER_SHIFT, shared.offer.1];
    for (word, value) in line.lent.iter().zip(said) {
        word.store(value, Ordering::Relaxed);
    }
    slices::post(op, &pieces);
    if shared.agreed.get().is_none() {
        agree(op, shared)?;
    }
    if !shared.is_taken() {
        op.reserve(Need::of_all(op.call.accumulator_bytes(), op.call.bytes()))?;
    }
    slices::complete(op, &pieces)
}

/// Finds out where the result goes, the same on all ranks: from what came with their deposits.
fn agree<B: Board>(op: &mut Operation<'_, B>, shared: &SharedResult) -> Result<(), Stop> {
    let (slot, epoch, hash, ranks) = (op.slot, op.epoch, op.hash, op.ranks);
    op.wait(Wake::Event, |board| (slices::deposited_by_all(board, slot, epoch, hash, ranks) > 0).then_some(()))?;
    let board = op.board;
    let said = |rank: usize, word: usize| board.line(slot, rank).lent[word].load(Ordering::Relaxed);
    let all = (1 << RESULTS) - 1;
    let held = (0..ranks).fold(0, |held, rank| held | said(rank, 0) & all);
    let offer = ((said(0, 0) >> NUMBER_SHIFT) as usize, said(0, 1));
    let is_free = offer.0 < RESULTS && (held >> offer.0 & 1 == 0 || !Rule::HeldIsNotWritten.is_kept());
    let taken = offer.1 != 0 && is_free;
    if taken {
        board.lend(core::ptr::null_mut(), core::ptr::null_mut(), shared.bytes);
        if let Err(error) = board.open(0, [offer.1; 2]) {
            return Err(op.cannot_open(0, &error));
        }
    }
    shared.agreed.set(Some(Agreed { held, offer, taken }));
    Ok(())
}

/// Chunk `i` of the result; `skip` bytes of it lie before this operation's part.
pub(super) fn place(skip: usize, pieces: &Pieces, i: usize) -> Place {
    Place::Lent { rank: 0, result: true, piece: i, offset: skip + pieces.offset(i), bytes: pieces.bytes(i) }
}

/// Folds chunk `i` of all ranks, which this rank has claimed, into the result of all.
pub(super) fn fold<B: Board>(op: &mut Operation<'_, B>, skip: usize, pieces: &Pieces, i: usize) {
    let (board, call, area, ranks) = (op.board, op.call, op.area, op.ranks);
    let deposit = |rank| slices::deposit(area, rank, pieces, i);
    let result = place(skip, pieces, i);
    if call.is_its_own_accumulator() {
        board.write(result, |sum| {
            board.read(deposit(0), |first| {
                board.read(deposit(1), |second| call.add_two(sum, first, second, pieces, i));
            });
            (2..ranks).for_each(|rank| board.read(deposit(rank), |next| call.add(sum, next, pieces, i)));
        });
        return;
    }
    let sum = op.scratch.accumulator(pieces.accumulator_piece_bytes(i));
    board.read(deposit(0), |first| {
        board.read(deposit(1), |second| call.gather_two(sum, first, second, pieces, i));
    });
    (2..ranks).for_each(|rank| board.read(deposit(rank), |next| call.gather(sum, false, Some(next), pieces, i)));
    board.write(result, |to| call.hand_out(to, sum, pieces, i));
}
