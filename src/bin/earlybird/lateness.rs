//! The lateness of ranks at the calls that `bench` measures and `simulate` computes: that of a pattern, or as a job has
//! recorded it.

use crate::trace::Study;
use earlybird::pattern::{Pattern, mix};
use earlybird::trace::TracedCall;
use earlybird::{Collective, Error};
use itertools::Itertools;
use std::path::Path;
use std::rc::Rc;

/// A rule for the lateness of every rank at every call.
#[derive(Debug, Clone)]
pub enum Lateness {
    /// Shares of a full delay.
    Pattern { pattern: Pattern, delay_s: f64 },
    /// The lateness at a recorded call, drawn anew for every iteration.
    Recorded(Rc<Recorded>),
}

/// The pattern in which no rank is late.
pub const BALANCED: Lateness = Lateness::Pattern { pattern: Pattern::Balanced, delay_s: 0.0 };

impl Lateness {
    /// The seconds that a rank comes after the first one may come. `seed` chooses the draws.
    pub fn seconds(&self, ranks: usize, rank: usize, iteration: u64, seed: u64) -> f64 {
        match self {
            Lateness::Pattern { pattern, delay_s } => delay_s * pattern.fraction(ranks, rank, iteration, seed),
            Lateness::Recorded(recorded) => recorded.drawn(iteration, seed)[rank],
        }
    }

    /// The longest lateness that there is.
    pub fn longest_s(&self) -> f64 {
        match self {
            Lateness::Pattern { delay_s, .. } => *delay_s,
            Lateness::Recorded(recorded) => recorded.of_calls.iter().flatten().copied().fold(0.0, f64::max),
        }
    }

    /// The name in tables.
    pub fn name(&self) -> &'static str {
        match self {
            Lateness::Pattern { pattern, .. } => pattern.name(),
            Lateness::Recorded(_) => "recorded",
        }
    }
}

/// The lateness of all ranks at calls of a trace.
#[derive(Debug, PartialEq)]
pub struct Recorded {
    /// Seconds after the first arrival, by call and rank. At least one call.
    of_calls: Vec<Vec<f64>>,
}

impl Recorded {
    /// The calls at which all ranks of the recorded job met, of this operation if one is given.
    ///
    /// # Errors
    /// Those of reading a trace; [`Error::Usage`] if it is one of another number of ranks, or has no such call.
    pub fn read(path: &Path, op: Option<Collective>, ranks: usize) -> Result<Recorded, Error> {
        let study = Study::read(path)?;
        let (name, size) = (path.display(), study.trace.size);
        if size != ranks {
            let given =
                format!("{ranks} rank(s) cannot come as those of {name} did, which are {size}; give --ranks {size}");
            return Err(Error::usage(given));
        }
        let whole = study.shared_calls().filter(|call| call.parts.len() == size).collect_vec();
        let of_call = |call: &&TracedCall| {
            let first = call.ends().0.arrival;
            let by_rank = call.parts.iter().sorted_by_key(|part| study.rank(part.file));
            by_rank.map(|part| (part.arrival - first) as f64 * 1e-9).collect()
        };
        let is_one = |call: &&&TracedCall| op.is_none_or(|op| call.collective == op);
        let of_calls = whole.iter().filter(is_one).map(of_call).collect_vec();
        if of_calls.is_empty() {
            let wanted = op.map_or("call", Collective::name);
            let others = whole.iter().map(|call| call.collective.name()).unique().join(", ");
            let others = if others.is_empty() { "none of anything".to_string() } else { others };
            return Err(Error::usage(format!("{name} has no {wanted} of all its ranks; it has {others}")));
        }
        Ok(Recorded { of_calls })
    }

    /// The lateness of all ranks at one of the calls.
    fn drawn(&self, iteration: u64, seed: u64) -> &[f64] {
        &self.of_calls[(mix(mix(seed) ^ iteration) % self.of_calls.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recorded_call_is_drawn_with_its_own_lateness() {
        let recorded = Recorded { of_calls: vec![vec![0.0, 0.5], vec![0.25, 0.0], vec![0.0, 0.0]] };
        let lateness = Lateness::Recorded(Rc::new(recorded));
        let calls = (0..100).map(|iteration| [0, 1].map(|rank| lateness.seconds(2, rank, iteration, 1))).collect_vec();
        for call in [[0.0, 0.5], [0.25, 0.0], [0.0, 0.0]] {
            assert!(calls.contains(&call), "{call:?} was never drawn");
        }
        let again = |seed| (0..100).map(|iteration| lateness.seconds(2, 0, iteration, seed)).collect_vec();
        assert!(again(1) == again(1) && again(1) != again(2));
        assert_eq!((lateness.longest_s(), lateness.name()), (0.5, "recorded"));
    }

    #[test]
    fn a_pattern_has_its_share_of_the_delay() {
        let lateness = Lateness::Pattern { pattern: Pattern::LastLate, delay_s: 2.0 };
        assert_eq!([0, 1].map(|rank| lateness.seconds(2, rank, 7, 1)), [0.0, 2.0]);
        assert_eq!((BALANCED.longest_s(), BALANCED.name()), (0.0, "balanced"));
    }
}
