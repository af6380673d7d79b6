//! How many ranks of each node exchange large messages with the other nodes, each a part: what one leader copies and folds
//! is what a large call waits for, where every rank has a CPU of its own and less so where ranks share them
//! (`docs/measurements.md`).
//!
//! All ranks must take the same number, and each sees its own CPUs only. So every rank tells the others what it wants when it
//! joins: what the user set, which must be equal, or what fits its CPUs, of which the least counts.

use crate::Error;

/// Endpoints where nothing was set: where every rank has a CPU; where ranks share CPUs, over shared memory, since more than
/// two only wake each other more often; and over messages, each of which costs MPI's time too.
const WITH_CPUS: usize = 4;
const WHEN_CROWDED: usize = 2;
const WHEN_CROWDED_OVER_MESSAGES: usize = 1;

/// What one rank wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wanted {
    endpoints: usize,
    was_set: bool,
}

impl Wanted {
    /// What the user has `set`, or what fits ranks that share CPUs or do not, and nodes that exchange messages or share memory.
    pub(super) fn new(set: Option<usize>, is_crowded: bool, is_a_network: bool) -> Self {
        let fits = match (is_crowded, is_a_network) {
            (false, _) => WITH_CPUS,
            (true, false) => WHEN_CROWDED,
            (true, true) => WHEN_CROWDED_OVER_MESSAGES,
        };
        Wanted { endpoints: set.unwrap_or(fits), was_set: set.is_some() }
    }

    /// As ranks tell each other.
    pub(super) fn words(self) -> [u64; 2] {
        [self.endpoints as u64, u64::from(self.was_set)]
    }
}

/// The number that all ranks take, of what they told.
///
/// # Errors
/// [`Error::Usage`], on all ranks, where they were not set alike.
pub(super) fn agreed(told: &[u64]) -> Result<usize, Error> {
    let told: Vec<Wanted> = told
        .as_chunks()
        .0
        .iter()
        .map(|&[endpoints, was_set]| Wanted { endpoints: endpoints as usize, was_set: was_set != 0 })
        .collect();
    let said = |wanted: Wanted| if wanted.was_set { wanted.endpoints.to_string() } else { "auto".into() };
    match told.iter().position(|other| said(*other) != said(told[0])) {
        Some(rank) => Err(Error::usage(format!(
            "EARLYBIRD_ENDPOINTS is {} on rank 0 and {} on rank {rank}; set it alike on all ranks",
            said(told[0]),
            said(told[rank])
        ))),
        None => Ok(told.iter().map(|wanted| wanted.endpoints).min().unwrap_or(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::usage;

    fn of(ranks: &[(Option<usize>, bool)]) -> Result<usize, Error> {
        let words = ranks.iter().flat_map(|(set, is_crowded)| Wanted::new(*set, *is_crowded, false).words());
        agreed(&words.collect::<Vec<u64>>())
    }

    #[test]
    fn all_take_what_was_set_or_what_fits_everybody() {
        assert_eq!(of(&[(None, false), (None, false)]).unwrap(), WITH_CPUS);
        assert_eq!(of(&[(None, false), (None, true)]).unwrap(), WHEN_CROWDED, "one rank's CPUs are shared");
        assert_eq!(Wanted::new(None, true, true).words()[0], WHEN_CROWDED_OVER_MESSAGES as u64);
        assert_eq!(of(&[(Some(3), true), (Some(3), false)]).unwrap(), 3);
    }

    #[test]
    fn what_is_not_set_alike_is_refused() {
        assert!(
            usage(of(&[(Some(2), true), (Some(2), true), (Some(3), true)])).contains("2 on rank 0 and 3 on rank 2")
        );
        assert!(usage(of(&[(None, true), (Some(1), true)])).contains("auto on rank 0 and 1 on rank 1"));
    }
}
