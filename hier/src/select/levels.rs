//! Selection by levels of cost: messages inside a node, between nodes, between racks, and so on.
//!
//! Every group of ranks has one full-duplex link to the level around it. Closed forms do not tell which messages cross a
//! link, so plans are built and counted. A round takes as long as its busiest rank or link: a rank's messages inside the
//! innermost group follow each other, and a group's messages to or from others share its link, on every level that they
//! pass. Rounds do not overlap. With such links it is most important to reduce inside first (PY section 5).

use super::ranking::ranking;
use crate::cost::{Level, Model};
use crate::plan::{Plan, PlanError, StepKind};
use crate::schedule::{self, Params};
use crate::verify::{Consistency, OpTraits, admit, verify};

/// Flat candidates per level that are built and counted beside the two-level ones.
const FLAT: usize = 8;

/// The levels of a machine, innermost first. Rank r is in group r / `ranks` of a level.
#[derive(Debug, Clone, PartialEq)]
pub struct Levels {
    levels: Vec<Level>,
}

/// A plan with its predicted time.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictedPlan {
    /// Name of the schedule.
    pub algorithm: &'static str,
    /// Its parameters.
    pub params: Params,
    /// Predicted seconds.
    pub seconds: f64,
}

/// The messages and blocks of one end of a link in a round.
#[derive(Debug, Clone, Copy, Default)]
struct EndLoad {
    messages: usize,
    blocks: usize,
}

impl EndLoad {
    fn add(&mut self, blocks: usize) {
        self.messages += 1;
        self.blocks += blocks;
    }

    /// Time of the messages: the first costs a message start, every other one a port.
    fn seconds(self, model: &Model, unit: f64) -> f64 {
        match self.messages {
            0 => 0.0,
            n => model.message_s(self.blocks as f64 * unit) + (n - 1) as f64 * model.port_s,
        }
    }
}

/// The load of all ranks and links in a round.
struct RoundLoads<'a> {
    levels: &'a [Level],
    /// The outgoing and incoming loads per level, of the ranks (innermost level) or of the groups of the level inside.
    loads: Vec<Vec<[EndLoad; 2]>>,
    /// Seconds of reductions of each rank.
    reducing: Vec<f64>,
}

impl Levels {
    /// Checks levels, innermost first, as [`crate::cost::levels_from_toml`] returns them. An error if there are none, if a level
    /// but the last has no group size, or a size is no larger multiple of the one inside.
    pub fn new(levels: Vec<Level>) -> Result<Self, PlanError> {
        let wrong = |given: String, expected: &str| Err(schedule::bad("levels", "ranks-per-node", given, expected));
        let mut inside = 1;
        for (i, level) in levels.iter().enumerate() {
            match level.ranks {
                Some(0) => return wrong("0".to_string(), "at least 1"),
                Some(n) if i + 1 < levels.len() && n.is_multiple_of(inside) => inside = n,
                None if i + 1 == levels.len() => {}
                given => {
                    return wrong(format!("{given:?}"), "multiples of the level inside, and none on the last level");
                }
            }
        }
        if levels.is_empty() { wrong("no levels".to_string(), "at least one") } else { Ok(Self { levels }) }
    }

    /// Nodes of consecutive ranks. An error if there are no ranks per node.
    pub fn two(ranks_per_node: usize, inside: Model, between: Model) -> Result<Self, PlanError> {
        Self::new(vec![Level { ranks: Some(ranks_per_node), model: inside }, Level { ranks: None, model: between }])
    }

    /// The group of a rank on a level; one for all on the last.
    fn group(&self, level: usize, rank: usize) -> usize {
        self.levels[level].ranks.map_or(0, |n| rank / n)
    }

    /// The level that a message crosses: the innermost one with both ranks in one group.
    fn crossing(&self, a: usize, b: usize) -> usize {
        let joins = |level: &usize| self.group(*level, a) == self.group(*level, b);
        (0..self.levels.len()).find(joins).unwrap_or(self.levels.len() - 1)
    }

    /// Predicted time of a plan over `bytes`. Cost: one pass over the messages and one over the steps. An error if
    /// messages do not pair up.
    pub fn predict_s(&self, plan: &Plan, bytes: f64) -> Result<f64, PlanError> {
        let unit = bytes / plan.blocks as f64;
        let messages = plan.messages()?;
        let mut messages = messages.iter().peekable();
        let mut steps: Vec<_> = plan.programs.iter().map(|program| program.iter().peekable()).collect();
        let mut seconds = 0.0;
        for round in -1..plan.rounds as i32 {
            let mut now = RoundLoads::new(&self.levels, plan.ranks());
            while let Some(m) = messages.next_if(|m| m.round == round) {
                let crossing = self.crossing(m.from, m.to);
                let passed = if crossing == 0 { 0..=0 } else { 1..=crossing };
                for level in passed {
                    let end = |rank| if level == 0 { rank } else { self.group(level - 1, rank) };
                    now.loads[level][end(m.from)][0].add(m.blocks.len());
                    now.loads[level][end(m.to)][1].add(m.blocks.len());
                }
            }
            for (rank, program) in steps.iter_mut().enumerate() {
                while let Some(step) = program.next_if(|step| step.round == round) {
                    let level = match step.kind {
                        kind if !kind.reduces() => continue,
                        StepKind::Receive { from, .. } => self.crossing(from as usize, rank),
                        StepKind::Send { .. } | StepKind::Local { .. } => 0,
                    };
                    let gamma = self.levels[level].model.gamma_s_per_byte;
                    now.reducing[rank] += step.blocks.len() as f64 * unit * gamma;
                }
            }
            seconds += now.seconds(unit);
        }
        Ok(seconds)
    }

    /// Schedules for nodes of any of the levels, and the best flat ones under any level's costs, all verified and
    /// admitted, fastest first. The errors are those of [`schedule::build`].
    pub fn ranking(
        &self,
        ranks: usize,
        bytes: f64,
        op: OpTraits,
        consistency: Consistency,
    ) -> Result<Vec<PredictedPlan>, PlanError> {
        let mut tried: Vec<(&'static str, Params)> = Vec::new();
        for size in self.levels.iter().filter_map(|level| level.ranks) {
            let params = || Params { ranks_per_node: Some(size), ..Params::ranks(ranks) };
            tried.extend(["smp-binomial", "smp-butterfly"].map(|name| (name, params())));
        }
        // distance doubling keeps most bytes inside nodes, which the closed form does not show
        let doubling = Params { distance: Some(schedule::Distance::Doubling), ..Params::ranks(ranks) };
        tried.push(("halving-doubling", doubling));
        tried.push(("ring", Params::ranks(ranks)));
        for level in &self.levels {
            let flat = ranking(ranks, bytes, op, consistency, &level.model, FLAT);
            tried.extend(flat.into_iter().map(|choice| (choice.algorithm, choice.params)));
        }
        let mut found: Vec<PredictedPlan> = Vec::new();
        for (algorithm, params) in tried {
            if found.iter().any(|p| p.algorithm == algorithm && p.params == params) {
                continue;
            }
            let plan = verify(schedule::build(algorithm, &params)?)?;
            let Ok(plan) = admit(plan, op, consistency) else { continue };
            let seconds = self.predict_s(&plan, bytes)?;
            found.push(PredictedPlan { algorithm, params, seconds });
        }
        found.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Ok(found)
    }
}

impl<'a> RoundLoads<'a> {
    fn new(levels: &'a [Level], ranks: usize) -> Self {
        let groups = |level: &Level| level.ranks.map_or(1, |n| ranks.div_ceil(n));
        let ends = std::iter::once(ranks).chain(levels.iter().map(groups));
        let loads = ends.take(levels.len()).map(|n| vec![[EndLoad::default(); 2]; n]).collect();
        Self { levels, loads, reducing: vec![0.0; ranks] }
    }

    fn seconds(&self, unit: f64) -> f64 {
        let mut longest = 0.0f64;
        for (level, loads) in self.loads.iter().enumerate() {
            for load in loads.iter().flatten() {
                // ranks of a group start their messages side by side; only the bytes queue on its link
                let messages = if level == 0 { load.messages } else { load.messages.min(1) };
                let load = EndLoad { messages, ..*load };
                longest = longest.max(load.seconds(&self.levels[level].model, unit));
            }
        }
        longest + self.reducing.iter().copied().fold(0.0, f64::max)
    }
}
