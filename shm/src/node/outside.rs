//! Failing the node's group for a reason found outside its operations: the ranks inside one get it, the others at their
//! next.

use super::NodeComm;
use crate::Error;
use crate::protocol::board::Board;
use crate::protocol::word::{Cause, PoisonWord};
use crate::sync::{Ordering, SyncPoint};
use std::time::Duration;

impl NodeComm {
    /// The deadline of this rank's waits from now on, in place of the one it joined with.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub fn set_deadline(&self, deadline: Option<Duration>) -> Result<(), Error> {
        self.lock()?.member.patience.timeout_ns = deadline.map(|d| crate::nanoseconds(d));
        Ok(())
    }

    /// Fails the group with `error`, unless it has failed already or this process is inside a call. Sleepers look up
    /// within 50 ms.
    pub fn fail(&self, error: &Error) {
        let Ok(state) = self.lock() else { return };
        let board = &state.member.board;
        if board.poison().load(SyncPoint::PoisonAcquire.order()) != 0 {
            return;
        }
        let (cause, details) = match error {
            Error::PeerDied { rank, .. } => (Cause::PeerDied, [*rank as u64, 0]),
            Error::Timeout { missing, after, .. } => {
                (Cause::Timeout, [missing.first().copied().unwrap_or(0) as u64, crate::nanoseconds(*after)])
            }
            Error::Mismatch { rank_a, rank_b, .. } => {
                (Cause::Mismatch, [if *rank_a == self.rank { *rank_b } else { *rank_a } as u64, 0])
            }
            Error::NoSpace { needed, free, .. } => (Cause::NoSpace, [*needed, *free]),
            _ => (Cause::Corrupt, [0, 0]),
        };
        for (i, word) in board.details(self.rank).iter().enumerate() {
            word.store(details.get(i).copied().unwrap_or(0), Ordering::Relaxed);
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
