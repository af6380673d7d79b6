//! The lengths of an exchange in which each rank knows its own blocks only, as one word that it announces beside its mark of entry; in a
//! gather, that word is the length of its block, and in a scatter the length of the root's bundle.

use super::collective::Collective;
use crate::Error;

/// The lengths that a rank announces, or those of several ranks together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    /// Elements of the largest block for another rank.
    pub largest: usize,
    /// A sum of 24 bits over the counts to send, less that over the counts to receive. Of all ranks together it is 0 if every rank sends
    /// what is expected of it. One count of two that are wrong by less than 2^24 always shows, any other difference with a probability of
    /// 1 - 2^-24.
    pub difference: u32,
}

/// The outcome of the comparison of announced lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Announced {
    /// The lengths of all ranks together, in an alltoall.
    Pairs(Lengths),
    /// The blocks of a scatter are still to come: the root has told their lengths alone.
    Listed,
    /// A rank that sends another number of elements than this one expects: the first one in a gather, the root in a scatter.
    Unexpected {
        /// The rank.
        from: usize,
        /// The elements that it sends.
        sends: usize,
        /// Those that this rank expects.
        expects: usize,
    },
}

impl Announced {
    /// The error of the call of rank `me` if it does not expect what a rank sends.
    pub fn error(self, collective: Collective, me: usize) -> Option<Error> {
        match self {
            Announced::Pairs(_) | Announced::Listed => None,
            Announced::Unexpected { from, sends, expects } => {
                Some(Error::counts_differ(collective.name(), [from, me], sends, expects))
            }
        }
    }
}

const DIFFERENCE_BITS: u32 = 24;
const DIFFERENCE: u32 = (1 << DIFFERENCE_BITS) - 1;
/// No memory holds more elements.
const LARGEST_BITS: u32 = 64 - DIFFERENCE_BITS;

impl Lengths {
    /// The lengths of rank `me`, which sends and receives so many elements to and from each rank.
    pub fn of(me: usize, send: &[usize], recv: &[usize]) -> Self {
        let others = send.iter().enumerate().filter(|(to, _)| *to != me);
        let sent = send.iter().enumerate().fold(0u32, |sum, (to, n)| sum.wrapping_add(weighted(me, to, *n)));
        let expected = recv.iter().enumerate().fold(0u32, |sum, (from, n)| sum.wrapping_add(weighted(from, me, *n)));
        let largest = others.map(|(_, n)| *n).max().unwrap_or(0);
        Lengths { largest, difference: sent.wrapping_sub(expected) & DIFFERENCE }
    }

    /// The lengths of these and other ranks together.
    pub fn and(self, others: Lengths) -> Self {
        let difference = self.difference.wrapping_add(others.difference) & DIFFERENCE;
        Lengths { largest: self.largest.max(others.largest), difference }
    }

    /// `difference 24 | largest 40`, as [`Signature::count`](super::signature::Signature::count) of unequal blocks.
    pub fn word(self) -> u64 {
        u64::from(self.difference) << LARGEST_BITS | self.largest as u64 & ((1 << LARGEST_BITS) - 1)
    }

    /// The lengths in a word.
    pub fn from_word(word: u64) -> Self {
        let largest = (word & ((1 << LARGEST_BITS) - 1)) as usize;
        Lengths { largest, difference: (word >> LARGEST_BITS) as u32 }
    }
}

/// The count of a pair by an odd factor of its own, so that different counts below 2^24 have different products.
fn weighted(from: usize, to: usize, count: usize) -> u32 {
    let pair = (from as u64) << 32 | to as u64;
    let factor = ((pair ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xff51_afd7_ed55_8ccd) >> 32) as u32 | 1;
    let upper = (count as u64 >> DIFFERENCE_BITS).wrapping_mul(0xc4ce_b9fe_1a85_ec53) >> 40;
    (count as u32).wrapping_add(upper as u32).wrapping_mul(factor)
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;

    /// The lengths of three ranks together, of which rank 1 sends `sent` elements to rank 2, which expects `expected`.
    fn together(sent: usize, expected: usize) -> Lengths {
        let lengths = |me: usize| {
            let send = [0, 1, 2].map(|to| if (me, to) == (1, 2) { sent } else { 10 * me + to });
            let recv = [0, 1, 2].map(|from| if (from, me) == (1, 2) { expected } else { 10 * from + me });
            Lengths::from_word(Lengths::of(me, &send, &recv).word())
        };
        lengths(0).and(lengths(1)).and(lengths(2))
    }

    #[test]
    fn counts_that_agree_cancel_and_others_show() {
        for count in [0, 5, 1 << 24, (1 << 40) - 1] {
            let all = together(count, count);
            assert_eq!((all.difference, all.largest), (0, count.max(21)));
            for other in [1, 6, 4097, 1 << 23, 1 << 25, 1 << 26, 1 << 36] {
                assert_ne!(together(count, other).difference, 0, "{count} sent, {other} expected");
                assert_ne!(together(other, count).difference, 0, "{other} sent, {count} expected");
            }
        }
    }

    #[test]
    fn a_block_for_the_rank_itself_is_not_the_largest() {
        assert_eq!(Lengths::of(1, &[3, 1000, 4], &[9, 1000, 9]).largest, 4);
    }
}
