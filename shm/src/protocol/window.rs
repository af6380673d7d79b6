//! The parts of an exchange that one operation each carries: which elements lie where in a deposit, and who receives them.

use super::geometry::{Exchange, Lens, Pairs, position};
use super::lines::INLINE_BYTES;
use std::ops::Range;

/// Bytes that each block has in a deposit at least, unless all blocks fit or are folded.
const LEAST_ROOM: usize = 64;

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
    /// Blocks of more elements than the first number and of at most the second are in it, whole or in part.
    lens: (usize, usize),
    /// Whether every deposit fits beside the mark of entry.
    pub inline: bool,
}

impl Exchange<'_> {
    /// Of every block all elements beginning with `from` at once, of which nothing is deposited but what fits beside the mark of entry.
    pub fn beginning_with(&self, from: usize) -> Window<'_> {
        let blocks = if self.traits.in_parts { self.ranks } else { 1 };
        Window::new(self, (0, blocks), (from, self.most() - from), true)
    }

    /// The whole exchange at once.
    pub fn whole(&self) -> Window<'_> {
        self.beginning_with(0)
    }

    /// The first window where no rank knows all lengths, of [`announced_stride`] elements: of every block as much as is sure to fit a deposit,
    /// whatever its length. If longer blocks are `read`, they are not in it.
    pub fn announced(&self, stride: usize, read: bool) -> Window<'_> {
        Window::new(self, (0, self.ranks), (0, stride), stride == 0)
            .of_blocks(0, if read { stride } else { usize::MAX })
    }

    /// As much of a block as a deposit holds where owners announce their lengths.
    pub fn of_owner(&self, element_bytes: usize, window_bytes: usize) -> Window<'_> {
        let stride = (window_bytes / element_bytes).max(1);
        Window::new(self, (0, 1), (0, stride), false)
    }

    /// Cuts the call so that no deposit exceeds `window_bytes`; at least one window.
    pub fn windows(&self, element_bytes: usize, window_bytes: usize) -> impl Iterator<Item = Window<'_>> {
        self.whole().parts(element_bytes, window_bytes)
    }
}

/// Elements of every block that the first operation moves where no rank knows all lengths: the cut of [`Exchange::windows`] for larger
/// blocks; none where there is no room for all blocks at once.
pub fn announced_stride(ranks: usize, element_bytes: usize, window_bytes: usize) -> usize {
    let fits = ranks.saturating_mul(element_bytes.max(LEAST_ROOM)) <= window_bytes;
    if fits { window_bytes / element_bytes / ranks } else { 0 }
}

impl<'a> Window<'a> {
    /// Of the blocks at these positions `stride` elements beginning with `from`.
    fn new(
        exchange: &'a Exchange<'a>,
        positions: (usize, usize),
        (from, stride): (usize, usize),
        inline: bool,
    ) -> Self {
        Window { exchange, positions, from, stride, lens: (0, usize::MAX), inline }
    }

    /// The same of blocks that are longer than `shorter` elements, and not longer than `longest`.
    pub fn of_blocks(self, shorter: usize, longest: usize) -> Self {
        Window { lens: (shorter, longest), ..self }
    }

    /// Returns whether a block of `len` elements is read where it lies, since it is too long for this window.
    pub fn reads(&self, len: usize) -> bool {
        len > self.lens.1
    }

    /// Returns whether the ranks announce their lengths in this operation.
    pub fn announces(&self) -> bool {
        matches!(self.exchange.lens, Lens::Pairs(Pairs { most: None, .. }))
    }

    /// Cuts it so that no deposit exceeds `window_bytes`; at least one part.
    pub fn parts(self, element_bytes: usize, window_bytes: usize) -> impl Iterator<Item = Window<'a>> {
        (0..).map_while(move |index| self.nth_part(index, element_bytes, window_bytes))
    }

    /// The part of this number, from 0; `None` after the last.
    pub fn nth_part(self, index: usize, element_bytes: usize, window_bytes: usize) -> Option<Self> {
        let (blocks, most) = (self.positions.1 - self.positions.0, self.stride);
        let bytes = blocks.saturating_mul(most).saturating_mul(element_bytes);
        let inline = bytes <= INLINE_BYTES;
        if bytes <= window_bytes {
            return (index == 0).then_some(Window { inline, ..self });
        }
        // Few enough blocks in a deposit that each has room for a cache line's worth of elements; but what is folded comes from all
        // ranks at once.
        let room = if self.exchange.traits.folds { element_bytes } else { element_bytes.max(LEAST_ROOM) };
        let at_once = blocks.min((window_bytes / room).max(1));
        let stride_most = (window_bytes / element_bytes / at_once).max(1);
        let steps = most.max(1).div_ceil(stride_most);
        let (first, from) = (index / steps * at_once, index % steps * stride_most);
        let positions = (self.positions.0 + first, self.positions.0 + (first + at_once).min(blocks));
        let stride = stride_most.min(most - from.min(most));
        (first < blocks).then_some(Window { positions, from: self.from + from, stride, inline, ..self })
    }

    /// Elements of every block that are moved in this window, at most.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// The same window for the deposit of a rank whose blocks have at most `largest` elements. Beside the mark of one whose blocks are read
    /// where they lie is written where that is.
    pub fn narrowed(&self, largest: usize, element_bytes: usize) -> Self {
        let stride = self.stride.min(largest);
        let bytes = (self.positions.1 - self.positions.0) * stride * element_bytes;
        Window { stride, inline: bytes <= INLINE_BYTES && !self.reads(largest), ..*self }
    }

    /// The next part of a block of `len` elements in all, of at most `most`; `None` after the last.
    pub fn next_part(&self, len: usize, most: usize) -> Option<Self> {
        let from = self.from + self.stride;
        (from < len).then(|| Window { from, stride: most.min(len - from), inline: false, ..*self })
    }

    fn cut(&self, depositor: usize, reader: usize) -> usize {
        let len = self.exchange.len(depositor, reader);
        let is_in = len > self.lens.0 && len <= self.lens.1;
        if is_in { self.stride.min(len.saturating_sub(self.from)) } else { 0 }
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

    /// Where `reader` receives the block of `depositor` that it reads where it lies, and its elements; `None` if that is deposited.
    pub fn read_part(&self, depositor: usize, reader: usize) -> Option<(usize, usize)> {
        let len = self.exchange.len(depositor, reader);
        self.reads(len).then(|| (self.exchange.place_of(depositor), len))
    }

    /// The elements of what `rank` sends that are read where they lie, if any are.
    pub fn read_from(&self, rank: usize) -> impl Iterator<Item = Range<usize>> {
        let pairs = match self.exchange.lens {
            Lens::Pairs(pairs) => Some(pairs),
            Lens::Equal(_) | Lens::Each(..) => None,
        };
        let all = pairs.is_none().then(|| 0..self.exchange.send_count(rank));
        let blocks = pairs.into_iter().flat_map(|pairs| pairs.send_starts.windows(2).map(|block| block[0]..block[1]));
        all.into_iter().chain(blocks.filter(|block| self.reads(block.len())))
    }

    /// The place in a reader's result of what `depositor` sends in this window.
    pub fn place_of(&self, depositor: usize) -> usize {
        self.exchange.place_of(depositor) + self.from
    }
}
