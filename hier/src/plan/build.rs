//! The plan builder: turns each message into the send of one rank and the receive of another.

use super::{Action, Blocks, Collective, Order, Plan, Step, StepKind};
use std::collections::BTreeMap;

/// Collects messages and local steps in any order and lays them out by rank and round.
///
/// Drops empty sets of blocks and counts buffers and rounds.
#[derive(Debug)]
pub struct PlanBuilder {
    plan: Plan,
    // rounds whose steps are kept
    kept: (i32, i32),
}

impl PlanBuilder {
    /// An empty allreduce plan, one port, claiming order and identical bits.
    pub fn new(algorithm: &str, ranks: usize, blocks: usize) -> Self {
        let plan = Plan {
            algorithm: algorithm.to_string(),
            parameters: BTreeMap::new(),
            collective: Collective::Allreduce,
            root: 0,
            blocks,
            buffers: 1,
            result: 0,
            rounds: 0,
            ports: 1,
            order: Order::Ordered,
            consistent: true,
            programs: vec![Vec::new(); ranks],
        };
        Self { plan, kept: (-1, i32::MAX) }
    }

    /// Keeps the steps of rounds `first..end` only; the header is that of the whole plan.
    pub fn keep(&mut self, first: i32, end: i32) -> &mut Self {
        self.kept = (first, end);
        self
    }

    /// Announces messages of a round between these buffers; `true` if they are kept. A schedule need not make messages
    /// that are not.
    pub fn announce(&mut self, round: usize, source: usize, target: usize) -> bool {
        self.plan.rounds = self.plan.rounds.max(round + 1);
        self.announce_local(round as i32, source, target)
    }

    /// Announces local steps at the end of `round`; `true` if they are kept.
    pub fn announce_local(&mut self, round: i32, source: usize, target: usize) -> bool {
        self.plan.buffers = self.plan.buffers.max(source.max(target) + 1);
        (self.kept.0..self.kept.1).contains(&round)
    }

    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.plan.ranks()
    }

    /// Rounds used so far.
    pub fn rounds(&self) -> usize {
        self.plan.rounds
    }

    /// Records a parameter for the header.
    pub fn parameter(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.plan.parameters.insert(name.to_string(), value.to_string());
        self
    }

    /// Sets the collective and its root.
    pub fn collective(&mut self, collective: Collective, root: usize) -> &mut Self {
        (self.plan.collective, self.plan.root) = (collective, root);
        self
    }

    /// Sets the claims about operand order and identical bits.
    pub fn claim(&mut self, order: Order, consistent: bool) -> &mut Self {
        (self.plan.order, self.plan.consistent) = (order, consistent);
        self
    }

    /// Sets the number of ports.
    pub fn ports(&mut self, ports: usize) -> &mut Self {
        self.plan.ports = ports;
        self
    }

    /// Sets the buffer that holds the result at the end.
    pub fn result(&mut self, buffer: usize) -> &mut Self {
        self.plan.result = buffer;
        self.plan.buffers = self.plan.buffers.max(buffer + 1);
        self
    }

    /// Adds a message: `from` sends blocks of its buffer `source`, `to` applies them to its buffer `target`.
    #[allow(clippy::too_many_arguments)] // a message has that many parts
    pub fn message(
        &mut self,
        round: usize,
        from: usize,
        to: usize,
        source: usize,
        target: usize,
        blocks: Blocks,
        action: Action,
    ) {
        if blocks.is_empty() || !self.announce(round, source, target) {
            return;
        }
        let send = StepKind::Send { to: to as u32 };
        let receive = StepKind::Receive { from: from as u32, action };
        let round = round as i32;
        self.plan.programs[from].push(Step { round, kind: send, buffer: source as u32, blocks: blocks.clone() });
        self.plan.programs[to].push(Step { round, kind: receive, buffer: target as u32, blocks });
    }

    /// Adds a local step of `rank` at the end of `round` (-1: before round 0).
    pub fn local(&mut self, round: i32, rank: usize, source: usize, target: usize, blocks: Blocks, action: Action) {
        if blocks.is_empty() || !self.announce_local(round, source, target) {
            return;
        }
        let kind = StepKind::Local { source: source as u32, action };
        self.plan.programs[rank].push(Step { round, kind, buffer: target as u32, blocks });
    }

    /// The plan. Sends of one rank and round are ordered by receiver; other steps of one rank, round and kind, and
    /// sends to the same receiver, keep the order in which they were given.
    pub fn finish(mut self) -> Plan {
        for program in &mut self.plan.programs {
            program.sort_by_key(|step| match step.kind {
                StepKind::Send { to } => (step.round, 0, to),
                StepKind::Receive { .. } => (step.round, 1, 0),
                StepKind::Local { .. } => (step.round, 2, 0),
            });
        }
        self.plan
    }
}
