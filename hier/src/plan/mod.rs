//! Plans: a schedule written down for all ranks at once.
//!
//! A [`Plan`] is plain data without pointers or closures: it can be printed, parsed, compared and hashed, and the plan
//! that was verified is the plan that runs. A rank's program is a list of [`Step`]s. Inside a round a rank's
//! sends read the state at the start of the round, its receives apply in list order, then its local steps in list
//! order. Buffer 0 starts as the rank's input; other buffers start undefined.

mod build;
mod collective;
mod count;
mod error;
mod form;
mod json;
mod matching;
mod names;
mod order;
mod partition;
mod step;
mod text;

pub use build::PlanBuilder;
pub use collective::Collective;
pub use count::Counters;
pub use error::{PlanError, StepLocation, Violation};
pub(crate) use form::check_form;
pub(crate) use matching::same_rounds;
pub use matching::{MatchedSteps, Message, match_steps};
pub(crate) use names::unknown;
pub use order::Order;
pub use partition::{elements_in, offset};
pub(crate) use step::joined;
pub use step::{Action, BlockRange, Blocks, Side, Step, StepKind};

use std::collections::BTreeMap;

/// A schedule for all ranks. Build one with [`PlanBuilder`] or a [`schedule`](crate::schedule).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the schedule.
    pub algorithm: String,
    /// The parameters that distinguish it from others of the same name.
    pub parameters: BTreeMap<String, String>,
    /// The collective that the plan carries out.
    pub collective: Collective,
    /// The root; 0 for collectives without one.
    pub root: usize,
    /// Number of blocks a vector is cut into ([`offset`]).
    pub blocks: usize,
    /// Number of buffers per rank, each of a vector's size.
    pub buffers: usize,
    /// The buffer that holds the result at the end.
    pub result: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// The number of ranks that a rank may send to, and receive from, in one round.
    pub ports: usize,
    /// Claimed operand order; the verifier refuses a plan with a weaker order.
    pub order: Order,
    /// True if the plan claims that all ranks get identical bits from a rounding operator.
    pub consistent: bool,
    /// One program per rank.
    pub programs: Vec<Vec<Step>>,
}

impl Plan {
    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.programs.len()
    }

    /// The location of a step, given as (rank, index into its program).
    pub(crate) fn location(&self, (rank, step): (usize, usize)) -> StepLocation {
        StepLocation { rank, step, round: self.programs[rank][step].round }
    }

    /// The blocks of `rank` under allgather and reduce-scatter.
    pub fn own_blocks(&self, rank: usize) -> std::ops::Range<usize> {
        let each = self.blocks / self.ranks().max(1);
        rank * each..(rank + 1) * each
    }

    /// A 64-bit FNV-1a digest of header and steps. Ranks compare it before they run; it depends on nothing but the
    /// plan. Cost: one pass over the steps.
    pub fn digest(&self) -> u64 {
        let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
        hash.text(&self.algorithm);
        for (name, value) in &self.parameters {
            hash.text(name);
            hash.text(value);
        }
        hash.text(self.collective.name());
        hash.text(self.order.name());
        for n in [self.root, self.ranks(), self.blocks, self.buffers, self.result, self.rounds, self.ports] {
            hash.word(n as u32);
        }
        hash.word(u32::from(self.consistent));
        for program in &self.programs {
            hash.word(program.len() as u32);
            for step in program {
                hash.word(step.round as u32);
                let code = |action| if let Action::Reduce(side) = action { 1 + side as u32 } else { 0 };
                let (kind, a, b) = match step.kind {
                    StepKind::Send { to } => (0, to, step.buffer),
                    StepKind::Receive { from, action } => (1 + code(action), from, step.buffer),
                    StepKind::Local { source, action } => (4 + code(action), source, step.buffer),
                };
                for word in [kind, a, b, step.blocks.runs().len() as u32] {
                    hash.word(word);
                }
                for run in step.blocks.runs() {
                    hash.word(run.first);
                    hash.word(run.end);
                }
            }
        }
        hash.0
    }
}

struct Fnv(u64);

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn word(&mut self, word: u32) {
        self.bytes(&word.to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.word(text.len() as u32);
        self.bytes(text.as_bytes());
    }
}
