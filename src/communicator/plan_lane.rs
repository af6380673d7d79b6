//! The calls of a communicator that plans carry out: which they are, and how ranks meet for the first of them.

use super::Communicator;
use crate::plans::Plans;
use crate::transport::{RingOptions, ShmTransport};
use crate::{Choice, Error};
use earlybird_shm::channel::{Fault, MemoryBudget};
use earlybird_shm::{Collective, Progress, enter};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The plans of a communicator. They are joined when the first one is asked for: jobs without any pay a load per call.
#[derive(Debug)]
pub(super) struct PlanLane {
    options: RingOptions,
    joined: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    plans: Option<Plans<ShmTransport>>,
    /// What they failed with.
    failed: Option<Error>,
    /// The plan of the last call, where that ran one.
    last: Option<&'static str>,
    /// Plans that ran.
    calls: u64,
    /// What to drive in long waits.
    progress: Option<Progress>,
}

impl PlanLane {
    pub(super) fn new(options: RingOptions) -> Self {
        PlanLane { options, joined: AtomicBool::new(false), state: Mutex::default() }
    }

    /// The lane of a communicator made from this one, whose name `group` no other one made from it has.
    pub(super) fn for_group(&self, group: &str, rank: usize, size: usize) -> Self {
        let key = format!("{}-{group}", self.options.key);
        let lane = PlanLane::new(RingOptions { rank, size, key, ..self.options.clone() });
        let progress = self.lock().ok().and_then(|state| state.progress.clone());
        PlanLane { state: Mutex::new(State { progress, ..State::default() }), ..lane }
    }

    /// The lane of a communicator of survivors, which share no memory with the dead: its rings are paid from `memory_budget`.
    pub(super) fn for_survivors(&self, key: String, rank: usize, size: usize, memory_budget: MemoryBudget) -> Self {
        PlanLane::new(RingOptions { rank, size, key, memory_budget: Some(memory_budget), ..self.options.clone() })
    }

    /// Names the communicator: equal on its ranks, different for any other one of the job that has several.
    pub(super) fn name(&self) -> &str {
        &self.options.key
    }

    /// What is driven in long waits.
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

    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        enter(&self.state)
    }

    /// Number and plan of the last call, if that ran a plan.
    pub(super) fn last(&self) -> Option<(u64, &'static str)> {
        if !self.joined.load(Relaxed) {
            return None;
        }
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

impl Communicator {
    /// Takes back the count of a call that was refused before it reached the others.
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

    /// Runs a plan, after joining the rings if it is the first.
    pub(super) fn run_plan(
        &self,
        name: &'static str,
        call: impl FnOnce(&mut Plans<ShmTransport>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Nothing that is posted proceeds while a plan waits.
        self.node.settle()?;
        let lane = &self.plans;
        let mut state = lane.lock()?;
        let State { plans, failed, last, calls, progress } = &mut *state;
        if let Some(error) = failed {
            return Err(error.clone());
        }
        if plans.is_none() {
            // A rank that makes another call meets the others here, instead of their waiting at the door for ever.
            self.node.meet_for_a_plan()?;
            let joined = ShmTransport::join_within(&lane.options, &|| self.node.absent());
            match &joined {
                // The dead are seen by what follows; who lives and was given up has its own word to say there.
                Ok(_) | Err(Error::PeerDied { .. }) => {}
                Err(error) => self.node.fail(error),
            }
            self.node.meet_for_a_plan()?;
            let mut transport = joined.map_err(|error| {
                // Nobody has died, so each rank has an error of its own; the first one stands for all.
                self.node.fail(&error);
                self.node.meet_for_a_plan().err().unwrap_or(error)
            })?;
            transport.rings().set_progress(progress.clone());
            *plans = Some(Plans::over(transport));
            lane.joined.store(true, Relaxed);
            self.settings.go_round();
        }
        let Some(plans) = plans else { unreachable!("joined above") };
        let unwinding = Unwinding(plans);
        let result = call(&mut *unwinding.0);
        std::mem::forget(unwinding);
        if result.is_ok() {
            *calls += 1;
            *last = Some(name);
        }
        let Some(error) = plans.failed() else { return result };
        // Ranks that made another call are in an operation of the node, which knows what call that is.
        if !matches!(error, Error::Mismatch { .. }) {
            self.node.fail(error);
        }
        let stands = self.node.meet_for_a_plan().err().unwrap_or_else(|| error.clone());
        // Where only the plans differ, the node has failed by nobody's word yet.
        self.node.fail(error);
        *failed = Some(stands.clone());
        Err(stands)
    }
}

/// What is dropped only where a plan unwinds: the other ranks must not wait for this one, which lives.
struct Unwinding<'a>(&'a mut Plans<ShmTransport>);

impl Drop for Unwinding<'_> {
    fn drop(&mut self) {
        self.0.transport_mut().rings().raise(Fault::Other("it panicked in a plan".into()));
    }
}

/// The plan that this choice is for such a call.
pub(super) fn plan_of(collective: Collective, choice: Choice) -> Option<&'static str> {
    let Choice::Plan(plan) = choice else { return None };
    match collective {
        Collective::AllReduce => Some(plan),
        // Whatever is chosen for data, a barrier has its own plan.
        Collective::Barrier => Some("dissemination"),
        _ => None,
    }
}
