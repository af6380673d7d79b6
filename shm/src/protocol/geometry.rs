//! The exchanges of data as data: which elements each rank deposits and which each reads, without words or memory.
//!
//! Every operation here is one of two forms. *Whole*: a depositor sends one block, and every reader receives all of it
//! (broadcast, gather, allgather, flat reduce). *Parts*: a depositor sends a block for each reader, and a reader receives
//! its own (scatter, alltoall, reduce-scatter). Calls that are larger than a deposit run as several [`Window`]s.

use super::collective::{Collective, Side, Traits};
use super::lengths::Lengths;
use super::lines::INLINE_BYTES;
use std::ops::Range;

/// Bytes that each block has in a deposit at least, unless all blocks fit or are folded.
const LEAST_ROOM: usize = 64;

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
    ranks: usize,
    /// The ranks that have something to send.
    pub depositors: Who,
    /// The ranks that receive.
    pub readers: Who,
    /// The row of the collective: blocks, folds, and whose contributions a result has.
    pub traits: &'static Traits,
    /// Whether only the root knows the lengths of all blocks, and the others that of their own.
    pub owners_announce: bool,
    lens: Lens<'a>,
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
    fn len(&self, depositor: usize, reader: usize) -> usize {
        match self.lens {
            Lens::Equal(len) => len,
            Lens::Each(lens, _) => lens[if self.traits.in_parts { reader } else { depositor }],
            Lens::Pairs(pairs) if depositor == pairs.me => pairs.send[reader],
            Lens::Pairs(pairs) => pairs.recv[depositor],
        }
    }

    /// The element at which a block begins: in what is sent if it is `sent`, else in what is received.
    fn start(&self, block: usize, sent: bool) -> usize {
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
    fn sent_at(&self, reader: usize) -> usize {
        if self.traits.in_parts { self.start(reader, true) } else { 0 }
    }

    /// The whole exchange at once, of which nothing is deposited but what fits beside the mark of entry.
    pub fn whole(&self) -> Window<'_> {
        let blocks = if self.traits.in_parts { self.ranks } else { 1 };
        Window { exchange: self, positions: (0, blocks), from: 0, stride: self.most(), inline: true }
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

    /// The first window where no rank knows all lengths: of every block as much as is sure to fit a deposit, whatever its length.
    pub fn announced(&self, element_bytes: usize, window_bytes: usize) -> Window<'_> {
        self.announced_at(announced_stride(self.ranks, element_bytes, window_bytes))
    }

    /// The same of [`announced_stride`] elements.
    pub fn announced_at(&self, stride: usize) -> Window<'_> {
        Window { exchange: self, positions: (0, self.ranks), from: 0, stride, inline: stride == 0 }
    }

    /// The elements to each rank and from each, where only this rank knows them.
    pub fn pair_counts(&self) -> Option<[&[usize]; 2]> {
        match self.lens {
            Lens::Pairs(pairs) => Some([pairs.send, pairs.recv]),
            Lens::Equal(_) | Lens::Each(..) => None,
        }
    }

    /// As much of a block as a deposit holds where owners announce their lengths.
    pub fn of_owner(&self, element_bytes: usize, window_bytes: usize) -> Window<'_> {
        let stride = (window_bytes / element_bytes).max(1);
        Window { exchange: self, positions: (0, 1), from: 0, stride, inline: false }
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

    /// Cuts the call so that no deposit exceeds `window_bytes`; at least one window.
    pub fn windows(&self, element_bytes: usize, window_bytes: usize) -> impl Iterator<Item = Window<'_>> {
        (0..).map_while(move |index| self.nth_window(index, element_bytes, window_bytes))
    }

    /// The window of this number, from 0; `None` after the last.
    pub fn nth_window(&self, index: usize, element_bytes: usize, window_bytes: usize) -> Option<Window<'_>> {
        let (blocks, most) = (if self.traits.in_parts { self.ranks } else { 1 }, self.most());
        let bytes = blocks.saturating_mul(most).saturating_mul(element_bytes);
        let inline = bytes <= INLINE_BYTES;
        if bytes <= window_bytes {
            let all = Window { exchange: self, positions: (0, blocks), from: 0, stride: most, inline };
            return (index == 0).then_some(all);
        }
        // Few enough blocks in a deposit that each has room for a cache line's worth of elements; but what is folded comes from all
        // ranks at once.
        let room = if self.traits.folds { element_bytes } else { element_bytes.max(LEAST_ROOM) };
        let at_once = blocks.min((window_bytes / room).max(1));
        let stride_most = (window_bytes / element_bytes / at_once).max(1);
        let steps = most.max(1).div_ceil(stride_most);
        let (first, from) = (index / steps * at_once, index % steps * stride_most);
        let positions = (first, (first + at_once).min(blocks));
        let stride = stride_most.min(most - from.min(most));
        (first < blocks).then_some(Window { exchange: self, positions, from, stride, inline })
    }
}

/// The position of the block for `reader` among those that `depositor` has for each rank: that for the rank after it comes first, its own last.
#[inline(always)]
pub fn position(depositor: usize, reader: usize, ranks: usize) -> usize {
    (reader + ranks - depositor - 1) % ranks
}

/// Elements of every block that the first operation moves where no rank knows all lengths: the cut of [`Exchange::windows`] for larger
/// blocks; none where there is no room for all blocks at once.
pub fn announced_stride(ranks: usize, element_bytes: usize, window_bytes: usize) -> usize {
    let fits = ranks.saturating_mul(element_bytes.max(LEAST_ROOM)) <= window_bytes;
    if fits { window_bytes / element_bytes / ranks } else { 0 }
}

/// The part of an exchange that one operation carries: of every block `stride` elements beginning with `from`, in the deposit
/// one after the other. A depositor begins with the block of the rank after it, so that readers do not all wait for the
/// same one, and ends with its own.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a> {
    /// The whole exchange.
    pub exchange: &'a Exchange<'a>,
    positions: (usize, usize),
    from: usize,
    stride: usize,
    /// Whether every deposit fits beside the mark of entry.
    pub inline: bool,
}

impl Window<'_> {
    /// Returns whether the ranks announce their lengths in this operation.
    pub fn announces(&self) -> bool {
        matches!(self.exchange.lens, Lens::Pairs(Pairs { most: None, .. }))
    }

    /// Elements of every block that are moved in this window, at most.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The same window for the deposit of a rank whose blocks have at most `largest` elements.
    pub fn narrowed(&self, largest: usize, element_bytes: usize) -> Self {
        let stride = self.stride.min(largest);
        let bytes = (self.positions.1 - self.positions.0) * stride * element_bytes;
        Window { stride, inline: bytes <= INLINE_BYTES, ..*self }
    }

    /// The next part of a block of `len` elements in all, of at most `most`; `None` after the last.
    pub fn next_part(&self, len: usize, most: usize) -> Option<Self> {
        let from = self.from + self.stride;
        (from < len).then(|| Window { from, stride: most.min(len - from), inline: false, ..*self })
    }

    fn cut(&self, depositor: usize, reader: usize) -> usize {
        self.stride.min(self.exchange.len(depositor, reader).saturating_sub(self.from))
    }

    /// Elements of `rank`'s deposit, gaps and its own block included.
    pub fn deposit(&self, rank: usize) -> usize {
        match (self.exchange.depositors.has(rank), self.exchange.traits.in_parts) {
            (false, _) => 0,
            (true, false) => self.cut(rank, rank),
            (true, true) => (self.positions.1 - self.positions.0) * self.stride,
        }
    }

    /// Elements of the largest deposit.
    pub fn deposit_most(&self) -> usize {
        (self.positions.1 - self.positions.0) * self.stride
    }

    /// The elements of `depositor`'s deposit that are for `reader`; empty if there are none in this window.
    pub fn part(&self, depositor: usize, reader: usize) -> Range<usize> {
        let x = self.exchange;
        if !x.receives(reader, depositor) {
            return 0..0;
        }
        if !x.traits.in_parts {
            return 0..self.cut(depositor, depositor);
        }
        let position = position(depositor, reader, x.ranks);
        if position < self.positions.0 || position >= self.positions.1 {
            return 0..0;
        }
        let first = (position - self.positions.0) * self.stride;
        first..first + self.cut(depositor, reader)
    }

    /// The blocks in `rank`'s deposit: the reader they are for (`rank` itself where all read the same), where
    /// they lie in the deposit, and where they begin in `rank`'s send buffer.
    pub fn blocks(&self, rank: usize) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
        let x = self.exchange;
        (self.positions.0..self.positions.1).map(move |position| {
            let first = (position - self.positions.0) * self.stride;
            let block = if x.traits.in_parts { (rank + 1 + position) % x.ranks } else { rank };
            (block, first..first + self.cut(rank, block), x.sent_at(block) + self.from)
        })
    }

    /// The element at which what is for `reader` begins in the send buffer of every rank.
    pub fn sent_at(&self, reader: usize) -> usize {
        self.exchange.sent_at(reader) + self.from
    }

    /// The place in a reader's result of what `depositor` sends in this window.
    pub fn place_of(&self, depositor: usize) -> usize {
        self.exchange.place_of(depositor) + self.from
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests;
