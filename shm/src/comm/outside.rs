//! Failing the node's group for a reason found outside its operations: the ranks inside one get it, the others at their
//! next.

use super::node_comm::NodeComm;
use crate::Error;
use crate::protocol::board::{Board, SLOTS};
use crate::protocol::collective::Collective;
use crate::protocol::lines::DETAILS;
use crate::protocol::word::{self, Cause};
use crate::shrink::Membership;
use crate::sync::Ordering;
use crate::text;
use std::time::Duration;

impl NodeComm {
    /// The deadline of this rank's waits from now on, in place of the one it joined with.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub fn set_deadline(&self, deadline: Option<Duration>) -> Result<(), Error> {
        self.lock()?.member.patience.timeout_ns = deadline.map(crate::nanoseconds);
        Ok(())
    }

    /// A rank that will not come to a rendezvous of this group's ranks, called while this rank waits there: that rank is gone,
    /// has failed the group, or has already begun the group's next operation.
    pub fn absent(&self) -> Option<usize> {
        let state = self.lock().ok()?;
        let (board, next) = (&state.member.board, state.member.epoch() + 1);
        let slot = (next % SLOTS as u64) as usize;
        let has_gone_on = |rank| word::has_entered(board.line(slot, rank).entered.load(Ordering::Relaxed), next);
        let is_absent = |rank| board.is_gone(rank) || has_gone_on(rank);
        match state.member.failure() {
            None => (0..self.size).find(|rank| *rank != self.rank && is_absent(*rank)),
            Some(stop) => Some(stop.0.reporter().min(self.size - 1)),
        }
    }

    /// Ends this rank's membership once its started calls have completed: nothing can be called here any more. Waits for no
    /// other rank. Compares this rank's call history with those of the ranks that have ended before.
    ///
    /// # Errors
    /// The group's one error: that of an earlier call, or [`Error::Mismatch`] where the last calls of two ranks differ.
    /// [`Error::Usage`] when another thread is in a call.
    pub fn end(&self) -> Result<(), Error> {
        let state = &mut *self.lock()?;
        let ended = state.member.settle().and_then(|()| state.member.end(true));
        ended.map_err(|stop| self.error_of(&state.member, stop))
    }

    /// Returns whether a rank has dropped its handle of the group, or is dead; false while another thread is in a call.
    pub fn has_left(&self, rank: usize) -> bool {
        self.state.try_lock().is_some_and(|state| rank < self.size && state.member.board.is_gone(rank))
    }

    /// Returns whether the CPUs are oversubscribed by ranks of other groups ([`JoinOptions::oversubscribed`](super::JoinOptions)).
    pub fn is_oversubscribed_by_others(&self) -> bool {
        self.size <= self.cpus && self.state.try_lock().is_some_and(|state| state.member.patience.oversubscribed)
    }

    /// The group's ranks, of which the survivors can form a new group; `None` in a group of one, which shares nothing.
    pub fn membership(&self) -> Option<Membership> {
        let (_, group) = self.group_info.allocation?;
        Some(Membership::new(self.segment.clone(), group, self.group_info.members.clone()))
    }

    /// Fails the group with `error`, unless it has failed already or this process is inside a call. Sleeping ranks notice
    /// within 50 ms.
    pub fn fail(&self, error: &Error) {
        let Ok(mut state) = self.lock() else { return };
        let mut details = [0; DETAILS];
        let (cause, words) = match error {
            Error::PeerDied { rank, .. } => (Cause::PeerDied, [*rank as u64, 0]),
            Error::Timeout { missing, after, .. } => {
                (Cause::Timeout, [missing.first().copied().unwrap_or(0) as u64, crate::nanoseconds(*after)])
            }
            Error::Mismatch { rank_a, rank_b, .. } => {
                // Found by what carries out calls outside the node's operations: plans.
                let plan = u64::from(Collective::Plan as u8);
                (details[3], details[1]) = (plan, plan);
                (Cause::Mismatch, [if *rank_a == self.rank { *rank_b } else { *rank_a } as u64, plan])
            }
            Error::NoSpace { needed, free, .. } => (Cause::NoSpace, [*needed, *free]),
            other => {
                let bytes = text::pack(&other.to_string(), &mut details[1..]);
                (Cause::Corrupt, [bytes as u64, details[1]])
            }
        };
        details[..2].copy_from_slice(&words);
        // If another rank was first, its error stands.
        state.member.fail(cause, &details);
    }
}
