//! Failing the node's group for a reason found outside its operations: the ranks inside one get it, the others at their
//! next.

use super::NodeComm;
use crate::Error;
use crate::protocol::signature::Collective;
use crate::protocol::word::Cause;
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

    /// Ends this rank's membership, after what is posted: nothing can be called here any more. Waits for no other rank, and
    /// compares what was called with what those ranks called that have ended before.
    ///
    /// # Errors
    /// The group's one error: that of an earlier call, or [`Error::Mismatch`] where a rank has called something else and no
    /// later operation has shown that. [`Error::Usage`] when another thread is in a call.
    pub fn end(&self) -> Result<(), Error> {
        let state = &mut *self.lock()?;
        let ended = state.member.settle().and_then(|()| state.member.end());
        ended.map_err(|stop| self.error_of(&state.member, stop))
    }

    /// Meets the other ranks before the first call that a plan carries out. A rank that makes another call instead gets
    /// [`Error::Mismatch`], as they do.
    ///
    /// # Errors
    /// As [`NodeComm::barrier`].
    pub fn meet_for_plans(&self) -> Result<(), Error> {
        let state = &mut *self.lock()?;
        let last = state.last;
        let met = self.add_up(state, Collective::Plan, &mut [0]);
        // It is none of the caller's operations.
        state.last = last;
        met
    }

    /// Fails the group with `error`, unless it has failed already or this process is inside a call. Sleepers look up
    /// within 50 ms.
    pub fn fail(&self, error: &Error) {
        let Ok(mut state) = self.lock() else { return };
        let (cause, details) = match error {
            Error::PeerDied { rank, .. } => (Cause::PeerDied, [*rank as u64, 0]),
            Error::Timeout { missing, after, .. } => {
                (Cause::Timeout, [missing.first().copied().unwrap_or(0) as u64, after.as_nanos() as u64])
            }
            Error::Mismatch { rank_a, rank_b, .. } => {
                (Cause::Mismatch, [if *rank_a == self.rank { *rank_b } else { *rank_a } as u64, 0])
            }
            Error::NoSpace { needed, free, .. } => (Cause::NoSpace, [*needed, *free]),
            _ => (Cause::Corrupt, [0, 0]),
        };
        // If another rank was first, its error stands.
        state.member.fail(cause, &details);
    }
}
