//! Message matching: the k-th send from a to b matches the k-th receive of b from a.

use super::{Action, Blocks, Plan, Step, StepKind, Violation};

/// A send and the matching receive, as (rank, index into its program).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatchedSteps {
    /// The sending step.
    pub send: (usize, usize),
    /// The receiving step.
    pub receive: (usize, usize),
}

/// A message: a send and its receive in one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Round.
    pub round: i32,
    /// Sending rank.
    pub from: usize,
    /// Receiving rank.
    pub to: usize,
    /// Buffer read at the sender.
    pub source: usize,
    /// Buffer written at the receiver.
    pub target: usize,
    /// Blocks carried.
    pub blocks: Blocks,
    /// The action of the receiver.
    pub action: Action,
}

/// Matches all sends with all receives, in the order of (sender, receiver, position). Cost O(n log n) for n messages.
pub fn match_steps(plan: &Plan) -> Result<Vec<MatchedSteps>, Violation> {
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for (rank, program) in plan.programs.iter().enumerate() {
        for (number, step) in program.iter().enumerate() {
            match step.kind {
                StepKind::Send { to } => sends.push((rank, to as usize, number)),
                StepKind::Receive { from, .. } => receives.push((from as usize, rank, number)),
                StepKind::Local { .. } => {}
            }
        }
    }
    sends.sort_unstable();
    receives.sort_unstable();
    let lone_send = |(from, to, step): (usize, usize, usize)| Violation::Unmatched {
        at: plan.location((from, step)),
        kind: "send to",
        peer: to,
    };
    let lone_receive = |(from, to, step): (usize, usize, usize)| Violation::Unmatched {
        at: plan.location((to, step)),
        kind: "receive from",
        peer: from,
    };
    let mut pairs = Vec::with_capacity(sends.len());
    for (i, send) in sends.iter().enumerate() {
        let Some(receive) = receives.get(i) else { return Err(lone_send(*send)) };
        match (send.0, send.1).cmp(&(receive.0, receive.1)) {
            std::cmp::Ordering::Less => return Err(lone_send(*send)),
            std::cmp::Ordering::Greater => return Err(lone_receive(*receive)),
            std::cmp::Ordering::Equal => {
                pairs.push(MatchedSteps { send: (send.0, send.2), receive: (receive.1, receive.2) });
            }
        }
    }
    match receives.get(sends.len()) {
        Some(receive) => Err(lone_receive(*receive)),
        None => Ok(pairs),
    }
}

/// Checks that every message leaves in the round in which it is received.
pub(crate) fn same_rounds(plan: &Plan, pairs: &[MatchedSteps]) -> Result<(), Violation> {
    let ends = |p: &MatchedSteps| (plan.location(p.send), plan.location(p.receive));
    match pairs.iter().map(ends).find(|(send, receive)| send.round != receive.round) {
        Some((send, receive)) => Err(Violation::RoundsDiffer { send, receive }),
        None => Ok(()),
    }
}

impl Plan {
    /// All messages, by round, then receiver, then the order in which the receiver applies them.
    pub fn messages(&self) -> Result<Vec<Message>, Violation> {
        let mut pairs = match_steps(self)?;
        pairs.sort_unstable_by_key(|p| (self.programs[p.receive.0][p.receive.1].round, p.receive));
        let mut messages = Vec::with_capacity(pairs.len());
        for p in pairs {
            let source = self.programs[p.send.0][p.send.1].buffer as usize;
            let Step { round, kind, buffer, blocks } = self.programs[p.receive.0][p.receive.1].clone();
            let StepKind::Receive { action, .. } = kind else {
                unreachable!("match_steps() puts receives on the receiving side")
            };
            let (from, to, target) = (p.send.0, p.receive.0, buffer as usize);
            messages.push(Message { round, from, to, source, target, blocks, action });
        }
        Ok(messages)
    }

    /// All messages and, as messages of a rank to itself, all local steps: by round, messages first, in the order in which they
    /// are applied.
    ///
    /// # Errors
    /// The error of [`Plan::messages`].
    pub fn movements(&self) -> Result<Vec<Message>, Violation> {
        let mut all = self.messages()?;
        for (rank, program) in self.programs.iter().enumerate() {
            for step in program {
                let StepKind::Local { source, action } = step.kind else { continue };
                let (round, blocks) = (step.round, step.blocks.clone());
                let (source, target) = (source as usize, step.buffer as usize);
                all.push(Message { round, from: rank, to: rank, source, target, blocks, action });
            }
        }
        all.sort_by_key(|message| (message.round, message.is_local()));
        Ok(all)
    }
}

impl Message {
    /// True for a local step.
    pub fn is_local(&self) -> bool {
        self.from == self.to
    }
}
