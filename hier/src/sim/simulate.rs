//! The simulator's entry: chooses between ports alone and a network.

use super::call::{Call, PlanSource, Timeline, bad, checked_machine, times};
use super::costs::Machine;
use super::flows;
use super::network::Network;
use super::rounds::RoundSimulation;
use crate::plan::{Plan, PlanError, Violation, match_steps, same_rounds};

/// Simulates a plan. Cost without a network: one pass over the steps; with one: each start and end of a message visits
/// all messages under way.
///
/// # Errors
/// Arrivals that are not one time per rank, costs or bytes that are negative or not finite, a network of another number
/// of ranks, a plan whose messages do not match, and a network together with a [`LazyPlan`](crate::schedule::LazyPlan).
pub fn simulate<'a>(
    source: impl Into<PlanSource<'a>>,
    machine: &Machine,
    network: Option<&Network>,
    call: &Call,
) -> Result<Timeline, PlanError> {
    let source = source.into();
    checked_machine(machine, call)?;
    let arrivals = times(source.header().ranks(), call.arrivals_s)?;
    match (source, network) {
        (PlanSource::Lazy(_), Some(_)) => {
            Err(bad("network", "a plan made round by round", "a whole plan, as flows of several rounds meet"))
        }
        (PlanSource::Whole(plan), Some(network)) => {
            matched(plan)?;
            flows::run(plan, machine, network, call, arrivals)
        }
        (PlanSource::Whole(plan), None) => {
            let mut run = RoundSimulation::new(plan, machine, call, arrivals);
            matched(plan)?;
            run.window(plan, -1, plan.rounds as i32);
            Ok(run.finish())
        }
        (PlanSource::Lazy(lazy), None) => {
            let mut run = RoundSimulation::new(lazy.header(), machine, call, arrivals);
            let (mut first, end) = (-1, lazy.header().rounds as i32);
            while first < end {
                let next = end.min(first + lazy.rounds_at_once() as i32);
                let plan = lazy.window(first, next)?;
                matched(&plan)?;
                run.window(&plan, first, next);
                first = next;
            }
            Ok(run.finish())
        }
    }
}

/// Checks that every message is received in the round in which it leaves.
fn matched(plan: &Plan) -> Result<(), Violation> {
    same_rounds(plan, &match_steps(plan)?)
}
