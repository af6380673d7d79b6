//! The fast path: a small allreduce or barrier with the arguments of the previous call reuses its prepared state, and goes
//! from the handle to the lines with one comparison.

use super::call_cache::{CachedCall, CallKey};
use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::mapped::Mapped;
use crate::protocol::Member;
use crate::protocol::payload::SmallPayload;

impl NodeComm {
    /// Carries out a small call with the arguments of the previous one; `None`, with nothing done, where it must be carried
    /// out in the general way.
    #[inline(never)]
    pub(super) fn execute_cached(&self, key: CallKey, payload: SmallPayload<'_>) -> Option<Result<(), Error>> {
        let state = &mut *self.state.try_lock()?;
        let NodeState { broken, member, cached: Some(CachedCall { prepared, key: Some(last_key), .. }), last, .. } =
            state
        else {
            return None;
        };
        if *last_key != key || *broken || member.board.is_forked_child() {
            return None;
        }
        let payload = payload.bind(prepared)?;
        let unwinding = Unwinding { broken, member };
        let done = unwinding.member.run_fast(&payload);
        std::mem::forget(unwinding);
        match done? {
            Ok(report) => {
                *last = Some(report);
                Some(Ok(()))
            }
            Err(stop) => Some(Err(self.error_of(member, stop))),
        }
    }
}

/// Fails the group where a call unwinds; dropped only then, so that a call that returns pays nothing for it.
struct Unwinding<'a> {
    broken: &'a mut bool,
    member: &'a mut Member<Mapped>,
}

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        *self.broken = true;
        self.member.panicked();
    }
}
