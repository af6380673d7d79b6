//! The blocks of a measured call: how many elements each rank's has, and what a rank sends and receives.

use earlybird::{Collective, Counts};
use std::ops::Range;

/// The blocks of a call as one rank knows them.
pub struct BlockLengths {
    op: Collective,
    rank: usize,
    /// Elements of each rank's block; of those that all ranks send to it, in an alltoall.
    counts: Vec<usize>,
    /// Elements that this rank receives from each other in an alltoall.
    to_me: Vec<usize>,
    are_equal: bool,
}

impl BlockLengths {
    /// The blocks of `op` on `rank` of `ranks`, of `elements` each, or of `skew` per cent more and less: by turns of two, so that ranks that
    /// share two CPUs in turn have both.
    pub fn new(op: Collective, elements: usize, (rank, ranks): (usize, usize), skew: u8) -> BlockLengths {
        let more = (elements as u128 * u128::from(skew) / 100) as usize;
        let is_longer = |rank: usize| matches!(rank % 4, 0 | 3);
        let count = |rank| if is_longer(rank) { elements.saturating_add(more) } else { elements - more };
        let counts: Vec<usize> = (0..ranks).map(count).collect();
        BlockLengths { op, rank, to_me: vec![counts[rank]; ranks], counts, are_equal: more == 0 }
    }

    /// The lengths for the call.
    pub fn counts(&self) -> Counts<'_> {
        let traits = self.op.traits();
        match self.are_equal {
            true => Counts::Uniform,
            // A block for each pair of ranks.
            false if traits.in_parts && traits.joins() => Counts::PerPair { send: &self.counts, recv: &self.to_me },
            false => Counts::PerRank(&self.counts),
        }
    }

    /// Elements that a rank sends, if it does.
    pub fn sent(&self) -> usize {
        if self.op.traits().in_parts { sum(&self.counts) } else { self.counts[self.rank] }
    }

    /// Elements that a rank receives, if it does.
    pub fn received(&self) -> usize {
        match self.op.traits().joins() {
            true => sum(self.in_result()),
            false => self.counts[self.rank],
        }
    }

    /// The element of what others send with which the block for this rank begins.
    pub fn sent_at(&self) -> usize {
        if self.op.traits().in_parts { sum(&self.counts[..self.rank]) } else { 0 }
    }

    /// The place of each rank's block in the result, where it has one from each.
    pub fn places(&self) -> impl Iterator<Item = Range<usize>> {
        self.in_result().iter().scan(0, |end, count| {
            let start = *end;
            *end += count;
            Some(start..*end)
        })
    }

    fn in_result(&self) -> &[usize] {
        if self.op.traits().in_parts { &self.to_me } else { &self.counts }
    }
}

fn sum(counts: &[usize]) -> usize {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_received() {
        for (skew, ranks) in [(0, 3), (25, 4), (100, 5)] {
            let of = |op, rank| BlockLengths::new(op, 40, (rank, ranks), skew);
            let lens = [40 + 40 * usize::from(skew) / 100, 40 - 40 * usize::from(skew) / 100];
            assert_eq!([0, 1].map(|rank| of(Collective::AllGather, rank).sent()), lens);
            for rank in 0..ranks {
                let all_to_all = of(Collective::AllToAll, rank);
                let mine = all_to_all.sent_at()..all_to_all.sent_at() + of(Collective::Scatter, rank).received();
                assert!(all_to_all.places().all(|place| place.len() == mine.len()) && mine.end <= all_to_all.sent());
                assert_eq!(all_to_all.received(), mine.len() * ranks);
                let all_gather = of(Collective::AllGather, rank);
                assert!(
                    all_gather
                        .places()
                        .zip(0..)
                        .all(|(place, from)| place.len() == of(Collective::AllGather, from).sent())
                );
                assert_eq!(all_gather.places().last().map(|place| place.end), Some(all_gather.received()));
            }
        }
        assert!(
            matches!(BlockLengths::new(Collective::Gather, 1, (0, 2), 25).counts(), Counts::Uniform),
            "no part of an element"
        );
    }
}
