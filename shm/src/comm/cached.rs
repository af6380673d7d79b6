//! The fast path of a handle: a small call with the arguments of an earlier one reuses its prepared state, and goes from the
//! handle to the lines with one comparison.

use super::call_cache::{ByUser, CachedCall, CachedPayload, CallKey};
use super::node_comm::{NodeComm, NodeState};
use crate::Error;
use crate::mapped::Mapped;
use crate::protocol::board::Board;
use crate::protocol::lengths::Announced;
use crate::protocol::payload::{SmallExchange, SmallGather, SmallPairs, SmallPayload, SmallScatter};
use crate::protocol::{Member, Report, Stop};

impl NodeComm {
    /// Carries out a small call with the arguments of an earlier one; `None` where it must be carried out in the general way, with nothing
    /// done, or the first operation of a call that goes on, which [`NodeState::begun`] tells.
    #[inline(always)]
    pub(super) fn execute_cached(&self, key: CallKey, payload: CachedPayload<'_>) -> Option<Result<(), Box<Error>>> {
        match payload {
            CachedPayload::Flat(payload) => self.run_cached(key, payload),
            CachedPayload::Exchange(exchange) => self.run_cached(key, exchange),
            CachedPayload::Unequal(exchange, counts) => self.run_cached(key, (exchange, counts)),
            CachedPayload::Gather(gather) => self.run_cached(key, gather),
            CachedPayload::Scatter(scatter) => self.run_cached(key, scatter),
            CachedPayload::Pairs(pairs) => self.run_cached(key, pairs),
            CachedPayload::User(call) => self.run_cached(key, call),
        }
    }

    /// Runs an operation of the prepared state that the key finds. The error is boxed, so that the answer is
    /// returned in registers.
    #[inline(never)]
    fn run_cached(&self, key: CallKey, payload: impl FastPath) -> Option<Result<(), Box<Error>>> {
        let state = &mut *self.state.try_lock()?;
        let NodeState { broken, member, calls, last, begun, .. } = state;
        let cached = match calls.find(key, payload.counts()) {
            Some(cached) => cached,
            None => calls.prepare_of_other_length(key, &self.thresholds)?,
        };
        if *broken || member.board.is_forked_child() {
            return None;
        }
        let unwinding = Unwinding { broken, member };
        let address = payload.address(cached.prepared.root() == Some(self.rank));
        let done = payload.run(cached, unwinding.member);
        std::mem::forget(unwinding);
        match done? {
            Ok(report) => {
                match report.announced {
                    None => {}
                    Some(Announced::Pairs(_) | Announced::Listed) => {
                        *begun = Some((report, address));
                        return None;
                    }
                    Some(announced) => {
                        let collective = cached.prepared.collective();
                        return announced.error(collective, self.rank).map(|error| Err(error.into()));
                    }
                }
                *last = Some(report);
                Some(Ok(()))
            }
            Err(stop) => Some(Err(self.error_of(member, stop).into())),
        }
    }
}

impl CachedPayload<'_> {
    /// Takes the fast path with the prepared state of the call, on a rank that has just made it; `None`, with nothing done, where it cannot.
    pub(super) fn run(self, cached: &CachedCall, member: &mut Member<Mapped>) -> Option<Result<Report, Stop>> {
        match self {
            CachedPayload::Flat(payload) => payload.run(cached, member),
            CachedPayload::Exchange(exchange) => exchange.run(cached, member),
            CachedPayload::Unequal(exchange, counts) => (exchange, counts).run(cached, member),
            CachedPayload::Gather(gather) => gather.run(cached, member),
            CachedPayload::Scatter(scatter) => scatter.run(cached, member),
            CachedPayload::Pairs(pairs) => pairs.run(cached, member),
            CachedPayload::User(call) => call.run(cached, member),
        }
    }
}

/// A payload that the fast path carries out with the prepared state of a call.
trait FastPath {
    /// See [`CachedPayload::counts`].
    #[inline(always)]
    fn counts(&self) -> &[usize] {
        &[]
    }

    /// The address by which the call of the root, or of another rank, is known again if it is not done.
    #[inline(always)]
    fn address(&self, _is_root: bool) -> usize {
        0
    }

    fn run(self, cached: &CachedCall, member: &mut Member<Mapped>) -> Option<Result<Report, Stop>>;
}

impl FastPath for SmallPayload<'_> {
    #[inline(always)]
    fn run(self, cached: &CachedCall, member: &mut Member<Mapped>) -> Option<Result<Report, Stop>> {
        member.run_fast(self.with(&cached.prepared)?)
    }
}

impl FastPath for SmallExchange<'_> {
    #[inline(always)]
    fn run(self, cached: &CachedCall, member: &mut Member<Mapped>) -> Option<Result<Report, Stop>> {
        member.run_fast_exchange(self.with(&cached.prepared, cached.blocks.as_ref()?)?)
    }
}

impl FastPath for (SmallExchange<'_>, &[usize]) {
    #[inline(always)]
    fn counts(&self) -> &[usize] {
        self.1
    }

    #[inline(always)]
    fn run(self, cached: &CachedCall, member: &mut Member<Mapped>) -> Option<Result<Report, Stop>> {
        member.run_fast_exchange(self.0.with_unequal(&cached.prepared, cached.blocks.as_ref()?)?)
    }
}

impl FastPath for ByUser<'_> {
    fn run(self, cached: &CachedCall, member: &mut Member<Mapped>) -> Option<Result<Report, Stop>> {
        let prepared = cached.prepared.by_user(self.operator);
        if prepared.exchanges() {
            return member.run_small(self.exchange.with(&prepared, cached.blocks.as_ref()?)?);
        }
        Some(member.run_general(&self.buffers.call(0..self.buffers.count(), &prepared)))
    }
}

impl FastPath for SmallGather<'_> {
    #[inline(always)]
    fn run(self, cached: &CachedCall, member: &mut Member<Mapped>) -> Option<Result<Report, Stop>> {
        let me = member.board.rank();
        match cached.prepared.root() == Some(me) {
            true => member.run_fast_gather(self.with(&cached.prepared, me, cached.window_bytes)?),
            false => self.exchange.run(cached, member),
        }
    }
}

impl FastPath for SmallScatter<'_> {
    #[inline(always)]
    fn address(&self, is_root: bool) -> usize {
        self.address_on(is_root)
    }

    #[inline(always)]
    fn run(self, cached: &CachedCall, member: &mut Member<Mapped>) -> Option<Result<Report, Stop>> {
        member.run_fast_scatter(self.with(&cached.prepared, member.board.rank(), cached.window_bytes)?)
    }
}

impl FastPath for SmallPairs<'_> {
    #[inline(always)]
    fn address(&self, _: bool) -> usize {
        self.address_of_counts()
    }

    /// The report has the lengths of all ranks only if they differ from what is expected, or more operations must follow.
    #[inline(always)]
    fn run(self, cached: &CachedCall, member: &mut Member<Mapped>) -> Option<Result<Report, Stop>> {
        let pairs = self.with(&cached.prepared, member.board.rank(), cached.announced_stride)?;
        let done = member.run_fast_pairs(pairs)?;
        Some(done.map(|report| match report.announced {
            Some(Announced::Pairs(all)) if pairs.is_done_with(all, report.is_done) => {
                Report { announced: None, ..report }
            }
            _ => report,
        }))
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
