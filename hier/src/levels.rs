//! Costs of two levels: messages inside a node, and messages between nodes over one full-duplex link per node.
//!
//! Closed forms do not say which messages cross a link, so plans are built and read. A round takes as long as its
//! busiest rank or link: a rank's messages inside the node follow each other, the messages of a node to or from
//! others share its link. Rounds do not overlap. With such a link, reducing inside the node first is what counts
//! (PY section 5), whatever follows between nodes.

use crate::admit::{Consistency, OpTraits, admit};
use crate::choose::{Model, ranking};
use crate::error::PlanError;
use crate::plan::Plan;
use crate::schedule::{self, Distance, Params};
use crate::verify::verify;

/// Flat candidates that are built and read beside the two-level ones.
const FLAT: usize = 8;

/// The two levels. Rank r is on node r / `ranks_per_node`.
#[derive(Debug, Clone, PartialEq)]
pub struct Levels {
    /// Consecutive ranks per node, at least 1.
    pub ranks_per_node: usize,
    /// Messages and reductions inside a node.
    pub inside: Model,
    /// Messages between nodes; its reductions are not used.
    pub between: Model,
}

/// A plan with its predicted time.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// Name of the schedule.
    pub algorithm: &'static str,
    /// What it was asked for.
    pub params: Params,
    /// Predicted seconds.
    pub seconds: f64,
}

/// What one end has to do in a round.
#[derive(Debug, Clone, Copy, Default)]
struct Load {
    messages: usize,
    blocks: usize,
}

impl Load {
    fn add(&mut self, blocks: usize) {
        self.messages += 1;
        self.blocks += blocks;
    }

    /// The first message starts at its own cost, every other one at that of a port.
    fn seconds(self, model: &Model, unit: f64) -> f64 {
        match self.messages {
            0 => 0.0,
            n => model.message_s(self.blocks as f64 * unit) + (n - 1) as f64 * model.port_s,
        }
    }
}

impl Levels {
    /// Predicted time of a plan over `bytes`. Cost: one pass over the messages. An error if they do not pair up or
    /// there are no ranks per node.
    pub fn predict_s(&self, plan: &Plan, bytes: f64) -> Result<f64, PlanError> {
        if self.ranks_per_node == 0 {
            return Err(PlanError::Parameter {
                algorithm: plan.algorithm.clone(),
                parameter: "ranks-per-node",
                given: "0".to_string(),
                expected: "at least 1".to_string(),
            });
        }
        let unit = bytes / plan.blocks as f64;
        let node = |rank: usize| rank / self.ranks_per_node;
        let nodes = plan.ranks().div_ceil(self.ranks_per_node);
        let mut seconds = 0.0;
        for round in plan.messages()?.chunk_by(|a, b| a.round == b.round) {
            let mut ranks = vec![[Load::default(); 2]; plan.ranks()];
            let mut links = vec![[Load::default(); 2]; nodes];
            for m in round {
                let n = m.blocks.len();
                if node(m.from) == node(m.to) {
                    ranks[m.from][0].add(n);
                    ranks[m.to][1].add(n);
                } else {
                    links[node(m.from)][0].add(n);
                    links[node(m.to)][1].add(n);
                }
            }
            let inside = ranks.iter().flatten().map(|load| load.seconds(&self.inside, unit));
            let between = links.iter().flatten().map(|load| {
                // ranks of a node start their messages side by side; only the bytes queue on the link
                let one = Load { messages: load.messages.min(1), ..*load };
                one.seconds(&self.between, unit)
            });
            seconds += inside.chain(between).fold(0.0, f64::max);
        }
        let reduced = plan.counters().critical_blocks_reduced as f64 * unit;
        Ok(seconds + reduced * self.inside.gamma_s_per_byte)
    }

    /// Two-level schedules and the flat ones that come first under either level's costs, all verified and admitted,
    /// fastest first. Errors as [`schedule::build`].
    pub fn ranking(
        &self,
        ranks: usize,
        bytes: f64,
        op: OpTraits,
        consistency: Consistency,
    ) -> Result<Vec<Predicted>, PlanError> {
        let per_node = Some(self.ranks_per_node);
        let mut tried: Vec<(&'static str, Params)> = ["smp-binomial", "smp-butterfly"]
            .map(|name| (name, Params { ranks_per_node: per_node, ..Params::ranks(ranks) }))
            .into();
        // distance doubling keeps most bytes inside nodes, which a closed form cannot know
        let doubling = Params { distance: Some(Distance::Doubling), ..Params::ranks(ranks) };
        tried.push(("halving-doubling", doubling));
        tried.push(("ring", Params::ranks(ranks)));
        for model in [&self.between, &self.inside] {
            let flat = ranking(ranks, bytes, op, consistency, model, FLAT);
            tried.extend(flat.into_iter().map(|choice| (choice.algorithm, choice.params)));
        }
        let mut found: Vec<Predicted> = Vec::new();
        for (algorithm, params) in tried {
            let plan = verify(schedule::build(algorithm, &params)?)?;
            let Ok(plan) = admit(plan, op, consistency) else { continue };
            let seconds = self.predict_s(&plan, bytes)?;
            if !found.iter().any(|p| p.algorithm == algorithm && p.params == params) {
                found.push(Predicted { algorithm, params, seconds });
            }
        }
        found.sort_by(|a, b| a.seconds.total_cmp(&b.seconds));
        Ok(found)
    }
}
