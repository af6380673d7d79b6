//! The blocks of a small exchange: what the fast path needs of a call that moves blocks or folds them, and its copies and folds.
//!
//! The invariants are those of the module above; **E (exchange)**: `send` is readable for the blocks that this rank sends, and
//! `recv` writable for those that it receives: [`SmallExchange::with`] compares their lengths with both buffers.
#![allow(unsafe_code)]

use super::parts::copy_with;
use super::small_payload::copy_deposit;
use super::{Buffers, Call, Prepared};
use crate::kernels::{self, FoldFn};
use crate::op::{DType, Datatype};
use crate::protocol::board::{Need, Place};
use crate::protocol::call::{Arithmetic, Lane};
use crate::protocol::geometry::{Exchange, Lens, Who};
use crate::protocol::lines::{INLINE_BYTES, RankLine};
use crate::protocol::pieces::PIECE_BYTES;
use crate::protocol::store_pace::Stores;
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes of the largest deposit that goes the fast path.
const MOST_BYTES: usize = 32 * PIECE_BYTES;
/// The same among more than two ranks. The fast path receives in the order of the ranks: what a late one holds up must be little.
pub(super) const MOST_BYTES_OF_MANY: usize = PIECE_BYTES / 2;

/// The buffers of a call that runs as an exchange.
#[derive(Debug, Clone, Copy)]
pub struct SmallExchange<'a> {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    pub(super) send_bytes: usize,
    pub(super) recv_bytes: usize,
    borrowed: PhantomData<&'a mut [u8]>,
}

/// The blocks of a small exchange as one rank sends and receives them; the same while calls repeat.
#[derive(Debug, Clone)]
pub struct SmallBlocks {
    me: usize,
    ranks: usize,
    /// Bytes of a block, and of a deposit.
    block: usize,
    deposit_bytes: usize,
    /// Bytes of all blocks that this rank sends, and of all that it receives.
    send_bytes: usize,
    recv_bytes: usize,
    /// The elements that this rank announces, where only the root knows the lengths of all blocks.
    announced: Option<usize>,
    /// True if results have a contribution of this rank, and if another rank, or itself in its turn, reads it from its deposit.
    contributes: bool,
    deposits: bool,
    receives: bool,
    /// True if a deposit has a block for each rank, and if a result has one from each.
    in_parts: bool,
    joins: bool,
    /// The ranks from which a block is received, this one among them if a result has its own.
    sources: Range<usize>,
    /// True if a block is received from every other rank.
    receives_from_all: bool,
    /// The ranks whose deposits this one writes or reads.
    whose: Who,
    /// The fold of what is received, and the zeros at the end of the bytes of an element, a power of two; `None` where it is copied.
    fold: Option<(FoldFn, u32)>,
    /// True if a fold takes this rank's own contribution in its turn: out of its deposit, since the result may lie where the
    /// contribution did. Otherwise the fold begins with it.
    in_turn: bool,
}

/// A small exchange with the prepared state of its call.
#[derive(Debug, Clone, Copy)]
pub struct PreparedExchange<'a> {
    exchange: SmallExchange<'a>,
    prepared: &'a Prepared<'a>,
    blocks: &'a SmallBlocks,
}

impl Call<'_> {
    /// The buffers of the call and its blocks on rank `me` for the fast path, if it may go there.
    pub(in crate::protocol) fn small_exchange(&self, me: usize) -> Option<(SmallExchange<'_>, SmallBlocks)> {
        let window = self.window?;
        let announces = window.exchange.owners_announce;
        if !announces && !window.exchange.is_uniform() {
            return None;
        }
        let (exchange, most) = (self.whole_exchange()?, window.deposit_most().checked_mul(self.element_bytes)?);
        Some((exchange, exchange.blocks(self.prepared, me, most, announces)?))
    }

    /// The buffers of the call as those of an exchange.
    pub(super) fn whole_exchange(&self) -> Option<SmallExchange<'_>> {
        let bytes = |count: usize| count.checked_mul(self.element_bytes);
        let (send_bytes, recv_bytes) = (bytes(self.send_count)?, bytes(self.recv_count)?);
        Some(SmallExchange { send: self.send, recv: self.recv, send_bytes, recv_bytes, borrowed: PhantomData })
    }
}

impl<'a> Buffers<'a> {
    /// The type of the elements, if it is one of the library's.
    #[inline(always)]
    pub fn builtin_dtype(&self) -> Option<DType> {
        match self.datatype {
            Datatype::Builtin(dtype) => Some(dtype),
            Datatype::Opaque(_) => None,
        }
    }

    /// The buffers for the fast path.
    #[inline(always)]
    pub fn small_exchange(&self) -> Option<SmallExchange<'a>> {
        let size = self.builtin_dtype()?.size();
        let bytes = |count: usize| count << size.trailing_zeros();
        (self.is_whole && self.are_private()).then(|| SmallExchange {
            send: self.send,
            recv: self.recv,
            send_bytes: bytes(self.send_count),
            recv_bytes: bytes(self.recv_count),
            borrowed: PhantomData,
        })
    }
}

impl<'a> SmallExchange<'a> {
    /// Bytes that are sent and bytes that are received.
    #[inline(always)]
    pub fn bytes(&self) -> [usize; 2] {
        [self.send_bytes, self.recv_bytes]
    }

    /// The blocks that rank `me` sends and receives in the call `prepared`, if that may go the fast path: as one operation, whose
    /// deposits have at most `window_bytes`. `None` on a root to which owners announce their
    /// lengths: see [`super::SmallGather`].
    pub fn blocks(
        &self,
        prepared: &Prepared<'_>,
        me: usize,
        window_bytes: usize,
        owners_announce: bool,
    ) -> Option<SmallBlocks> {
        let (traits, ranks) = (prepared.collective.traits(), prepared.ranks);
        let (in_parts, joins) = (traits.in_parts, traits.joins());
        // Who sends to whom does not depend on the lengths, which follow from that.
        let exchange = Exchange::new(prepared.collective, prepared.root.unwrap_or(0), ranks, Lens::Equal(0));
        let sources = if exchange.readers.has(me) { exchange.sources(me) } else { 0..0 };
        let (contributes, receives) = (exchange.depositors.has(me), !sources.is_empty());
        let number = |of_each: bool| if of_each { ranks } else { 1 };
        let (sent, received) = (number(in_parts), number(joins));
        let block = if contributes { self.send_bytes / sent } else { self.recv_bytes / received };
        let fold = match prepared.arithmetic {
            Arithmetic::Moved(None) if !traits.folds => None,
            Arithmetic::Built(kernels) => {
                let fold_inline = prepared.fold_few?;
                let fold = if block <= INLINE_BYTES { fold_inline } else { kernels.fold };
                Some((fold, prepared.accumulator_bytes.trailing_zeros()))
            }
            _ => return None,
        };
        let in_turn = fold.is_some() && receives && (prepared.in_rank_order || traits.prefix.is_some());
        let [send_bytes, recv_bytes] =
            [if contributes { sent * block } else { 0 }, if receives { received * block } else { 0 }];
        let deposit_bytes = block.saturating_mul(sent);
        let fits = prepared.lane == Lane::Exchange
            && block > 0
            && !(owners_announce && receives)
            && deposit_bytes <= window_bytes.min(if ranks == 2 { MOST_BYTES } else { MOST_BYTES_OF_MANY })
            && (!contributes || self.send_bytes == send_bytes)
            && (!receives || self.recv_bytes == recv_bytes);
        fits.then_some(SmallBlocks {
            me,
            ranks,
            block,
            deposit_bytes,
            send_bytes,
            recv_bytes,
            announced: owners_announce.then(|| block / prepared.datatype.size()),
            contributes,
            deposits: contributes && exchange.is_read(me, in_turn),
            receives,
            in_parts,
            joins,
            receives_from_all: sources.clone().filter(|rank| *rank != me).count() + 1 == ranks,
            sources,
            whose: exchange.deposits_used_by(me),
            fold,
            in_turn,
        })
    }

    /// The exchange of `blocks` in the call `prepared`; `None` where the buffers have other lengths.
    #[inline(always)]
    pub fn with<'b>(self, prepared: &'b Prepared<'b>, blocks: &'b SmallBlocks) -> Option<PreparedExchange<'b>>
    where
        'a: 'b,
    {
        let holds = |wanted, given| wanted == 0 || wanted == given;
        let fits = holds(blocks.send_bytes, self.send_bytes) && holds(blocks.recv_bytes, self.recv_bytes);
        fits.then_some(PreparedExchange { exchange: self, prepared, blocks })
    }
}

impl PreparedExchange<'_> {
    /// The hash of the call.
    #[inline(always)]
    pub(in crate::protocol) fn hash(&self) -> u32 {
        self.prepared.hash
    }

    /// Describes the call in `line`, and announces the length of this rank's block where the root does not know it.
    #[inline(always)]
    pub(in crate::protocol) fn describe(&self, line: &RankLine) {
        line.describe(self.prepared.signature);
        if let Some(elements) = self.blocks.announced {
            line.announce(elements as u64);
        }
    }

    /// Returns whether deposits lie beside the marks of entry.
    #[inline(always)]
    pub(in crate::protocol) fn is_inline(&self) -> bool {
        self.blocks.deposit_bytes <= INLINE_BYTES
    }

    /// The memory of deposits that do not lie beside the marks.
    #[inline(always)]
    pub(in crate::protocol) fn need(&self) -> Need {
        Need { accumulator: 0, deposit: self.blocks.deposit_bytes, whose: self.blocks.whose }
    }

    /// Bytes of a deposit.
    #[inline(always)]
    pub(in crate::protocol) fn deposit_bytes(&self) -> usize {
        self.blocks.deposit_bytes
    }

    /// The number of pieces of a deposit.
    #[inline(always)]
    pub(in crate::protocol) fn pieces(&self) -> usize {
        self.blocks.deposit_bytes.div_ceil(PIECE_BYTES)
    }

    /// The pieces of the deposit of `rank` in which its block for this rank lies.
    #[inline(always)]
    pub(in crate::protocol) fn pieces_from(&self, rank: usize) -> Range<usize> {
        let start = self.position(rank) * self.blocks.block;
        start / PIECE_BYTES..(start + self.blocks.block).div_ceil(PIECE_BYTES)
    }

    /// The place of a piece of the deposit of `rank` in `area`, where deposits begin at `base`.
    #[inline(always)]
    pub(in crate::protocol) fn place(&self, (area, base): (usize, usize), rank: usize, piece: usize) -> Place {
        let offset = piece * PIECE_BYTES;
        let bytes = (self.blocks.deposit_bytes - offset).min(PIECE_BYTES);
        Place::Deposit { area, rank, piece, offset: base + offset, bytes }
    }

    /// The position of the block for this rank among those in the deposit of `rank`.
    #[inline(always)]
    fn position(&self, rank: usize) -> usize {
        let SmallBlocks { me, ranks, in_parts, .. } = *self.blocks;
        if in_parts { (me + ranks - rank - 1) % ranks } else { 0 }
    }

    /// The part of the block at `position` of a deposit that lies in `piece`: its begin in the piece and in the block, and its
    /// bytes.
    #[inline(always)]
    fn part(&self, position: usize, piece: usize) -> Option<(usize, usize, usize)> {
        let (block, first) = (self.blocks.block, piece * PIECE_BYTES);
        let (start, end) = ((position * block).max(first), ((position + 1) * block).min(first + PIECE_BYTES));
        (start < end).then(|| (start - first, start - position * block, end - start))
    }

    /// Returns whether this rank receives a block from every other one.
    #[inline(always)]
    pub(in crate::protocol) fn receives_from_all(&self) -> bool {
        self.blocks.receives_from_all
    }

    /// Returns whether this rank has a deposit that is read.
    #[inline(always)]
    pub(in crate::protocol) fn deposits(&self) -> bool {
        self.blocks.deposits
    }

    /// The ranks out of whose deposits this one receives a block, in the order of the ranks.
    #[inline(always)]
    pub(in crate::protocol) fn sources(&self) -> impl Iterator<Item = usize> + use<> {
        let SmallBlocks { me, in_turn, .. } = *self.blocks;
        self.blocks.sources.clone().filter(move |rank| in_turn || *rank != me)
    }

    /// The call as the waits of the protocol know it.
    #[cold]
    pub(in crate::protocol) fn call(&self) -> Call<'_> {
        let SmallExchange { send, recv, send_bytes, recv_bytes, .. } = self.exchange;
        let element_bytes = self.prepared.datatype.size();
        let [send_count, recv_count] = [send_bytes, recv_bytes].map(|bytes| bytes / element_bytes);
        Call::of_fast_path(self.prepared, (send, send_count), (recv, recv_count))
    }

    /// `to = mine`, a piece of the deposit: of blocks for each rank, first the one for the rank after this one; its own comes last, if
    /// it is wanted.
    #[inline(always)]
    pub(in crate::protocol) fn deposit(&self, to: *mut u8, piece: usize, stores: Stores) {
        let SmallBlocks { me, ranks, block, in_parts, .. } = *self.blocks;
        for position in 0..self.blocks_written() {
            let Some((within, from, bytes)) = self.part(position, piece) else { continue };
            let reader = if in_parts { (me + 1 + position) % ranks } else { 0 };
            // SAFETY: E; S: the piece holds its part of every block.
            unsafe {
                let (to, mine) = (to.add(within), self.exchange.send.add(reader * block + from));
                match stores {
                    Stores::Ordinary => copy_block(to, mine, bytes),
                    paced => copy_with(to, mine, bytes, paced),
                }
            }
        }
    }

    /// Blocks of this rank's deposit that are written.
    #[inline(always)]
    fn blocks_written(&self) -> usize {
        let SmallBlocks { ranks, in_parts, in_turn, .. } = *self.blocks;
        if in_parts { ranks - usize::from(!in_turn) } else { 1 }
    }

    /// Bytes of this rank's deposit that are written.
    pub(in crate::protocol) fn written_bytes(&self) -> usize {
        self.blocks_written() * self.blocks.block
    }

    /// `result[own] = mine[own]`, where a result has a part of this rank's own that is not taken in its turn, and it does not
    /// lie there.
    #[inline(always)]
    pub(in crate::protocol) fn keep_own(&self) {
        let SmallBlocks { me, block, contributes, receives, in_parts, joins, in_turn, .. } = *self.blocks;
        if !contributes || !receives || in_turn {
            return;
        }
        let (from, to) = (if in_parts { me } else { 0 }, if joins { me } else { 0 });
        // SAFETY: E: as many blocks; they are equal or disjoint by B.
        unsafe {
            let (from, to) = (self.exchange.send.add(from * block), self.exchange.recv.add(to * block));
            if from != to.cast_const() {
                copy_block(to, from, block);
            }
        }
    }

    /// Makes the end of the call warm while there is time: the code of a fold and the place of the result.
    #[inline(always)]
    pub(in crate::protocol) fn prefetch(&self) {
        if let Some((fold, _)) = self.blocks.fold {
            let SmallExchange { send, recv, .. } = self.exchange;
            kernels::fetch_for_writing(recv);
            // SAFETY: E; of no elements, so nothing is read or written.
            unsafe { fold(recv, send, send, 0) }
        }
    }

    /// `result[rank] = theirs`, or `result = result op theirs` where contributions are folded, out of a piece of the deposit of `rank`.
    #[inline(always)]
    pub(in crate::protocol) fn receive(&self, theirs: *const u8, rank: usize, piece: usize) {
        let SmallBlocks { block, joins, in_turn, .. } = *self.blocks;
        let Some((within, at, bytes)) = self.part(self.position(rank), piece) else { return };
        let to = if joins { rank * block } else { 0 };
        // SAFETY: E; S: the piece holds its part of the block; the destination of a fold equals the left operand.
        unsafe {
            let (from, to) = (theirs.add(within), self.exchange.recv.add(to + at));
            match self.blocks.fold {
                // A fold in turn begins with the contribution of rank 0.
                Some((fold, zeros)) if !in_turn || rank > 0 => fold(to, to, from, bytes >> zeros),
                _ => copy_block(to, from, bytes),
            }
        }
    }
}

/// Copies a block without a call where it fits beside a mark.
///
/// # Safety
/// The contract of [`kernels::copy`].
#[inline(always)]
unsafe fn copy_block(dst: *mut u8, src: *const u8, bytes: usize) {
    /// # Safety
    /// The contract of the function around this one.
    #[inline(never)]
    unsafe fn copy_larger(dst: *mut u8, src: *const u8, bytes: usize) {
        // SAFETY: the caller's contract.
        unsafe { copy_deposit(dst, src, bytes) }
    }
    // SAFETY: the caller's contract.
    unsafe {
        match bytes <= INLINE_BYTES {
            true => kernels::copy_few(dst, src, bytes),
            false => copy_larger(dst, src, bytes),
        }
    }
}
