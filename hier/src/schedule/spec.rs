//! The specification of a schedule in one word, `NAME:KEY=VALUE:KEY=VALUE`, for lists of algorithms and environment
//! variables.
//!
//! Keys are those of the command line without dashes. Numbers of a list stand with `x` between, and `mixed:N` is
//! `mixed-N`, because commas and colons separate entries and parameters.

use super::algorithms::{Algorithm, algorithm, build};
use super::params::{Params, bad};
use crate::plan::{Plan, PlanError};
use std::str::FromStr;

/// A schedule with parameters, for any number of ranks.
#[derive(Debug, Clone)]
pub struct ScheduleSpec {
    /// The schedule.
    pub schedule: &'static Algorithm,
    /// Its parameters, without the number of ranks.
    pub params: Params,
}

impl ScheduleSpec {
    /// The plan for this many ranks, not yet verified.
    ///
    /// # Errors
    /// The errors of [`build`]: parameters that do not fit the number of ranks.
    pub fn plan(&self, ranks: usize) -> Result<Plan, PlanError> {
        build(self.schedule.name, &Params { ranks, ..self.params.clone() })
    }
}

impl FromStr for ScheduleSpec {
    type Err = PlanError;

    /// Parses a specification. Errors list the known names, keys and values. [`ScheduleSpec::plan`] checks that values fit
    /// the number of ranks.
    fn from_str(text: &str) -> Result<Self, PlanError> {
        let schedule = algorithm(text.split(':').next().unwrap_or_default())?;
        let (_, key_values) = key_values(text)?;
        let mut named = ScheduleSpec { schedule, params: Params::default() };
        key_values.iter().try_for_each(|(key, value)| named.params.set(named.schedule, key, value))?;
        Ok(named)
    }
}

/// Keys and values as written.
pub type KeyValues<'a> = Vec<(&'a str, &'a str)>;

/// Splits a specification into its name and parameters; a repeated key is refused.
///
/// # Errors
/// [`PlanError::Parse`] for a part that is not of the form `KEY=VALUE`.
pub fn key_values(text: &str) -> Result<(&str, KeyValues<'_>), PlanError> {
    let mut parts = text.split(':');
    let name = parts.next().unwrap_or_default();
    let mut key_values = KeyValues::new();
    let refuse = |reason| PlanError::Parse { what: "a schedule with parameters", reason };
    for part in parts {
        let pair = part.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty());
        let (key, value) = pair.ok_or_else(|| {
            refuse(format!(
                "`{part}` in `{text}`: expected KEY=VALUE, such as butterfly:r=1 or cyclic-shift:radices=4x3"
            ))
        })?;
        if key_values.iter().any(|(known, _)| *known == key) {
            return Err(refuse(format!("`{text}` gives {key} twice")));
        }
        key_values.push((key, value));
    }
    Ok((name, key_values))
}

impl Params {
    /// Sets one parameter of `schedule` from its text in a specification.
    ///
    /// # Errors
    /// [`PlanError::Parse`] for a key that the schedule does not use, with those it does; [`PlanError::Parameter`] for
    /// another value than the key has.
    pub fn set(&mut self, schedule: &'static Algorithm, key: &str, value: &str) -> Result<(), PlanError> {
        let Some(key) = schedule.uses.iter().chain(&["contract", "root"]).find(|known| **known == key) else {
            let reason = format!(
                "it does not use {key}; it uses: {}",
                [schedule.uses, &["contract", "root"]].concat().join(", ")
            );
            return Err(PlanError::Parse { what: schedule.name, reason });
        };
        let refuse = |expected: &str| bad(schedule.name, key, value, expected);
        let wrong = |reason: String| refuse(reason.rsplit_once("expected ").map_or(&*reason, |(_, expected)| expected));
        let number = || value.parse::<usize>().map(Some).map_err(|_| refuse("a whole number"));
        let list = || {
            let numbers: Result<Vec<usize>, _> = value.split('x').map(str::parse).collect();
            numbers.map(Some).map_err(|_| refuse("whole numbers with x between, such as 4x3"))
        };
        match *key {
            "group" if value == "xor" => self.group = Some(value.parse().map_err(wrong)?),
            "group" => {
                let factors = value.replace('x', ",").parse();
                self.group = Some(factors.map_err(|_| refuse("cyclic, xor, or factors from 2 such as 4x3 or 4x3r"))?);
            }
            "r" => self.r = number()?,
            "rounds" => self.rounds = number()?,
            "cap" => self.cap = number()?,
            "protocol" => {
                let protocol = value.replace('-', ":").parse();
                self.protocol = Some(protocol.map_err(|_| refuse("latency, bandwidth, or mixed-N"))?);
            }
            "distance" => self.distance = Some(value.parse().map_err(wrong)?),
            "rule" => self.rule = Some(value.parse().map_err(wrong)?),
            "radices" => self.radices = list()?,
            "target" => self.target = number()?,
            "ports" => self.ports = number()?,
            "segments" => self.segments = number()?,
            "late" => self.late = number()?,
            "keep-order" => self.keep_order = value.parse().map_err(|_| refuse("true or false"))?,
            "ranks-per-node" => self.ranks_per_node = number()?,
            "order" => self.order = list()?,
            "contract" => self.collective = Some(value.parse().map_err(wrong)?),
            "root" => self.root = number()?,
            _ => unreachable!("every parameter that a schedule uses is here: a test sets them all"),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::ALGORITHMS;

    #[test]
    fn every_parameter_of_every_schedule_can_be_written() {
        for schedule in ALGORITHMS {
            for key in schedule.uses.iter().chain(&["contract", "root"]) {
                let values = ["1", "2x2", "xor", "bandwidth", "halving", "cap", "true", "barrier"];
                let mut params = Params::default();
                let taken = values.iter().filter(|value| params.set(schedule, key, value).is_ok()).count();
                assert!(taken >= 1, "{} {key}", schedule.name);
                assert_ne!(params, Params::default(), "{} {key} changes nothing", schedule.name);
                let refused = params.set(schedule, key, "nonsense").unwrap_err().to_string();
                assert!(refused.contains(schedule.name) && refused.contains("expected"), "{refused}");
            }
        }
    }

    #[test]
    fn words_mean_what_options_mean() {
        let plan = |word: &str, ranks| word.parse::<ScheduleSpec>().and_then(|named| named.plan(ranks)).unwrap();
        let r = |r| Params { r: Some(r), ..Params::ranks(7) };
        assert_eq!(plan("butterfly:r=2", 7), build("butterfly", &r(2)).unwrap());
        assert_ne!(plan("butterfly:r=2", 7), plan("butterfly", 7));
        let factors = Params { radices: Some(vec![4, 3]), ..Params::ranks(12) };
        assert_eq!(plan("cyclic-shift:radices=4x3", 12), build("cyclic-shift", &factors).unwrap());
        let mixed = Params { protocol: Some("mixed:1".parse().unwrap()), ..Params::ranks(12) };
        assert_eq!(plan("radix:protocol=mixed-1", 12), build("radix", &mixed).unwrap());
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (word, says) in [
            ("rings", "there is no algorithm `rings`"),
            ("butterfly:", "expected KEY=VALUE"),
            ("butterfly:r", "expected KEY=VALUE"),
            ("butterfly:r=", "expected KEY=VALUE"),
            ("butterfly:r=1:r=2", "gives r twice"),
            ("butterfly:radices=2", "does not use radices; it uses: group, r"),
            ("butterfly:r=x", "expected a whole number"),
            ("butterfly:group=1x3", "4x3r"),
            ("cyclic-shift:radices=4,3", "4x3"),
            ("halving-doubling:distance=far", "doubling, halving"),
        ] {
            let refused = word.parse::<ScheduleSpec>().unwrap_err().to_string();
            assert!(refused.contains(says), "{word}: {refused}");
        }
        let refused = "butterfly:group=5x2".parse::<ScheduleSpec>().unwrap().plan(7).unwrap_err().to_string();
        assert!(refused.contains("group"), "{refused}");
    }
}
