//! The variants of a measured call: the entries of `--algorithms`.

use super::composed::Composed;
use earlybird::{Choice, Error};
use std::fmt;
use std::str::FromStr;

/// One way to carry out a measured call: by an algorithm or a plan of the library, by other calls, or by MPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// The library; a plan runs over all ranks, as if each were a node.
    Library(Choice),
    /// The library in three phases, with this plan between the leaders of the nodes.
    Exchange(Choice),
    /// The library by other operations that do the same work.
    Composed(Composed),
    /// The MPI library that the ranks were started with, by its blocking call or by one that is started and waited for.
    Mpi { started: bool },
}

const EXCHANGE: &str = "exchange:";

impl Variant {
    /// Returns true for the MPI library's own calls.
    pub fn is_mpi(self) -> bool {
        matches!(self, Variant::Mpi { .. })
    }

    /// Returns true for calls that are started and waited for.
    pub fn is_started(self) -> bool {
        matches!(self, Variant::Composed(Composed::Started) | Variant::Mpi { started: true })
    }

    /// Returns true for a plan over all ranks.
    pub fn is_flat_plan(self) -> bool {
        matches!(self, Variant::Library(Choice::Plan(_)))
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Variant::Library(choice) => f.write_str(choice.name()),
            Variant::Exchange(choice) => {
                write!(f, "{EXCHANGE}{}", choice.name().strip_prefix("plan:").unwrap_or(choice.name()))
            }
            Variant::Composed(composed) => write!(f, "{composed}"),
            Variant::Mpi { started } => f.write_str(if *started { "mpi-started" } else { "mpi" }),
        }
    }
}

impl FromStr for Variant {
    type Err = Error;

    fn from_str(given: &str) -> Result<Self, Error> {
        if let Ok(composed) = given.parse() {
            return Ok(Variant::Composed(composed));
        }
        match (given, given.strip_prefix(EXCHANGE)) {
            ("mpi", _) => Ok(Variant::Mpi { started: false }),
            ("mpi-started", _) => Ok(Variant::Mpi { started: true }),
            (_, Some(plan)) => format!("plan:{plan}").parse().map(Variant::Exchange),
            (_, None) => given.parse().map(Variant::Library),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for name in [
            "auto",
            "static-leader",
            "plan:rsg",
            "plan:butterfly:r=1",
            "exchange:ring",
            "exchange:butterfly:r=1",
            "reduce+broadcast",
            "persistent",
            "started",
            "mpi",
            "mpi-started",
        ] {
            let variant: Variant = name.parse().expect(name);
            assert_eq!((variant.to_string().as_str(), variant.is_flat_plan()), (name, name.starts_with("plan:")));
        }
        assert!("exchange:bruck".parse::<Variant>().is_err() && "exchange:auto".parse::<Variant>().is_err());
    }
}
