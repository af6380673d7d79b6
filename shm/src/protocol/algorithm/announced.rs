//! The exchange of blocks whose lengths each rank knows of its own only: ranks announce their lengths with their entry, and compare them.
//!
//! A rank writes one word, its [`Lengths`], beside its mark of entry, and cuts its deposit by its own largest block: what is small
//! travels beside the mark although the others cannot know that it is small. A reader learns from the word where a rank's deposit
//! lies. Every rank reads every word, so all find together whether the counts agree, and how much is left for further operations
//! ([`Report::announced`](crate::protocol::Report)).
//!
//! Blocks that are too long for this operation are left for further ones, or read where they lie as soon as their owner has come, by
//! `single-copy`: both ranks of a block know its length, and that is all that they have to know.

use super::{exchange, single_copy};
use crate::config::Algorithm;
use crate::protocol::board::Board;
use crate::protocol::geometry::Who;
use crate::protocol::lengths::{Announced, Lengths};
use crate::protocol::operation::{Operation, Report, Stop};
use crate::protocol::scratch::Source;
use crate::protocol::wait::Wake;
use crate::protocol::window::Window;
use crate::protocol::word;
use crate::sync::{Ordering, SyncPoint};

/// Runs the operation; returns what it has come to, with the lengths of all ranks together.
pub(in crate::protocol) fn run<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
    report: Report,
) -> Result<Report, Stop> {
    let own = w.exchange.own_lengths();
    op.board.line(op.slot, op.me).announce(own.word());
    if w.reads(own.largest) {
        single_copy::expose(op, w);
    }
    exchange::enter_and_deposit(op, &w.narrowed(own.largest, op.call.element_bytes))?;
    if let Some((from, to, len)) = w.exchange.own_block() {
        op.call.keep_part(from, to, len);
    }
    collect(op, w, report)
}

/// Receives from all others on a rank that has entered; returns what [`run`] does.
pub(in crate::protocol) fn collect<B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'_>,
    report: Report,
) -> Result<Report, Stop> {
    let own = w.exchange.own_lengths();
    let (mut all, mut could_read, me) = (own, true, op.me);
    receive_all(op, w, |op, rank, announced| {
        let lengths = Lengths::from_word(announced);
        all = all.and(lengths);
        // A rank whose blocks are all short has exposed nothing.
        let long = w.read_part(rank, me).filter(|_| w.reads(lengths.largest));
        could_read = could_read && long.is_none_or(|part| single_copy::read_block(op, w, rank, part));
        w.narrowed(lengths.largest, op.call.element_bytes)
    })?;
    let announced = Some(Announced::Pairs(all));
    if !w.reads(all.largest) {
        return Ok(Report { announced, ..report });
    }
    let is_done = single_copy::conclude(op, w, w.reads(own.largest), could_read)?;
    Ok(Report { announced, algorithm: Algorithm::SingleCopy, is_done, ..report })
}

/// Receives from every other rank what is for this one in its deposit. `cut` is told the word that a rank has announced, and returns the
/// window that the rank has made of it.
pub(super) fn receive_all<'w, B: Board>(
    op: &mut Operation<'_, B>,
    w: &Window<'w>,
    mut cut: impl FnMut(&Operation<'_, B>, usize, u64) -> Window<'w>,
) -> Result<(), Stop> {
    let (me, ranks) = (op.me, op.ranks);
    let mut sources = std::mem::take(&mut op.scratch.sources);
    sources.clear();
    let mut silent = std::mem::take(&mut op.scratch.ready);
    silent.clear();
    silent.extend((me + 1..ranks).chain(0..me));
    while !(silent.is_empty() && sources.is_empty()) {
        let (slot, epoch, hash) = (op.slot, op.epoch, op.hash);
        op.wait(Wake::Event, |board| {
            let has_entered = |rank: &usize| word::has_entered(mark_of(board, slot, *rank), epoch);
            let is_ready = |source: &Source| exchange::ready(board, source, slot, epoch, hash).is_some();
            (silent.iter().any(has_entered) || sources.iter().any(is_ready)).then_some(())
        })?;
        let mut next = 0;
        while let Some(&rank) = silent.get(next) {
            match listen(op, rank)? {
                Some(announced) => {
                    silent.remove(next);
                    let theirs = cut(op, rank, announced);
                    sources.extend(source(op, &theirs, rank)?);
                }
                None => next += 1,
            }
        }
        exchange::receive_ready(op, w, &mut sources, &mut false)?;
    }
    (op.scratch.sources, op.scratch.ready) = (sources, silent);
    Ok(())
}

fn mark_of<B: Board>(board: &B, slot: usize, rank: usize) -> u64 {
    board.line(slot, rank).entered.load(SyncPoint::CallAcquire.order())
}

/// The word that `rank` has announced, if it has entered.
fn listen<B: Board>(op: &mut Operation<'_, B>, rank: usize) -> Result<Option<u64>, Stop> {
    match mark_of(op.board, op.slot, rank) {
        mark if mark == word::entered(op.epoch, op.hash) => {
            Ok(Some(op.board.line(op.slot, rank).call[1].load(Ordering::Relaxed)))
        }
        mark if word::has_entered(mark, op.epoch) => Err(op.mismatch(rank)),
        _ => Ok(None),
    }
}

/// The part of the deposit of `rank` that is for this one, if there is any; `w` is cut as its sender has cut it.
fn source<B: Board>(op: &mut Operation<'_, B>, w: &Window<'_>, rank: usize) -> Result<Option<Source>, Stop> {
    let source = exchange::source(op, w, rank);
    if source.is_some() && !w.inline {
        let deposit = w.deposit_most() * op.call.element_bytes;
        op.reserve_deposits(deposit, Who::Only(rank))?;
    }
    Ok(source)
}
