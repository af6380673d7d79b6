//! `slices` on registered buffers, which lie in shared memory: nothing is deposited and nothing is copied out.
//!
//! ```text
//!   rank 0   own | own          rank 0 folds the first chunks of all buffers and writes their sums into all of them,
//!   rank 1   own | own          rank 1 the others; a rank that has finished takes chunks that no rank has begun
//! ```
//!
//! Every rank publishes the names of its buffers as its deposit. From then until a chunk is final, the chunk of all buffers
//! belongs to the holder of its fold word, and nothing is needed from its owner. The holder of a chunk maps the others'
//! buffers if it has not yet; a rank that comes too late for any chunk maps nothing. One rank folds a chunk in rank order: the
//! same bits everywhere and in every run. Cost after the last arrival: one pass over all ranks' data, shared among those
//! present. Early ranks have nothing to do, since every element needs the last contribution.
//!
//! Results of other ranks that do not replace a contribution are written past the caches: the lines are in the cache of their
//! owner's core, and invalidating them one by one costs more than the whole fold.
//!
//! A rank takes chunks for one turn at a time ([`sweep`]): a rank that waits for the operation takes turns until no chunk is
//! left, a rank with a non-blocking call takes one whenever it makes progress. Sleepers are woken once, by a rank that finds all
//! chunks final after its own last one. Of two ranks that finish at the same time at least one does, since each looks after the
//! fence that follows its publishing.

use super::slices;
use crate::protocol::board::{Board, CHUNKS, Place};
use crate::protocol::deposit::deposited_by_all;
use crate::protocol::event;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::pieces::Pieces;
use crate::protocol::publish::is_final;
use crate::protocol::step::Step;
use crate::protocol::wait::Wake;
use crate::protocol::word;
use crate::sync::{Ordering, SyncPoint};

/// The most ranks whose chunks are folded in one pass, which streams one operand and one result of each rank.
const ONE_PASS_RANKS: usize = 8;

/// Message size from which no cache holds two buffers of every rank, so that all results are written past the caches.
const PAST_CACHES_MIN_BYTES: usize = 16 << 20;

/// Bytes that a rank folds in one turn: as many as a call on private memory deposits at a time.
const TURN_BYTES: usize = if cfg!(earlybird_loom) { 64 } else { 1 << 20 };

/// The chunks that a rank does not need to check again.
#[derive(Debug, Default)]
pub(in crate::protocol) struct ChunkProgress {
    /// Chunks that some rank has begun, in the order in which this rank takes them.
    begun: usize,
    /// Chunks that are final, in the order of the buffer.
    finished: usize,
}

impl ChunkProgress {
    fn all_final<B: Board>(&mut self, board: &B, area: usize, epoch: u64, ranks: usize, chunks: usize) -> bool {
        while self.finished < chunks && is_final(board, area, self.finished, epoch, ranks) {
            self.finished += 1;
        }
        self.finished == chunks
    }
}

pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>, names: [u64; 2]) -> Result<(), Stop> {
    op.fold_by_slot();
    deposit(op, names);
    let mut progress = ChunkProgress::default();
    loop {
        while sweep(op, &mut progress)? {}
        if is_complete(op, &mut progress)? {
            return Ok(());
        }
        until_more(op, &mut progress)?;
    }
}

/// Publishes the names of this rank's buffers. From here on nothing is needed from this rank.
pub(in crate::protocol) fn deposit<B: Board>(op: &Operation<'_, B>, names: [u64; 2]) {
    let (pieces, line) = (pieces(op), op.board.line(op.slot, op.me));
    for (word, name) in line.registered.iter().zip(names) {
        word.store(name, Ordering::Relaxed);
    }
    #[cfg(earlybird_loom)]
    write_contribution(op, &pieces);
    // The mark hands over the contribution, the names, and the memory of the result.
    line.deposited.store(word::deposited(op.epoch, op.hash, pieces.number), SyncPoint::DepositRelease.order());
    op.board.step(Step::Deposited);
    op.wake_if_all_deposited(pieces.number, op.ranks);
}

/// Folds chunks that no rank has begun, for one turn and without waiting, if all ranks have published their buffers. Returns
/// whether there were any.
pub(in crate::protocol) fn sweep<B: Board>(
    op: &mut Operation<'_, B>,
    progress: &mut ChunkProgress,
) -> Result<bool, Stop> {
    let (pieces, board, slot, epoch, ranks) = (pieces(op), op.board, op.slot, op.epoch, op.ranks);
    if progress.begun == pieces.number || deposited_by_all(board, slot, epoch, op.hash, ranks) < pieces.number {
        return Ok(false);
    }
    let first = op.me * pieces.number / ranks;
    let (mut folded, mut all_apart) = (0, false);
    while progress.begun < pieces.number && folded < TURN_BYTES {
        let i = (first + progress.begun) % pieces.number;
        progress.begun += 1;
        if !slices::claim(op, i) {
            continue;
        }
        // Not before this rank holds a chunk: only then the operation cannot end, and no rank can drop a buffer.
        if folded == 0 {
            all_apart = open_all(op)?;
        }
        fold(op, &pieces, i, all_apart);
        folded += pieces.bytes(i);
    }
    if folded > 0 && event::sleepers(board, slot) && progress.all_final(board, op.area, epoch, ranks, pieces.number) {
        event::wake_all(board, slot);
    }
    Ok(folded > 0)
}

/// Returns whether the whole result is here.
pub(in crate::protocol) fn is_complete<B: Board>(
    op: &mut Operation<'_, B>,
    progress: &mut ChunkProgress,
) -> Result<bool, Stop> {
    let pieces = pieces(op);
    if !progress.all_final(op.board, op.area, op.epoch, op.ranks, pieces.number) {
        return Ok(false);
    }
    // A rank that has failed may be writing to its contribution, so chunks folded after that are wrong.
    if let Some(stop) = op.poisoned().filter(|stop| stop.0.epoch() <= op.epoch) {
        return Err(stop);
    }
    #[cfg(earlybird_loom)]
    {
        // The model finds this rank's result by the names.
        open_all(op)?;
        for i in 0..pieces.number {
            op.board.read(result(op.me, &pieces, i), |sum| op.call.take(sum, &pieces, i));
        }
        // The owner has its buffers back.
        write_contribution(op, &pieces);
    }
    Ok(true)
}

/// Waits until a chunk can be folded or, once all have been begun, until all are final.
pub(in crate::protocol) fn until_more<B: Board>(
    op: &mut Operation<'_, B>,
    progress: &mut ChunkProgress,
) -> Result<(), Stop> {
    let (slot, area, epoch, hash, ranks) = (op.slot, op.area, op.epoch, op.hash, op.ranks);
    let chunks = pieces(op).number;
    op.wait(Wake::Event, |board| {
        let more = match progress.begun == chunks {
            true => progress.all_final(board, area, epoch, ranks, chunks),
            false => deposited_by_all(board, slot, epoch, hash, ranks) == chunks,
        };
        more.then_some(())
    })
}

fn names_of<B: Board>(board: &B, slot: usize, rank: usize) -> [u64; 2] {
    [0, 1].map(|side| board.line(slot, rank).registered[side].load(Ordering::Relaxed))
}

/// Maps the buffers of all ranks; returns whether every rank has separate buffers for contribution and result. If this fails, the
/// chunk that this rank holds never becomes final, so the call fails on all ranks.
fn open_all<B: Board>(op: &mut Operation<'_, B>) -> Result<bool, Stop> {
    // Another operation may have been opened since this rank was here.
    op.board.register(op.call.send.cast_mut(), op.call.recv, op.call.bytes());
    let mut all_apart = true;
    for rank in 0..op.ranks {
        let names = names_of(op.board, op.slot, rank);
        all_apart &= names[0] != names[1];
        if rank != op.me
            && let Err(error) = op.board.open(rank, names)
        {
            return Err(op.cannot_open(rank, &error));
        }
    }
    Ok(all_apart)
}

/// Chunks by message size: enough to share, and not so many that claiming and publishing them, which waits for all stores, matters.
fn pieces<B: Board>(op: &Operation<'_, B>) -> Pieces {
    let (least, bytes) = (if cfg!(earlybird_loom) { 64 } else { 4 * 1024 }, op.call.bytes());
    let target = (bytes / 16).clamp((bytes / 4).clamp(least, 16 * 1024), 32 * 1024);
    Pieces::of(op.call, target, CHUNKS.min(word::MAX_PIECES))
}

#[cfg(earlybird_loom)]
fn write_contribution<B: Board>(op: &Operation<'_, B>, pieces: &Pieces) {
    use crate::protocol::store_pace::Stores;
    for i in 0..pieces.number {
        op.board.write(contribution(op.me, pieces, i), |mine| op.call.give(mine, pieces, i, Stores::Ordinary));
    }
}

fn contribution(rank: usize, pieces: &Pieces, piece: usize) -> Place {
    Place::Registered { rank, result: false, piece, offset: pieces.offset(piece), bytes: pieces.bytes(piece) }
}

fn result(rank: usize, pieces: &Pieces, piece: usize) -> Place {
    Place::Registered { rank, result: true, piece, offset: pieces.offset(piece), bytes: pieces.bytes(piece) }
}

/// Folds chunk `i` of all ranks, which this rank has claimed, into all their results.
fn fold<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces, i: usize, all_apart: bool) {
    let (board, call, ranks) = (op.board, op.call, op.ranks);
    if ranks <= ONE_PASS_RANKS && call.folds_all() {
        fold_in_one_pass(op, pieces, i, all_apart);
    } else {
        let sum = op.scratch.accumulator(pieces.accumulator_piece_bytes(i));
        board.read(contribution(0, pieces, i), |first| {
            board.read(contribution(1, pieces, i), |second| call.gather_two(sum, first, second, pieces, i));
        });
        for rank in 2..ranks {
            board.read(contribution(rank, pieces, i), |next| call.gather(sum, false, Some(next), pieces, i));
        }
        for rank in 0..ranks {
            board.write(result(rank, pieces, i), |to| call.hand_out(to, sum, pieces, i));
        }
    }
    board.step(Step::Folded);
    op.make_final(i);
}

/// Folds chunk `i` of all ranks, at most [`ONE_PASS_RANKS`], into all their results at once.
fn fold_in_one_pass<B: Board>(op: &Operation<'_, B>, pieces: &Pieces, i: usize, all_apart: bool) {
    let (board, call, ranks) = (op.board, op.call, op.ranks);
    let mut from = [core::ptr::null(); ONE_PASS_RANKS];
    let mut to = [core::ptr::null_mut(); ONE_PASS_RANKS];
    for rank in 0..ranks {
        from[rank] = board.read(contribution(rank, pieces, i), |from| from);
        // This rank's own result first.
        to[(rank + ranks - op.me) % ranks] = board.write(result(rank, pieces, i), |to| to);
    }
    let near = match all_apart {
        false => ranks,
        true if call.bytes() < PAST_CACHES_MIN_BYTES => 1,
        true => 0,
    };
    let (near, far) = to[..ranks].split_at(near);
    call.fold_all(near, far, &from[..ranks], pieces, i);
}
