//! Arriving: one word gives each rank its place, the plan and the leader.
//!
//! The first arriver swaps in its plan together with its own arrival; everybody else finds the swap refused and adds
//! itself. A plan published after the place was taken would leave the second arriver without one (the model of that
//! mistake fails, `shm/tests/loom_twins.rs`). The word may be relaxed: it carries only its own value.

use super::board::Board;
use super::operation::{Operation, Stop};
use super::word::{self, ArrivalWord};
use crate::config::Algorithm;
use crate::sync::{Ordering, SyncPoint};

/// What a rank learns on arriving.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// Place in the arrival order, from 0.
    pub place: usize,
    /// The algorithm the first arriver chose.
    pub plan: Algorithm,
}

impl<B: Board> Operation<'_, B> {
    /// Takes a place. `previous` is the slot's final value at its last ticketed use and becomes this operation's.
    ///
    /// At most two atomic operations and one cache-line transfer: a refused swap leaves the line here.
    pub(super) fn arrive(&mut self, previous: &mut ArrivalWord) -> Result<Arrival, Stop> {
        let proposal = self.call.prepared.algorithm;
        let first = ArrivalWord::first(self.epoch, self.hash, proposal as u8, self.me);
        let arrivals = self.board.arrival(self.slot);
        match arrivals.compare_exchange(previous.0, first.0, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                *previous = first.full(self.ranks);
                Ok(Arrival { place: 0, plan: proposal })
            }
            Err(found) => {
                let found = ArrivalWord(found);
                if !found.is_of(self.epoch) || found.count() >= self.ranks || found.leader() >= self.ranks {
                    return Err(self.corrupt());
                }
                if found.signature() != self.hash & 0xffff {
                    return self.disagree_with(found.leader());
                }
                let before = ArrivalWord(arrivals.fetch_add(1, Ordering::Relaxed));
                *previous = before.full(self.ranks);
                match Algorithm::from_code(before.plan()) {
                    Some(plan) => Ok(Arrival { place: before.count(), plan }),
                    None => Err(self.corrupt()),
                }
            }
        }
    }

    /// Whether every rank has taken its place by now. A hint: nothing is ordered by it.
    pub(super) fn all_arrived(&self) -> bool {
        let word = ArrivalWord(self.board.arrival(self.slot).load(Ordering::Relaxed));
        word.is_of(self.epoch) && word.count() == self.ranks
    }

    /// The first arriver made another call: reports both. Nothing is counted and no payload is touched.
    fn disagree_with<T>(&mut self, leader: usize) -> Result<T, Stop> {
        let (slot, epoch) = (self.slot, self.epoch);
        self.wait(super::wait::Wake::Poll, |board| {
            let entered = board.line(slot, leader).entered.load(SyncPoint::CallAcquire.order());
            word::has_entered(entered, epoch).then_some(())
        })?;
        Err(self.mismatch(leader))
    }
}
