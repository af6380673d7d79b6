//! Arrival: one word gives each rank its place, the plan and the leader.
//!
//! The first arriver swaps in its plan together with its own arrival; all others find the swap refused and add
//! themselves. A plan published after the place was taken would leave the second arriver without one (the model of that
//! mistake fails, `shm/tests/loom_twins.rs`). The word may be relaxed: it carries only its own value.

use super::board::Board;
use super::operation::{Operation, Stop};
use super::word::{self, ArrivalWord};
use crate::config::Algorithm;
use crate::sync::{AtomicU64, Ordering, SyncPoint};

/// The place of a rank, and the algorithm that all run.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Place in the arrival order, from 0.
    pub place: usize,
    /// The algorithm the first arriver chose.
    pub plan: Algorithm,
}

/// Takes a place in `word` and returns the word's value before that: its count is the place. `previous` is the final value of the
/// word at its last use, and is set to that of this use. `first` is installed if this rank is the first.
///
/// At most two atomic operations and one cache-line transfer: a refused swap leaves the line here.
///
/// # Errors
/// The value found, if `accepts` rejects it; then this rank was not counted.
#[inline(always)]
pub(crate) fn take_place(
    word: &AtomicU64,
    previous: &mut ArrivalWord,
    first: ArrivalWord,
    ranks: usize,
    accepts: impl FnOnce(ArrivalWord) -> bool,
) -> Result<ArrivalWord, ArrivalWord> {
    let before = match word.compare_exchange(previous.0, first.0, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => ArrivalWord(first.0 - 1),
        Err(found) if !accepts(ArrivalWord(found)) => return Err(ArrivalWord(found)),
        Err(_) => ArrivalWord(word.fetch_add(1, Ordering::Relaxed)),
    };
    *previous = before.full(ranks);
    Ok(before)
}

impl<B: Board> Operation<'_, B> {
    /// Takes a place. `previous` is the final value of the slot's word at its last ticketed use, and is set to this operation's.
    pub(super) fn arrive(&mut self, previous: &mut ArrivalWord) -> Result<Arrival, Stop> {
        let (epoch, ranks, signature) = (self.epoch, self.ranks, self.hash & 0xffff);
        let first = ArrivalWord::first(epoch, self.hash, self.call.prepared.algorithm as u8, self.me);
        let is_ours = |w: ArrivalWord| w.is_of(epoch) && w.count() < ranks && w.leader() < ranks;
        let accepts = |found: ArrivalWord| is_ours(found) && found.signature() == signature;
        match take_place(self.board.arrival(self.slot), previous, first, ranks, accepts) {
            Ok(before) => match Algorithm::from_repr(before.plan()) {
                Some(plan) => Ok(Arrival { place: before.count(), plan }),
                None => Err(self.corrupt()),
            },
            Err(found) if is_ours(found) => self.disagree_with(found.leader()),
            Err(_) => Err(self.corrupt()),
        }
    }

    /// Returns whether every rank has taken its place by now. A hint: nothing is ordered by it.
    pub(super) fn all_arrived(&self) -> bool {
        let word = ArrivalWord(self.board.arrival(self.slot).load(Ordering::Relaxed));
        word.is_of(self.epoch) && word.count() == self.ranks
    }

    /// Fails the group because the first arriver made another call. Nothing was counted and no payload touched.
    fn disagree_with<T>(&mut self, leader: usize) -> Result<T, Stop> {
        let (slot, epoch) = (self.slot, self.epoch);
        self.wait(super::wait::Wake::Poll, |board| {
            let entered = board.line(slot, leader).entered.load(SyncPoint::CallAcquire.order());
            word::has_entered(entered, epoch).then_some(())
        })?;
        Err(self.mismatch(leader))
    }
}
