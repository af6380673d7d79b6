//! The state of one wait on rings, and the comparison of two ranks' call counters.

use crate::protocol::stuck::Proof;

/// State of one wait, and the mean of the long waits before it.
#[derive(Debug, Default)]
pub(super) struct WaitState {
    pub begun_ns: u64,
    pub inspect_at_ns: u64,
    pub inspected_ns: u64,
    pub counted_ns: u64,
    pub warned: bool,
    pub mean_ns: u64,
    /// Passes of this wait so far; fewer mean that another one has begun.
    pub passes: u32,
    /// A rank that seemed to make another call at the last inspection.
    pub suspect: Option<usize>,
    pub proof: Proof,
}

/// Returns whether a rank whose calls are `theirs` has gone on, or is, where this one is in an exchange, without that exchange.
pub(super) fn differs(mine: u64, theirs: u64) -> bool {
    ahead(mine >> 32, theirs >> 32) >= 0 && ahead(mine, theirs) < 0
}

/// Returns whether a rank whose calls are `theirs` has gone on from the exchange that this one is in.
pub(super) fn has_passed(mine: u64, theirs: u64) -> bool {
    ahead(mine >> 32, theirs >> 32) > 0 && ahead(mine, theirs) >= 0
}

/// The calls, or the exchanges, by which one rank is ahead of another. Counts wrap, and differ by less than half their range.
fn ahead(mine: u64, theirs: u64) -> i32 {
    (theirs as u32).wrapping_sub(mine as u32) as i32
}

#[cfg(test)]
mod tests {
    use super::{differs, has_passed};

    fn at(calls: u32, exchanges: u32) -> u64 {
        u64::from(calls) << 32 | u64::from(exchanges)
    }

    #[test]
    fn a_rank_in_a_later_call_has_passed_the_exchange() {
        let mine = at(10, 4);
        assert!(has_passed(mine, at(11, 4)) && has_passed(mine, at(11, 5)) && has_passed(at(u32::MAX, 0), at(0, 0)));
        assert!(!has_passed(mine, mine) && !has_passed(mine, at(9, 3)), "there, or late");
        assert!(!has_passed(mine, at(11, 3)), "without it");
    }

    #[test]
    fn a_call_without_an_exchange_differs_once_it_has_begun() {
        let mine = at(10, 4);
        assert!(differs(mine, at(10, 3)), "in the same call, which is no exchange there");
        assert!(differs(mine, at(12, 3)) && differs(mine, at(12, 0)));
        assert!(!differs(mine, mine) && !differs(mine, at(9, 3)), "there, or late");
        assert!(!differs(mine, at(12, 4)) && !differs(mine, at(12, 6)), "through with it");
        assert!(differs(at(u32::MAX, 0), at(0, u32::MAX)) && !differs(at(u32::MAX, u32::MAX), at(1, 0)), "wrapped");
    }
}
