//! The plan's JSON form, for outside tools: a header, counters, and steps round by round.
//!
//! Within a round messages come first, ordered by receiver and then as the receiver applies them; local steps follow.
//! Reading checks the header's counters against the steps and refuses unknown fields. It proves nothing else: a plan that
//! was read still has to be verified.

use super::{Action, Blocks, Collective, Message, Order, Plan, PlanBuilder, PlanError, Side, Violation, check_form};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    algorithm: String,
    parameters: BTreeMap<String, String>,
    #[serde(rename = "contract")]
    collective: Collective,
    root: usize,
    ranks: usize,
    blocks: usize,
    buffers: usize,
    result: usize,
    rounds: usize,
    ports: usize,
    max_blocks_sent: usize,
    max_blocks_reduced: usize,
    critical_blocks_sent: usize,
    critical_blocks_reduced: usize,
    max_message_blocks: usize,
    messages: usize,
    order: Order,
    consistent: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    elements: Option<Elements>,
    steps: Vec<Item>,
}

/// Counts for a given vector length, on request.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Elements {
    length: usize,
    max_elements_sent: usize,
    max_elements_reduced: usize,
}

/// A message, or a local step.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Item {
    round: i32,
    /// The ends of a message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<usize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    to: Option<usize>,
    /// The rank of a local step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rank: Option<usize>,
    source: usize,
    target: usize,
    blocks: Blocks,
    action: Verb,
    side: Side,
}

#[derive(Serialize, Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Verb {
    Reduce,
    Copy,
}

fn verb(action: Action) -> (Verb, Side) {
    match action {
        // a copy has no operand order; the field is always there so that readers need no special case
        Action::Copy => (Verb::Copy, Side::Right),
        Action::Reduce(side) => (Verb::Reduce, side),
    }
}

fn action(verb: Verb, side: Side) -> Action {
    match verb {
        Verb::Copy => Action::Copy,
        Verb::Reduce => Action::Reduce(side),
    }
}

impl Plan {
    /// The plan as JSON text; with `elements`, also the counts for vectors of that length.
    pub fn to_json(&self, elements: Option<usize>) -> Result<String, Violation> {
        let counters = self.counters();
        let item = |m: Message| {
            let (action, side) = verb(m.action);
            let [from, to] = [m.from, m.to].map(|end| (!m.is_local()).then_some(end));
            let rank = m.is_local().then_some(m.from);
            let Message { round, source, target, blocks, .. } = m;
            Item { round, from, to, rank, source, target, blocks, action, side }
        };
        let steps = self.movements()?.into_iter().map(item).collect();
        let document = Document {
            algorithm: self.algorithm.clone(),
            parameters: self.parameters.clone(),
            collective: self.collective,
            root: self.root,
            ranks: self.ranks(),
            blocks: self.blocks,
            buffers: self.buffers,
            result: self.result,
            rounds: self.rounds,
            ports: self.ports,
            max_blocks_sent: counters.max_blocks_sent,
            max_blocks_reduced: counters.max_blocks_reduced,
            critical_blocks_sent: counters.critical_blocks_sent,
            critical_blocks_reduced: counters.critical_blocks_reduced,
            max_message_blocks: counters.max_message_blocks,
            messages: counters.messages,
            order: self.order,
            consistent: self.consistent,
            elements: elements.map(|length| Elements {
                length,
                max_elements_sent: self.max_elements_sent(length),
                max_elements_reduced: self.max_elements_reduced(length),
            }),
            steps,
        };
        Ok(serde_json::to_string(&document).expect("numbers, strings and lists always serialise"))
    }

    /// Reads a plan back. Counters in the text must be those of its steps.
    pub fn from_json(text: &str) -> Result<Plan, PlanError> {
        let parse = |reason: String| PlanError::Parse { what: "plan JSON", reason };
        let d: Document = serde_json::from_str(text).map_err(|e| parse(e.to_string()))?;
        // these numbers decide how much is allocated: no plan has rounds without a step, nor are more ranks built
        if d.ranks > 1 << 16 || d.rounds > d.steps.len() {
            return Err(parse(format!("{} ranks and {} rounds for {} steps", d.ranks, d.rounds, d.steps.len())));
        }
        let mut builder = PlanBuilder::new(&d.algorithm, d.ranks, d.blocks);
        for (name, value) in &d.parameters {
            builder.parameter(name, value);
        }
        builder.collective(d.collective, d.root).claim(d.order, d.consistent).ports(d.ports);
        for (i, item) in d.steps.into_iter().enumerate() {
            let wrong = |what: String| Err(parse(format!("steps[{i}]: {what}")));
            let (from, to) = match (item.from, item.to, item.rank) {
                (Some(from), Some(to), None) => (from, to),
                (None, None, Some(rank)) => (rank, rank),
                _ => return wrong("expected from and to, or rank".into()),
            };
            let Item { round, source, target, blocks, .. } = item;
            let least = if item.rank.is_some() { -1 } else { 0 };
            if round < least || round >= d.rounds as i32 {
                return wrong(format!("round {round} of {}", d.rounds));
            }
            if let Some(rank) = [from, to].into_iter().find(|r| *r >= d.ranks) {
                return wrong(format!("rank {rank} of {}", d.ranks));
            }
            if let Some(buffer) = [source, target].into_iter().find(|b| *b >= d.buffers) {
                return wrong(format!("buffer {buffer} of {}", d.buffers));
            }
            let action = action(item.action, item.side);
            match item.rank {
                Some(rank) => builder.local(round, rank, source, target, blocks, action),
                None => builder.message(round as usize, from, to, source, target, blocks, action),
            }
        }
        let mut plan = builder.finish();
        (plan.buffers, plan.rounds, plan.result) = (d.buffers, d.rounds, d.result);
        check_form(&plan)?;
        let found = plan.counters();
        let counters = [
            ("max_blocks_sent", d.max_blocks_sent, found.max_blocks_sent),
            ("max_blocks_reduced", d.max_blocks_reduced, found.max_blocks_reduced),
            ("critical_blocks_sent", d.critical_blocks_sent, found.critical_blocks_sent),
            ("critical_blocks_reduced", d.critical_blocks_reduced, found.critical_blocks_reduced),
            ("max_message_blocks", d.max_message_blocks, found.max_message_blocks),
            ("messages", d.messages, found.messages),
        ];
        match counters.into_iter().find(|(_, claimed, found)| claimed != found) {
            Some((name, claimed, found)) => {
                Err(Violation::Counter { name, claimed: claimed as u64, found: found as u64 }.into())
            }
            None => Ok(plan),
        }
    }
}
