//! The cost of a plan in blocks, counted step by step.

use super::{Plan, Step, StepKind, elements_in};
use serde::Serialize;

/// Exact counts of a plan. Blocks, not elements: with m elements a block has m / blocks on average.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct Counters {
    /// Rounds.
    pub rounds: usize,
    /// Largest number of blocks any rank sends over the whole run.
    pub max_blocks_sent: usize,
    /// Largest number of block reductions of any rank.
    pub max_blocks_reduced: usize,
    /// Sum over rounds of the largest number of blocks any rank sends in it.
    pub critical_blocks_sent: usize,
    /// Sum over rounds of the largest number of block reductions of any rank in it.
    pub critical_blocks_reduced: usize,
    /// Blocks of the largest message.
    pub max_message_blocks: usize,
    /// Number of messages (send steps) of all ranks.
    pub messages: usize,
}

impl Plan {
    /// Counts the plan. Cost: one pass over the steps.
    pub fn counters(&self) -> Counters {
        // index 0 is round -1
        let mut per_round = vec![(0usize, 0usize); self.rounds + 1];
        let mut counters = Counters { rounds: self.rounds, ..Counters::default() };
        for program in &self.programs {
            let mut total = (0, 0);
            for steps in program.chunk_by(|a, b| a.round == b.round) {
                let mut here = (0, 0);
                for step in steps {
                    let n = step.blocks.len();
                    if let StepKind::Send { .. } = step.kind {
                        here.0 += n;
                        counters.messages += 1;
                        counters.max_message_blocks = counters.max_message_blocks.max(n);
                    } else if step.kind.reduces() {
                        here.1 += n;
                    }
                }
                total = (total.0 + here.0, total.1 + here.1);
                if let Some(most) = per_round.get_mut((steps[0].round + 1) as usize) {
                    *most = (most.0.max(here.0), most.1.max(here.1));
                }
            }
            counters.max_blocks_sent = counters.max_blocks_sent.max(total.0);
            counters.max_blocks_reduced = counters.max_blocks_reduced.max(total.1);
        }
        counters.critical_blocks_sent = per_round.iter().map(|r| r.0).sum();
        counters.critical_blocks_reduced = per_round.iter().map(|r| r.1).sum();
        counters
    }

    /// Largest number of elements any rank sends in a run over `elements`.
    pub fn max_elements_sent(&self, elements: usize) -> usize {
        self.max_elements(elements, |kind| matches!(kind, StepKind::Send { .. }))
    }

    /// Largest number of element reductions of any rank in a run over `elements`.
    pub fn max_elements_reduced(&self, elements: usize) -> usize {
        self.max_elements(elements, StepKind::reduces)
    }

    fn max_elements(&self, elements: usize, counts: impl Fn(StepKind) -> bool) -> usize {
        let of_step = |step: &Step| elements_in(&step.blocks, self.blocks, elements);
        let of_rank = |program: &Vec<Step>| program.iter().filter(|step| counts(step.kind)).map(of_step).sum();
        self.programs.iter().map(of_rank).max().unwrap_or(0)
    }
}
