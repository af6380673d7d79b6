//! `leader`: the first arriver folds deposits as they come while it is awake, the last arriver finishes.
//!
//! Algorithm 1 of Parsons and Pai (2015) with one change: a sleeping leader is never woken. The fold word guards the
//! accumulator, so that one of the two folders continues where the other stopped. Cost after the last arrival: at least one
//! contribution folded and published, plus those that the leader had not folded yet.
//!
//! Two ranks fold: the first arriver and the last one. The last one never deposits: it folds its private data itself.
//! The first one deposits only when ranks must be folded in order, since it may sleep before its turn comes.

use crate::protocol::board::{Board, CHUNKS, Need};
use crate::protocol::deposit::has_deposited;
use crate::protocol::operation::{Operation, Stop};
use crate::protocol::pieces::Pieces;
use crate::protocol::publish::{Done, is_final};
use crate::protocol::step::Step;
use crate::protocol::store_pace::Stores;
use crate::protocol::wait::Wake;
use crate::protocol::word::{self, FoldState, FoldWord};
use crate::sync::{Ordering, SyncPoint};

/// Bytes published at a time.
const CHUNK_BYTES: usize = if cfg!(earlybird_loom) { 64 } else { 16 * 1024 };

/// Deposits travel whole: one piece.
const WHOLE: usize = 1;

pub(super) fn pieces<B: Board>(op: &Operation<'_, B>) -> Pieces {
    op.pieces(CHUNK_BYTES, CHUNKS)
}

pub(in crate::protocol) fn run<B: Board>(op: &mut Operation<'_, B>, place: usize) -> Result<(), Stop> {
    op.reserve(Need::of_all(op.call.accumulator_bytes(), op.call.bytes()))?;
    let pieces = pieces(op);
    let is_last = place + 1 == op.ranks;
    let is_first = place == 0;
    let folds_mine = is_last || (is_first && !op.call.in_rank_order());
    if !folds_mine {
        op.deposit(&pieces);
    }
    if (is_first || is_last) && op.fold_until_final(&pieces, folds_mine, is_last)? {
        return Ok(());
    }
    op.copy_out(&pieces, 0, &Done::default())
}

impl<B: Board> Operation<'_, B> {
    /// Deposits this rank's contribution for the folders.
    pub(super) fn deposit(&mut self, pieces: &Pieces) {
        let (board, call, me) = (self.board, self.call, self.me);
        for i in 0..pieces.number {
            board.write(pieces.deposit(me, i), |deposit| call.give(deposit, pieces, i, Stores::Ordinary));
        }
        let mark = word::deposited(self.epoch, self.hash, WHOLE);
        board.line(self.slot, me).deposited.store(mark, SyncPoint::DepositRelease.order());
        board.step(Step::Deposited);
    }

    /// Folds the contributions that have arrived until all are folded; returns whether this rank published the result.
    fn fold_until_final(&mut self, pieces: &Pieces, mut mine: bool, is_last: bool) -> Result<bool, Stop> {
        let (area, slot, epoch, me, ranks) = (self.area, self.slot, self.epoch, self.me, self.ranks);
        let (in_rank_order, hash) = (self.call.in_rank_order(), self.hash);
        // The count at the last claim that found nothing to fold.
        let mut empty_claim = None;
        loop {
            // The last arriver waits for ranks that are depositing; the first one may sleep until the last one has finished.
            let wake = if is_last || mine { Wake::Poll } else { Wake::Event };
            let claim = self.wait(wake, |board| {
                if is_final(board, area, 0, epoch, ranks) {
                    return Some(None);
                }
                let word = FoldWord(board.fold_word(area).load(Ordering::Relaxed));
                let count = match word.state(epoch, ranks) {
                    FoldState::Busy { .. } | FoldState::Final => return None,
                    FoldState::Empty => 0,
                    FoldState::Open { count } => count,
                };
                let there = |r: usize| has_deposited(board, slot, r, epoch, hash, WHOLE);
                let work = match in_rank_order {
                    true => (mine && count == me) || there(count),
                    // The set of folded ranks belongs to this operation only once something has been folded.
                    false => mine || (0..ranks).any(|r| (count == 0 || !folded(board, area, r)) && there(r)),
                };
                work.then_some(Some((word, count)))
            })?;
            let Some((word, count)) = claim else { return Ok(false) };
            let busy = FoldWord::busy(epoch, me, count).0;
            let claimed = self.board.fold_word(area).compare_exchange(
                word.0,
                busy,
                SyncPoint::ClaimAcquire.order(),
                Ordering::Relaxed,
            );
            if claimed.is_err() {
                continue;
            }
            self.board.step(Step::Claimed);
            self.collect(count, mine);
            if self.scratch.ready.is_empty() && empty_claim.replace(count) == Some(count) {
                // The first empty claim may follow from a look older than the claim, the second cannot: the words are damaged.
                return Err(self.corrupt());
            }
            mine &= !self.scratch.ready.contains(&me);
            let count = self.fold_ready(pieces, count);
            self.board.step(Step::Folded);
            let open = FoldWord::open(epoch, me, count).0;
            self.board.fold_word(area).store(open, SyncPoint::ChunkRelease.order());
            if count == ranks {
                return Ok(true);
            }
        }
    }

    /// Lists in `ready`, in folding order, the ranks that can be folded now. Holder of the fold word only.
    fn collect(&mut self, count: usize, mine: bool) {
        let (board, slot, area, epoch, me) = (self.board, self.slot, self.area, self.epoch, self.me);
        let hash = self.hash;
        if count == 0 {
            for word in &board.folded(area).0[..self.ranks.div_ceil(64)] {
                word.store(0, Ordering::Relaxed);
            }
        }
        self.scratch.ready.clear();
        let there = |r: &usize| (*r == me && mine) || has_deposited(board, slot, *r, epoch, hash, WHOLE);
        if self.call.in_rank_order() {
            self.scratch.ready.extend((count..self.ranks).take_while(there));
        } else {
            self.scratch.ready.extend((0..self.ranks).filter(|r| !folded(board, area, *r) && there(r)));
        }
        for r in self.scratch.ready.iter() {
            let word = &board.folded(area).0[r / 64];
            word.store(word.load(Ordering::Relaxed) | 1 << (r % 64), Ordering::Relaxed);
        }
    }

    /// Folds the ranks in `ready` into the accumulator that holds `count` contributions; publishes chunk by chunk if
    /// that completes it. Returns the new count.
    pub(super) fn fold_ready(&mut self, pieces: &Pieces, count: usize) -> usize {
        let (board, call, area, me) = (self.board, self.call, self.area, self.me);
        let total = count + self.scratch.ready.len();
        for i in 0..pieces.number {
            board.write(pieces.accumulator(area, i), |sum| {
                for (k, &rank) in self.scratch.ready.iter().enumerate() {
                    let starts = count + k == 0;
                    if rank == me && !self.deposited_myself() {
                        if starts {
                            call.begin(sum, pieces, i, Stores::Ordinary)
                        } else {
                            call.add_mine(sum, pieces, i)
                        }
                    } else {
                        board.read(pieces.deposit(rank, i), |deposit| {
                            if starts { call.start(sum, deposit, pieces, i) } else { call.add(sum, deposit, pieces, i) }
                        });
                    }
                }
                if total == self.ranks {
                    call.take(sum, pieces, i);
                }
            });
            if total == self.ranks {
                self.publish(i);
            }
        }
        total
    }

    fn deposited_myself(&self) -> bool {
        let mine = self.board.line(self.slot, self.me).deposited.load(Ordering::Relaxed);
        word::has_deposited(mine, self.epoch, self.hash, WHOLE)
    }
}

/// Returns whether `rank`'s contribution is in the accumulator. Exact for the holder of the fold word, a hint for others.
fn folded<B: Board>(board: &B, area: usize, rank: usize) -> bool {
    board.folded(area).0[rank / 64].load(Ordering::Relaxed) >> (rank % 64) & 1 == 1
}
