//! What an entry of `--algorithms` stands for.

use super::composed::Composed;
use earlybird::{Choice, Error};
use std::fmt;
use std::str::FromStr;

/// Who carries out a measured call, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The library; a plan runs over all ranks, as if each were a node.
    Library(Choice),
    /// The library in three phases, with this plan between the leaders of the nodes.
    Exchange(Choice),
    /// The library by other operations that do the same work.
    Composed(Composed),
    /// The MPI library that the ranks were started with.
    Mpi,
}

const EXCHANGE: &str = "exchange:";

impl Way {
    /// Whether it is a plan over all ranks.
    pub fn is_flat_plan(self) -> bool {
        matches!(self, Way::Library(Choice::Plan(_)))
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Way::Library(choice) => f.write_str(choice.name()),
            Way::Exchange(choice) => {
                write!(f, "{EXCHANGE}{}", choice.name().strip_prefix("plan:").unwrap_or(choice.name()))
            }
            Way::Composed(composed) => write!(f, "{composed}"),
            Way::Mpi => f.write_str("mpi"),
        }
    }
}

impl FromStr for Way {
    type Err = Error;

    fn from_str(given: &str) -> Result<Self, Error> {
        if let Ok(composed) = given.parse() {
            return Ok(Way::Composed(composed));
        }
        match (given, given.strip_prefix(EXCHANGE)) {
            ("mpi", _) => Ok(Way::Mpi),
            (_, Some(plan)) => format!("plan:{plan}").parse().map(Way::Exchange),
            (_, None) => given.parse().map(Way::Library),
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
            "mpi",
        ] {
            let way: Way = name.parse().expect(name);
            assert_eq!((way.to_string().as_str(), way.is_flat_plan()), (name, name.starts_with("plan:")));
        }
        assert!("exchange:bruck".parse::<Way>().is_err() && "exchange:auto".parse::<Way>().is_err());
    }
}
