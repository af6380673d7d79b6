//! `slices` on buffers that lie in shared memory: nobody deposits and nobody copies out.
//!
//! ```text
//!   rank 0   own | own          rank 0 folds the first chunks of everybody's buffers and writes their sums into all of
//!   rank 1   own | own          them, rank 1 the others; whoever is free takes what nobody has begun
//! ```
//!
//! Every rank names its buffers and marks that as its deposit; from then until a chunk is final, the chunk of all
//! buffers belongs to whoever holds its fold word. Folded in rank order by one rank: the same bits everywhere and in
//! every run. Cost after the last arrival: one pass over all ranks' data, shared among those present. Early ranks have
//! nothing to do, for the last contribution is needed for every element.

use super::board::{Board, Place};
use super::operation::{Operation, Stop};
use super::pieces::Pieces;
use super::publish::is_final;
use super::slices;
use super::step::Step;
use super::wait::Wake;
use super::word;
use crate::sync::{Ordering, SyncPoint};

pub(super) fn run<B: Board>(op: &mut Operation<'_, B>, names: [u64; 2]) -> Result<(), Stop> {
    let pieces = slices::pieces(op);
    let (board, call, slot, me, ranks) = (op.board, op.call, op.slot, op.me, op.ranks);
    let line = board.line(slot, me);
    for (word, name) in line.lent.iter().zip(names) {
        word.store(name, Ordering::Relaxed);
    }
    board.lend(call.send.cast_mut(), call.recv, call.bytes());
    #[cfg(earlybird_loom)]
    for i in 0..pieces.number {
        board.write(contribution(me, &pieces, i), |mine| call.give(mine, &pieces, i));
    }
    // The mark hands over everything that the caller has written, the names, and the place of the result.
    line.deposited.store(word::deposited(op.epoch, op.hash, pieces.number), SyncPoint::DepositRelease.order());
    board.step(Step::Deposited);
    op.wake_if_all_deposited(pieces.number, ranks);

    let (epoch, hash) = (op.epoch, op.hash);
    op.wait(Wake::Event, |board| {
        (slices::deposited_by_all(board, slot, epoch, hash, ranks) == pieces.number).then_some(())
    })?;
    let mut in_place = true;
    for rank in 0..ranks {
        let names = [0, 1].map(|side| board.line(slot, rank).lent[side].load(Ordering::Relaxed));
        in_place &= names[0] == names[1];
        if rank != me
            && let Err(error) = board.open(rank, names)
        {
            return Err(op.cannot_open(&error));
        }
    }
    let first = me * pieces.number / ranks;
    for i in (first..pieces.number).chain(0..first) {
        fold(op, &pieces, i, in_place);
    }
    let area = op.area;
    for i in 0..pieces.number {
        op.wait(Wake::Event, |board| is_final(board, area, i, epoch, ranks).then_some(()))?;
        #[cfg(earlybird_loom)]
        board.read(result(me, &pieces, i), |sum| call.take(sum, &pieces, i));
    }
    Ok(())
}

fn contribution(rank: usize, pieces: &Pieces, piece: usize) -> Place {
    Place::Lent { rank, result: false, piece, offset: pieces.offset(piece) }
}

fn result(rank: usize, pieces: &Pieces, piece: usize) -> Place {
    Place::Lent { rank, result: true, piece, offset: pieces.offset(piece) }
}

/// Folds chunk `i` of all ranks into all their results, unless somebody else has begun to.
fn fold<B: Board>(op: &mut Operation<'_, B>, pieces: &Pieces, i: usize, in_place: bool) {
    let (board, call, ranks) = (op.board, op.call, op.ranks);
    if !slices::claim(op, i) {
        return;
    }
    if ranks == 2 && in_place && call.folds_into_both() {
        board.write(result(0, pieces, i), |first| {
            board.write(result(1, pieces, i), |second| call.fold_into_both(first, second, pieces, i));
        });
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
    op.publish(i);
}
