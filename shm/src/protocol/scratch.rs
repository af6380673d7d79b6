//! The state of a rank from one operation to the next: lists and accumulators, so that the steady state allocates nothing, and the pace
//! of its stores.

use super::pieces::Pieces;
use super::store_pace::StorePace;
use std::ops::Range;

/// The lists, the accumulator and the history of a rank.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Ranks to fold now, or to hear from.
    pub(super) ready: Vec<usize>,
    /// Ranks to take from.
    pub(super) sources: Vec<Source>,
    /// The elements of each rank's block, where the root of a scatter has told them.
    pub(super) lengths: Vec<usize>,
    /// The pace of its deposits so far.
    pub(super) stores: StorePace,
    /// A private accumulator, for results that cannot be accumulated in place.
    accumulator: Vec<u64>,
}

impl Scratch {
    /// A private accumulator of at least `bytes`; its contents stay from one use to the next.
    pub(super) fn accumulator(&mut self, bytes: usize) -> &mut [u64] {
        let words = bytes.div_ceil(8);
        if self.accumulator.len() < words {
            self.accumulator.resize(words, 0);
        }
        &mut self.accumulator[..words]
    }
}

/// The elements that an exchange has still to take from one rank.
#[derive(Debug, Clone)]
pub(super) struct Source {
    pub(super) rank: usize,
    /// Elements of its deposit that are left to take.
    pub(super) left: Range<usize>,
    /// The place of the next of them in the result.
    pub(super) to: usize,
    /// The pieces of its deposit.
    pub(super) pieces: Pieces,
    /// True if it lies beside the mark of entry.
    pub(super) inline: bool,
}
