//! The blocks of an exchange that fit beside the marks of entry: what the fast path needs of a call that moves data, and its copies.
//!
//! The invariants are those of the module above; **E (exchange)**: `send` is readable for `send_bytes` and `recv` writable for
//! `recv_bytes`. What a rank sends is `sent` blocks of `block` bytes, what it receives `received` blocks: [`SmallExchange::bind`]
//! compares them with both lengths.
#![allow(unsafe_code)]

use super::{Buffers, Call, Prepared};
use crate::kernels;
use crate::op::{DType, Datatype};
use crate::protocol::call::{Arithmetic, Lane};
use crate::protocol::collective::Side;
use crate::protocol::lines::{INLINE_BYTES, RankLine};
use std::marker::PhantomData;

/// The buffers of a call that moves data.
#[derive(Debug, Clone, Copy)]
pub struct SmallExchange<'a> {
    send: *const u8,
    recv: *mut u8,
    send_bytes: usize,
    recv_bytes: usize,
    borrowed: PhantomData<&'a mut [u8]>,
}

/// The same in the call of one rank that they are the buffers of.
#[derive(Debug, Clone, Copy)]
pub struct BoundExchange<'a> {
    few: SmallExchange<'a>,
    prepared: &'a Prepared<'a>,
    me: usize,
    /// Bytes of a block.
    block: usize,
    gives: bool,
    reads: bool,
    /// True if a deposit has a block for each rank, and if a result has one from each.
    in_parts: bool,
    joins: bool,
}

impl Call<'_> {
    /// The blocks of the call of rank `me` for the fast path, if it may go there.
    pub(in crate::protocol) fn small_exchange(&self, me: usize) -> Option<BoundExchange<'_>> {
        self.window.filter(|window| window.inline && window.exchange.is_uniform())?;
        let bytes = |count: usize| count.checked_mul(self.element_bytes);
        let (send_bytes, recv_bytes) = (bytes(self.send_count)?, bytes(self.recv_count)?);
        let few = SmallExchange { send: self.send, recv: self.recv, send_bytes, recv_bytes, borrowed: PhantomData };
        few.bind(self.prepared, me)
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

    /// The buffers for the fast path, which are one buffer or two as told.
    #[inline(always)]
    pub fn small_exchange(&self, one_buffer: bool) -> Option<SmallExchange<'a>> {
        let size = self.builtin_dtype()?.size();
        let bytes = |count: usize| count << size.trailing_zeros();
        (self.in_place == one_buffer && self.is_whole && self.are_private()).then(|| SmallExchange {
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

    /// The blocks of rank `me` in the call `prepared`, if that may go the fast path.
    #[inline(always)]
    pub fn bind<'b>(self, prepared: &'b Prepared<'b>, me: usize) -> Option<BoundExchange<'b>>
    where
        'a: 'b,
    {
        if prepared.lane != Lane::Exchange || !matches!(prepared.arithmetic, Arithmetic::Moved(None)) {
            return None;
        }
        let traits = prepared.collective.traits();
        let (in_parts, joins) = (traits.in_parts, traits.joins());
        let is_one = |side| side == Side::All || prepared.root == Some(me);
        let (gives, reads) = (is_one(traits.senders), is_one(traits.receivers));
        let (sent, received) = (blocks(in_parts, prepared.ranks), blocks(joins, prepared.ranks));
        let block = if gives { self.send_bytes / sent } else { self.recv_bytes / received };
        let fits = block > 0
            && blocks(in_parts, prepared.ranks) * block <= INLINE_BYTES
            && (!gives || self.send_bytes == sent * block)
            && (!reads || self.recv_bytes == received * block);
        fits.then_some(BoundExchange { few: self, prepared, me, block, gives, reads, in_parts, joins })
    }
}

#[inline(always)]
fn blocks(of_each: bool, ranks: usize) -> usize {
    if of_each { ranks } else { 1 }
}

impl BoundExchange<'_> {
    /// The hash of the call.
    #[inline(always)]
    pub(in crate::protocol) fn hash(&self) -> u32 {
        self.prepared.hash
    }

    /// Describes the call in `line`.
    #[inline(always)]
    pub(in crate::protocol) fn describe(&self, line: &RankLine) {
        line.describe(self.prepared.signature);
    }

    /// Bytes of a deposit.
    #[inline(always)]
    pub(in crate::protocol) fn bytes(&self) -> usize {
        blocks(self.in_parts, self.prepared.ranks) * self.block
    }

    /// Whether this rank has something for others.
    #[inline(always)]
    pub(in crate::protocol) fn gives(&self) -> bool {
        self.gives
    }

    /// The ranks from which this one takes a block, itself left out.
    #[inline(always)]
    pub(in crate::protocol) fn sources(&self) -> impl Iterator<Item = usize> + use<> {
        let (me, reads, ranks) = (self.me, self.reads, self.prepared.ranks);
        let senders = match self.prepared.collective.traits().senders {
            Side::All => 0..ranks,
            Side::Root => self.prepared.root.map_or(0..0, |root| root..root + 1),
        };
        senders.filter(move |rank| reads && *rank != me)
    }

    /// The call as the waits of the protocol know it.
    #[cold]
    pub(in crate::protocol) fn call(&self) -> Call<'_> {
        let SmallExchange { send, recv, send_bytes, recv_bytes, .. } = self.few;
        let element_bytes = self.prepared.datatype.size();
        let [send_count, recv_count] = [send_bytes, recv_bytes].map(|bytes| bytes / element_bytes);
        Call::of_fast_path(self.prepared, (send, send_count), (recv, recv_count))
    }

    /// `place = mine`: of blocks for each rank, those for the others, beginning with the one for the rank after this one.
    #[inline(always)]
    pub(in crate::protocol) fn give(&self, place: *mut u8) {
        let (block, ranks) = (self.block, self.prepared.ranks);
        if !self.in_parts {
            // SAFETY: E, S: the place holds a block.
            return unsafe { kernels::copy_few(place, self.few.send, block) };
        }
        for position in 0..ranks - 1 {
            let reader = (self.me + 1 + position) % ranks;
            // SAFETY: E, S: both have a block for each rank.
            unsafe { kernels::copy_few(place.add(position * block), self.few.send.add(reader * block), block) }
        }
    }

    /// `result[own] = mine[own]`, where a result has a part of this rank's own, and it does not lie there.
    #[inline(always)]
    pub(in crate::protocol) fn keep_own(&self) {
        if !(self.gives && self.reads) {
            return;
        }
        let (from, to) = (if self.in_parts { self.me } else { 0 }, if self.joins { self.me } else { 0 });
        // SAFETY: E: as many blocks; they are equal or disjoint by B.
        unsafe {
            let (from, to) = (self.few.send.add(from * self.block), self.few.recv.add(to * self.block));
            if from != to.cast_const() {
                kernels::copy_few(to, from, self.block);
            }
        }
    }

    /// `result[rank] = theirs`, out of the deposit of `rank`.
    #[inline(always)]
    pub(in crate::protocol) fn take(&self, place: *const u8, rank: usize) {
        let ranks = self.prepared.ranks;
        let from = if self.in_parts { (self.me + ranks - rank - 1) % ranks } else { 0 };
        let to = if self.joins { rank } else { 0 };
        // SAFETY: E, S: the deposit has a block for each rank, or one.
        unsafe { kernels::copy_few(self.few.recv.add(to * self.block), place.add(from * self.block), self.block) }
    }
}
