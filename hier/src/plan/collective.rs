//! The collective that a plan carries out.

use serde::{Deserialize, Serialize};

/// The collective operation of a plan, defined by the ranks' buffers at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Collective {
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
    /// Every rank has received, directly or through others, from every rank. A barrier runs on one element per block, with
    /// an idempotent operator.
    Barrier,
}

impl Collective {
    /// All collectives, in the order of the help text.
    pub const ALL: [Collective; 6] = [
        Collective::Allreduce,
        Collective::Reduce,
        Collective::Broadcast,
        Collective::Allgather,
        Collective::ReduceScatter,
        Collective::Barrier,
    ];

    /// The name used on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Collective::Allreduce => "allreduce",
            Collective::Reduce => "reduce",
            Collective::Broadcast => "broadcast",
            Collective::Allgather => "allgather",
            Collective::ReduceScatter => "reduce-scatter",
            Collective::Barrier => "barrier",
        }
    }

    /// True if the collective has a root.
    pub fn has_root(self) -> bool {
        matches!(self, Collective::Reduce | Collective::Broadcast)
    }
}

impl std::str::FromStr for Collective {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = || Collective::ALL.map(Collective::name).join(", ");
        Collective::ALL.into_iter().find(|c| c.name() == text).ok_or_else(|| format!("`{text}`: expected {}", known()))
    }
}

impl std::fmt::Display for Collective {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
