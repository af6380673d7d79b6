//! The exchanges of data as data: which elements each rank deposits and which each reads, without words or memory.
//!
//! Every operation here is one of two forms. *Whole*: a depositor sends one block, and every reader receives all of it
//! (broadcast, gather, allgather, flat reduce). *Parts*: a depositor sends a block for each reader, and a reader receives
//! its own (scatter, alltoall, reduce-scatter). Calls that are larger than a deposit run as several windows (`window.rs`).

use super::collective::{Collective, Side, Traits};
use super::lengths::Lengths;
use std::ops::Range;

/// A set of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Every rank.
    All,
    /// This one.
    Only(usize),
}

impl Who {
    /// Returns whether `rank` is among them.
    pub fn has(self, rank: usize) -> bool {
        match self {
            Who::All => true,
            Who::Only(one) => one == rank,
        }
    }
}

/// Elements of the blocks, the same knowledge on all ranks.
#[derive(Debug, Clone, Copy)]
pub enum Lens<'a> {
    /// Every block has this many.
    Equal(usize),
    /// The number of each block, and the sum of those before it; one more sum than blocks.
    Each(&'a [usize], &'a [usize]),
    /// A number for each pair of ranks, of which each rank knows its own.
    Pairs(Pairs<'a>),
}

/// The knowledge that a rank has of the lengths of the blocks.
#[derive(Debug, Clone, Copy)]
pub enum KnownLengths<'a> {
    /// All have the same, which follows from the buffers.
    Equal,
    /// The elements of each rank's.
    Each(&'a [usize]),
    /// That of its own; the root knows all.
    Own,
}

/// The blocks that one rank sends to each and receives from each, where they differ for every pair.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a> {
    /// The rank that knows this.
    pub me: usize,
    /// Elements of the largest block between two ranks, once all have learnt it.
    pub most: Option<usize>,
    /// Elements for each rank.
    pub send: &'a [usize],
    /// Sums of those before each block; one more than blocks.
    pub send_starts: &'a [usize],
    /// Elements from each rank.
    pub recv: &'a [usize],
    /// Sums of those before each block; one more than blocks.
    pub recv_starts: &'a [usize],
}

/// An exchange among `ranks` ranks.
#[derive(Debug, Clone, Copy)]
pub struct Exchange<'a> {
    pub(super) ranks: usize,
    /// The ranks that have something to send.
    pub depositors: Who,
    /// The ranks that receive.
    pub readers: Who,
    /// The row of the collective: blocks, folds, and whose contributions a result has.
    pub traits: &'static Traits,
    /// Whether only the root knows the lengths of all blocks, and the others that of their own.
    pub owners_announce: bool,
    pub(super) lens: Lens<'a>,
}

impl<'a> Exchange<'a> {
    /// The exchange of `collective`; `root` where it has one. The blocks belong to the depositors, or to the readers
    /// where each has its own.
    pub fn new(collective: Collective, root: usize, ranks: usize, lens: Lens<'a>) -> Self {
        let traits = collective.traits();
        let ranks_of = |side| match side {
            Side::All => Who::All,
            Side::Root => Who::Only(root),
        };
        let (depositors, readers) = (ranks_of(traits.senders), ranks_of(traits.receivers));
        Exchange { ranks, depositors, readers, traits, owners_announce: false, lens }
    }

    /// A gather of blocks whose owners announce their lengths: the root knows all, every other rank that of its own.
    pub fn announced_by_owners(self) -> Self {
        Exchange { owners_announce: true, ..self }
    }

    /// The ranks whose contributions are in the result of `reader`, if it has one.
    pub fn sources(&self, reader: usize) -> Range<usize> {
        match self.depositors {
            Who::All => self.traits.sources(reader, self.ranks),
            Who::Only(root) => root..root + 1,
        }
    }

    /// Returns whether the result of `reader` has a part from `depositor`.
    pub fn receives(&self, reader: usize, depositor: usize) -> bool {
        self.readers.has(reader) && self.sources(reader).contains(&depositor)
    }

    /// Returns whether a rank reads the deposit of `depositor`: another one, or itself where it takes its `own` contribution in its turn.
    pub fn is_read(&self, depositor: usize, own: bool) -> bool {
        let last = self.ranks - 1;
        // In a scan, no rank reads what those after it deposit.
        let other = match self.readers {
            Who::Only(root) => root,
            Who::All if depositor < last => last,
            Who::All => 0,
        };
        let reads = |reader: usize| self.receives(reader, depositor) && (own || reader != depositor);
        reads(other) || reads(depositor)
    }

    /// Whose deposits `rank` writes or reads.
    pub fn deposits_used_by(&self, rank: usize) -> Who {
        match (self.depositors, self.readers) {
            (Who::Only(root), _) => Who::Only(root),
            (Who::All, Who::Only(root)) if root != rank => Who::Only(rank),
            (Who::All, _) => Who::All,
        }
    }

    /// Elements that `depositor` has for `reader`.
    pub(super) fn len(&self, depositor: usize, reader: usize) -> usize {
        match self.lens {
            Lens::Equal(len) => len,
            Lens::Each(lens, _) => lens[if self.traits.in_parts { reader } else { depositor }],
            Lens::Pairs(pairs) if depositor == pairs.me => pairs.send[reader],
            Lens::Pairs(pairs) => pairs.recv[depositor],
        }
    }

    /// The element at which a block begins: in what is sent if it is `sent`, else in what is received.
    pub(super) fn start(&self, block: usize, sent: bool) -> usize {
        match self.lens {
            Lens::Equal(len) => block * len,
            Lens::Each(_, starts) => starts[block],
            Lens::Pairs(pairs) => {
                if sent {
                    pairs.send_starts[block]
                } else {
                    pairs.recv_starts[block]
                }
            }
        }
    }

    /// The place of a rank's block among those of all; `None` where pairs of ranks have blocks of their own.
    pub fn block_of(&self, rank: usize) -> Option<Range<usize>> {
        match self.lens {
            Lens::Equal(len) => Some(rank.checked_mul(len)?..(rank + 1).checked_mul(len)?),
            Lens::Each(_, starts) => Some(*starts.get(rank)?..*starts.get(rank + 1)?),
            Lens::Pairs(_) => None,
        }
    }

    /// The element at which the block for `reader` begins in what every rank sends, where that is the same on all.
    pub(super) fn sent_at(&self, reader: usize) -> usize {
        if self.traits.in_parts { self.start(reader, true) } else { 0 }
    }

    /// The elements of each block, where a list has them.
    pub fn counts(&self) -> Option<&[usize]> {
        match self.lens {
            Lens::Each(counts, _) => Some(counts),
            Lens::Equal(_) | Lens::Pairs(_) => None,
        }
    }

    /// The knowledge that a rank has of the lengths of blocks; `None` where each pair of ranks has its own.
    pub fn known_lengths(&self) -> Option<KnownLengths<'_>> {
        match self.lens {
            _ if self.owners_announce => Some(KnownLengths::Own),
            Lens::Equal(_) => Some(KnownLengths::Equal),
            Lens::Each(counts, _) => Some(KnownLengths::Each(counts)),
            Lens::Pairs(_) => None,
        }
    }

    /// Returns whether each rank knows the lengths of its own blocks only.
    pub fn has_own_lengths(&self) -> bool {
        matches!(self.lens, Lens::Pairs(_))
    }

    /// The elements at which the blocks for each rank begin in what this rank sends, where only it knows them.
    pub fn own_starts(&self) -> Option<&[usize]> {
        match self.lens {
            Lens::Pairs(pairs) => Some(pairs.send_starts),
            Lens::Equal(_) | Lens::Each(..) => None,
        }
    }

    /// The lengths that this rank announces where no rank knows all.
    pub fn own_lengths(&self) -> Lengths {
        match self.lens {
            Lens::Pairs(pairs) => Lengths::of(pairs.me, pairs.send, pairs.recv),
            Lens::Equal(_) | Lens::Each(..) => Lengths::default(),
        }
    }

    /// This rank's block for itself where no rank knows all lengths: where it begins in what it sends and in what it receives, and its
    /// elements. The counts may still differ.
    pub fn own_block(&self) -> Option<(usize, usize, usize)> {
        let Lens::Pairs(Pairs { me, send, send_starts, recv, recv_starts, .. }) = self.lens else { return None };
        Some((send_starts[me], recv_starts[me], send[me].min(recv[me]))).filter(|(.., len)| *len > 0)
    }

    /// The elements to each rank and from each, where only this rank knows them.
    pub fn pair_counts(&self) -> Option<[&[usize]; 2]> {
        match self.lens {
            Lens::Pairs(pairs) => Some([pairs.send, pairs.recv]),
            Lens::Equal(_) | Lens::Each(..) => None,
        }
    }

    /// Elements of the largest block.
    pub fn most(&self) -> usize {
        match self.lens {
            Lens::Equal(len) => len,
            Lens::Each(lens, _) => lens.iter().copied().max().unwrap_or(0),
            Lens::Pairs(pairs) => pairs.most.unwrap_or(0),
        }
    }

    /// Elements of the largest buffer that any rank needs; `None` where no number holds them.
    pub fn largest(&self) -> Option<usize> {
        match self.lens {
            Lens::Equal(len) if self.traits.in_parts || self.traits.joins() => len.checked_mul(self.ranks),
            Lens::Equal(len) => Some(len),
            Lens::Each(_, starts) => starts.last().copied(),
            Lens::Pairs(pairs) => [pairs.send_starts.last(), pairs.recv_starts.last(), pairs.most.as_ref()]
                .into_iter()
                .flatten()
                .copied()
                .max(),
        }
    }

    /// Elements that `rank` sends.
    pub fn send_count(&self, rank: usize) -> usize {
        match (self.depositors.has(rank), self.traits.in_parts) {
            (false, _) => 0,
            (true, true) => self.start(self.ranks, true),
            (true, false) => self.len(rank, rank),
        }
    }

    /// Elements that `rank` receives.
    pub fn recv_count(&self, rank: usize) -> usize {
        match (self.readers.has(rank), self.traits.joins()) {
            (false, _) => 0,
            (true, true) => self.start(self.ranks, false),
            (true, false) => self.len(rank, rank),
        }
    }

    /// The place of `rank`'s contribution in a reader's result.
    pub fn place_of(&self, rank: usize) -> usize {
        if self.traits.joins() { self.start(rank, false) } else { 0 }
    }
}

/// The position of the block for `reader` among those that `depositor` has for each rank: that for the rank after it comes first, its own last.
#[inline(always)]
pub fn position(depositor: usize, reader: usize, ranks: usize) -> usize {
    (reader + ranks - depositor - 1) % ranks
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests;
