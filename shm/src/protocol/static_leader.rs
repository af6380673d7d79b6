//! `static-leader` and `static-leader-early`: the baselines. Rank 0 folds, whoever came first.
//!
//! `static-leader` waits for every deposit and then folds in rank order, as the shared-memory collectives of MVAPICH
//! do; `static-leader-early` folds what is there while it waits. Both publish chunk by chunk like every other
//! algorithm here, so that a comparison shows the effect of the arrival order and nothing else.

use super::board::{Board, Need};
use super::flat::has_deposited;
use super::leader;
use super::operation::{Operation, Stop};
use super::publish::Done;
use super::wait::Wake;

pub(super) fn run<B: Board>(op: &mut Operation<'_, B>, early: bool) -> Result<(), Stop> {
    let bytes = op.call.bytes();
    op.reserve(Need { accumulator: bytes, deposit: bytes })?;
    let pieces = leader::pieces(op);
    if op.me != 0 {
        op.deposit(&pieces);
        op.wake_if_all_deposited(1, 1);
        return op.copy_out(&pieces, 0, &Done::default());
    }
    let mut pending: Vec<usize> = Vec::new();
    let (slot, epoch, ranks) = (op.slot, op.epoch, op.ranks);
    if !early {
        for rank in 1..ranks {
            op.until_deposited(rank, 1)?;
        }
        op.ready.clear();
        op.ready.extend(0..ranks);
        op.fold_ready(&pieces, 0);
        return Ok(());
    }
    pending.extend(1..ranks);
    op.ready.clear();
    op.ready.push(0);
    let mut count = op.fold_ready(&pieces, 0);
    while !pending.is_empty() {
        let by_rank = op.call.by_rank();
        let there = |board: &B, r: usize| has_deposited(board, slot, r, epoch, 1);
        op.wait(Wake::Event, |board| {
            let mut candidates = pending.iter().take(if by_rank { 1 } else { ranks });
            candidates.any(|r| there(board, *r)).then_some(())
        })?;
        op.ready.clear();
        let mut blocked = false;
        pending.retain(|r| {
            let take = !blocked && there(op.board, *r);
            blocked |= by_rank && !take;
            if take {
                op.ready.push(*r);
            }
            !take
        });
        count = op.fold_ready(&pieces, count);
    }
    Ok(())
}
