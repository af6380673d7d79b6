//! The row of words that a rank tells others in a started call of blocks whose lengths not all ranks know: where what it sends lies, its
//! counts, and what it sends if that is little.
//!
//! ```text
//! head (2 words): place and bytes, name | counts | what is sent, or nothing of meaning
//! ```

use crate::memory::AllocationName;
use crate::protocol::lines::INLINE_BYTES;
use std::ops::Range;

/// Whom the ranks tell, which is who receives from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Telling {
    /// All ranks tell all how much they send to each, and expect of each.
    All,
    /// All ranks tell the root how much they send to it.
    ToRoot(usize),
    /// The root tells all ranks how much it sends to each.
    ByRoot(usize),
}

impl Telling {
    /// Returns whether a rank tells others anything.
    pub(super) fn is_done_by(self, rank: usize) -> bool {
        match self {
            Telling::All | Telling::ToRoot(_) => true,
            Telling::ByRoot(root) => root == rank,
        }
    }
}

/// The words of a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowLayout {
    pub(super) telling: Telling,
    pub(super) ranks: usize,
    /// Counts of what the rank sends, and of what it expects.
    counts: [usize; 2],
    /// Words for what is sent.
    sent: usize,
}

/// Words for what is sent, of all rows that a rank receives, where a row does not fit beside a mark: they are moved whether they are used or not.
const SENT_WORDS: usize = 64;

impl RowLayout {
    /// The layout in a group of so many ranks. What is sent has as many words as travel beside a mark with the others, if that is one for
    /// each block of the row.
    pub(super) fn new(telling: Telling, ranks: usize) -> Self {
        let (counts, rows) = match telling {
            Telling::All => ([ranks; 2], ranks),
            Telling::ToRoot(_) => ([1, 0], ranks),
            Telling::ByRoot(_) => ([ranks, 0], 1),
        };
        let beside_mark = (INLINE_BYTES / size_of::<u64>()).checked_sub(Head::WORDS + counts[0] + counts[1]);
        let sent = beside_mark.filter(|words| *words >= counts[0]).unwrap_or(SENT_WORDS / rows);
        RowLayout { telling, ranks, counts, sent }
    }

    /// The words in which a rank tells how much it sends.
    pub(super) fn sends(&self) -> Range<usize> {
        Head::WORDS..Head::WORDS + self.counts[0]
    }

    /// The words in which a rank tells how much it expects, if it does.
    pub(super) fn expects(&self) -> Range<usize> {
        let first = Head::WORDS + self.counts[0];
        first..first + self.counts[1]
    }

    /// The words for what is sent.
    pub(super) fn sent(&self) -> Range<usize> {
        let first = Head::WORDS + self.counts[0] + self.counts[1];
        first..first + self.sent
    }

    /// The words of a row.
    pub(super) fn words(&self) -> usize {
        Head::WORDS + self.counts[0] + self.counts[1] + self.sent
    }
}

/// The place of what a rank sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum SentFrom {
    /// In the row.
    #[default]
    Row,
    /// Memory that is kept for later calls.
    Kept(AllocationName),
    /// Memory of this call alone, which every rank that knows of it releases.
    Alone(AllocationName),
    /// None, since no more than so many bytes were free.
    NoSpace { free: u64 },
    /// None, since the system has refused it: its error, 0 without one, and the memory to be released, if it was allocated.
    Refused { errno: u16, allocated: Option<AllocationName> },
}

impl SentFrom {
    pub(super) fn refused(errno: Option<i32>, allocated: Option<AllocationName>) -> Self {
        SentFrom::Refused { errno: errno.unwrap_or(0) as u16, allocated }
    }
}

/// The words that a row begins with.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Head {
    pub(super) place: SentFrom,
    /// Bytes that the rank sends.
    pub(super) bytes: u64,
}

impl Head {
    pub(super) const WORDS: usize = 2;
    /// Bits of the first word below those of the place: more bytes than an address space has.
    const BYTES_BITS: u32 = 48;

    pub(super) fn to_words(self) -> [u64; Head::WORDS] {
        let (kind, value) = match self.place {
            SentFrom::Row => (0, 0),
            SentFrom::Kept(name) => (1, name.word()),
            SentFrom::Alone(name) => (2, name.word()),
            SentFrom::NoSpace { free } => (3, free),
            SentFrom::Refused { errno, allocated } => {
                (4 | u64::from(errno) << 3, allocated.map_or(0, AllocationName::word))
            }
        };
        [kind << Head::BYTES_BITS | self.bytes, value]
    }

    /// The head of a row.
    pub(super) fn of(row: &[u64]) -> Head {
        let &[first, value, ..] = row else { return Head::default() };
        let (kind, bytes) = (first >> Head::BYTES_BITS, first & ((1 << Head::BYTES_BITS) - 1));
        let name = AllocationName::from_word(value);
        let place = match kind & 7 {
            0 => SentFrom::Row,
            1 => SentFrom::Kept(name),
            2 => SentFrom::Alone(name),
            3 => SentFrom::NoSpace { free: value },
            _ => SentFrom::Refused { errno: (kind >> 3) as u16, allocated: (value != 0).then_some(name) },
        };
        Head { place, bytes }
    }

    /// The memory that every rank that knows of it releases.
    pub(super) fn released(self) -> Option<AllocationName> {
        match self.place {
            SentFrom::Alone(name) => Some(name),
            SentFrom::Refused { allocated, .. } => allocated,
            SentFrom::Row | SentFrom::Kept(_) | SentFrom::NoSpace { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_comes_back_from_its_words() {
        let name = AllocationName::from_word(77 << 32 | 5);
        for place in [
            SentFrom::Row,
            SentFrom::Kept(name),
            SentFrom::Alone(name),
            SentFrom::NoSpace { free: 1 << 40 },
            SentFrom::refused(Some(12), Some(name)),
            SentFrom::refused(None, None),
        ] {
            let head = Head::of(&Head { place, bytes: 123_456_789 }.to_words());
            assert_eq!((head.place, head.bytes), (place, 123_456_789));
        }
    }

    #[test]
    fn rows_of_few_counts_fit_beside_a_mark() {
        for (telling, ranks) in
            [(Telling::All, 2), (Telling::All, 3), (Telling::ToRoot(5), 64), (Telling::ByRoot(1), 5)]
        {
            assert_eq!(RowLayout::new(telling, ranks).words() * 8, INLINE_BYTES, "{telling:?} {ranks}");
        }
        assert_eq!(RowLayout::new(Telling::All, 16).sent().len(), 4);
        assert_eq!(RowLayout::new(Telling::ByRoot(0), 64).sent().len(), 64);
        assert!(RowLayout::new(Telling::ToRoot(0), 4).expects().is_empty());
        assert!(RowLayout::new(Telling::ByRoot(0), 4).expects().is_empty());
        assert_eq!(RowLayout::new(Telling::All, 4).expects().len(), 4);
    }
}
