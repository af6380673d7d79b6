//! `slices`: everybody deposits, then whoever is there folds what nobody has begun, by rank, chunk by chunk.
//!
//! A chunk can be folded once every rank has deposited it; it is claimed by a try-lock, each rank beginning with its own
//! share and going on with what is left, so a rank that computes or is preempted stops nobody. Every element is folded
//! in rank order by one rank: the same bits in every run. Cost after the last arrival: its deposit, a fold of all ranks'
//! data shared among those present, and a copy of the result.
//!
//! [`post`] stores and never waits; [`complete`] does everything else, and [`sweep`] what of that needs no waiting. A posted contribution needs nothing further
//! from its rank, so others complete while it computes.

use super::board::{Board, CHUNKS, Need, Place};
use super::operation::{Operation, Stop};
use super::pieces::Pieces;
use super::publish::{Done, is_final};
use super::shared_result;
use super::step::Step;
use super::wait::Wake;
use super::word::{self, FoldState, FoldWord};
use crate::sync::{Ordering, SyncPoint};

/// Marks the entry and posts. The memory is free.
pub(super) fn enter_and_post<B: Board>(op: &mut Operation<'_, B>) -> Result<(), Stop> {
    let mark = word::entered(op.epoch, op.hash);
    op.board.line(op.slot, op.me).entered.store(mark, SyncPoint::CallRelease.order());
    op.board.step(Step::Entered);
    op.reserve(Need::of_all(op.call.accumulator_bytes(), op.call.bytes()))?;
    post(op, &pieces(op));
    Ok(())
}

pub(super) fn run<B: Board>(op: &mut Operation<'_, B>) -> Result<(), Stop> {
    op.reserve(Need::of_all(op.call.accumulator_bytes(), op.call.bytes()))?;
    let pieces = pieces(op);
    post(op, &pieces);
    complete(op, &pieces)
}

/// Chunks by message size: enough to share and to pipeline, none so small that claiming it costs more than folding it.
pub(super) fn pieces<B: Board>(op: &Operation<'_, B>) -> Pieces {
    let least = if cfg!(earlybird_loom) { 64 } else { 4 * 1024 };
    let most = CHUNKS.min(word::MAX_PIECES);
    Pieces::of(op.call, (op.call.bytes() / 16).clamp(least, 32 * 1024), most)
}

/// Deposits this rank's contribution, announced chunk by chunk.
pub(super) fn post<B: Board>(op: &Operation<'_, B>, pieces: &Pieces) {
    let (board, call, me) = (op.board, op.call, op.me);
    for i in 0..pieces.number {
        board.write(deposit(op.area, me, pieces, i), |deposit| call.give(deposit, pieces, i));
        let mark = word::deposited(op.epoch, op.hash, i + 1);
        board.line(op.slot, me).deposited.store(mark, SyncPoint::DepositRelease.order());
    }
    board.step(Step::Deposited);
    op.wake_if_all_deposited(pieces.number, op.ranks);
}

/// Folds what can be folded and copies out what is final, until the whole result is here.
pub(super) fn complete<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces) -> Result<(), Stop> {
    let mut copied = Done::default();
    let mut left = pieces.number;
    while left > 0 {
        if !sweep(op, pieces, &mut copied, &mut left) {
            until_more(op, pieces, &copied)?;
        }
    }
    Ok(())
}

/// Goes through the chunks once, without waiting: folds those that can be, copies out those that are final; whether there
/// were any.
pub(super) fn sweep<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces, copied: &mut Done, left: &mut usize) -> bool {
    let (area, slot, epoch, hash, ranks) = (op.area, op.slot, op.epoch, op.hash, op.ranks);
    let stays = op.call.result_is_shared();
    let first = op.me * pieces.number / ranks;
    let mut found = false;
    let there = deposited_by_all(op.board, slot, epoch, hash, ranks);
    for i in (first..pieces.number).chain(0..first) {
        if copied.has(i) {
            continue;
        }
        let ready = match is_final(op.board, area, i, epoch, ranks) {
            true => {
                if !stays {
                    op.board.read(accumulator(area, pieces, i), |sum| op.call.take(sum, pieces, i));
                }
                true
            }
            false => i < there && try_fold(op, pieces, i),
        };
        if ready {
            copied.insert(i);
            *left -= 1;
            found = true;
        }
    }
    found
}

/// Waits until a chunk that is not in `copied` can be folded or is final.
pub(super) fn until_more<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces, copied: &Done) -> Result<(), Stop> {
    let (area, slot, epoch, hash, ranks) = (op.area, op.slot, op.epoch, op.hash, op.ranks);
    op.wait(Wake::Event, |board| {
        let there = deposited_by_all(board, slot, epoch, hash, ranks);
        let open = |i: usize| i < there && is_empty(board, area, i, epoch, ranks).is_some();
        let any = |i: usize| is_final(board, area, i, epoch, ranks) || open(i);
        (0..pieces.number).any(|i| !copied.has(i) && any(i)).then_some(())
    })
}

pub(super) fn deposit(area: usize, rank: usize, pieces: &Pieces, piece: usize) -> Place {
    Place::Deposit { area, rank, piece, offset: pieces.offset(piece), bytes: pieces.bytes(piece) }
}

pub(super) fn accumulator(area: usize, pieces: &Pieces, chunk: usize) -> Place {
    let (offset, bytes) = (pieces.accumulator_offset(chunk), pieces.accumulator_piece_bytes(chunk));
    Place::Accumulator { area, chunk, offset, bytes }
}

/// Pieces that every rank has deposited.
pub(super) fn deposited_by_all<B: Board>(board: &B, slot: usize, epoch: u64, hash: u32, ranks: usize) -> usize {
    let of = |r: usize| board.line(slot, r).deposited.load(SyncPoint::DepositAcquire.order());
    (0..ranks).map(|r| word::pieces(of(r), epoch, hash)).min().unwrap_or(0)
}

/// The word of a chunk that nobody has begun.
fn is_empty<B: Board>(board: &B, area: usize, i: usize, epoch: u64, ranks: usize) -> Option<u64> {
    let word = board.chunk(area, i).load(Ordering::Relaxed);
    (FoldWord(word).state(epoch, ranks) == FoldState::Empty).then_some(word)
}

/// Takes chunk `i`, if nobody has: the only one to fold it from here on.
pub(super) fn claim<B: Board>(op: &Operation<'_, B>, i: usize) -> bool {
    let Some(word) = is_empty(op.board, op.area, i, op.epoch, op.ranks) else { return false };
    let busy = FoldWord::busy(op.epoch, op.me, 0).0;
    // Relaxed: the claim carries nothing, since nobody has written the chunk before.
    if op.board.chunk(op.area, i).compare_exchange(word, busy, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return false;
    }
    op.board.step(Step::Claimed);
    true
}

/// Folds chunk `i` of all ranks, which have deposited it, unless somebody else does; whether this rank has.
fn try_fold<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces, i: usize) -> bool {
    if !claim(op, i) {
        return false;
    }
    match op.call.shared {
        Some((shared, skip)) if shared.is_taken() => shared_result::fold(op, skip, pieces, i),
        _ => fold(op, pieces, i),
    }
    op.board.step(Step::Folded);
    op.publish(i);
    true
}

/// Folds chunk `i`, which this rank has claimed, into the accumulator and into its own result.
fn fold<B: Board>(op: &Operation<'_, B>, pieces: &Pieces, i: usize) {
    let (board, call, area, ranks) = (op.board, op.call, op.area, op.ranks);
    board.write(accumulator(area, pieces, i), |sum| {
        board.read(deposit(area, 0, pieces, i), |first| {
            board.read(deposit(area, 1, pieces, i), |second| call.add_two(sum, first, second, pieces, i));
        });
        for rank in 2..ranks {
            board.read(deposit(area, rank, pieces, i), |next| match rank + 1 == ranks {
                true => call.add_and_take(sum, next, pieces, i),
                false => call.add(sum, next, pieces, i),
            });
        }
        if ranks == 2 {
            call.take(sum, pieces, i);
        }
    });
}
