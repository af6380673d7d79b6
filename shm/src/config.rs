//! The choices of a user for a whole group, as plain data: algorithm and waiting preset.
//!
//! They live in the node layer because their discriminants travel in words that ranks share.

use std::time::Duration;
use strum::{FromRepr, IntoStaticStr, VariantArray};

/// A time in nanoseconds, at most the largest that fits a word (584 years).
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Algorithm of one operation among the ranks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, FromRepr, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[repr(u8)]
#[non_exhaustive]
pub enum Algorithm {
    /// The library chooses by the size of the message and the number of ranks.
    #[default]
    Auto = 0,
    /// Every rank deposits and every rank folds all in rank order: tiny messages, few ranks.
    Flat = 1,
    /// The first arriver folds deposits as they come, the last one finishes: small and medium messages.
    Leader = 2,
    /// Every arriver folds its data into shared accumulators, chunk by chunk: medium and large messages.
    Chain = 3,
    /// Baseline: rank 0 waits for all, then folds.
    StaticLeader = 4,
    /// Baseline: rank 0 folds whatever has been deposited while it waits for the others.
    StaticLeaderEarly = 5,
    /// Every rank deposits, the ranks that are there reduce chunk by chunk in rank order: large messages, same bits in every run.
    Slices = 6,
    /// Every rank reads the others' private buffers through the kernel: large allgathers, alltoalls and scatters.
    SingleCopy = 7,
}

/// CPU use of a waiting rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, FromRepr, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
#[repr(u8)]
#[non_exhaustive]
pub enum WaitPreset {
    /// Does not sleep below 10 ms: shortest tail, most processor time.
    Latency = 0,
    /// Spins and yields for a bounded time, then sleeps.
    #[default]
    Balanced = 1,
    /// Sleeps almost at once: least processor time.
    Power = 2,
}

/// The time for which a rank yields before it sleeps: who sleeps comes back tens of microseconds late.
const YIELD_NS: u64 = 1_000_000;

impl WaitPreset {
    /// Time to yield before sleeping, nanoseconds; `mean_wait_ns` is the mean of the waits so far. The one policy of
    /// operations and of rings.
    pub(crate) fn yield_ns(self, oversubscribed: bool, mean_wait_ns: u64) -> u64 {
        match (self, oversubscribed) {
            (WaitPreset::Latency, _) => 10_000_000,
            // Where waits are longer than that on average, a rank sleeps almost at once.
            (WaitPreset::Balanced, true) if mean_wait_ns > YIELD_NS => 4_000,
            (WaitPreset::Balanced, _) => YIELD_NS,
            (WaitPreset::Power, _) => 4_000,
        }
    }
}

crate::named_choice!(Algorithm, "algorithm");
crate::named_choice!(WaitPreset, "waiting preset");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    #[test]
    fn long_times_are_not_cut() {
        assert_eq!(nanoseconds(Duration::from_secs(18_446_744_074)), u64::MAX);
        assert_eq!(nanoseconds(Duration::MAX), u64::MAX);
        assert_eq!(nanoseconds(Duration::from_micros(3)), 3000);
    }

    #[test]
    fn names_and_codes_lead_back_to_the_value() {
        for (code, algorithm) in Algorithm::ALL.into_iter().enumerate() {
            assert_eq!(algorithm as usize, code);
            assert_eq!(Algorithm::from_repr(code as u8), Some(algorithm));
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        for (code, wait) in WaitPreset::ALL.into_iter().enumerate() {
            assert_eq!(wait as usize, code);
            assert_eq!(WaitPreset::from_repr(code as u8), Some(wait));
            assert_eq!(wait.to_string().parse(), Ok(wait));
        }
        assert_eq!(Algorithm::from_repr(8), None);
        assert_eq!(WaitPreset::from_repr(3), None);
    }

    #[test]
    fn an_unknown_name_is_refused_with_the_list() {
        for given in ["", "Flat", "flat ", "static_leader", "slice"] {
            let Err(Error::Usage { message }) = given.parse::<Algorithm>() else { panic!("{given:?} was accepted") };
            for algorithm in Algorithm::ALL {
                assert!(message.contains(algorithm.name()), "{message}");
            }
        }
        let Err(Error::Usage { message }) = "fast".parse::<WaitPreset>() else { panic!("accepted") };
        assert!(message.contains("\"fast\"") && message.contains("latency, balanced, power"), "{message}");
    }
}
