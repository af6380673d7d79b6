//! `static-leader` and `static-leader-early`: the baselines, in which rank 0 or the root folds, whatever the arrival order.
//!
//! `static-leader` waits for every deposit and then folds in rank order, as the shared-memory collectives of MVAPICH do;
//! `static-leader-early` folds deposits as they arrive. Both publish chunk by chunk like the other algorithms, so that a
//! comparison shows the effect of the arrival order and nothing else. In a reduce the other ranks stay until the root has
//! folded, as in libraries whose leader reads the members' own buffers; in `flat` a deposit lets them leave at once.

use super::leader;
use crate::protocol::board::{Board, Need};
use crate::protocol::deposit::has_deposited;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::publish::{Done, is_final};
use crate::protocol::wait::Wake;

pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>, early: bool) -> Result<(), Stop> {
    op.reserve(Need::of_all(op.call.accumulator_bytes(), op.call.bytes()))?;
    let pieces = leader::pieces(op);
    let (slot, epoch, hash, ranks, area, me) = (op.slot, op.epoch, op.hash, op.ranks, op.area, op.me);
    let leader = op.call.prepared.root.unwrap_or(0);
    if me != leader {
        op.deposit(&pieces);
        op.wake_if_all_deposited(1, leader);
        if op.call.has_result(me) {
            return op.copy_out(&pieces, 0, &Done::default());
        }
        // The leader publishes in order.
        let last = pieces.number - 1;
        return op.wait(Wake::Event, |board| is_final(board, area, last, epoch, ranks).then_some(()));
    }
    let there = |board: &B, r: usize| r == me || has_deposited(board, slot, r, epoch, hash, 1);
    let mut pending: Vec<usize> = (0..ranks).collect();
    let mut count = 0;
    while !pending.is_empty() {
        let in_rank_order = op.call.in_rank_order();
        op.wait(Wake::Event, |board| {
            let mut candidates = pending.iter().take(if early && in_rank_order { 1 } else { ranks });
            let enough =
                if early { candidates.any(|r| there(board, *r)) } else { candidates.all(|r| there(board, *r)) };
            enough.then_some(())
        })?;
        op.scratch.ready.clear();
        let mut blocked = false;
        pending.retain(|r| {
            let take = !blocked && there(op.board, *r);
            blocked |= in_rank_order && !take;
            if take {
                op.scratch.ready.push(*r);
            }
            !take
        });
        count = op.fold_ready(&pieces, count);
    }
    Ok(())
}
