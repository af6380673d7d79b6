//! Process arrival patterns: the lateness of each rank at a call. Pure functions, so that every rank, and a simulator, gets
//! the same pattern from the same numbers.
//!
//! The shapes are those of the studies on process arrival patterns (Faraj, Patarasuk and Yuan, "A Study of Process
//! Arrival Patterns for MPI Collective Operations", 2008, and later work on imbalanced arrivals).

pub use earlybird_hier::sim::mix;
use strum::{IntoStaticStr, VariantArray};

/// The shape of lateness over the ranks of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case", const_into_str)]
pub enum Pattern {
    /// Nobody is delayed.
    Balanced,
    /// Every rank is late by its own uniform share of the delay, drawn anew for every iteration.
    Random,
    /// Rank 0 has the whole delay, the others none.
    FirstLate,
    /// The last rank has the whole delay, the others none.
    LastLate,
    /// One rank, drawn anew for every iteration, has the whole delay.
    OneLate,
    /// Delays rise evenly with the rank, from none to the whole.
    Ascending,
}

earlybird_shm::named_choice!(Pattern, "arrival pattern");

impl Pattern {
    /// The part of the full delay, 0 to 1, that `rank` of `ranks` is late by in this iteration. `seed` chooses the
    /// draws of [`Pattern::Random`] and [`Pattern::OneLate`]; the others do not depend on it or on the iteration.
    /// A rank outside the group is never late.
    pub fn fraction(self, ranks: usize, rank: usize, iteration: u64, seed: u64) -> f64 {
        if rank >= ranks {
            return 0.0;
        }
        let draw = mix(mix(seed) ^ iteration);
        let whole_if = |late: bool| if late { 1.0 } else { 0.0 };
        match self {
            Pattern::Balanced => 0.0,
            // The upper 53 bits are what a double holds exactly.
            Pattern::Random => (mix(draw ^ mix(rank as u64)) >> 11) as f64 / (1u64 << 53) as f64,
            Pattern::FirstLate => whole_if(rank == 0),
            Pattern::LastLate => whole_if(rank == ranks - 1),
            Pattern::OneLate => whole_if(rank as u64 == draw % ranks as u64),
            Pattern::Ascending if ranks == 1 => 0.0,
            Pattern::Ascending => rank as f64 / (ranks - 1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Error;

    fn fractions(pattern: Pattern, ranks: usize, iteration: u64, seed: u64) -> Vec<f64> {
        (0..ranks).map(|rank| pattern.fraction(ranks, rank, iteration, seed)).collect()
    }

    #[test]
    fn fixed_shapes() {
        assert_eq!(fractions(Pattern::Balanced, 3, 7, 1), [0.0, 0.0, 0.0]);
        assert_eq!(fractions(Pattern::FirstLate, 3, 7, 1), [1.0, 0.0, 0.0]);
        assert_eq!(fractions(Pattern::LastLate, 3, 7, 1), [0.0, 0.0, 1.0]);
        assert_eq!(fractions(Pattern::Ascending, 5, 7, 1), [0.0, 0.25, 0.5, 0.75, 1.0]);
    }

    #[test]
    fn one_late_delays_exactly_one_and_every_rank_in_turn() {
        let mut late = [0; 5];
        for iteration in 0..500 {
            let delays = fractions(Pattern::OneLate, 5, iteration, 3);
            assert_eq!(delays.iter().sum::<f64>(), 1.0);
            late[delays.iter().position(|&delay| delay == 1.0).expect("one is late")] += 1;
        }
        // 100 expected each; 50 is more than five standard deviations away.
        assert!(late.iter().all(|&count| count > 50), "{late:?}");
    }

    #[test]
    fn random_fills_the_range_and_differs_by_rank_iteration_and_seed() {
        let all: Vec<f64> = (0..500).flat_map(|iteration| fractions(Pattern::Random, 8, iteration, 1)).collect();
        assert!(all.iter().all(|fraction| (0.0..1.0).contains(fraction)));
        let mean = all.iter().sum::<f64>() / all.len() as f64;
        assert!((mean - 0.5).abs() < 0.03, "{mean}");
        assert!(all.iter().any(|&f| f < 0.01) && all.iter().any(|&f| f > 0.99));
        let first = fractions(Pattern::Random, 8, 0, 1);
        assert!((1..8).all(|rank| first[rank] != first[0]));
        assert_ne!(first, fractions(Pattern::Random, 8, 1, 1));
        assert_ne!(first, fractions(Pattern::Random, 8, 0, 2));
        assert_eq!(first, fractions(Pattern::Random, 8, 0, 1));
    }

    #[test]
    fn small_and_wrong_groups_do_not_panic() {
        for pattern in Pattern::ALL {
            let alone = pattern.fraction(1, 0, u64::MAX, u64::MAX);
            assert!((0.0..=1.0).contains(&alone), "{pattern}");
            assert_eq!(pattern.fraction(0, 0, 0, 0), 0.0);
            assert_eq!(pattern.fraction(2, 2, 0, 0), 0.0);
        }
    }

    #[test]
    fn names_lead_back_and_unknown_ones_are_refused_with_the_list() {
        for pattern in Pattern::ALL {
            assert_eq!(pattern.to_string().parse(), Ok(pattern));
        }
        let Err(Error::Usage { message }) = "late".parse::<Pattern>() else { panic!("accepted") };
        assert!(message.contains("\"late\"") && message.contains("first-late, last-late"), "{message}");
    }
}
