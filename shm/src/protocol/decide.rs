//! Deciding: which algorithm a call runs, as a pure function of what all ranks know alike.
//!
//! Whether a call is ticketless (`flat`) or ticketed must never depend on what one rank has observed: a rank that
//! waits in one lane would never meet a rank that waits in the other. Inside the ticketed lane the first arriver's
//! proposal counts, since it travels in the arrival word.

use crate::config::Algorithm;

/// Thresholds of `auto`, the same on all ranks: rank 0 writes them when the group forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Largest message of the ticketless lane, bytes.
    pub flat_bytes: usize,
    /// Largest message that `leader` carries, bytes; above it `chain` runs (in arrival order).
    pub leader_bytes: usize,
}

impl Thresholds {
    /// Defaults for `ranks` ranks: measured, `docs/measurements.md` has the crossings.
    pub fn default_for(ranks: usize) -> Self {
        match ranks {
            0..=2 => Thresholds { flat_bytes: 8 * 1024, leader_bytes: 0 },
            3..=8 => Thresholds { flat_bytes: 2 * 1024, leader_bytes: 0 },
            _ => Thresholds { flat_bytes: 512, leader_bytes: 0 },
        }
    }

    /// The algorithm to run, or to propose, for a message of `bytes`.
    pub fn choose(&self, wished: Algorithm, bytes: usize, by_rank: bool) -> Algorithm {
        match wished {
            Algorithm::Auto if bytes <= self.flat_bytes => Algorithm::Flat,
            // By rank a chain would stall behind a late low rank; deposits do not.
            Algorithm::Auto if by_rank || bytes <= self.leader_bytes => Algorithm::Leader,
            Algorithm::Auto => Algorithm::Chain,
            chosen => chosen,
        }
    }
}
