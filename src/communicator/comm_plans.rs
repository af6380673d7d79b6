//! The plans of a communicator, their rings, which are joined in the first call that runs a plan, and the choice of those calls.

use crate::plans::Plans;
use crate::transport::{RingOptions, ShmTransport};
use crate::{Choice, Error};
use earlybird_shm::channel::MemoryBudget;
use earlybird_shm::{Collective, Progress, enter};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The plans of a communicator. Their rings are joined when the first plan runs: other jobs pay a load per call.
#[derive(Debug)]
pub(super) struct CommPlans {
    pub(super) options: RingOptions,
    pub(super) joined: AtomicBool,
    state: Mutex<PlanState>,
}

#[derive(Debug, Default)]
pub(super) struct PlanState {
    pub(super) plans: Option<Plans<ShmTransport>>,
    /// The error with which they have failed.
    pub(super) failed: Option<Error>,
    /// The plan of the last call, where that ran one.
    pub(super) last: Option<&'static str>,
    /// The number of plans that ran.
    pub(super) calls: u64,
    /// The progress function of long waits.
    pub(super) progress: Option<Progress>,
}

impl CommPlans {
    pub(super) fn new(options: RingOptions) -> Self {
        CommPlans { options, joined: AtomicBool::new(false), state: Mutex::default() }
    }

    /// The plans of a communicator made from this one, whose name `group` no other one made from it has.
    pub(super) fn for_group(&self, group: &str, rank: usize, size: usize) -> Self {
        let key = format!("{}-{group}", self.options.key);
        let made = CommPlans::new(RingOptions { rank, size, key, ..self.options.clone() });
        let progress = self.lock().ok().and_then(|state| state.progress.clone());
        CommPlans { state: Mutex::new(PlanState { progress, ..PlanState::default() }), ..made }
    }

    /// The plans of a communicator of survivors, which share no memory with the dead: its rings are paid from `memory_budget`.
    pub(super) fn for_survivors(&self, key: String, rank: usize, size: usize, memory_budget: MemoryBudget) -> Self {
        CommPlans::new(RingOptions { rank, size, key, memory_budget: Some(memory_budget), ..self.options.clone() })
    }

    /// Names the communicator: equal on its ranks, different for any other one of the job that has several.
    pub(super) fn name(&self) -> &str {
        &self.options.key
    }

    /// The progress function of long waits.
    pub(super) fn progress(&self) -> Option<Progress> {
        match self.state.try_lock() {
            Ok(state) => state.progress.clone(),
            Err(TryLockError::Poisoned(state)) => state.into_inner().progress.clone(),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(super) fn set_progress(&self, progress: Option<Progress>) -> Result<(), Error> {
        let mut state = self.lock()?;
        if let Some(plans) = &mut state.plans {
            plans.transport_mut().rings().set_progress(progress.clone());
        }
        state.progress = progress;
        Ok(())
    }

    pub(super) fn lock(&self) -> Result<MutexGuard<'_, PlanState>, Error> {
        enter(&self.state)
    }

    /// Number and plan of the last call, if that ran a plan.
    #[inline]
    pub(super) fn last(&self) -> Option<(u64, &'static str)> {
        if self.joined.load(Relaxed) { self.last_of_joined() } else { None }
    }

    #[cold]
    fn last_of_joined(&self) -> Option<(u64, &'static str)> {
        let state = self.lock().ok()?;
        Some((state.calls, state.last?))
    }

    /// Counts a call that runs no plan: other ranks may be waiting in one.
    #[inline]
    pub(super) fn begin_other_call(&self) {
        if self.joined.load(Relaxed) {
            self.count_other_call();
        }
    }

    #[cold]
    fn count_other_call(&self) {
        let Ok(mut state) = self.lock() else { return };
        state.last = None;
        if let Some(plans) = &mut state.plans {
            plans.transport_mut().rings().begin(false);
        }
    }
}

/// The plan that this choice is for such a call.
pub(super) fn plan_of(collective: Collective, choice: Choice) -> Option<&'static str> {
    let plan = choice.plan()?;
    match collective {
        Collective::AllReduce => Some(plan),
        // A barrier has one plan, of whatever name the chosen one is.
        Collective::Barrier => Some("dissemination"),
        _ => None,
    }
}
