//! An alltoall of unequal blocks of which each rank knows its own: what the fast path needs of its call, and its copies.
//!
//! The invariants are those of the module above; **A (alltoall)**: `send` is readable for the blocks to all ranks and `recv` writable for
//! those from all, one after the other: [`SmallPairs::with`] compares the sums of their lengths with both buffers.
#![allow(unsafe_code)]

use super::small_blocks::starts;
use super::small_exchange::copy_block;
use super::{Buffers, SmallExchange};
use crate::protocol::board::Need;
use crate::protocol::call::{Arithmetic, Call, Lane, Prepared};
use crate::protocol::geometry::{Exchange, Lens, Pairs, Who, position};
use crate::protocol::lengths::Lengths;
use crate::protocol::lines::RankLine;
use crate::protocol::pieces::PIECE_BYTES;
use crate::protocol::window::{Window, announced_stride};

/// The buffers of an alltoall, and the elements to each rank and from each.
#[derive(Debug, Clone, Copy)]
pub struct SmallPairs<'a> {
    exchange: SmallExchange<'a>,
    counts: [&'a [usize]; 2],
}

/// The alltoall with the prepared state of its call.
#[derive(Debug, Clone, Copy)]
pub struct PreparedPairs<'a> {
    prepared: &'a Prepared<'a>,
    exchange: SmallExchange<'a>,
    counts: [&'a [usize]; 2],
    me: usize,
    lengths: Lengths,
    /// Elements of each block that the first operation moves at most.
    stride: usize,
}

impl<'a> Buffers<'a> {
    /// The buffers for the fast path, of an alltoall in which this rank has these counts.
    #[inline(always)]
    pub fn small_pairs(&self, counts: [&'a [usize]; 2]) -> Option<SmallPairs<'a>> {
        Some(SmallPairs { exchange: self.small_exchange()?, counts })
    }
}

impl Call<'_> {
    /// The call on rank `me` for the fast path, if it may go there.
    pub(in crate::protocol) fn small_pairs(&self, me: usize) -> Option<PreparedPairs<'_>> {
        let window = self.window.filter(|window| window.announces())?;
        let pairs = SmallPairs { exchange: self.whole_exchange()?, counts: window.exchange.pair_counts()? };
        pairs.with(self.prepared, me, window.stride())
    }
}

impl<'a> SmallPairs<'a> {
    /// Elements of each block that the first operation moves at most, where deposits have at most `window_bytes`.
    pub fn stride(prepared: &Prepared<'_>, window_bytes: usize) -> usize {
        announced_stride(prepared.ranks, prepared.datatype.size().max(1), window_bytes)
    }

    /// The address of the counts to each rank.
    pub fn address_of_counts(&self) -> usize {
        self.counts[0].as_ptr().addr()
    }

    /// The alltoall of the call `prepared` on rank `me`, whose first operation moves `stride` elements of each block at most; `None` where
    /// the buffers have other lengths, and where the deposit of this rank is more than one piece.
    #[inline(always)]
    pub fn with<'b>(self, prepared: &'b Prepared<'b>, me: usize, stride: usize) -> Option<PreparedPairs<'b>>
    where
        'a: 'b,
    {
        let SmallPairs { exchange, counts } = self;
        let (ranks, element_bytes) = (prepared.ranks, prepared.datatype.size());
        let bytes = |counts: &[usize]| {
            counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count))?.checked_mul(element_bytes)
        };
        let fits = prepared.lane == Lane::Exchange
            && matches!(prepared.arithmetic, Arithmetic::Moved(None))
            && counts.iter().all(|counts| counts.len() == ranks)
            && [bytes(counts[0])?, bytes(counts[1])?] == exchange.bytes();
        if !fits || stride == 0 {
            return None;
        }
        let lengths = Lengths::of(me, counts[0], counts[1]);
        let pairs = PreparedPairs { prepared, exchange, counts, me, lengths, stride };
        (pairs.deposit_bytes() <= pairs.most_of_a_piece()).then_some(pairs)
    }
}

impl PreparedPairs<'_> {
    /// The hash of the call.
    #[inline(always)]
    pub(in crate::protocol) fn hash(&self) -> u32 {
        self.prepared.hash
    }

    /// Describes the call in `line`, and announces the lengths of this rank.
    #[inline(always)]
    pub(in crate::protocol) fn describe(&self, line: &RankLine) {
        line.describe(self.prepared.signature);
        line.announce(self.lengths.word());
    }

    /// The lengths that this rank announces.
    #[inline(always)]
    pub(in crate::protocol) fn lengths(&self) -> Lengths {
        self.lengths
    }

    /// Returns whether the call is done where the lengths of all ranks come to `all`, and they have moved all that the first operation
    /// moves, if that `is_done`.
    #[inline(always)]
    pub fn is_done_with(&self, all: Lengths, is_done: bool) -> bool {
        all.difference == 0 && (all.largest <= self.stride || is_done && self.prepared.reads_long_blocks())
    }

    /// Returns whether some blocks are read where they lie, if the lengths of all ranks come to `all`.
    #[inline(always)]
    pub(in crate::protocol) fn reads(&self, all: Lengths) -> bool {
        all.largest > self.stride && self.prepared.reads_long_blocks()
    }

    /// Elements that come from `rank`.
    #[inline(always)]
    pub(in crate::protocol) fn expected(&self, rank: usize) -> usize {
        self.counts[1][rank]
    }

    /// Bytes of the deposit of a rank that has announced `lengths`, if one operation moves all of it.
    #[inline(always)]
    pub(in crate::protocol) fn deposit_bytes_of(&self, lengths: Lengths) -> usize {
        (lengths.largest * self.element_bytes()).saturating_mul(self.prepared.ranks)
    }

    /// Bytes of this rank's deposit.
    #[inline(always)]
    pub(in crate::protocol) fn deposit_bytes(&self) -> usize {
        self.deposit_bytes_of(self.lengths)
    }

    /// The memory of this rank's deposit, where that does not lie beside the mark.
    #[inline(always)]
    pub(in crate::protocol) fn need(&self) -> Need {
        Need { accumulator: 0, deposit: self.deposit_bytes(), whose: Who::All }
    }

    /// Bytes of the largest deposit of one piece.
    #[inline(always)]
    pub(in crate::protocol) fn most_of_a_piece(&self) -> usize {
        PIECE_BYTES.min((self.stride * self.element_bytes()).saturating_mul(self.prepared.ranks))
    }

    #[inline(always)]
    fn element_bytes(&self) -> usize {
        self.prepared.datatype.size()
    }

    /// The place of the block of `depositor` for `reader` in the deposit of a rank that has announced `lengths`, in bytes.
    #[inline(always)]
    fn place(&self, depositor: usize, reader: usize, lengths: Lengths) -> usize {
        position(depositor, reader, self.prepared.ranks) * lengths.largest * self.element_bytes()
    }

    /// `to = mine`, all but the block of this rank for itself.
    #[inline(always)]
    pub(in crate::protocol) fn deposit(&self, to: *mut u8) {
        let mut at = 0;
        for (reader, count) in self.counts[0].iter().enumerate() {
            let bytes = count * self.element_bytes();
            if reader != self.me {
                let place = self.place(self.me, reader, self.lengths);
                // SAFETY: A: the sum of all blocks is that of the buffer; S: the place holds the largest block for each rank.
                unsafe { copy_block(to.add(place), self.exchange.send.add(at), bytes) }
            }
            at += bytes;
        }
    }

    /// `result[me] = mine[me]`, as much as both hold, unless it lies there.
    #[inline(always)]
    pub(in crate::protocol) fn keep_own(&self) {
        let [from, to] = self.counts.map(|counts| counts[..self.me].iter().sum::<usize>() * self.element_bytes());
        let bytes = self.counts[0][self.me].min(self.counts[1][self.me]) * self.element_bytes();
        // SAFETY: A; the two may overlap where the contribution lies in the result.
        unsafe {
            let (from, to) = (self.exchange.send.add(from), self.exchange.recv.add(to));
            if bytes > 0 && from != to.cast_const() {
                core::ptr::copy(from, to, bytes);
            }
        }
    }

    /// `result[at..] = theirs`, what is for this rank in the deposit of `rank`, which has announced `lengths`: no more than that has for
    /// any rank, and than is expected.
    #[inline(always)]
    pub(in crate::protocol) fn receive(&self, theirs: *const u8, rank: usize, at: usize, lengths: Lengths) {
        let (at, bytes) = (at * self.element_bytes(), self.expected(rank).min(lengths.largest) * self.element_bytes());
        let [_, recv_bytes] = self.exchange.bytes();
        assert!(at <= recv_bytes && bytes <= recv_bytes - at, "{at}+{bytes} of {recv_bytes}");
        // SAFETY: A by the check; S: the place holds the largest block for each rank.
        unsafe { copy_block(self.exchange.recv.add(at), theirs.add(self.place(rank, self.me, lengths)), bytes) }
    }

    /// The call as the waits of the protocol know it.
    #[cold]
    pub(in crate::protocol) fn call(&self) -> Call<'_> {
        let SmallExchange { send, recv, send_bytes, recv_bytes, .. } = self.exchange;
        let [send_count, recv_count] = [send_bytes, recv_bytes].map(|bytes| bytes / self.element_bytes());
        Call::of_fast_path(self.prepared, (send, send_count), (recv, recv_count))
    }

    /// The sums of the counts to each rank, and from each.
    pub(in crate::protocol) fn starts(&self) -> [Vec<usize>; 2] {
        self.counts.map(starts)
    }

    /// The exchange of the call, with these [`PreparedPairs::starts`].
    pub(in crate::protocol) fn exchange<'b>(&'b self, [send_starts, recv_starts]: &'b [Vec<usize>; 2]) -> Exchange<'b> {
        let [send, recv] = self.counts;
        let pairs = Pairs { me: self.me, most: None, send, send_starts, recv, recv_starts };
        Exchange::new(self.prepared.collective, 0, self.prepared.ranks, Lens::Pairs(pairs))
    }

    /// The window of the first operation.
    pub(in crate::protocol) fn window<'b>(&self, exchange: &'b Exchange<'b>) -> Window<'b> {
        exchange.announced(self.stride, self.prepared.reads_long_blocks())
    }
}
