//! Plans: a schedule written down for all ranks at once.
//!
//! A [`Plan`] is plain data without pointers or closures, so that it can be printed, parsed, compared and hashed, and
//! so that what was verified is what runs. A rank's program is a list of [`Timed`] steps. Inside a round a rank's
//! sends read the state at the start of the round, its receives apply in list order, then its local steps in list
//! order. Buffer 0 starts as the rank's input; other buffers start undefined.

mod build;
mod count;
mod json;
mod matching;
mod partition;
mod step;
mod svg;
mod text;

pub use build::PlanBuilder;
pub use count::Counters;
pub use matching::{Message, Pair, pair};
pub use partition::{elements_in, offset};
pub use step::{Action, BlockRange, Blocks, Side, Step, Timed};
pub use svg::svg;

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a plan promises about the ranks' buffers at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Contract {
    /// Every rank holds the reduction of all inputs in every block.
    Allreduce,
    /// The root holds the reduction of all inputs in every block.
    Reduce,
    /// Every rank holds the root's input in every block; the other ranks' inputs are never read.
    Broadcast,
    /// Rank r starts with blocks `[r·k, (r+1)·k)`, k = blocks / ranks; every rank ends with all of them.
    Allgather,
    /// Rank r ends with the reduction of all inputs in blocks `[r·k, (r+1)·k)`, k = blocks / ranks.
    ReduceScatter,
    /// Every rank has heard, directly or through others, from every rank. Run it on one element per block (a token),
    /// with an operator for which repeated contributions do no harm, whatever the caller's vector is.
    Barrier,
}

impl Contract {
    /// All contracts, in the order of the command line's help.
    pub const ALL: [Contract; 6] = [
        Contract::Allreduce,
        Contract::Reduce,
        Contract::Broadcast,
        Contract::Allgather,
        Contract::ReduceScatter,
        Contract::Barrier,
    ];

    /// The name used on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Contract::Allreduce => "allreduce",
            Contract::Reduce => "reduce",
            Contract::Broadcast => "broadcast",
            Contract::Allgather => "allgather",
            Contract::ReduceScatter => "reduce-scatter",
            Contract::Barrier => "barrier",
        }
    }

    /// True if the contract names a root.
    pub fn has_root(self) -> bool {
        matches!(self, Contract::Reduce | Contract::Broadcast)
    }
}

impl std::str::FromStr for Contract {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Contract::ALL.map(Contract::name).join(", ");
        Contract::ALL.into_iter().find(|c| c.name() == text).ok_or_else(|| format!("`{text}`: expected {}", known()))
    }
}

impl std::fmt::Display for Contract {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How operands are ordered, from the strictest promise to the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// x₀ ⊕ x₁ ⊕ … by associativity alone: right for non-commutative operators.
    Ordered,
    /// In rank order from some rank on, cyclically: needs commutativity, though only a rotation is lost.
    Rotated,
    /// Operands are interleaved.
    Commutative,
}

impl Order {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Order::Ordered => "ordered",
            Order::Rotated => "rotated",
            Order::Commutative => "commutative",
        }
    }
}

impl std::fmt::Display for Order {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A schedule for all ranks. Build one with [`PlanBuilder`], a [`schedule`](crate::schedule), or [`Plan::from_json`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Name of the schedule.
    pub algorithm: String,
    /// The parameters that distinguish it from others of the same name.
    pub parameters: BTreeMap<String, String>,
    /// What holds at the end.
    pub contract: Contract,
    /// The root, for contracts that have one; 0 otherwise.
    pub root: usize,
    /// Number of blocks a vector is cut into ([`offset`]).
    pub blocks: usize,
    /// Number of buffers per rank, each of a vector's size.
    pub buffers: usize,
    /// The buffer that ends as output.
    pub result: usize,
    /// Number of rounds.
    pub rounds: usize,
    /// How many ranks a rank may send to, and receive from, in one round.
    pub ports: usize,
    /// Claimed operand order; the verifier refuses a plan that keeps less.
    pub order: Order,
    /// Claimed: all ranks get identical bits from a rounding operator.
    pub consistent: bool,
    /// One program per rank.
    pub programs: Vec<Vec<Timed>>,
}

impl Plan {
    /// Number of ranks.
    pub fn ranks(&self) -> usize {
        self.programs.len()
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
        hash.text(self.contract.name());
        hash.text(self.order.name());
        for n in [self.root, self.ranks(), self.blocks, self.buffers, self.result, self.rounds, self.ports] {
            hash.word(n as u32);
        }
        hash.word(u32::from(self.consistent));
        for program in &self.programs {
            hash.word(program.len() as u32);
            for timed in program {
                hash.word(timed.round as u32);
                let (kind, a, b) = match &timed.step {
                    Step::Send { to, buffer, .. } => (0, *to, *buffer),
                    Step::Receive { from, buffer, .. } => (1, *from, *buffer),
                    Step::ReceiveReduce { from, buffer, side, .. } => (2 + *side as u32, *from, *buffer),
                    Step::Copy { source, target, .. } => (4, *source, *target),
                    Step::Reduce { source, target, side, .. } => (5 + *side as u32, *source, *target),
                };
                for word in [kind, a, b, timed.step.blocks().runs().len() as u32] {
                    hash.word(word);
                }
                for run in timed.step.blocks().runs() {
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
