//! The collective that a plan carries out.

use super::unknown;
use serde::Serialize;
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// The collective operation of a plan, defined by the ranks' buffers at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Display, EnumString, IntoStaticStr, VariantArray)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case", parse_err_ty = String, parse_err_fn = unknown::<Collective>)]
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
    /// The name used on the command line and in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// True if the collective has a root.
    pub fn has_root(self) -> bool {
        matches!(self, Collective::Reduce | Collective::Broadcast)
    }
}
