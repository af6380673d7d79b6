//! The messages and reductions of a rank in a round, as both simulations read them from the plan.

use super::costs::{Machine, Partition};
use crate::plan::{Plan, Step, StepKind};

/// A rank's part of a round. What goes to or comes from one rank in one round is one message, also if it is several
/// steps on different buffers.
#[derive(Debug, Default)]
pub(super) struct RoundWork {
    /// Receiver and bytes of each message sent.
    pub(super) sends: Vec<(usize, f64)>,
    /// Sender and bytes of each message awaited.
    pub(super) receives: Vec<(usize, f64)>,
    /// Bytes reduced, on arrival or locally.
    pub(super) reduced: f64,
}

impl RoundWork {
    /// Reads the steps of a round, in place of what was read before.
    pub(super) fn read(&mut self, plan: &Plan, machine: &Machine, bytes: f64, steps: &[Step]) {
        self.sends.clear();
        self.receives.clear();
        self.reduced = 0.0;
        for step in steps {
            let bytes = machine.partition.bytes(&step.blocks, plan.blocks, bytes);
            // shares of a vector of no bytes are sent, as the cost models have it; no elements are not
            let none = bytes == 0.0 && machine.partition != Partition::Even;
            match step.kind {
                StepKind::Send { .. } | StepKind::Receive { .. } if none => continue,
                StepKind::Send { to } => add(&mut self.sends, to as usize, bytes),
                StepKind::Receive { from, .. } => add(&mut self.receives, from as usize, bytes),
                StepKind::Local { .. } => {}
            }
            if step.kind.reduces() {
                self.reduced += bytes;
            }
        }
    }
}

fn add(messages: &mut Vec<(usize, f64)>, peer: usize, bytes: f64) {
    // a plan's sends of a round are in order of receivers, so the last one is the one, if any; others are searched
    match messages.iter_mut().rev().find(|message| message.0 == peer) {
        Some(message) => message.1 += bytes,
        None => messages.push((peer, bytes)),
    }
}
