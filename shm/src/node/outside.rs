//! Failing the node's group for a reason found outside its operations: the ranks inside one get it, the others at their
//! next.

use super::NodeComm;
use crate::Error;
use crate::protocol::board::Board;
use crate::protocol::lines::DETAILS;
use crate::protocol::signature::Collective;
use crate::protocol::word::{Cause, PoisonWord};
use crate::sync::{Ordering, SyncPoint};
use crate::text;
use std::time::Duration;

impl NodeComm {
    /// The deadline of this rank's waits from now on, in place of the one it joined with.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub fn set_deadline(&self, deadline: Option<Duration>) -> Result<(), Error> {
        self.lock()?.member.patience.timeout_ns = deadline.map(|d| d.as_nanos() as u64);
        Ok(())
    }

    /// A rank that a meeting of this group's ranks waits for in vain: it is gone, or has failed the group.
    pub fn absent(&self) -> Option<usize> {
        let state = self.lock().ok()?;
        let board = &state.member.board;
        match board.poison().load(SyncPoint::PoisonAcquire.order()) {
            0 => (0..self.size).find(|rank| *rank != self.rank && board.is_gone(*rank)),
            poison => Some(PoisonWord(poison).reporter().min(self.size - 1)),
        }
    }

    /// Fails the group with `error`, unless it has failed already or this process is inside a call. Sleepers look up
    /// within 50 ms.
    pub fn fail(&self, error: &Error) {
        let Ok(state) = self.lock() else { return };
        let board = &state.member.board;
        if board.poison().load(SyncPoint::PoisonAcquire.order()) != 0 {
            return;
        }
        let mut details = [0; DETAILS];
        let (cause, words) = match error {
            Error::PeerDied { rank, .. } => (Cause::PeerDied, [*rank as u64, 0]),
            Error::Timeout { missing, after, .. } => {
                (Cause::Timeout, [missing.first().copied().unwrap_or(0) as u64, after.as_nanos() as u64])
            }
            Error::Mismatch { rank_a, rank_b, .. } => {
                // Told apart by what carries out calls outside the node's operations.
                let by_a_plan = u64::from(Collective::Plan as u8);
                (details[3], details[1]) = (by_a_plan, by_a_plan);
                (Cause::Mismatch, [if *rank_a == self.rank { *rank_b } else { *rank_a } as u64, by_a_plan])
            }
            Error::NoSpace { needed, free, .. } => (Cause::NoSpace, [*needed, *free]),
            other => {
                let bytes = text::pack(&other.to_string(), &mut details[1..]);
                (Cause::Corrupt, [bytes as u64, details[1]])
            }
        };
        details[..2].copy_from_slice(&words);
        for (word, value) in board.details(self.rank).iter().zip(details) {
            word.store(value, Ordering::Relaxed);
        }
        let poison = PoisonWord::new(cause, self.rank, state.member.epoch() + 1);
        // If another rank was first, its error stands.
        let _ = board.poison().compare_exchange(
            0,
            poison.0,
            SyncPoint::PoisonRelease.order(),
            SyncPoint::PoisonAcquire.order(),
        );
    }
}
