//! What carries out an operation: an algorithm of the node, or a plan by the name of its schedule.

use crate::{Algorithm, Error};
use earlybird_hier::plan::Contract;
use earlybird_hier::schedule::{self, ALGORITHMS};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

/// An algorithm of the node (`chain`), or a plan that the ranks run over shared memory as they would over a network
/// (`plan:ring`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Choice {
    /// One of the node's own.
    Node(Algorithm),
    /// The plan of this schedule for all ranks, with its default parameters.
    Plan(&'static str),
}

const PLAN: &str = "plan:";

impl Default for Choice {
    fn default() -> Self {
        Choice::Node(Algorithm::Auto)
    }
}

impl From<Algorithm> for Choice {
    fn from(algorithm: Algorithm) -> Self {
        Choice::Node(algorithm)
    }
}

impl PartialEq<Algorithm> for Choice {
    fn eq(&self, other: &Algorithm) -> bool {
        *self == Choice::Node(*other)
    }
}

impl Choice {
    /// The name that users write and reports print: `chain`, `plan:ring`.
    pub fn name(self) -> &'static str {
        static PLANS: LazyLock<Vec<String>> =
            LazyLock::new(|| ALGORITHMS.iter().map(|a| format!("{PLAN}{}", a.name)).collect());
        match self {
            Choice::Node(algorithm) => algorithm.name(),
            Choice::Plan(_) => &PLANS[usize::from(self.code() - 128)],
        }
    }

    /// Below 128 the algorithm's code, from there on the schedule's place in the list of schedules.
    pub(crate) fn code(self) -> u8 {
        match self {
            Choice::Node(algorithm) => algorithm as u8,
            Choice::Plan(name) => 128 | ALGORITHMS.iter().position(|a| a.name == name).unwrap_or(0) as u8,
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        match code.checked_sub(128) {
            None => Choice::Node(Algorithm::from_code(code).unwrap_or_default()),
            Some(index) => ALGORITHMS.get(usize::from(index)).map_or(Choice::default(), |a| Choice::Plan(a.name)),
        }
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Choice {
    type Err = Error;

    /// An algorithm's name, or `plan:` and that of a schedule that makes allreduce plans; anything else is
    /// [`Error::Usage`] listing them.
    fn from_str(given: &str) -> Result<Self, Error> {
        // A schedule for several ranks per node has no plan without knowing how many.
        let known = |a: &&schedule::Algorithm| {
            a.contracts.contains(&Contract::Allreduce) && !a.uses.contains(&"ranks-per-node")
        };
        match given.strip_prefix(PLAN) {
            Some(name) => match ALGORITHMS.iter().filter(known).find(|a| a.name == name) {
                Some(schedule) => Ok(Choice::Plan(schedule.name)),
                None => {
                    let names: Vec<String> =
                        ALGORITHMS.iter().filter(known).map(|a| format!("{PLAN}{}", a.name)).collect();
                    let names = names.join(", ");
                    Err(Error::usage(format!("{given:?} is no plan for an allreduce; use one of: {names}")))
                }
            },
            None => given.parse().map(Choice::Node).map_err(|error| match error {
                Error::Usage { message } => Error::usage(format!("{message}, or plan:NAME (plan:ring)")),
                other => other,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;

    #[test]
    fn names_and_codes_lead_back() {
        for text in ["auto", "flat", "static-leader-early", "plan:ring", "plan:rsg", "plan:pre-reduced-ring"] {
            let choice: Choice = text.parse().unwrap();
            assert_eq!((choice.to_string().as_str(), Choice::from_code(choice.code())), (text, choice));
        }
        assert!(ALGORITHMS.len() < 128);
    }

    #[test]
    fn what_makes_no_allreduce_is_refused_with_the_list() {
        for given in ["plan:", "plan:rings", "plan:smp-binomial", "plan:bruck", "plan:dissemination"] {
            let message = usage(given.parse::<Choice>());
            assert!(message.contains("plan:ring") && message.contains("plan:butterfly"), "{message}");
        }
        let message = usage("fast".parse::<Choice>());
        assert!(message.contains("static-leader") && message.contains("plan:NAME"), "{message}");
    }
}
