//! The input and the result of a simulation, and its checks.

use super::costs::{Machine, Partition};
use super::noise::Jitter;
use crate::plan::{Plan, PlanError};
use crate::schedule::{self, LazyPlan};
use crate::verify::Verified;

/// One collective call of all ranks.
#[derive(Debug, Clone, Copy)]
pub struct Call<'a> {
    /// Bytes of the vector, of any size, 0 included.
    pub bytes: f64,
    /// Arrival time of each rank; empty if all arrive at 0.
    pub arrivals_s: &'a [f64],
    /// Noise on messages.
    pub jitter: Jitter,
}

impl Call<'_> {
    /// A call with a vector of `bytes` bytes; all ranks arrive at 0, no jitter.
    pub fn of(bytes: f64) -> Self {
        Self { bytes, arrivals_s: &[], jitter: Jitter::default() }
    }
}

/// The times of a simulated call.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Timeline {
    /// Arrival time of each rank.
    pub arrivals_s: Vec<f64>,
    /// Exit time of each rank.
    pub exits_s: Vec<f64>,
    /// Rounds of the plan.
    pub rounds: usize,
    /// Messages sent by all ranks.
    pub messages: u64,
    /// Bytes sent by all ranks.
    pub bytes: f64,
}

impl Timeline {
    /// Time from 0 to the last exit.
    pub fn time_s(&self) -> f64 {
        self.exits_s.iter().copied().fold(0.0, f64::max)
    }

    /// The tail: seconds from the last arrival to the last exit.
    pub fn tail_s(&self) -> f64 {
        self.time_s() - self.arrivals_s.iter().copied().fold(0.0, f64::max)
    }
}

/// The plan to simulate: whole, or made a few rounds at a time.
#[derive(Debug, Clone, Copy)]
pub enum PlanSource<'a> {
    /// A plan with all its steps.
    Whole(&'a Plan),
    /// A plan whose steps are made when they are needed.
    Lazy(&'a LazyPlan),
}

impl<'a> PlanSource<'a> {
    /// The plan, or what is known of it before its steps are made.
    pub fn header(self) -> &'a Plan {
        match self {
            PlanSource::Whole(plan) => plan,
            PlanSource::Lazy(lazy) => lazy.header(),
        }
    }
}

impl<'a> From<&'a Plan> for PlanSource<'a> {
    fn from(plan: &'a Plan) -> Self {
        PlanSource::Whole(plan)
    }
}

impl<'a> From<&'a Verified<Plan>> for PlanSource<'a> {
    fn from(plan: &'a Verified<Plan>) -> Self {
        PlanSource::Whole(plan)
    }
}

impl<'a> From<&'a LazyPlan> for PlanSource<'a> {
    fn from(plan: &'a LazyPlan) -> Self {
        PlanSource::Lazy(plan)
    }
}

/// Refuses impossible costs, sizes and times.
pub(super) fn checked_machine(machine: &Machine, call: &Call) -> Result<(), PlanError> {
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

/// The arrival times, one for each rank; all 0 if none are given.
pub(super) fn times(ranks: usize, arrivals_s: &[f64]) -> Result<Vec<f64>, PlanError> {
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

/// A parameter error of the simulator.
pub(super) fn bad(parameter: &'static str, given: impl ToString, expected: impl ToString) -> PlanError {
    schedule::bad("simulate", parameter, given, expected)
}
