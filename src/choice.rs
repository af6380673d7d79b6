//! The algorithm that carries out an operation: one of the node, or a plan by the name of its schedule.

use crate::identity::fingerprint;
use crate::{Algorithm, Error};
use earlybird_hier::PlanError;
use earlybird_hier::plan::Collective;
use earlybird_hier::schedule::{ALGORITHMS, Algorithm as Schedule, ScheduleSpec};
use earlybird_shm::named::did_you_mean;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// An algorithm of the node (`chain`), or a plan that the ranks run over shared memory as they would over a network
/// (`plan:ring`, `plan:butterfly:r=1`).
///
/// ```
/// use earlybird::{Algorithm, Choice};
/// assert_eq!("chain".parse::<Choice>()?, Algorithm::Chain);
/// assert_eq!("plan:ring".parse::<Choice>()?, Choice::Plan("ring"));
/// # Ok::<(), earlybird::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Choice {
    /// An algorithm of the node.
    Node(Algorithm),
    /// The plan of this schedule for all ranks: its name, and parameters as [`ScheduleSpec`] reads them.
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
    /// The name that users write and reports print: `chain`, `plan:ring`, `plan:butterfly:r=1`.
    pub fn name(self) -> &'static str {
        match self {
            Choice::Node(algorithm) => algorithm.name(),
            Choice::Plan(word) => interned(word).1,
        }
    }

    /// The plan's specification, without `plan:`; `None` for an algorithm of the node.
    pub(crate) fn plan(self) -> Option<&'static str> {
        match self {
            Choice::Node(_) => None,
            Choice::Plan(word) => Some(word),
        }
    }

    /// The algorithm's code, or [`PLANS`] plus the number of the plan's specification.
    pub(crate) fn code(self) -> u32 {
        match self {
            Choice::Node(algorithm) => algorithm as u32,
            Choice::Plan(word) => PLANS + interned(word).0,
        }
    }

    /// The number of the plan's specification in this process; 0 for an algorithm of the node.
    pub(crate) fn plan_number(self) -> usize {
        self.code().saturating_sub(PLANS) as usize
    }

    #[inline]
    pub(crate) fn from_code(code: u32) -> Self {
        match code < PLANS {
            true => Choice::Node(Algorithm::from_repr(code as u8).unwrap_or_default()),
            false => by_number(code - PLANS),
        }
    }
}

/// The first code of a plan.
const PLANS: u32 = 256;

/// The specifications of all plans that this process has chosen, with `plan:`. They are never freed, because a choice is stored as a
/// number in an atomic.
static SPECS: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());

/// Number and name of a plan's specification.
fn interned(word: &str) -> (u32, &'static str) {
    let mut specs = SPECS.lock().unwrap_or_else(PoisonError::into_inner);
    let known = specs.iter().position(|known| known[PLAN.len()..] == *word);
    let at = known.unwrap_or_else(|| {
        specs.push(format!("{PLAN}{word}").leak());
        specs.len() - 1
    });
    (at as u32, specs[at])
}

/// A hash of a plan's specification in 11 bits, never 0.
pub(crate) fn mark_of(word: &str) -> u16 {
    let print = fingerprint(word);
    ((print ^ print >> 32) % 2047) as u16 + 1
}

/// The plan with this hash, if this process has chosen it.
pub(crate) fn plan_marked(mark: u16) -> Option<&'static str> {
    if mark == 0 {
        return None;
    }
    let specs = SPECS.lock().unwrap_or_else(PoisonError::into_inner);
    specs.iter().map(|name| &name[PLAN.len()..]).find(|word| mark_of(word) == mark)
}

#[cold]
fn by_number(number: u32) -> Choice {
    let specs = SPECS.lock().unwrap_or_else(PoisonError::into_inner);
    specs.get(number as usize).map_or(Choice::default(), |name| Choice::Plan(&name[PLAN.len()..]))
}

/// A schedule for several ranks per node has no plan without knowing how many.
const PER_NODE: &str = "ranks-per-node";

fn reduces(schedule: &Schedule) -> bool {
    schedule.collectives.contains(&Collective::Allreduce)
}

/// Checks a plan's specification, as far as that is possible before the number of ranks is known.
fn check(spec: &str, given: &str) -> Result<(), Error> {
    let refuse = |why: &str| Err(Error::usage(format!("{given:?}: {why}")));
    let ScheduleSpec { schedule, params } = match spec.parse::<ScheduleSpec>() {
        Ok(named) if reduces(named.schedule) => named,
        Ok(_) | Err(PlanError::UnknownAlgorithm { .. }) => {
            let names = ALGORITHMS.iter().filter(|schedule| reduces(schedule));
            let names: Vec<String> = names.map(|schedule| format!("{PLAN}{}", schedule.name)).collect();
            let meant = did_you_mean(given, names.iter().map(String::as_str));
            let names = names.join(", ");
            return Err(Error::usage(format!("{given:?} is no plan for an allreduce{meant}; use one of: {names}")));
        }
        Err(error) => return refuse(&error.to_string()),
    };
    if schedule.uses.contains(&PER_NODE) && params.ranks_per_node.is_none() {
        return refuse(&format!("say for how many ranks per node: plan:{}:{PER_NODE}=4", schedule.name));
    }
    if params.root.is_some() || params.collective.is_some_and(|collective| collective != Collective::Allreduce) {
        return refuse("the plan is for an allreduce, which has no root; leave out contract and root");
    }
    Ok(())
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Choice {
    type Err = Error;

    /// An algorithm's name, or `plan:` and a schedule that makes allreduce plans, with parameters if it is to have any;
    /// anything else is [`Error::Usage`] listing what there is.
    fn from_str(given: &str) -> Result<Self, Error> {
        match given.strip_prefix(PLAN) {
            Some(spec) => check(spec, given).map(|()| Choice::Plan(&interned(spec).1[PLAN.len()..])),
            None => given.parse().map(Choice::Node).map_err(|_: Error| {
                let names = Algorithm::ALL.map(Algorithm::name);
                let (meant, names) = (did_you_mean(given, names), names.join(", "));
                let valid = format!("{names}, or plan:NAME (plan:ring, plan:butterfly:r=1)");
                Error::usage(format!("algorithm {given:?} is not known{meant}; use one of: {valid}"))
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
        for text in [
            "auto",
            "flat",
            "static-leader-early",
            "plan:ring",
            "plan:pre-reduced-ring",
            "plan:butterfly:r=1:group=4x3",
            "plan:butterfly:r=2",
            "plan:smp-binomial:ranks-per-node=2",
        ] {
            let choice: Choice = text.parse().unwrap();
            assert_eq!((choice.to_string().as_str(), Choice::from_code(choice.code())), (text, choice));
            assert_eq!(text.parse::<Choice>().unwrap().code(), choice.code(), "the same word, the same number");
        }
        let ring: Choice = "plan:ring".parse().unwrap();
        assert_eq!(plan_marked(mark_of("ring")).map(Choice::Plan), Some(ring));
        assert_eq!(plan_marked(0), None);
        assert_ne!(Choice::Plan("butterfly:r=1").code(), Choice::Plan("butterfly:r=2").code());
        assert_eq!(Choice::from_code(u32::MAX), Choice::default());
    }

    #[test]
    fn what_makes_no_allreduce_is_refused_with_the_list() {
        for given in ["plan:", "plan:rings", "plan:bruck", "plan:dissemination", "plan:rings:r=1"] {
            let message = usage(given.parse::<Choice>());
            assert!(message.contains("plan:ring") && message.contains("plan:butterfly"), "{message}");
        }
        let message = usage("fast".parse::<Choice>());
        assert!(message.contains("static-leader") && message.contains("plan:NAME"), "{message}");
    }

    #[test]
    fn parameters_that_cannot_be_are_refused_with_what_can() {
        for (given, says) in [
            ("plan:ring:r=1", "it uses: order"),
            ("plan:butterfly:r=one", "a whole number"),
            ("plan:butterfly:r", "KEY=VALUE"),
            ("plan:smp-butterfly", "ranks-per-node=4"),
            ("plan:binomial:contract=reduce", "leave out contract"),
            ("plan:chain:root=1", "no root"),
        ] {
            let message = usage(given.parse::<Choice>());
            assert!(message.contains(says) && message.contains(given), "{given}: {message}");
        }
    }
}
