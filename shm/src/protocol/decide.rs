//! Deciding: which algorithm a call runs, as a pure function of what all ranks know alike.
//!
//! Whether a call is ticketless (`flat`) or ticketed must never depend on what one rank has observed: a rank that
//! waits in one lane would never meet a rank that waits in the other. Inside the ticketed lane the first arriver's
//! proposal counts, since it travels in the arrival word.

use super::collective::Collective;
use crate::config::Algorithm;

/// Thresholds of `auto`, the same on all ranks: rank 0 writes them when the group forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thresholds {
    /// Largest message of the ticketless lane, bytes.
    pub flat_bytes: usize,
    /// Largest message that `leader` carries, bytes; above it `chain` runs (in arrival order).
    pub leader_bytes: usize,
    /// Smallest allreduce by rank that `slices` carries, bytes; below it `leader` does.
    pub slices_bytes: usize,
}

/// Largest broadcast without a ticket, bytes: the root's own deposit instead of the accumulator.
const BROADCAST_FLAT_BYTES: usize = 64 * 1024;

impl Thresholds {
    /// Defaults for `ranks` ranks: measured, `docs/measurements.md` has the crossings.
    pub fn default_for(ranks: usize) -> Self {
        let flat_bytes = match ranks {
            0..=2 => 8 * 1024,
            3..=8 => 2 * 1024,
            _ => 512,
        };
        let slices_bytes = if ranks <= 4 { 512 * 1024 } else { 64 * 1024 };
        Thresholds { flat_bytes, leader_bytes: 0, slices_bytes }
    }

    /// The algorithm to run, or to propose, for a `collective` with blocks of `bytes`.
    pub fn choose(&self, collective: Collective, wished: Algorithm, bytes: usize, by_rank: bool) -> Algorithm {
        let has = collective.traits().algorithms;
        match wished {
            chosen if chosen != Algorithm::Auto && has.contains(&chosen) => chosen,
            // What an operation does not have, it leaves to `auto`: a general wish is for those that have it.
            _ if has.len() == 1 || bytes <= self.flat_bytes => Algorithm::Flat,
            _ if collective == Collective::Broadcast => match bytes <= BROADCAST_FLAT_BYTES {
                true => Algorithm::Flat,
                false => Algorithm::Chain,
            },
            // By rank a chain would stall behind a late low rank; deposits do not.
            _ if by_rank && collective == Collective::Reduce => Algorithm::Flat,
            _ if by_rank && bytes >= self.slices_bytes => Algorithm::Slices,
            _ if by_rank || bytes <= self.leader_bytes => Algorithm::Leader,
            _ => Algorithm::Chain,
        }
    }
}
