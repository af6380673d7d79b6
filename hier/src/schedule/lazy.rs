//! Plans made a few rounds at a time, for more ranks than a plan of all rounds has room for.
//!
//! A schedule is written once: it gives all its messages to a [`PlanBuilder`](crate::plan::PlanBuilder), and the builder
//! keeps those of the requested rounds. The windows put together are the plan.

use super::algorithms::{Algorithm, MAX_RANKS, algorithm, checked};
use super::arithmetic::ceil_log2;
use super::params::{GroupSpec, Params};
use crate::plan::{Collective, Plan, PlanError};

/// Most ranks of a lazy plan.
pub const MAX_LAZY_RANKS: usize = 1 << 17;

/// Steps of all ranks that are made at once.
const STEPS_AT_ONCE: usize = 1 << 20;

/// Most messages per rank of a schedule over more than [`MAX_RANKS`](super::MAX_RANKS) ranks, as a multiple of
/// ⌈log₂ P⌉: every schedule with a logarithmic number of rounds and ports stays below.
const LOGARITHMIC: usize = 8;

/// A schedule whose steps are made when they are needed. Header and rounds are known from the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LazyPlan {
    algorithm: &'static str,
    params: Params,
    header: Plan,
}

impl LazyPlan {
    /// The schedule of a name, up to [`MAX_LAZY_RANKS`] ranks if it takes a logarithmic number of rounds, otherwise as
    /// [`build`](super::build). Cost: one pass over the schedule, keeping nothing.
    pub fn new(name: &str, params: &Params) -> Result<Self, PlanError> {
        let entry = algorithm(name)?;
        let most = if logarithmic(entry, params) { MAX_LAZY_RANKS } else { MAX_RANKS };
        let collective = checked(entry, params, most)?;
        let params = Params { collective: Some(collective), ..params.clone() };
        let header = make(entry, &params, collective, (-1, -1))?;
        Ok(Self { algorithm: entry.name, params, header })
    }

    /// The plan without its steps: programs are empty.
    pub fn header(&self) -> &Plan {
        &self.header
    }

    /// The number of rounds whose steps take some hundred megabytes.
    pub fn rounds_at_once(&self) -> usize {
        (STEPS_AT_ONCE / (2 * self.header.ranks()).max(1)).max(1)
    }

    /// The plan with the steps of rounds `first..end` only; round -1 is before round 0. Cost: one pass over the
    /// schedule, keeping these steps.
    pub fn window(&self, first: i32, end: i32) -> Result<Plan, PlanError> {
        make(
            algorithm(self.algorithm)?,
            &self.params,
            self.params.collective.unwrap_or(Collective::Allreduce),
            (first, end),
        )
    }
}

fn make(entry: &Algorithm, params: &Params, collective: Collective, window: (i32, i32)) -> Result<Plan, PlanError> {
    (entry.make)(&Params { window: Some(window), ..params.clone() }, collective)
}

/// True if a rank sends a logarithmic number of messages and each is made in little time.
fn logarithmic(entry: &Algorithm, params: &Params) -> bool {
    let limit = LOGARITHMIC * ceil_log2(params.ranks).max(1);
    let few = |numbers: &Option<Vec<usize>>| numbers.iter().flatten().sum::<usize>() <= limit;
    match entry.name {
        "recursive-doubling" | "halving-doubling" | "elimination-3-2" | "elimination-2-1" | "census" | "binomial"
        | "rsg" | "smp-binomial" | "smp-butterfly" | "dissemination" => true,
        "butterfly" => {
            let ring = matches!(&params.group, Some(GroupSpec::Factors(factors)) if factors.iter().any(|f| f.ring));
            !ring && params.cap.is_none() && params.rounds.is_none_or(|k| k <= limit) && !params.keep_order
        }
        "cyclic-shift" => few(&params.radices) && params.ports.is_none_or(|ports| ports <= 16),
        _ => false,
    }
}
