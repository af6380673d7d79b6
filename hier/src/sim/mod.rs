//! The second interpreter: plans in time.
//!
//! A rank begins a round when it has finished its steps of earlier rounds; there is no barrier between rounds. It
//! posts the messages of the round, then their bytes leave and share its port fairly. The round is finished when what
//! it sends has left, what it awaits has arrived, and what it reduces is reduced, in this order. A message that comes
//! before its receiver has reached the round waits in a buffer, unless it is longer than the eager limit: then it
//! starts only when both ends have reached the round.
//!
//! Without a network, messages share nothing but the ports of their two ranks, and a port is shared by the messages
//! of one round of its rank (`rounds.rs`); plans may be made a few rounds at a time. With a [`Network`], messages are
//! flows that share ports and the links of a tree of switches by max-min fairness (`flows.rs`).
//!
//! [`ThreePhase`] puts a node phase before and after a plan between nodes, in a pipeline of chunks.
//!
//! With all ranks arriving together, no jitter and no network, a plan in which all ranks do alike takes exactly what
//! [`cost`](crate::cost) says; no plan takes longer.

mod costs;
mod fair;
mod flows;
mod network;
mod noise;
mod port;
mod rounds;
mod three_phase;
mod turn;

pub use costs::{Costs, Duplex, Machine, Partition};
pub use network::Network;
pub use noise::{Jitter, mix};
pub use three_phase::{NodeFold, ThreePhase};

use crate::error::{PlanError, Violation};
use crate::plan::{Plan, pair};
use crate::schedule::LazyPlan;
use crate::verify::Verified;

/// One call of all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Bytes of the vector, of any size, 0 included.
    pub bytes: f64,
    /// When each rank arrives; empty if all arrive at 0.
    pub arrivals_s: &'a [f64],
    /// Noise on messages.
    pub jitter: Jitter,
}

impl Call<'_> {
    /// A vector of so many bytes; all arrive at 0, no jitter.
    pub fn of(bytes: f64) -> Self {
        Self { bytes, arrivals_s: &[], jitter: Jitter::default() }
    }
}

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Timeline {
    /// When each rank arrived.
    pub arrivals_s: Vec<f64>,
    /// When each rank left.
    pub exits_s: Vec<f64>,
    /// Rounds of the plan.
    pub rounds: usize,
    /// Messages sent by all ranks.
    pub messages: u64,
    /// Bytes sent by all ranks.
    pub bytes: f64,
}

impl Timeline {
    /// When the last rank left, counted from 0.
    pub fn time_s(&self) -> f64 {
        self.exits_s.iter().copied().fold(0.0, f64::max)
    }

    /// From the last arrival to the last exit.
    pub fn tail_s(&self) -> f64 {
        self.time_s() - self.arrivals_s.iter().copied().fold(0.0, f64::max)
    }
}

/// What is simulated: a plan at hand, or one that is made a few rounds at a time.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// All steps at hand.
    Whole(&'a Plan),
    /// Steps made when they are needed.
    Lazy(&'a LazyPlan),
}

impl<'a> From<&'a Plan> for Source<'a> {
    fn from(plan: &'a Plan) -> Self {
        Source::Whole(plan)
    }
}

impl<'a> From<&'a Verified<Plan>> for Source<'a> {
    fn from(plan: &'a Verified<Plan>) -> Self {
        Source::Whole(plan)
    }
}

impl<'a> From<&'a LazyPlan> for Source<'a> {
    fn from(plan: &'a LazyPlan) -> Self {
        Source::Lazy(plan)
    }
}

/// Runs a plan in time. Errors: arrivals that are not one time per rank, costs or bytes that are negative or not
/// finite, a network of another number of ranks, a plan whose messages do not pair up, and a network together with a
/// plan that is not at hand. Cost without a network: one pass over the steps; with one: each start and end of a
/// message visits all messages under way.
pub fn simulate<'a>(
    source: impl Into<Source<'a>>,
    machine: &Machine,
    network: Option<&Network>,
    call: &Call,
) -> Result<Timeline, PlanError> {
    let source = source.into();
    let header = match source {
        Source::Whole(plan) => plan,
        Source::Lazy(lazy) => lazy.header(),
    };
    checked_machine(machine, call)?;
    let arrivals = times(header.ranks(), call.arrivals_s)?;
    match (source, network) {
        (Source::Lazy(_), Some(_)) => {
            Err(bad("network", "a plan made round by round", "a whole plan, as flows of several rounds meet"))
        }
        (Source::Whole(plan), Some(network)) => {
            matched(plan)?;
            flows::run(plan, machine, network, call, arrivals)
        }
        (Source::Whole(plan), None) => {
            let mut run = rounds::Run::new(plan, machine, call, arrivals);
            matched(plan)?;
            run.window(plan, -1, plan.rounds as i32);
            Ok(run.finish())
        }
        (Source::Lazy(lazy), None) => {
            let mut run = rounds::Run::new(header, machine, call, arrivals);
            let (mut first, end) = (-1, header.rounds as i32);
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

/// Refuses what is no cost, size or time.
fn checked_machine(machine: &Machine, call: &Call) -> Result<(), PlanError> {
    let time = |seconds: f64| seconds.is_finite() && seconds >= 0.0;
    for costs in [&machine.inside, &machine.between] {
        if let Some((name, seconds)) = costs.wrong() {
            return Err(bad(name, seconds, "seconds, finite and not negative"));
        }
    }
    if machine.ranks_per_node == 0 {
        return Err(bad("ranks-per-node", 0, "at least 1"));
    }
    if machine.partition == Partition::Elements(0) {
        return Err(bad("element-bytes", 0, "at least 1"));
    }
    if !time(call.bytes) || machine.eager_bytes.is_some_and(|limit| !time(limit)) {
        return Err(bad("bytes", call.bytes, "bytes and eager limit finite and not negative"));
    }
    if !time(call.jitter.mean_s) {
        return Err(bad("jitter", call.jitter.mean_s, "seconds, finite and not negative"));
    }
    Ok(())
}

/// One arrival for each rank; all 0 if none are given.
fn times(ranks: usize, arrivals_s: &[f64]) -> Result<Vec<f64>, PlanError> {
    match arrivals_s {
        [] => Ok(vec![0.0; ranks]),
        given if given.len() != ranks => {
            Err(bad("arrivals", format!("{} times", given.len()), format!("one time for each of {ranks} ranks")))
        }
        given => match given.iter().find(|seconds| !(seconds.is_finite() && **seconds >= 0.0)) {
            Some(wrong) => Err(bad("arrivals", wrong, "seconds, finite and not negative")),
            None => Ok(given.to_vec()),
        },
    }
}

/// Every message has two ends in the same round.
fn matched(plan: &Plan) -> Result<(), Violation> {
    let place =
        |(rank, step): (usize, usize)| crate::error::Place { rank, step, round: plan.programs[rank][step].round };
    for both in pair(plan)? {
        let (send, receive) = (place(both.send), place(both.receive));
        if send.round != receive.round {
            return Err(Violation::RoundsDiffer { send, receive });
        }
    }
    Ok(())
}

fn bad(parameter: &'static str, given: impl ToString, expected: impl ToString) -> PlanError {
    PlanError::Parameter {
        algorithm: "simulate".to_string(),
        parameter,
        given: given.to_string(),
        expected: expected.to_string(),
    }
}
