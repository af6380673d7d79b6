//! `chain`: every arriver folds its private data into shared accumulators, chunk by chunk, in arrival order.
//!
//! The rank that finds a chunk empty stores, all others add; the contribution that completes a chunk publishes it. Ranks
//! that arrive together start at rotated chunks and skip busy ones, so a balanced arrival folds in parallel and a
//! staggered one is Algorithm 2 of Parsons and Pai (2015), where the last arriver finds all but its own data folded.
//! Cost after the last arrival: one pass over the message plus one chunk.
//!
//! In a reduce only the root copies out; every other rank leaves when its own data is folded.
//!
//! The fold word is a try-lock: a rank holds at most one and never waits while it holds one.
//!
//! A started call is the same without a place in the order of arrival: [`start`] folds this rank's data, after which nothing more is
//! needed from it unless another rank held a chunk all the while, and [`sweep`] goes on without waiting. No ticket has compared its call
//! with those of the others, so whoever adds to a chunk compares first.

use crate::protocol::board::{Board, CHUNKS, Need};
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::pieces::Pieces;
use crate::protocol::publish::{Done, is_final};
use crate::protocol::step::Step;
use crate::protocol::store_pace::Stores;
use crate::protocol::wait::Wake;
use crate::protocol::word::{self, FoldState, FoldWord};
use crate::sync::{Ordering, SyncPoint};

/// Largest message whose chunks an early rank demotes: 16 KiB to 256 KiB gain 7 to 17 % of the tail under one late
/// rank, 1 MiB loses as much, with 2 MiB of cache per core.
const DEMOTE_BYTES: usize = 512 * 1024;

/// How often a rank that starts a call looks for chunks that others hold: for microseconds, and no rank may be awaited. Of two ranks that
/// start at one instant, up to 7 % have to come back for a chunk (`docs/results/2026-11-29.md`).
const LOOKS_AT_START: usize = if cfg!(earlybird_loom) { 1 } else { 64 };

/// The first chunk of the rank with this place: rotated, so that ranks that arrive together start at different chunks.
fn start_of(place: usize, ranks: usize, pieces: &Pieces) -> usize {
    place * pieces.number / ranks
}

pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>, place: usize) -> Result<(), Stop> {
    let (call, ranks) = (op.call, op.ranks);
    let pieces = pieces(op);
    op.reserve(Need::of_all(call.accumulator_bytes(), 0))?;
    // In rank order, every chunk goes through the ranks in the same order: no rotation, or ranks would wait for each other.
    let (first, last) = if call.in_rank_order() {
        (0, 0)
    } else {
        (start_of(place, ranks, &pieces), start_of(ranks - 1, ranks, &pieces))
    };
    let (mut folded, mut copied) = (Done::default(), Done::default());
    let mut left = pieces.number;
    while left > 0 {
        let mut found = false;
        for i in (first..pieces.number).chain(0..first) {
            if folded.has(i) {
                continue;
            }
            if let Some(count) = claim(op, i) {
                folded.insert(i);
                if fold(op, &pieces, i, count) {
                    copied.insert(i);
                }
                left -= 1;
                found = true;
            }
        }
        if left > 0 && !found {
            until_free(op, pieces.number, &folded)?;
        }
    }
    match call.has_result(op.me) {
        true => op.copy_out(&pieces, last, &copied),
        // This rank's part is in all chunks, and it has no result.
        false => Ok(()),
    }
}

/// Runs a broadcast: the root stores chunk by chunk, the others copy each once it is final.
pub(in crate::protocol) fn broadcast<B: Board>(op: &mut Operation<'_, B>) -> Result<(), Stop> {
    let (board, call, area) = (op.board, op.call, op.area);
    let pieces = pieces(op);
    op.reserve(Need::of_all(call.accumulator_bytes(), 0))?;
    if call.prepared.root != Some(op.me) {
        return op.copy_out(&pieces, 0, &Done::default());
    }
    let stores = op.scratch.stores.begin_for(call.result_stores, call.bytes());
    for i in 0..pieces.number {
        board.write(pieces.accumulator(area, i), |chunk| call.give(chunk, &pieces, i, stores));
        op.publish(i);
    }
    op.scratch.stores.end(stores, call.bytes());
    Ok(())
}

/// The chunks of a started call into which a rank has folded its data, those whose result it has, and how many are left of both.
#[derive(Debug)]
pub(in crate::protocol) struct ChunksLeft {
    folded: Done,
    taken: Done,
    to_fold: usize,
    to_take: usize,
}

impl ChunksLeft {
    /// Returns whether this rank has the whole result.
    pub(in crate::protocol) fn is_complete(&self) -> bool {
        self.to_take == 0
    }
}

/// Marks the entry of a started call and folds this rank's data, in memory that is known to be free. A chunk that another rank holds all
/// the while is left for later.
pub(in crate::protocol) fn start<B: Board>(op: &mut Operation<'_, B>) -> Result<ChunksLeft, Stop> {
    op.enter();
    op.reserve(Need::of_all(op.call.accumulator_bytes(), 0))?;
    let number = pieces(op).number;
    let mut left = ChunksLeft { folded: Done::default(), taken: Done::default(), to_fold: number, to_take: number };
    for look in 0..LOOKS_AT_START {
        if look > 0 && op.patience.oversubscribed {
            op.board.yield_now();
        }
        sweep(op, &mut left)?;
        if left.to_fold == 0 {
            break;
        }
    }
    Ok(left)
}

/// Folds this rank's data into the chunks that nobody holds and, once it is in all of them, takes the result of those that are final;
/// returns whether there were any.
pub(in crate::protocol) fn sweep<B: Board>(op: &mut Operation<'_, B>, left: &mut ChunksLeft) -> Result<bool, Stop> {
    let pieces = pieces(op);
    let first = start_of(op.me, op.ranks, &pieces);
    let before = [left.to_fold, left.to_take];
    for i in (first..pieces.number).chain(0..first) {
        if left.folded.has(i) {
            continue;
        }
        if let Some(count) = claim(op, i) {
            // The claim has brought the marks of those whose data the chunk has.
            if count > 0
                && let Some(other) = other_call(op)
            {
                return Err(op.mismatch(other));
            }
            left.folded.insert(i);
            left.to_fold -= 1;
            if fold(op, &pieces, i, count) {
                left.taken.insert(i);
                left.to_take -= 1;
            }
        }
    }
    for i in (first..pieces.number).chain(0..first) {
        let Operation { board, call, area, epoch, ranks, .. } = *op;
        if left.to_fold == 0 && !left.taken.has(i) && is_final(board, area, i, epoch, ranks) {
            board.read(pieces.accumulator(area, i), |sum| call.take(sum, &pieces, i));
            left.taken.insert(i);
            left.to_take -= 1;
        }
    }
    Ok(before != [left.to_fold, left.to_take])
}

/// Waits until [`sweep`] can do more.
pub(in crate::protocol) fn until_more<B: Board>(op: &mut Operation<'_, B>, left: &ChunksLeft) -> Result<(), Stop> {
    let number = pieces(op).number;
    let Operation { area, epoch, ranks, .. } = *op;
    match left.to_fold {
        // The last one to fold wakes those that wait for the result.
        0 => op.wait(Wake::Event, |board| {
            (0..number).any(|i| !left.taken.has(i) && is_final(board, area, i, epoch, ranks)).then_some(())
        }),
        _ => until_free(op, number, &left.folded),
    }
}

/// Waits until this rank may fold a chunk that is not in `folded`, of so many.
fn until_free<B: Board>(op: &mut Operation<'_, B>, number: usize, folded: &Done) -> Result<(), Stop> {
    let Operation { area, epoch, me, ranks, .. } = *op;
    let in_rank_order = op.call.in_rank_order();
    // In rank order the wait lasts until late lower ranks come, and they wake this one; otherwise the chunk is busy
    // and its holder is folding.
    let wake = if in_rank_order { Wake::Event } else { Wake::Poll };
    let is_free = |board: &B, i| may_fold(board, area, i, epoch, ranks, me, in_rank_order).is_some();
    op.wait(wake, |board| (0..number).any(|i| !folded.has(i) && is_free(board, i)).then_some(()))
}

/// Another rank whose call is not this one, if there is one among those that have entered.
fn other_call<B: Board>(op: &Operation<'_, B>) -> Option<usize> {
    let mark = word::entered(op.epoch, op.hash);
    (0..op.ranks).find(|rank| {
        let theirs = op.board.line(op.slot, *rank).entered.load(SyncPoint::CallAcquire.order());
        word::has_entered(theirs, op.epoch) && theirs != mark
    })
}

fn pieces<B: Board>(op: &Operation<'_, B>) -> Pieces {
    Pieces::of(op.call, chunk_bytes(op.call.bytes()), CHUNKS)
}

/// The chunk size for a message size: at least two chunks from 16 KiB on, none larger than 64 KiB until there are 256.
fn chunk_bytes(bytes: usize) -> usize {
    let least = if cfg!(earlybird_loom) { 64 } else { 4 * 1024 };
    (bytes / 8).clamp(least, 64 * 1024)
}

/// The fold word of chunk `i` and its number of contributions, if this rank may add its own now.
fn may_fold<B: Board>(
    board: &B,
    area: usize,
    i: usize,
    epoch: u64,
    ranks: usize,
    me: usize,
    in_rank_order: bool,
) -> Option<(FoldWord, usize)> {
    let word = FoldWord(board.chunk(area, i).load(Ordering::Relaxed));
    let count = match word.state(epoch, ranks) {
        FoldState::Empty => 0,
        FoldState::Open { count } => count,
        FoldState::Busy { .. } | FoldState::Final => return None,
    };
    (!in_rank_order || count == me).then_some((word, count))
}

/// Claims chunk `i` unless another rank is folding it; its number of contributions.
#[inline(always)]
fn claim<B: Board>(op: &Operation<'_, B>, i: usize) -> Option<usize> {
    let (board, area, epoch, me, ranks) = (op.board, op.area, op.epoch, op.me, op.ranks);
    let (word, count) = may_fold(board, area, i, epoch, ranks, me, op.call.in_rank_order())?;
    let busy = FoldWord::busy(epoch, me, count).0;
    let chunk = board.chunk(area, i);
    chunk.compare_exchange(word.0, busy, SyncPoint::ClaimAcquire.order(), Ordering::Relaxed).ok()?;
    board.step(Step::Claimed);
    Some(count)
}

/// Adds this rank's part of chunk `i`, which it has claimed and which has `count` contributions; returns whether that completed the chunk.
#[inline(always)]
fn fold<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces, i: usize, count: usize) -> bool {
    let (board, call, area, epoch, me, ranks) = (op.board, op.call, op.area, op.epoch, op.me, op.ranks);
    let chunk = board.chunk(area, i);
    let completes = count + 1 == ranks;
    let at = pieces.accumulator(area, i);
    board.write(at, |sum| match count {
        0 => call.begin(sum, pieces, i, Stores::of_first(call.result_stores, call.bytes(), ranks)),
        _ if completes && call.has_result(me) => call.add_mine_and_take(sum, pieces, i),
        _ => call.add_mine(sum, pieces, i),
    });
    board.step(Step::Folded);
    chunk.store(FoldWord::open(epoch, me, count + 1).0, SyncPoint::ChunkRelease.order());
    if completes {
        board.step(Step::Published);
    } else if call.bytes() <= DEMOTE_BYTES
        && !op.patience.oversubscribed
        && !call.prepared.signature.is_started()
        && !op.all_arrived()
    {
        // An early rank has time, and the last one's fold is bound by fetching chunks from other cores' caches. Not when all
        // ranks are here: they would fetch the chunk twice.
        board.demote(at);
    }
    if completes || call.in_rank_order() {
        op.wake();
    }
    completes
}
