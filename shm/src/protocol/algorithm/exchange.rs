//! The exchanges of data: every rank deposits what others need and receives what it needs from each as it becomes ready.
//!
//! No ticket and no accumulator. Up to [`INLINE_BYTES`](crate::protocol::lines::INLINE_BYTES) travel beside the mark of entry,
//! larger deposits are announced piece by piece; memory is written by its owner only, so two ranks that believe to be
//! the root do not meet. A rank waits for exactly those whose data it receives: the root of a broadcast and the others of a
//! gather or reduce leave as soon as they have deposited, and in a scan
//! no rank waits for those after it. What runs here is told by data: [`crate::protocol::geometry`].
//!
//! [`enter_and_deposit`] and collecting are apart: nothing is waited for in between.

use crate::protocol::board::{Board, DepositsAt, Place};
use crate::protocol::deposit::deposited;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::pieces::{PIECE_BYTES, Pieces};
use crate::protocol::scratch::Source;
use crate::protocol::step::Step;
use crate::protocol::store_pace::Stores;
use crate::protocol::wait::Wake;
use crate::protocol::window::Window;
use crate::protocol::word;
use crate::sync::SyncPoint;

/// Runs one window; returns whether this rank has had something from every other one.
pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) -> Result<bool, Stop> {
    enter_and_deposit(op, w)?;
    collect(op, w)
}

/// Returns whether a fold needs this rank's own contribution in its turn: then it is read from its deposit like all others,
/// since the result may lie where the contribution did.
fn in_turn<B: Board>(op: &Operation<'_, B>, w: &Window<'_>) -> bool {
    let traits = w.exchange.traits;
    traits.folds && (op.call.in_rank_order() || traits.prefix.is_some()) && w.exchange.readers.has(op.me)
}

/// Returns whether what is folded needs an accumulator of its own.
fn gathers<B: Board>(op: &Operation<'_, B>, w: &Window<'_>) -> bool {
    w.exchange.traits.folds && op.call.prepared.fold_few.is_none()
}

/// The place of deposits that do not lie beside the marks.
pub(in crate::protocol) fn deposits_at<B: Board>(op: &Operation<'_, B>, w: &Window<'_>) -> DepositsAt {
    op.deposits_at(w.deposit_most() * op.call.element_bytes)
}

/// The pieces of the deposit of `rank`. Beside the mark it is one piece.
fn pieces<B: Board>(op: &Operation<'_, B>, w: &Window<'_>, rank: usize) -> Pieces {
    let (count, element_bytes) = (w.deposit(rank), op.call.element_bytes);
    match w.inline {
        true => Pieces::one(count, element_bytes),
        false => {
            let at = deposits_at(op, w);
            Pieces::cut(count, element_bytes, PIECE_BYTES, word::MAX_PIECES).deposited(at)
        }
    }
}

fn place<B: Board>(op: &Operation<'_, B>, inline: bool, pieces: &Pieces, rank: usize, piece: usize) -> Place {
    match inline {
        true => Place::Inline { slot: op.slot, rank, bytes: pieces.bytes(0) },
        false => pieces.deposit(rank, piece),
    }
}

/// Marks the entry and deposits what others need. The only wait is for the memory to be free.
#[inline(always)]
pub(in crate::protocol) fn enter_and_deposit<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) -> Result<(), Stop> {
    let (board, epoch, hash, me) = (op.board, op.epoch, op.hash, op.me);
    let line = board.line(op.slot, me);
    let mark = word::entered(epoch, hash);
    let own = in_turn(op, w);
    let sends = w.deposit(me) > 0 && w.exchange.is_read(me, own);
    let pieces = pieces(op, w, me);
    if w.inline {
        if sends {
            deposit(op, w, &pieces, 0, own, Stores::Ordinary);
        }
        line.entered.store(mark, SyncPoint::DepositRelease.order());
        board.step(Step::Entered);
        op.wake();
        return Ok(());
    }
    line.entered.store(mark, SyncPoint::CallRelease.order());
    board.step(Step::Entered);
    if sends {
        op.until_all_left(pieces.at.turns())?;
    }
    op.reserve_deposits(w.deposit_most() * op.call.element_bytes, w.exchange.deposits_used_by(me))?;
    if sends {
        let stores = op.scratch.stores.begin(w.deposit(me) * op.call.element_bytes);
        let mut written = 0;
        for i in 0..pieces.number {
            written += deposit(op, w, &pieces, i, own, stores);
            line.deposited.store(word::deposited(epoch, hash, i + 1), SyncPoint::DepositRelease.order());
            op.wake();
        }
        op.scratch.stores.end(stores, written * op.call.element_bytes);
        board.step(Step::Deposited);
    }
    Ok(())
}

/// Deposits what others need without announcing it, in memory that is known to be free and there.
pub(super) fn deposit_silently<B: Board>(op: &Operation<'_, B>, w: &Window<'_>) {
    let pieces = pieces(op, w, op.me);
    for i in 0..pieces.number {
        deposit(op, w, &pieces, i, false, Stores::Ordinary);
    }
}

/// Writes piece `i` of this rank's deposit, without the block that only this rank reads, unless it is wanted too; the number of
/// elements written.
fn deposit<B: Board>(
    op: &Operation<'_, B>,
    w: &Window<'_>,
    pieces: &Pieces,
    i: usize,
    own: bool,
    stores: Stores,
) -> usize {
    let (call, me) = (op.call, op.me);
    let first = i * pieces.elements;
    let mut written = 0;
    op.board.write(place(op, w.inline, pieces, me, i), |piece| {
        for (block, at, from) in w.blocks(me) {
            let (start, end) = (at.start.max(first), at.end.min(first + pieces.len(i)));
            if start < end && (block != me || own || !w.exchange.traits.in_parts) {
                call.deposit_part(piece, start - first, from + (start - at.start), end - start, stores);
                written += end - start;
            }
        }
    });
    written
}

/// Receives everything as it becomes ready.
#[inline(always)]
fn collect<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) -> Result<bool, Stop> {
    let mut sources = std::mem::take(&mut op.scratch.sources);
    let Begun { mut starts, received_from_all } = begin(op, w, &mut sources);
    while !sources.is_empty() {
        until_more(op, w, &sources)?;
        receive_ready(op, w, &mut sources, &mut starts)?;
    }
    op.scratch.sources = sources;
    finish(op, w);
    Ok(received_from_all)
}

/// The state of a window of which nothing has been received yet.
pub(in crate::protocol) struct Begun {
    /// True if a fold begins with the first block received.
    pub(in crate::protocol) starts: bool,
    /// True if a block is received from every other rank.
    pub(in crate::protocol) received_from_all: bool,
}

/// Bytes of a private accumulator of what is folded.
fn room<B: Board>(op: &Operation<'_, B>, w: &Window<'_>) -> usize {
    w.deposit_most() * op.call.prepared.accumulator_bytes
}

/// Keeps this rank's own part and lists what is to come from others. This rank's own contribution is deposited.
#[inline(always)]
pub(in crate::protocol) fn begin<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
    sources: &mut Vec<Source>,
) -> Begun {
    let (call, me, ranks) = (op.call, op.me, op.ranks);
    let own = in_turn(op, w);
    if let Some((_, at, from)) = w.blocks(me).find(|(block, at, _)| *block == me && !at.is_empty())
        && w.exchange.receives(me, me)
        && !w.exchange.has_own_lengths()
        && !own
    {
        match gathers(op, w) {
            true => call.gather_mine(op.scratch.accumulator(room(op, w)), from, at.len()),
            false => call.keep_part(from, w.place_of(me), at.len()),
        }
    }
    sources.clear();
    // Every reader begins with another rank; a fold by rank begins with the first.
    let first = if own { 0 } else { me + 1 };
    for rank in (first..ranks).chain(0..first).filter(|r| *r != me || own) {
        sources.extend(source(op, w, rank));
    }
    let received_from_all = sources.iter().filter(|s| s.rank != me).count() + 1 == ranks;
    Begun { starts: own, received_from_all }
}

/// The part of the deposit of `rank` that is for this one, if there is any.
pub(super) fn source<B: Board>(op: &Operation<'_, B>, w: &Window<'_>, rank: usize) -> Option<Source> {
    let left = w.part(rank, op.me);
    let (to, pieces, inline) = (w.place_of(rank), pieces(op, w, rank), w.inline);
    (!left.is_empty()).then_some(Source { rank, left, to, pieces, inline })
}

/// Waits until something can be received.
#[inline(always)]
pub(in crate::protocol) fn until_more<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
    sources: &[Source],
) -> Result<(), Stop> {
    let (slot, epoch, hash) = (op.slot, op.epoch, op.hash);
    let turns = if in_turn(op, w) { 1 } else { sources.len() };
    op.wait(Wake::Event, |board| {
        sources[..turns].iter().any(|s| ready(board, s, slot, epoch, hash).is_some()).then_some(())
    })
}

/// Receives what is ready and forgets the sources that have nothing more; returns whether there was something.
#[inline(always)]
pub(in crate::protocol) fn receive_ready<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
    sources: &mut Vec<Source>,
    starts: &mut bool,
) -> Result<bool, Stop> {
    let (slot, epoch, hash) = (op.slot, op.epoch, op.hash);
    let own = in_turn(op, w);
    let (mut i, mut any) = (0, false);
    while i < sources.len() && (i == 0 || !own) {
        if let Some(until) = ready(op.board, &sources[i], slot, epoch, hash) {
            receive(op, w, &mut sources[i], until, *starts)?;
            any = true;
        } else if own {
            break;
        }
        if sources[i].left.is_empty() {
            sources.remove(i);
            *starts = false;
        } else {
            i += 1;
        }
    }
    Ok(any)
}

/// Makes the result of what was gathered, once everything is received.
#[inline(always)]
pub(in crate::protocol) fn finish<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>) {
    // Every fold begins with the contribution of rank 0.
    let len = if gathers(op, w) { w.part(0, op.me).len() } else { 0 };
    if len > 0 {
        op.call.finish_part(op.scratch.accumulator(room(op, w)), w.place_of(op.me), len);
    }
}

/// Up to which element more of `source` lies ready; the mark of another call is an answer too.
#[inline]
pub(super) fn ready<B: Board>(board: &B, source: &Source, slot: usize, epoch: u64, hash: u32) -> Option<usize> {
    if source.inline {
        let mark = board.line(slot, source.rank).entered.load(SyncPoint::DepositAcquire.order());
        return word::has_entered(mark, epoch).then_some(source.left.end);
    }
    let there = deposited(board, slot, source.rank, epoch, hash);
    let until = source.left.end.min(there * source.pieces.elements);
    (until > source.left.start).then_some(until)
}

/// Receives what is for this rank in the deposit of `rank`, which is known to be there.
pub(super) fn receive_from<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>, rank: usize) -> Result<(), Stop> {
    match source(op, w, rank) {
        Some(mut all) => {
            let end = all.left.end;
            receive(op, w, &mut all, end, false)
        }
        None => Ok(()),
    }
}

/// Receives the elements of `source` up to `until`; `starts` where the fold begins with them.
#[inline(always)]
fn receive<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
    source: &mut Source,
    until: usize,
    starts: bool,
) -> Result<(), Stop> {
    let (board, call, pieces) = (op.board, op.call, source.pieces);
    if source.inline {
        // The mark is the flag of the payload: comparing it whole checks the signature for free.
        let mark = board.line(op.slot, source.rank).entered.load(SyncPoint::DepositAcquire.order());
        if mark != word::entered(op.epoch, op.hash) {
            return Err(op.mismatch(source.rank));
        }
    }
    while source.left.start < until {
        let i = source.left.start / pieces.elements;
        let within = source.left.start - i * pieces.elements;
        let len = until.min(i * pieces.elements + pieces.len(i)) - source.left.start;
        let at = place(op, source.inline, &pieces, source.rank, i);
        if gathers(op, w) {
            let sum = op.scratch.accumulator(room(op, w));
            let begins = source.to - w.place_of(op.me);
            board.read(at, |piece| call.gather_part(sum, begins, starts, piece, within, len));
        } else {
            board.read(at, |piece| match w.exchange.traits.folds && !starts {
                true => call.fold_part(piece, within, source.to, len),
                false => call.receive_part(piece, within, source.to, len),
            });
        }
        source.left.start += len;
        source.to += len;
    }
    Ok(())
}
