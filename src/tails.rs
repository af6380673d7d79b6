//! The tails that `earlybird tune` has measured on one node, from which `explain` takes expected times: the part `tails` of the file
//! of `EARLYBIRD_TUNE`.

use crate::{Choice, Collective, Error};
use std::collections::BTreeMap;

/// Bytes of a block, and the median of the seconds from the last arrival to the last exit of balanced calls; ascending sizes.
pub(crate) type MeasuredTails = Vec<(u64, f64)>;

/// Measured tails by ranks, collective and what carried it out.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Tails(Vec<(usize, Collective, Choice, MeasuredTails)>);

impl Tails {
    /// Adds the algorithms of a collective, by their names.
    ///
    /// # Errors
    /// [`Error::Usage`] for an unknown algorithm, and for sizes that do not ascend or times below zero or without end.
    pub fn add(
        &mut self,
        ranks: usize,
        collective: Collective,
        measured: BTreeMap<String, MeasuredTails>,
    ) -> Result<(), Error> {
        for (name, points) in measured {
            let choice: Choice = name.parse()?;
            let ascends = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
            if !ascends || points.iter().any(|(_, seconds)| !seconds.is_finite() || *seconds < 0.0) {
                return Err(Error::usage(format!(
                    "{name}: expected pairs of bytes and seconds, with ascending bytes and finite times from 0"
                )));
            }
            self.0.push((ranks, collective, choice, points));
        }
        Ok(())
    }

    /// Microseconds of a call with blocks of `bytes`, by everything that was measured at a smaller size and at a larger one, or at
    /// this: between two sizes in proportion.
    pub fn expected_us(&self, ranks: usize, collective: Collective, bytes: usize) -> Vec<(Choice, f64)> {
        let measured = self.0.iter().filter(|(of, what, ..)| (*of, *what) == (ranks, collective));
        measured.filter_map(|(.., choice, points)| Some((*choice, 1e6 * between(points, bytes as u64)?))).collect()
    }
}

/// The seconds at this size; `None` outside of what was measured.
fn between(points: &[(u64, f64)], bytes: u64) -> Option<f64> {
    let above = points.iter().position(|(size, _)| *size >= bytes)?;
    let (size, seconds) = points[above];
    if size == bytes {
        return Some(seconds);
    }
    let (below, least) = points[above.checked_sub(1)?];
    Some(least + (seconds - least) * (bytes - below) as f64 / (size - below) as f64)
}

#[cfg(test)]
mod tests {
    use crate::test_support::usage;
    use crate::{Algorithm, Choice, Collective, Tuning};

    #[test]
    fn times_stand_between_those_of_the_nearest_sizes() {
        let text = "tails.2.allreduce.flat = [[8, 1.0], [1024, 3.0]]\ntails.2.allreduce.'plan:ring' = [[8, 4.0]]\n";
        let tuning: Tuning = text.parse().unwrap();
        let flat = |us| (Choice::Node(Algorithm::Flat), us);
        let expected = |ranks, bytes| tuning.tails().expected_us(ranks, Collective::AllReduce, bytes);
        assert_eq!(expected(2, 8), [flat(1e6), (Choice::Plan("ring"), 4e6)]);
        assert_eq!(expected(2, 1024), [flat(3e6)]);
        assert_eq!(expected(2, 516), [flat(2e6)]);
        assert_eq!((expected(2, 4), expected(2, 1025), expected(3, 8)), (vec![], vec![], vec![]));
        assert_eq!(tuning.tails().expected_us(2, Collective::Reduce, 8), []);
    }

    #[test]
    fn what_cannot_be_meant_is_refused() {
        for (text, says) in [
            ("tails.2.allreduce.fast = [[8, 1e-6]]", "tails.2.allreduce: algorithm \"fast\" is not known"),
            ("tails.2.sort.flat = [[8, 1e-6]]", "tails.2: "),
            ("tails.0.allreduce.flat = [[8, 1e-6]]", "no number of ranks"),
            ("tails.2.allreduce.flat = [[8, 1e-6], [8, 2e-6]]", "ascending bytes"),
            ("tails.2.allreduce.flat = [[8, -1e-6]]", "finite times"),
            ("tails.2.allreduce.flat = [8, 1e-6]", "line 1"),
        ] {
            let message = usage(text.parse::<Tuning>());
            assert!(message.contains(says), "{text}: {message}");
        }
    }
}
