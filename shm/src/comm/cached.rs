//! The fast path: a small allreduce, barrier or exchange with the arguments of the previous call reuses its prepared state, and goes
//! from the handle to the lines with one comparison.

use super::call_cache::{CachedCall, CachedPayload, CallKey};
use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::mapped::Mapped;
use crate::protocol::call::Prepared;
use crate::protocol::payload::{SmallExchange, SmallPayload};
use crate::protocol::{Member, Report, Stop};

impl NodeComm {
    /// Carries out a small call with the arguments of the previous one; `None`, with nothing done, where it must be carried
    /// out in the general way.
    #[inline(always)]
    pub(super) fn execute_cached(&self, key: CallKey, payload: CachedPayload<'_>) -> Option<Result<(), Error>> {
        match payload {
            CachedPayload::Reduced(payload) => self.reduce_cached(key, payload),
            CachedPayload::Moved(payload) => self.move_cached(key, payload),
        }
    }

    #[inline(never)]
    fn reduce_cached(&self, key: CallKey, payload: SmallPayload<'_>) -> Option<Result<(), Error>> {
        self.run_cached(key, |prepared, member| member.run_fast(&payload.bind(prepared)?))
    }

    #[inline(never)]
    fn move_cached(&self, key: CallKey, payload: SmallExchange<'_>) -> Option<Result<(), Error>> {
        self.run_cached(key, |prepared, member| member.run_fast_exchange(&payload.bind(prepared, self.rank)?))
    }

    /// Runs an operation of the previous call's prepared state, if the key is that call's.
    #[inline(always)]
    fn run_cached(
        &self,
        key: CallKey,
        run: impl FnOnce(&Prepared<'_>, &mut Member<Mapped>) -> Option<Result<Report, Stop>>,
    ) -> Option<Result<(), Error>> {
        let state = &mut *self.state.try_lock()?;
        let NodeState { broken, member, cached: Some(CachedCall { prepared, key: Some(last_key), .. }), last, .. } =
            state
        else {
            return None;
        };
        if *last_key != key || *broken || member.board.is_forked_child() {
            return None;
        }
        let unwinding = Unwinding { broken, member };
        let done = run(prepared, unwinding.member);
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
