//! `slices`: every rank deposits, then the ranks inside the call fold, each chunk by one rank at a time in rank order.
//!
//! A chunk can be folded once every rank has deposited it. While a rank is away, the contributions before its own are folded: what
//! is left when it comes is its own and those after it. A chunk is claimed by a try-lock; each rank begins with its own share and
//! continues with unclaimed chunks of others, so a rank that computes or is preempted stops no other. Every element is folded
//! in rank order: the same bits in every run. Cost after the last arrival: its deposit, a fold of what is left shared among those
//! present, and a copy of the result.
//!
//! In a reduce the root alone needs the others. They stay for as long as their deposit took them, since folding together saves the root
//! more than that where all come at once, and leave.
//!
//! [`deposit`] stores and never waits; [`complete`] does the rest by [`sweep`], which does not wait either, and [`until_more`]. A
//! rank that has deposited is not needed any more, so the others complete while it computes.

use crate::protocol::board::{Board, CHUNKS, Need, Place};
use crate::protocol::deposit::deposited;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::pieces::Pieces;
use crate::protocol::publish::Done;
use crate::protocol::step::Step;
use crate::protocol::wait::Wake;
use crate::protocol::word::{self, FoldState, FoldWord};
use crate::sync::{Ordering, Rule, SyncPoint};
use std::ops::Range;

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
    let begun_ns = op.board.now_ns();
    deposit(op, &pieces);
    match op.call.has_result(op.me) {
        true => complete(op, &pieces),
        false => {
            help(op, &pieces, op.board.now_ns() - begun_ns);
            Ok(())
        }
    }
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
        board.write(pieces.deposit(me, i), |deposit| call.give(deposit, pieces, i, stores));
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

/// Folds chunks of a result that this rank does not get, until all are final or `most_ns` have passed without more to fold. Where ranks
/// outnumber CPUs, or others wait for this one's started operations, it stays for no longer than it has something to fold.
fn help<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces, most_ns: u64) {
    let stays = !op.patience.oversubscribed && !op.has_pending() && !cfg!(earlybird_loom);
    let (mut done, mut left, mut rested_ns) = (Done::default(), pieces.number, op.board.now_ns());
    while left > 0 {
        if sweep(op, pieces, &mut done, &mut left) {
            rested_ns = op.board.now_ns();
        } else if !stays || op.board.now_ns() - rested_ns >= most_ns {
            return;
        }
        core::hint::spin_loop();
    }
}

/// The words of an operation by which its ranks fold.
#[derive(Debug, Clone, Copy)]
struct Words {
    slot: usize,
    area: usize,
    epoch: u64,
    hash: u32,
    ranks: usize,
    /// True if some contributions can be folded before the others are there: not where the result is not in the accumulator.
    in_parts: bool,
}

/// The contributions that can be folded now: those of the first `ranks` ranks, in the first `chunks` chunks.
#[derive(Debug, Clone, Copy)]
struct There {
    ranks: usize,
    chunks: usize,
}

/// What a rank can do about a chunk now.
#[derive(Debug, PartialEq, Eq)]
enum Task {
    /// Copy it out.
    Take,
    /// Fold these contributions, if the fold word still is this one.
    Fold(u64, Range<usize>),
    /// Nothing: another rank holds it, or no more can be folded.
    Wait,
}

impl Words {
    fn of<B: Board>(op: &Operation<'_, B>) -> Self {
        let Operation { slot, area, epoch, hash, ranks, .. } = *op;
        Words { slot, area, epoch, hash, ranks, in_parts: op.call.shared.is_none() }
    }

    /// While a rank is away, the contributions before its own. Of ranks that are here all are awaited, so that a chunk is folded in one
    /// pass.
    fn there<B: Board>(self, board: &B) -> There {
        let mut chunks = usize::MAX;
        for rank in 0..self.ranks {
            match deposited(board, self.slot, rank, self.epoch, self.hash) {
                0 if self.in_parts => return There { ranks: rank, chunks },
                some => chunks = chunks.min(some),
            }
        }
        There { ranks: self.ranks, chunks }
    }

    fn task<B: Board>(self, board: &B, i: usize, there: There) -> Task {
        // Also what hands over the contributions that another rank has folded: a claim of this very word carries nothing more.
        let word = board.chunk(self.area, i).load(SyncPoint::FinalAcquire.order());
        let folded = match FoldWord(word).state(self.epoch, self.ranks) {
            FoldState::Final => return Task::Take,
            FoldState::Busy { .. } => return Task::Wait,
            FoldState::Empty => 0,
            FoldState::Open { count } => count,
        };
        // One contribution alone is as well where it is.
        match i < there.chunks && there.ranks > folded.max(1) {
            true => Task::Fold(word, folded..there.ranks),
            false => Task::Wait,
        }
    }
}

/// Visits all chunks once, without waiting: folds what can be folded, copies out those that are final. Returns whether there
/// were any.
pub(in crate::protocol) fn sweep<B: Board>(
    op: &mut Operation<'_, B>,
    pieces: &Pieces,
    copied: &mut Done,
    left: &mut usize,
) -> bool {
    let (words, board) = (Words::of(op), op.board);
    let takes = op.call.has_result(op.me) && !op.call.result_is_shared();
    let first = op.me * pieces.number / op.ranks;
    let there = words.there(board);
    let mut found = false;
    for i in (first..pieces.number).chain(0..first) {
        if copied.has(i) {
            continue;
        }
        let is_done = match words.task(board, i, there) {
            Task::Take => {
                if takes {
                    board.read(pieces.accumulator(op.area, i), |sum| op.call.take(sum, pieces, i));
                }
                true
            }
            Task::Fold(word, contributions) => {
                let is_last = contributions.end == op.ranks;
                let folded = try_fold(op, pieces, i, word, contributions);
                found |= folded;
                folded && is_last
            }
            Task::Wait => false,
        };
        if is_done {
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
    let words = Words::of(op);
    op.wait(Wake::Event, |board| {
        let there = words.there(board);
        (0..pieces.number).any(|i| !copied.has(i) && words.task(board, i, there) != Task::Wait).then_some(())
    })
}

/// Claims chunk `i`, which no rank has begun, unless another rank has; the claimer alone folds it.
pub(super) fn claim<B: Board>(op: &Operation<'_, B>, i: usize) -> bool {
    let word = op.board.chunk(op.area, i).load(Ordering::Relaxed);
    if FoldWord(word).state(op.epoch, op.ranks) != FoldState::Empty {
        return false;
    }
    let busy = FoldWord::busy(op.epoch, op.me, 0).0;
    // Relaxed: the claim carries nothing, since no rank has written the chunk before.
    if op.board.chunk(op.area, i).compare_exchange(word, busy, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return false;
    }
    op.board.step(Step::Claimed);
    true
}

/// Folds `contributions` into chunk `i` unless its fold word is not `word` any more; returns whether this rank folded them.
fn try_fold<B: Board>(
    op: &mut Operation<'_, B>,
    pieces: &Pieces,
    i: usize,
    word: u64,
    contributions: Range<usize>,
) -> bool {
    let (until, chunk) = (contributions.end, op.board.chunk(op.area, i));
    let busy = FoldWord::busy(op.epoch, op.me, contributions.start).0;
    if chunk.compare_exchange(word, busy, Ordering::Relaxed, Ordering::Relaxed).is_err() {
        return false;
    }
    op.board.step(Step::Claimed);
    match op.call.shared {
        Some((shared, skip)) if shared.is_taken() => fold_into_shared(op, skip, pieces, i),
        _ => fold(op, pieces, i, contributions),
    }
    op.board.step(Step::Folded);
    if until == op.ranks {
        op.publish(i);
    } else {
        chunk.store(FoldWord::open(op.epoch, op.me, until).0, SyncPoint::ChunkRelease.order());
        // A rank may sleep that found the chunk held, and this one may leave.
        if Rule::PartOfAChunkWakes.is_kept() {
            op.wake();
        }
    }
    true
}

/// Folds `contributions` into chunk `i`, which this rank has claimed and which has those before; with the last one also into this rank's
/// result.
fn fold<B: Board>(op: &Operation<'_, B>, pieces: &Pieces, i: usize, contributions: Range<usize>) {
    let (board, call, area) = (op.board, op.call, op.area);
    let takes = call.has_result(op.me);
    board.write(pieces.accumulator(area, i), |sum| {
        let mut next = contributions.start;
        if next == 0 {
            board.read(pieces.deposit(0, i), |first| {
                board.read(pieces.deposit(1, i), |second| call.add_two(sum, first, second, pieces, i));
            });
            next = 2;
        }
        for rank in next..contributions.end {
            board.read(pieces.deposit(rank, i), |theirs| match takes && rank + 1 == op.ranks {
                true => call.add_and_take(sum, theirs, pieces, i),
                false => call.add(sum, theirs, pieces, i),
            });
        }
        if takes && op.ranks == 2 {
            call.take(sum, pieces, i);
        }
    });
}

/// Folds chunk `i`, which this rank has claimed, into the one result of all ranks; this operation's part begins at byte `skip` of
/// the result.
fn fold_into_shared<B: Board>(op: &mut Operation<'_, B>, skip: usize, pieces: &Pieces, i: usize) {
    let (board, call, ranks) = (op.board, op.call, op.ranks);
    let deposit = |rank| pieces.deposit(rank, i);
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
