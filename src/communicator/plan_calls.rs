//! Calls of a communicator that plans carry out: ranks join their rings in the first one, and share the error of one that fails.

use super::Communicator;
use super::comm_plans::{PlanState, plan_of};
use crate::Error;
use crate::plans::Plans;
use crate::transport::ShmTransport;
use earlybird_shm::channel::Fault;
use earlybird_shm::{Absent, Collective};
use std::sync::atomic::Ordering::Relaxed;

impl Communicator {
    /// Uncounts a call that was refused before other ranks could see it.
    #[inline]
    pub(super) fn done<T>(&self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(Error::Usage { .. } | Error::Unsupported { .. }) = &result
            && self.plans.joined.load(Relaxed)
            && let Ok(mut state) = self.plans.lock()
            && let Some(plans) = &mut state.plans
        {
            plans.transport_mut().rings().take_back();
        }
        result
    }

    /// The plan by which a call of `bytes` is carried out, if by one.
    #[inline]
    pub(super) fn plan_for(&self, collective: Collective, bytes: usize) -> Option<&'static str> {
        plan_of(collective, self.settings.choice(collective, bytes))
    }

    /// Joins the ranks of the node once more, between two barriers that are a part of `call`. A rank that
    /// makes another call is found before, instead of the others' waiting for it at the rendezvous; a failure on some ranks is the
    /// error of all.
    pub(super) fn join_between_barriers<T>(
        &self,
        call: Collective,
        join: impl FnOnce(Absent<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.node.meet(call)?;
        let joined = join(&|| self.node.absent());
        match &joined {
            // The next operation finds dead ranks; a living rank that has given up reports its own error there.
            Ok(_) | Err(Error::PeerDied { .. }) => {}
            Err(error) => self.node.fail(error),
        }
        self.node.meet(call)?;
        joined.map_err(|error| {
            // Nobody has died, so each rank has an error of its own; the first one stands for all.
            self.node.fail(&error);
            self.node.meet(call).err().unwrap_or(error)
        })
    }

    /// Runs a plan, after joining the rings if it is the first.
    pub(super) fn run_plan(
        &self,
        name: &'static str,
        call: impl FnOnce(&mut Plans<ShmTransport>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Nothing that is started proceeds while a plan waits.
        self.node.settle()?;
        let own = &self.plans;
        let mut state = own.lock()?;
        let PlanState { plans, failed, last, calls, progress } = &mut *state;
        if let Some(error) = failed {
            return Err(error.clone());
        }
        if plans.is_none() {
            let mut transport =
                self.join_between_barriers(Collective::Plan, |absent| ShmTransport::join_within(&own.options, absent))?;
            transport.rings().set_progress(progress.clone());
            *plans = Some(Plans::over(transport));
            own.joined.store(true, Relaxed);
            self.settings.route();
        }
        let Some(plans) = plans else { unreachable!("joined above") };
        let unwinding = Unwinding(plans);
        let result = call(&mut *unwinding.0);
        std::mem::forget(unwinding);
        if result.is_ok() {
            *calls += 1;
            *last = Some(name);
        }
        let Some(error) = plans.failed().cloned() else { return result };
        // This rank is in an operation of the node from here on: ranks that have not read the error of the rings do not wait for it.
        plans.transport_mut().rings().begin(false);
        // Ranks that made another call are in an operation of the node, which knows what call that is.
        if !matches!(error, Error::Mismatch { .. }) {
            self.node.fail(&error);
        }
        let stands = self.node.meet(Collective::Plan).err().unwrap_or_else(|| error.clone());
        // If only the plans differ, no rank has failed the node yet.
        self.node.fail(&error);
        *failed = Some(stands.clone());
        Err(stands)
    }
}

/// A guard that is dropped only if a plan unwinds: the other ranks must not wait for this one, which lives.
struct Unwinding<'a>(&'a mut Plans<ShmTransport>);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        self.0.transport_mut().rings().raise(Fault::Other("it panicked in a plan".into()));
    }
}
