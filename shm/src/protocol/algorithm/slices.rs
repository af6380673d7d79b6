//! `slices`: every rank deposits, then the ranks inside the call fold, each chunk by one rank in rank order.
//!
//! A chunk can be folded once every rank has deposited it. It is claimed by a try-lock; each rank begins with its own share and
//! continues with unclaimed chunks of others, so a rank that computes or is preempted stops no other. Every element is folded
//! in rank order by one rank: the same bits in every run. Cost after the last arrival: its deposit, a fold of all ranks'
//! data shared among those present, and a copy of the result.
//!
//! [`deposit`] stores and never waits; [`complete`] does the rest by [`sweep`], which does not wait either, and [`until_more`]. A
//! rank that has deposited is not needed any more, so the others complete while it computes.

use crate::protocol::board::{Board, CHUNKS, Need, Place};
use crate::protocol::deposit::deposited_by_all;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::pieces::Pieces;
use crate::protocol::publish::{Done, is_final};
use crate::protocol::step::Step;
use crate::protocol::wait::Wake;
use crate::protocol::word::{self, FoldState, FoldWord};
use crate::sync::{Ordering, SyncPoint};

/// Marks the entry and deposits, into memory that is known to be free.
pub(in crate::protocol) fn enter_and_deposit<B: Board>(op: &mut Operation<'_, B>) -> Result<(), Stop> {
    op.enter();
    op.reserve(Need::of_all(op.call.accumulator_bytes(), op.call.bytes()))?;
    deposit(op, &pieces(op));
    Ok(())
}

pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>) -> Result<(), Stop> {
    op.reserve(Need::of_all(op.call.accumulator_bytes(), op.call.bytes()))?;
    let pieces = pieces(op);
    deposit(op, &pieces);
    complete(op, &pieces)
}

/// Chunks by message size: enough to share and to pipeline, none so small that claiming it costs more than folding it.
pub(in crate::protocol) fn pieces<B: Board>(op: &Operation<'_, B>) -> Pieces {
    let least = if cfg!(earlybird_loom) { 64 } else { 4 * 1024 };
    let most = CHUNKS.min(word::MAX_PIECES);
    op.pieces((op.call.bytes() / 16).clamp(least, 32 * 1024), most)
}

/// Deposits this rank's contribution, announced chunk by chunk.
pub(super) fn deposit<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces) {
    let (board, call, me) = (op.board, op.call, op.me);
    let stores = op.scratch.stores.begin(call.bytes());
    for i in 0..pieces.number {
        board.write(pieces.deposit(op.area, me, i), |deposit| call.give(deposit, pieces, i, stores));
        let mark = word::deposited(op.epoch, op.hash, i + 1);
        board.line(op.slot, me).deposited.store(mark, SyncPoint::DepositRelease.order());
    }
    op.scratch.stores.end(stores, call.bytes());
    board.step(Step::Deposited);
    op.wake_if_all_deposited(pieces.number, op.ranks);
}

/// Folds and copies out chunks until the whole result is copied out.
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

/// Visits all chunks once, without waiting: folds those that are ready, copies out those that are final. Returns whether there
/// were any.
pub(in crate::protocol) fn sweep<B: Board>(
    op: &mut Operation<'_, B>,
    pieces: &Pieces,
    copied: &mut Done,
    left: &mut usize,
) -> bool {
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
                    op.board.read(pieces.accumulator(area, i), |sum| op.call.take(sum, pieces, i));
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
pub(in crate::protocol) fn until_more<B: Board>(
    op: &mut Operation<'_, B>,
    pieces: &Pieces,
    copied: &Done,
) -> Result<(), Stop> {
    let (area, slot, epoch, hash, ranks) = (op.area, op.slot, op.epoch, op.hash, op.ranks);
    op.wait(Wake::Event, |board| {
        let there = deposited_by_all(board, slot, epoch, hash, ranks);
        let open = |i: usize| i < there && is_empty(board, area, i, epoch, ranks).is_some();
        let any = |i: usize| is_final(board, area, i, epoch, ranks) || open(i);
        (0..pieces.number).any(|i| !copied.has(i) && any(i)).then_some(())
    })
}

/// The word of a chunk that no rank has begun.
fn is_empty<B: Board>(board: &B, area: usize, i: usize, epoch: u64, ranks: usize) -> Option<u64> {
    let word = board.chunk(area, i).load(Ordering::Relaxed);
    (FoldWord(word).state(epoch, ranks) == FoldState::Empty).then_some(word)
}

/// Claims chunk `i` unless another rank has; the claimer alone folds it.
pub(super) fn claim<B: Board>(op: &Operation<'_, B>, i: usize) -> bool {
    let Some(word) = is_empty(op.board, op.area, i, op.epoch, op.ranks) else { return false };
    let busy = FoldWord::busy(op.epoch, op.me, 0).0;
    // Relaxed: the claim carries nothing, since no rank has written the chunk before.
    if op.board.chunk(op.area, i).compare_exchange(word, busy, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return false;
    }
    op.board.step(Step::Claimed);
    true
}

/// Folds chunk `i`, which all ranks have deposited, unless another rank has claimed it; returns whether this rank folded it.
fn try_fold<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces, i: usize) -> bool {
    if !claim(op, i) {
        return false;
    }
    match op.call.shared {
        Some((shared, skip)) if shared.is_taken() => fold_into_shared(op, skip, pieces, i),
        _ => fold(op, pieces, i),
    }
    op.board.step(Step::Folded);
    op.publish(i);
    true
}

/// Folds chunk `i`, which this rank has claimed, into the accumulator and into its own result.
fn fold<B: Board>(op: &Operation<'_, B>, pieces: &Pieces, i: usize) {
    let (board, call, area, ranks) = (op.board, op.call, op.area, op.ranks);
    board.write(pieces.accumulator(area, i), |sum| {
        board.read(pieces.deposit(area, 0, i), |first| {
            board.read(pieces.deposit(area, 1, i), |second| call.add_two(sum, first, second, pieces, i));
        });
        for rank in 2..ranks {
            board.read(pieces.deposit(area, rank, i), |next| match rank + 1 == ranks {
                true => call.add_and_take(sum, next, pieces, i),
                false => call.add(sum, next, pieces, i),
            });
        }
        if ranks == 2 {
            call.take(sum, pieces, i);
        }
    });
}

/// Folds chunk `i`, which this rank has claimed, into the one result of all ranks; this operation's part begins at byte `skip` of
/// the result.
fn fold_into_shared<B: Board>(op: &mut Operation<'_, B>, skip: usize, pieces: &Pieces, i: usize) {
    let (board, call, area, ranks) = (op.board, op.call, op.area, op.ranks);
    let deposit = |rank| pieces.deposit(area, rank, i);
    let result =
        Place::Registered { rank: 0, result: true, piece: i, offset: skip + pieces.offset(i), bytes: pieces.bytes(i) };
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
