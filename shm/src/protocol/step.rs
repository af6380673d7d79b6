//! The named steps of an operation, at which tests inject faults.

use std::str::FromStr;
use strum::{IntoStaticStr, VariantArray};

/// A point of the protocol that a rank passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Step {
    /// In the call, nothing shared written yet.
    Begin,
    /// The mark of entry is stored.
    Entered,
    /// The rank has its place in the arrival order.
    Arrived,
    /// The payload is deposited.
    Deposited,
    /// The rank holds a fold word and has not folded yet.
    Claimed,
    /// The rank has folded and not yet released the fold word.
    Folded,
    /// The result is published, sleepers are not yet woken.
    Published,
    /// The result is copied out, the operation not yet left.
    Copied,
    /// The operation is left.
    Left,
    /// Outside of operations: the survivors of a group have agreed, none has joined the new one.
    Agreed,
    /// Outside of operations: this survivor has joined the new group, or failed to.
    Rejoined,
    /// Outside of operations: this rank is about to join a group.
    Joining,
    /// Outside of operations: this rank has asked the creator of a group to let it join.
    Asked,
}

impl Step {
    /// Every step of an operation, in running order.
    pub const ALL: [Step; 9] = [
        Step::Begin,
        Step::Entered,
        Step::Arrived,
        Step::Deposited,
        Step::Claimed,
        Step::Folded,
        Step::Published,
        Step::Copied,
        Step::Left,
    ];

    /// Lower-case name.
    pub fn name(self) -> &'static str {
        self.into()
    }
}

impl FromStr for Step {
    type Err = crate::Error;

    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let all = || Step::VARIANTS.iter().copied();
        all().find(|step| step.name() == s).ok_or_else(|| {
            let names: Vec<_> = all().map(Step::name).collect();
            crate::Error::usage(format!("{s:?} is not a protocol step; expected one of {}", names.join(", ")))
        })
    }
}
