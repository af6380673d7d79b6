//! The plan's JSON form, for outside tools: a header, counters, and steps round by round.
//!
//! Within a round messages come first, ordered by receiver and then as the receiver applies them; local steps follow.

use super::{Action, Blocks, Collective, Counters, Message, Order, Plan, Side, Violation};
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Serialize)]
struct Document<'a> {
    algorithm: &'a str,
    parameters: &'a BTreeMap<String, String>,
    #[serde(rename = "contract")]
    collective: Collective,
    root: usize,
    ranks: usize,
    blocks: usize,
    buffers: usize,
    result: usize,
    ports: usize,
    #[serde(flatten)]
    counters: Counters,
    order: Order,
    consistent: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    elements: Option<Elements>,
    steps: Vec<Item>,
}

/// Counts for a given vector length, on request.
#[derive(Serialize)]
struct Elements {
    length: usize,
    max_elements_sent: usize,
    max_elements_reduced: usize,
}

/// A message, or a local step.
#[derive(Serialize)]
struct Item {
    round: i32,
    #[serde(flatten)]
    ranks: Ranks,
    source: usize,
    target: usize,
    blocks: Blocks,
    action: &'static str,
    side: Side,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Ranks {
    Message { from: usize, to: usize },
    Local { rank: usize },
}

impl From<Message> for Item {
    fn from(message: Message) -> Item {
        let ranks = match message.is_local() {
            true => Ranks::Local { rank: message.from },
            false => Ranks::Message { from: message.from, to: message.to },
        };
        let (action, side) = match message.action {
            // a copy has no operand order; the field is always there so that readers need no special case
            Action::Copy => ("copy", Side::Right),
            Action::Reduce(side) => ("reduce", side),
        };
        let Message { round, source, target, blocks, .. } = message;
        Item { round, ranks, source, target, blocks, action, side }
    }
}

impl Plan {
    /// The plan as JSON text; with `elements`, also the counts for vectors of that length.
    pub fn to_json(&self, elements: Option<usize>) -> Result<String, Violation> {
        let document = Document {
            algorithm: &self.algorithm,
            parameters: &self.parameters,
            collective: self.collective,
            root: self.root,
            ranks: self.ranks(),
            blocks: self.blocks,
            buffers: self.buffers,
            result: self.result,
            ports: self.ports,
            counters: self.counters(),
            order: self.order,
            consistent: self.consistent,
            elements: elements.map(|length| Elements {
                length,
                max_elements_sent: self.max_elements_sent(length),
                max_elements_reduced: self.max_elements_reduced(length),
            }),
            steps: self.movements()?.into_iter().map(Item::from).collect(),
        };
        Ok(serde_json::to_string(&document).expect("numbers, strings and lists always serialise"))
    }
}
