//! The order in which a plan combines operands.

use serde::Serialize;
use strum::{Display, IntoStaticStr};

/// The order of operands in a reduction, from the strictest to the weakest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Display, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// Rank order, x₀ ⊕ x₁ ⊕ …: correct for non-commutative operators.
    Ordered,
    /// Rank order, but starting at any rank and going round: needs a commutative operator.
    Rotated,
    /// Any order: needs a commutative operator.
    Commutative,
}

impl Order {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }
}
