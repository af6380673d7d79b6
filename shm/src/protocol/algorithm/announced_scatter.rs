//! The scatter of blocks whose lengths the root alone knows all of: it announces a bundle with its entry, which has the list of lengths and,
//! where they fit in one piece, the blocks.
//!
//! Every rank knows the length of its own block and compares it with the list. Where the blocks do not fit, all ranks know the lengths of
//! all after this operation, and a scatter of such blocks follows ([`Announced::Listed`]). No rank waits for any but the root.

use super::flat;
use crate::protocol::board::{Board, DepositsAt, Place};
use crate::protocol::geometry::Who;
use crate::protocol::lengths::Announced;
use crate::protocol::lines::INLINE_BYTES;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::payload::PreparedScatter;
use crate::protocol::step::Step;
use crate::protocol::word;
use crate::sync::{Ordering, SyncPoint};

/// Runs the operation; returns what is still to be said of it or to be done.
pub(in crate::protocol) fn run<B: Board>(
    op: &mut Operation<'_, B>,
    scatter: &PreparedScatter<'_>,
) -> Result<Option<Announced>, Stop> {
    scatter.describe(op.board.line(op.slot, op.me));
    match scatter.is_root() {
        true => give(op, scatter),
        false => {
            op.enter();
            op.wake();
            collect(op, scatter)
        }
    }
}

/// Announces and deposits the bundle of this rank, the root.
fn give<B: Board>(op: &mut Operation<'_, B>, scatter: &PreparedScatter<'_>) -> Result<Option<Announced>, Stop> {
    let (rank, line, bytes) = (op.me, op.board.line(op.slot, op.me), scatter.bundle_bytes());
    if bytes <= INLINE_BYTES {
        if bytes > 0 {
            op.board.write(Place::Inline { slot: op.slot, rank, bytes }, |to| scatter.write(to));
        }
        line.entered.store(word::entered(op.epoch, op.hash), SyncPoint::DepositRelease.order());
        op.board.step(Step::Entered);
    } else {
        op.enter();
        op.until_all_left(op.deposits_at(bytes).turns())?;
        op.reserve_deposits(bytes, Who::Only(rank))?;
        op.board.write(place(op, rank, bytes), |to| scatter.write(to));
        line.deposited.store(word::deposited(op.epoch, op.hash, 1), SyncPoint::DepositRelease.order());
        op.board.step(Step::Deposited);
    }
    op.wake();
    Ok(scatter.keep_own())
}

/// Receives the block of this rank, which has entered.
pub(in crate::protocol) fn collect<B: Board>(
    op: &mut Operation<'_, B>,
    scatter: &PreparedScatter<'_>,
) -> Result<Option<Announced>, Stop> {
    let (rank, slot, board, mut list) = (scatter.root(), op.slot, op.board, Vec::new());
    flat::await_mark(op, rank, word::entered(op.epoch, op.hash))?;
    let word = board.line(slot, rank).call[1].load(Ordering::Relaxed);
    let outcome = match scatter.announced(word) {
        None if word == 0 => Some(Announced::Listed),
        None => return Err(op.corrupt()),
        Some(bytes) if bytes <= INLINE_BYTES => {
            board.read(Place::Inline { slot, rank, bytes }, |bundle| scatter.read(bundle, bytes, &mut list))
        }
        Some(bytes) => {
            op.reserve_deposits(bytes, Who::Only(rank))?;
            op.until_deposited(rank, 1)?;
            board.read(place(op, rank, bytes), |bundle| scatter.read(bundle, bytes, &mut list))
        }
    };
    op.scratch.lengths = list;
    Ok(outcome)
}

/// The place of a bundle of so many bytes that does not lie beside the mark.
fn place<B: Board>(op: &Operation<'_, B>, rank: usize, bytes: usize) -> Place {
    let DepositsAt { area, base } = op.deposits_at(bytes);
    Place::Deposit { area, rank, piece: 0, offset: base, bytes }
}
