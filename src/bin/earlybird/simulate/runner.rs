//! Simulates one algorithm for one number of ranks and bytes, and makes a row of the result.

use super::figure::{Measure, SimulatedRow};
use super::spec::{Schedule, Spec, StepCount, What, estimated_steps};
use crate::lateness::Lateness;
use earlybird_hier::cost::{Model, Topology};
use earlybird_hier::schedule::{self, LazyPlan, Params};
use earlybird_hier::select::select;
use earlybird_hier::sim::{Call, Jitter, Machine, Network, PlanSource, ThreePhase, Timeline, simulate};
use earlybird_hier::{Consistency, OpTraits, Plan, PlanError};

/// A machine with a number of ranks, and how often to run.
#[derive(Debug, Clone)]
pub struct Runner {
    ranks: usize,
    machine: Machine,
    network: Option<Network>,
    /// Ranks machine by machine, for a ring.
    tour: Option<Vec<usize>>,
    pub jitter_s: f64,
    pub seed: u64,
    pub iterations: u32,
    pub measure: Measure,
}

/// The mean over the iterations.
struct Mean {
    time_s: f64,
    rounds: usize,
    parameters: String,
}

impl Runner {
    /// Ranks without a network between their ports.
    pub fn new(ranks: usize, machine: Machine) -> Self {
        let (network, tour, measure) = (None, None, Measure::Time);
        Self { ranks, machine, network, tour, jitter_s: 0.0, seed: 1, iterations: 1, measure }
    }

    /// The same ranks on a tree of switches.
    pub fn on(self, tree: &Topology, link_s_per_byte: f64) -> Result<Self, PlanError> {
        let network = Network::new(tree, link_s_per_byte)?;
        Ok(Self { network: Some(network), tour: Some(tree.depth_first_order()), ..self })
    }

    /// Runs an algorithm on a vector of `bytes`.
    pub fn row(&self, spec: &Spec, bytes: u64, late: &Lateness) -> Result<SimulatedRow, PlanError> {
        let (algorithm, mean) = match &spec.what {
            What::Best => ("best".to_string(), self.best(bytes, late)?),
            What::Schedule(schedule) => (schedule.name.clone(), self.schedule(schedule, bytes, late)?),
            What::ThreePhase { .. } => ("three-phase".to_string(), self.three_phase(spec, bytes, late)?),
        };
        Ok(SimulatedRow {
            algorithm,
            parameters: mean.parameters,
            ranks: self.ranks,
            bytes,
            pattern: late.name(),
            time_us: mean.time_s * 1e6,
            rounds: mean.rounds,
        })
    }

    fn schedule(&self, schedule: &Schedule, bytes: u64, late: &Lateness) -> Result<Mean, PlanError> {
        let costs = &self.machine.between;
        match schedule.steps {
            StepCount::Given => self.mean(schedule, &schedule.params, bytes, late),
            StepCount::Estimated => {
                let (alpha, beta, gamma) = (costs.send_s, costs.per_byte_s, costs.reduce_per_byte_s);
                let r = estimated_steps(self.ranks, bytes as f64, alpha, beta, gamma);
                self.mean(schedule, &Params { r: Some(r), ..schedule.params.clone() }, bytes, late)
            }
            StepCount::Best => {
                let mut best: Option<Mean> = None;
                let most = self.ranks.max(1).next_power_of_two().trailing_zeros() as usize;
                for r in 0..=most {
                    let mean = self.mean(schedule, &Params { r: Some(r), ..schedule.params.clone() }, bytes, late)?;
                    // ties go to the smaller r, which sends fewer bytes
                    if best.as_ref().is_none_or(|best| mean.time_s < best.time_s) {
                        best = Some(mean);
                    }
                }
                Ok(best.expect("r = 0 is always tried"))
            }
        }
    }

    fn best(&self, bytes: u64, late: &Lateness) -> Result<Mean, PlanError> {
        let costs = &self.machine.between;
        let alpha_s = costs.send_s + costs.latency_s + costs.receive_s;
        let mut model = Model::linear(alpha_s, costs.per_byte_s, costs.reduce_per_byte_s);
        model.port_s = costs.next_port_s;
        let op = OpTraits { commutative: true, exact: false };
        let choice = select(self.ranks, bytes as f64, op, Consistency::Identical, &model);
        let schedule = Schedule {
            name: choice.algorithm.to_string(),
            params: choice.params.clone(),
            steps: StepCount::Given,
            by_arrival: false,
        };
        let mut mean = self.mean(&schedule, &choice.params, bytes, late)?;
        mean.parameters = joined([format!("schedule={}", choice.algorithm), mean.parameters]);
        Ok(mean)
    }

    fn three_phase(&self, spec: &Spec, bytes: u64, late: &Lateness) -> Result<Mean, PlanError> {
        let What::ThreePhase { fold, chunks, exchange } = &spec.what else { unreachable!("called for three phases") };
        if self.network.is_some() {
            return Err(bad("topology", "given", "none with three-phase; its nodes are those of --ranks-per-node"));
        }
        let nodes = self.ranks.div_ceil(self.machine.ranks_per_node);
        let plan = LazyPlan::new(&exchange.name, &Params { ranks: nodes, ..exchange.params.clone() })?;
        let three = ThreePhase { ranks: self.ranks, fold: *fold, chunks: *chunks, exchange: (&plan).into() };
        let parameters =
            joined([format!("fold={fold};chunks={chunks};exchange={}", exchange.name), parameters(plan.header())]);
        self.iterate(bytes, late, parameters, |call| three.simulate(&self.machine, call))
    }

    fn mean(&self, schedule: &Schedule, params: &Params, bytes: u64, late: &Lateness) -> Result<Mean, PlanError> {
        let mut params = Params { ranks: self.ranks, ..params.clone() };
        let uses = |name: &str| schedule::algorithm(&schedule.name).is_ok_and(|entry| entry.uses.contains(&name));
        if uses("ranks-per-node") && params.ranks_per_node.is_none() && self.machine.ranks_per_node > 1 {
            params.ranks_per_node = Some(self.machine.ranks_per_node);
        }
        if schedule.name == "ring" && params.order.is_none() && !schedule.by_arrival {
            params.order = self.tour.clone().filter(|tour| !tour.iter().copied().eq(0..self.ranks));
        }
        if !schedule.by_arrival {
            let made = self.make(&schedule.name, &params)?;
            return self.iterate(bytes, late, made.parameters(), |call| self.run(&made, call));
        }
        if params.order.is_some() {
            return Err(bad("order", "twice", "one order"));
        }
        let mut mean = self.iterate(bytes, late, String::new(), |call| {
            let mut order: Vec<usize> = (0..self.ranks).collect();
            order.sort_by(|a, b| call.arrivals_s[*a].total_cmp(&call.arrivals_s[*b]));
            let made = self.make(&schedule.name, &Params { order: Some(order), ..params.clone() })?;
            self.run(&made, call)
        })?;
        let shown = self.make(&schedule.name, &params)?.parameters();
        mean.parameters = joined([shown, "order=arrival".to_string()]);
        Ok(mean)
    }

    fn make(&self, name: &str, params: &Params) -> Result<Made, PlanError> {
        match self.network {
            Some(_) => schedule::build(name, params).map(Made::Whole),
            None => LazyPlan::new(name, params).map(|lazy| Made::Lazy(Box::new(lazy))),
        }
    }

    fn run(&self, made: &Made, call: &Call) -> Result<Timeline, PlanError> {
        simulate(made.source(), &self.machine, self.network.as_ref(), call)
    }

    fn iterate(
        &self,
        bytes: u64,
        late: &Lateness,
        parameters: String,
        mut run: impl FnMut(&Call) -> Result<Timeline, PlanError>,
    ) -> Result<Mean, PlanError> {
        let mut mean = Mean { time_s: 0.0, rounds: 0, parameters };
        for iteration in 0..u64::from(self.iterations) {
            let one = |rank| late.seconds(self.ranks, rank, iteration, self.seed);
            let arrivals_s: Vec<f64> = (0..self.ranks).map(one).collect();
            let seed = earlybird::pattern::mix(self.seed ^ iteration);
            let jitter = Jitter { mean_s: self.jitter_s, seed };
            let timeline = run(&Call { bytes: bytes as f64, arrivals_s: &arrivals_s, jitter })?;
            mean.time_s += match self.measure {
                Measure::Time => timeline.time_s(),
                Measure::Tail => timeline.tail_s(),
            };
            mean.rounds = timeline.rounds;
        }
        mean.time_s /= f64::from(self.iterations);
        Ok(mean)
    }
}

/// A schedule in the form in which it is simulated.
enum Made {
    Whole(Plan),
    Lazy(Box<LazyPlan>),
}

impl Made {
    fn source(&self) -> PlanSource<'_> {
        match self {
            Made::Whole(plan) => plan.into(),
            Made::Lazy(lazy) => (&**lazy).into(),
        }
    }

    fn parameters(&self) -> String {
        parameters(self.source().header())
    }
}

/// `name=value;name=value`, values as [`Spec`] reads them, without logical orders, which would fill the line.
fn parameters(plan: &Plan) -> String {
    let shown = plan.parameters.iter().map(|(name, value)| match name.as_str() {
        "order" => "order=given".to_string(),
        _ => format!("{name}={}", value.replace(',', "x").replace(':', "-")),
    });
    joined(shown)
}

fn joined(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(";")
}

fn bad(parameter: &'static str, given: &str, expected: &str) -> PlanError {
    let (given, expected) = (given.to_string(), expected.to_string());
    PlanError::Parameter { algorithm: "simulate".to_string(), parameter, given, expected }
}
