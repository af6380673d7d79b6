//! A small exchange on the fast path: its copies and folds, of the blocks that [`SmallBlocks`] describes.
//!
//! The invariants are those of the module above; **E (exchange)**: `send` is readable for the blocks that this rank sends, and
//! `recv` writable for those that it receives: [`SmallExchange::with`] compares their lengths with both buffers.
#![allow(unsafe_code)]

use super::Buffers;
use super::parts::copy_with;
use super::small_blocks::{BlockSizes, EqualSizes, SmallBlocks, SmallFold, UnequalSizes};
use crate::kernels;
use crate::op::{DType, Datatype};
use crate::protocol::board::{DepositsAt, Need, Place};
use crate::protocol::call::{Arithmetic, Call, Prepared};
use crate::protocol::geometry::position;
use crate::protocol::lines::{INLINE_BYTES, RankLine};
use crate::protocol::pieces::PIECE_BYTES;
use crate::protocol::store_pace::Stores;
use std::marker::PhantomData;
use std::ops::Range;

/// The buffers of a call that runs as an exchange.
#[derive(Debug, Clone, Copy)]
pub struct SmallExchange<'a> {
    pub(super) send: *const u8,
    pub(super) recv: *mut u8,
    pub(super) send_bytes: usize,
    pub(super) recv_bytes: usize,
    borrowed: PhantomData<&'a mut [u8]>,
}

/// A small exchange with the prepared state of its call.
#[derive(Debug, Clone, Copy)]
pub struct PreparedExchange<'a, S> {
    exchange: SmallExchange<'a>,
    prepared: &'a Prepared<'a>,
    blocks: &'a SmallBlocks,
    sizes: S,
}

impl Call<'_> {
    /// The buffers of the call and its blocks on rank `me` for the fast path, if it may go there.
    pub(in crate::protocol) fn small_exchange(&self, me: usize) -> Option<(SmallExchange<'_>, SmallBlocks)> {
        let window = self.window?;
        let lengths = window.exchange.known_lengths()?;
        let (exchange, most) = (self.whole_exchange()?, window.deposit_most().checked_mul(self.element_bytes)?);
        Some((exchange, SmallBlocks::new(self.prepared, exchange.bytes(), me, most, lengths)?))
    }

    /// The buffers of the call as those of an exchange.
    pub(super) fn whole_exchange(&self) -> Option<SmallExchange<'_>> {
        SmallExchange::of_elements(self.element_bytes, (self.send, self.send_count), (self.recv, self.recv_count))
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

impl Buffers<'_> {
    /// The buffers for the fast path of a call by a user's operator.
    pub fn small_exchange_by_user(&self) -> Option<SmallExchange<'_>> {
        let is_plain = self.is_whole && self.are_private();
        let exchange = SmallExchange::of_elements(
            self.datatype.size(),
            (self.send, self.send_count),
            (self.recv, self.recv_count),
        );
        exchange.filter(|_| is_plain)
    }
}

impl<'a> SmallExchange<'a> {
    /// The buffers with so many elements each; `None` where no number holds their bytes.
    fn of_elements(
        element_bytes: usize,
        (send, send_count): (*const u8, usize),
        (recv, recv_count): (*mut u8, usize),
    ) -> Option<Self> {
        let bytes = |count: usize| count.checked_mul(element_bytes);
        let (send_bytes, recv_bytes) = (bytes(send_count)?, bytes(recv_count)?);
        Some(SmallExchange { send, recv, send_bytes, recv_bytes, borrowed: PhantomData })
    }

    /// Bytes that are sent and bytes that are received.
    #[inline(always)]
    pub fn bytes(&self) -> [usize; 2] {
        [self.send_bytes, self.recv_bytes]
    }

    /// The exchange of `blocks` of one length in the call `prepared`; `None` where the buffers have other lengths.
    #[inline(always)]
    pub fn with<'b>(
        self,
        prepared: &'b Prepared<'b>,
        blocks: &'b SmallBlocks,
    ) -> Option<PreparedExchange<'b, EqualSizes>>
    where
        'a: 'b,
    {
        self.with_sizes(prepared, blocks, blocks.equal_sizes())
    }

    /// The same where the blocks have lengths of their own.
    #[inline(always)]
    pub fn with_unequal<'b>(
        self,
        prepared: &'b Prepared<'b>,
        blocks: &'b SmallBlocks,
    ) -> Option<PreparedExchange<'b, UnequalSizes<'b>>>
    where
        'a: 'b,
    {
        self.with_sizes(prepared, blocks, blocks.unequal_sizes())
    }

    #[inline(always)]
    fn with_sizes<'b, S>(
        self,
        prepared: &'b Prepared<'b>,
        blocks: &'b SmallBlocks,
        sizes: S,
    ) -> Option<PreparedExchange<'b, S>>
    where
        'a: 'b,
    {
        let holds = |wanted, given| wanted == 0 || wanted == given;
        let fits = holds(blocks.send_bytes, self.send_bytes) && holds(blocks.recv_bytes, self.recv_bytes);
        fits.then_some(PreparedExchange { exchange: self, prepared, blocks, sizes })
    }
}

impl<S: BlockSizes> PreparedExchange<'_, S> {
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

    /// Bytes of the deposit of `rank`.
    #[inline(always)]
    pub(in crate::protocol) fn deposit_bytes(&self, rank: usize) -> usize {
        if self.blocks.in_parts { self.blocks.deposit_bytes } else { self.sizes.of(rank) }
    }

    /// Returns whether no deposit has more than one piece.
    #[inline(always)]
    pub(in crate::protocol) fn is_one_piece(&self) -> bool {
        self.blocks.deposit_bytes <= PIECE_BYTES
    }

    /// The number of pieces of this rank's deposit.
    #[inline(always)]
    pub(in crate::protocol) fn pieces(&self) -> usize {
        self.deposit_bytes(self.blocks.me).div_ceil(PIECE_BYTES)
    }

    /// The rank whose block is received from `rank`, by which its length is known.
    #[inline(always)]
    fn block_from(&self, rank: usize) -> usize {
        if self.blocks.in_parts { self.blocks.me } else { rank }
    }

    /// The pieces of the deposit of `rank` in which its block for this rank lies.
    #[inline(always)]
    pub(in crate::protocol) fn pieces_from(&self, rank: usize) -> Range<usize> {
        let start = self.position(rank) * self.blocks.block;
        start / PIECE_BYTES..(start + self.sizes.of(self.block_from(rank))).div_ceil(PIECE_BYTES)
    }

    /// The place of a piece of the deposit of `rank`.
    #[inline(always)]
    pub(in crate::protocol) fn place(&self, DepositsAt { area, base }: DepositsAt, rank: usize, piece: usize) -> Place {
        let offset = piece * PIECE_BYTES;
        let bytes = (self.deposit_bytes(rank) - offset).min(PIECE_BYTES);
        Place::Deposit { area, rank, piece, offset: base + offset, bytes }
    }

    /// The place of the deposit of `rank` beside its mark.
    #[inline(always)]
    pub(in crate::protocol) fn line(&self, slot: usize, rank: usize) -> Place {
        Place::Inline { slot, rank, bytes: self.deposit_bytes(rank) }
    }

    /// The position of the block for this rank among those in the deposit of `rank`.
    #[inline(always)]
    fn position(&self, rank: usize) -> usize {
        let SmallBlocks { me, ranks, in_parts, .. } = *self.blocks;
        if in_parts { position(rank, me, ranks) } else { 0 }
    }

    /// The part of the block of `bytes` at `position` of a deposit that lies in `piece`: its begin in the piece and in the block, and
    /// its bytes.
    #[inline(always)]
    fn part(&self, position: usize, bytes: usize, piece: usize) -> Option<(usize, usize, usize)> {
        let (block, first) = (position * self.blocks.block, piece * PIECE_BYTES);
        let (start, end) = (block.max(first), (block + bytes).min(first + PIECE_BYTES));
        (start < end).then(|| (start - first, start - block, end - start))
    }

    /// Returns whether this rank receives a block from every other one.
    #[inline(always)]
    pub(in crate::protocol) fn receives_from_all(&self) -> bool {
        self.blocks.receives_from_all
    }

    /// Returns whether blocks are received in the order of the ranks.
    #[inline(always)]
    pub(in crate::protocol) fn is_in_order(&self) -> bool {
        self.blocks.in_order
    }

    /// Returns whether a user's operator folds.
    pub(in crate::protocol) fn is_by_user(&self) -> bool {
        self.prepared.is_by_user()
    }

    /// Returns whether this rank has a deposit that is read.
    #[inline(always)]
    pub(in crate::protocol) fn deposits(&self) -> bool {
        self.blocks.deposits
    }

    /// The ranks out of whose deposits this one receives a block, in the order of the ranks.
    #[inline(always)]
    pub(in crate::protocol) fn sources(self) -> impl Iterator<Item = usize> {
        let SmallBlocks { me, in_turn, .. } = *self.blocks;
        let is_one = move |rank: &usize| (in_turn || *rank != me) && self.sizes.has_bytes(self.block_from(*rank));
        self.blocks.sources.clone().filter(is_one)
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
        let SmallBlocks { me, ranks, in_parts, .. } = *self.blocks;
        for position in 0..self.blocks_written() {
            let block = if in_parts { (me + 1 + position) % ranks } else { me };
            let at = if in_parts { self.sizes.before(block) } else { 0 };
            let Some((within, from, bytes)) = self.part(position, self.sizes.of(block), piece) else { continue };
            // SAFETY: E; S: the piece holds its part of every block.
            unsafe {
                let (to, mine) = (to.add(within), self.exchange.send.add(at + from));
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
        let SmallBlocks { me, ranks, in_parts, in_turn, .. } = *self.blocks;
        match in_parts {
            true => self.sizes.before(ranks) - if in_turn { 0 } else { self.sizes.of(me) },
            false => self.sizes.of(me),
        }
    }

    /// `result[own] = mine[own]`, where a result has a part of this rank's own that is not taken in its turn, and it does not
    /// lie there.
    #[inline(always)]
    pub(in crate::protocol) fn keep_own(&self) {
        let SmallBlocks { me, contributes, receives, in_parts, joins, in_turn, .. } = *self.blocks;
        if !contributes || !receives || in_turn {
            return;
        }
        let before = self.sizes.before(me);
        let (from, to) = (if in_parts { before } else { 0 }, if joins { before } else { 0 });
        // SAFETY: E: as many blocks; they are equal or disjoint by B.
        unsafe {
            let (from, to) = (self.exchange.send.add(from), self.exchange.recv.add(to));
            if from != to.cast_const() {
                copy_block(to, from, self.sizes.of(me));
            }
        }
    }

    /// Makes the end of the call warm while there is time: the code of a fold and the place of the result.
    #[inline(always)]
    pub(in crate::protocol) fn prefetch(&self) {
        if let Some(SmallFold::Built(fold, _)) = self.blocks.fold {
            let SmallExchange { send, recv, .. } = self.exchange;
            kernels::fetch_for_writing(recv);
            // SAFETY: E; of no elements, so nothing is read or written.
            unsafe { fold(recv, send, send, 0) }
        }
    }

    /// `result[rank] = theirs`, or `result = result op theirs` where contributions are folded, out of a piece of the deposit of `rank`.
    #[inline(always)]
    pub(in crate::protocol) fn receive(&self, theirs: *const u8, rank: usize, piece: usize) {
        let SmallBlocks { joins, in_turn, .. } = *self.blocks;
        let block = self.sizes.of(self.block_from(rank));
        let Some((within, at, bytes)) = self.part(self.position(rank), block, piece) else { return };
        let to = if joins { self.sizes.before(rank) } else { 0 };
        // SAFETY: E; S: the piece holds its part of the block; the destination of a fold equals the left operand.
        unsafe {
            let (from, to) = (theirs.add(within), self.exchange.recv.add(to + at));
            // A fold in turn begins with the contribution of rank 0.
            match self.blocks.fold.filter(|_| !in_turn || rank > 0) {
                Some(SmallFold::Built(fold, zeros)) => fold(to, to, from, bytes >> zeros),
                Some(SmallFold::User) => self.fold_by_user(to, from, bytes),
                None => copy_block(to, from, bytes),
            }
        }
    }

    /// `to = to op from` by the operator of the call.
    ///
    /// # Safety
    /// E, S: both are `bytes` long, a whole number of elements, and are apart.
    #[cold]
    unsafe fn fold_by_user(&self, to: *mut u8, from: *const u8, bytes: usize) {
        let Arithmetic::User(operator) = self.prepared.arithmetic else {
            unreachable!("the call has a user's operator")
        };
        // SAFETY: the contract of this function; the destination equals the left operand.
        unsafe { operator.fold(to, to, from, bytes / self.prepared.accumulator_bytes) }
    }
}

/// Copies a block without a call where it fits beside a mark.
///
/// # Safety
/// The contract of [`kernels::copy`].
#[inline(always)]
pub(super) unsafe fn copy_block(dst: *mut u8, src: *const u8, bytes: usize) {
    /// # Safety
    /// The contract of the function around this one.
    #[inline(never)]
    unsafe fn copy_larger(dst: *mut u8, src: *const u8, bytes: usize) {
        // SAFETY: the caller's contract.
        unsafe { kernels::copy(dst, src, bytes) }
    }
    // SAFETY: the caller's contract.
    unsafe {
        match bytes <= INLINE_BYTES {
            true => kernels::copy_few(dst, src, bytes),
            false => copy_larger(dst, src, bytes),
        }
    }
}
