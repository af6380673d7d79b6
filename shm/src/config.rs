//! The choices of a user for a whole group, as plain data: algorithm and waiting preset.
//!
//! They live in the node layer because their discriminants travel in words that ranks share.

use crate::Error;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A time in nanoseconds; what is longer than a word can say (584 years) is that long.
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Algorithm of one operation among the ranks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
#[non_exhaustive]
pub enum Algorithm {
    /// The library chooses, from size, ranks and the arrivals seen recently.
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
}

/// CPU use of a waiting rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
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

impl WaitPreset {
    /// Time to yield before sleeping, nanoseconds; `mean_wait_ns` is the mean of the waits so far. The one policy of
    /// operations and of rings.
    pub(crate) fn yield_ns(self, oversubscribed: bool, mean_wait_ns: u64) -> u64 {
        match (self, oversubscribed) {
            (WaitPreset::Latency, _) => 10_000_000,
            (WaitPreset::Balanced, false) => 1_000_000,
            (WaitPreset::Balanced, true) if mean_wait_ns > 1_000_000 => 4_000,
            (WaitPreset::Balanced, true) => (4 * mean_wait_ns).clamp(50_000, 1_000_000),
            (WaitPreset::Power, _) => 4_000,
        }
    }
}

/// `FromStr`, `Display`, `ALL`, `name` and `from_code` of a choice, from one list of its names.
macro_rules! named_choice {
    ($type:ident, $what:literal, $count:literal, $($variant:ident => $name:literal),*) => {
        impl $type {
            /// Every value, in discriminant order.
            pub const ALL: [$type; $count] = [$($type::$variant),*];

            /// The name that users write and reports print.
            pub const fn name(self) -> &'static str {
                match self {
                    $($type::$variant => $name,)*
                }
            }

            /// The value with this discriminant, or `None` if there is none (a word written by another version).
            pub const fn from_code(code: u8) -> Option<Self> {
                $(if code == $type::$variant as u8 {
                    return Some($type::$variant);
                })*
                None
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }

        impl FromStr for $type {
            type Err = Error;

            /// Exactly one of the names; anything else is [`Error::Usage`] listing them.
            fn from_str(given: &str) -> Result<Self, Error> {
                Self::ALL.into_iter().find(|choice| choice.name() == given).ok_or_else(|| {
                    let valid = Self::ALL.map(Self::name).join(", ");
                    Error::usage(format!(concat!($what, " {:?} is not known; use one of: {}"), given, valid))
                })
            }
        }
    };
}

named_choice!(Algorithm, "algorithm", 7,
    Auto => "auto", Flat => "flat", Leader => "leader", Chain => "chain",
    StaticLeader => "static-leader", StaticLeaderEarly => "static-leader-early", Slices => "slices");
named_choice!(WaitPreset, "waiting preset", 3, Latency => "latency", Balanced => "balanced", Power => "power");

#[cfg(test)]
mod tests {
    use super::*;

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
            assert_eq!(Algorithm::from_code(code as u8), Some(algorithm));
            assert_eq!(algorithm.to_string().parse(), Ok(algorithm));
        }
        for (code, wait) in WaitPreset::ALL.into_iter().enumerate() {
            assert_eq!(wait as usize, code);
            assert_eq!(WaitPreset::from_code(code as u8), Some(wait));
            assert_eq!(wait.to_string().parse(), Ok(wait));
        }
        assert_eq!(Algorithm::from_code(7), None);
        assert_eq!(WaitPreset::from_code(3), None);
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
