//! The check of each part of a trace file: half of a sum over its words, each times a factor of its place, to which a word is added
//! without going through the others again.

/// Words of the longest part.
const MOST_WORDS: usize = 18;

/// Odd numbers, one for each place, so that damage in any word shows in the upper half of the sum.
const FACTORS: [u64; MOST_WORDS] = {
    let (mut factors, mut at, mut state) = ([0; MOST_WORDS], 0, 1u64);
    while at < MOST_WORDS {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        factors[at] = (state ^ state >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) | 1;
        at += 1;
    }
    factors
};

/// A sum over words at their places in a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CheckSum(u64);

impl CheckSum {
    /// The sum of no words.
    pub const EMPTY: CheckSum = CheckSum(0x9e37_79b9_7f4a_7c15);

    /// Adds the word at this place; a zero adds nothing.
    #[inline(always)]
    #[must_use]
    pub const fn with(self, place: usize, word: u64) -> CheckSum {
        CheckSum(self.0.wrapping_add((word ^ word >> 32).wrapping_mul(FACTORS[place])))
    }

    /// The check of the words that were added: 32 bits, never 0.
    #[inline(always)]
    pub const fn check(self) -> u64 {
        self.0 >> 32 | 1
    }
}

/// The check of a part of these words.
pub(super) fn check(words: &[u64]) -> u64 {
    words.iter().enumerate().fold(CheckSum::EMPTY, |sum, (place, word)| sum.with(place, *word)).check()
}
