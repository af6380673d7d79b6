//! The bundle of a scatter of which only the root knows all lengths: the list of them, and after it the blocks, as its root writes it and
//! the other ranks read it.
//!
//! The invariants are those of the module above; **K (blocks)**: on the root `send` is readable for the blocks of all ranks, one after the
//! other, and `recv` writable for its own; on the others `recv` is writable for `recv_bytes` bytes: [`SmallScatter::with`] compares their
//! lengths with the counts.
#![allow(unsafe_code)]

use super::small_exchange::copy_block;
use super::{Buffers, SmallExchange};
use crate::protocol::board::Need;
use crate::protocol::call::{Arithmetic, Call, Lane, Prepared};
use crate::protocol::geometry::Who;
use crate::protocol::lengths::Announced;
use crate::protocol::lines::RankLine;
use crate::protocol::pieces::PIECE_BYTES;

/// Bytes of a length in the list.
const LENGTH_BYTES: usize = size_of::<u64>();

/// The buffers of a scatter whose lengths only the root knows. On the root `counts` are the elements of each rank's block.
#[derive(Debug, Clone, Copy)]
pub struct SmallScatter<'a> {
    exchange: SmallExchange<'a>,
    counts: &'a [usize],
}

/// The scatter with the prepared state of its call.
#[derive(Debug, Clone, Copy)]
pub struct PreparedScatter<'a> {
    prepared: &'a Prepared<'a>,
    exchange: SmallExchange<'a>,
    /// Empty but on the root.
    counts: &'a [usize],
    me: usize,
    root: usize,
    /// Bytes of the largest bundle.
    most: usize,
    /// Bytes of the bundle, on the root: of the list alone where the blocks do not fit, none where that does not.
    bundle_bytes: usize,
    has_blocks: bool,
}

impl<'a> Buffers<'a> {
    /// The buffers for the fast path, of a scatter of which the root has these `counts`.
    #[inline(always)]
    pub fn small_scatter(&self, counts: &'a [usize]) -> Option<SmallScatter<'a>> {
        Some(SmallScatter { exchange: self.small_exchange()?, counts })
    }

    /// The address of what the root sends, or of what another rank receives: none of them changes where the call is checked.
    pub fn address_on(&self, is_root: bool) -> usize {
        if is_root { self.send.addr() } else { self.recv.addr() }
    }
}

impl Call<'_> {
    /// The call on rank `me` as a scatter whose lengths only the root knows, if it is one.
    pub(in crate::protocol) fn announced_scatter(&self, me: usize) -> Option<PreparedScatter<'_>> {
        let exchange = self.window.map(|window| window.exchange)?;
        if !(exchange.owners_announce && exchange.traits.in_parts) {
            return None;
        }
        let window_bytes = self.window?.stride() * self.element_bytes;
        let counts = exchange.counts().unwrap_or_default();
        SmallScatter { exchange: self.whole_exchange()?, counts }.with(self.prepared, me, window_bytes)
    }
}

impl<'a> SmallScatter<'a> {
    /// The address by which the call is known again if it is not done: [`Buffers::address_on`].
    pub fn address_on(&self, is_root: bool) -> usize {
        if is_root { self.exchange.send.addr() } else { self.exchange.recv.addr() }
    }

    /// The scatter of the call `prepared` on rank `me`, where deposits have at most `window_bytes`; `None` where the buffers have other
    /// lengths.
    #[inline(always)]
    pub fn with<'b>(self, prepared: &'b Prepared<'b>, me: usize, window_bytes: usize) -> Option<PreparedScatter<'b>>
    where
        'a: 'b,
    {
        let SmallScatter { exchange, counts } = self;
        let (root, ranks, element_bytes) = (prepared.root?, prepared.ranks, prepared.datatype.size());
        let (list_bytes, most) = (list_bytes(ranks), largest_bundle(ranks, window_bytes).unwrap_or(0));
        if prepared.lane != Lane::Exchange {
            return None;
        }
        let of_reader =
            PreparedScatter { prepared, exchange, counts: &[], me, root, most, bundle_bytes: 0, has_blocks: false };
        if me != root {
            return Some(of_reader);
        }
        let all = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count))?.checked_mul(element_bytes)?;
        let own = counts.get(me)? * element_bytes;
        let is_whole_in_place = exchange.send == exchange.recv.cast_const() && exchange.recv_bytes == all;
        let fits = counts.len() == ranks && exchange.send_bytes == all;
        if !fits || !(is_whole_in_place || exchange.recv_bytes == own) {
            return None;
        }
        let with_blocks = list_bytes.saturating_add(all - own);
        let has_blocks = with_blocks <= most;
        let bundle_bytes = if has_blocks { with_blocks } else { list_bytes.min(most) };
        Some(PreparedScatter { counts, bundle_bytes, has_blocks, ..of_reader })
    }
}

/// Bytes of the largest bundle where deposits have at most `window_bytes`, if the list of so many lengths fits.
pub fn largest_bundle(ranks: usize, window_bytes: usize) -> Option<usize> {
    Some(PIECE_BYTES.min(window_bytes)).filter(|most| list_bytes(ranks) <= *most)
}

/// Bytes of the list of the lengths of so many ranks' blocks.
const fn list_bytes(ranks: usize) -> usize {
    ranks * LENGTH_BYTES
}

impl PreparedScatter<'_> {
    /// The hash of the call.
    #[inline(always)]
    pub(in crate::protocol) fn hash(&self) -> u32 {
        self.prepared.hash
    }

    /// The root.
    #[inline(always)]
    pub(in crate::protocol) fn root(&self) -> usize {
        self.root
    }

    /// Returns whether this rank is the root.
    #[inline(always)]
    pub(in crate::protocol) fn is_root(&self) -> bool {
        self.me == self.root
    }

    /// Returns whether this rank has heard of every other one when it has received its block.
    #[inline(always)]
    pub(in crate::protocol) fn receives_from_all(&self) -> bool {
        !self.is_root() && self.prepared.ranks == 2
    }

    /// Describes the call in `line`, and announces the length of the bundle on the root.
    #[inline(always)]
    pub(in crate::protocol) fn describe(&self, line: &RankLine) {
        line.describe(self.prepared.signature);
        if self.is_root() {
            line.announce(self.bundle_bytes as u64);
        }
    }

    /// Bytes of the bundle of this rank, the root.
    #[inline(always)]
    pub(in crate::protocol) fn bundle_bytes(&self) -> usize {
        self.bundle_bytes
    }

    /// The bytes of the bundle that a root has announced with this word, if there can be such a bundle.
    #[inline(always)]
    pub(in crate::protocol) fn announced(&self, word: u64) -> Option<usize> {
        let bytes = usize::try_from(word).ok()?;
        (bytes >= list_bytes(self.prepared.ranks) && bytes <= self.most).then_some(bytes)
    }

    /// The memory of a bundle of so many bytes that does not lie beside the mark.
    #[inline(always)]
    pub(in crate::protocol) fn need(&self, bytes: usize) -> Need {
        Need { accumulator: 0, deposit: bytes, whose: Who::Only(self.root) }
    }

    /// `to = bundle`, on the root, whose own block is not in it.
    #[inline(always)]
    pub(in crate::protocol) fn write(&self, to: *mut u8) {
        let element_bytes = self.prepared.datatype.size();
        let (mut at, mut from) = (list_bytes(self.counts.len()), 0);
        for (rank, count) in self.counts.iter().enumerate() {
            let bytes = count * element_bytes;
            // SAFETY: S: the bundle holds the list, and the blocks where it has them; K.
            unsafe {
                to.add(rank * LENGTH_BYTES).cast::<u64>().write_unaligned(*count as u64);
                if self.has_blocks && rank != self.me {
                    copy_block(to.add(at), self.exchange.send.add(from), bytes);
                    at += bytes;
                }
            }
            from += bytes;
        }
    }

    /// `result = mine`, on the root, unless it lies there or the blocks are still to come, which is told.
    #[inline(always)]
    pub(in crate::protocol) fn keep_own(&self) -> Option<Announced> {
        if !self.has_blocks {
            return Some(Announced::Listed);
        }
        let SmallExchange { send, recv, .. } = self.exchange;
        let element_bytes = self.prepared.datatype.size();
        let before = self.counts[..self.me].iter().sum::<usize>() * element_bytes;
        let from = send.wrapping_add(before);
        if send != recv.cast_const() && from != recv.cast_const() {
            // SAFETY: K; both are disjoint by B.
            unsafe { copy_block(recv, from, self.counts[self.me] * element_bytes) }
        }
        None
    }

    /// `result = mine` out of a bundle of so many bytes, on a rank that is not the root, if that has the block that is expected. Where it
    /// has no blocks, the counts of all ranks are put into `list`.
    #[inline(always)]
    pub(in crate::protocol) fn read(
        &self,
        bundle: *const u8,
        bytes: usize,
        list: &mut Vec<usize>,
    ) -> Option<Announced> {
        let (ranks, element_bytes) = (self.prepared.ranks, self.prepared.datatype.size());
        let list_bytes = list_bytes(ranks);
        // SAFETY: S: the bundle begins with the list, by the check in `announced`.
        let count_of = |rank: usize| unsafe { bundle.add(rank * LENGTH_BYTES).cast::<u64>().read_unaligned() as usize };
        let (mut before, mut sends, mut all) = (0, 0, 0usize);
        for rank in (0..ranks).filter(|rank| *rank != self.root) {
            let count = count_of(rank);
            if rank == self.me {
                (before, sends) = (all, count);
            }
            all = all.saturating_add(count);
        }
        if all.saturating_mul(element_bytes) != bytes - list_bytes {
            list.extend((0..ranks).map(count_of));
            return Some(Announced::Listed);
        }
        let SmallExchange { recv, recv_bytes, .. } = self.exchange;
        let block_bytes = sends * element_bytes;
        if block_bytes != recv_bytes {
            let expects = recv_bytes / element_bytes.max(1);
            return Some(Announced::Unexpected { from: self.root, sends, expects });
        }
        // SAFETY: S: the bundle holds the blocks of all ranks, this one's among them, by the comparison; K.
        unsafe {
            let block = bundle.add(list_bytes + before * element_bytes);
            match self.prepared.arithmetic {
                Arithmetic::Moved(Some(clean)) => clean(recv, block, sends, ranks),
                _ => copy_block(recv, block, block_bytes),
            }
        }
        None
    }

    /// The call as the waits of the protocol know it.
    #[cold]
    pub(in crate::protocol) fn call(&self) -> Call<'_> {
        let SmallExchange { send, recv, send_bytes, recv_bytes, .. } = self.exchange;
        let [send_count, recv_count] =
            [send_bytes, recv_bytes].map(|bytes| bytes / self.prepared.datatype.size().max(1));
        Call::of_fast_path(self.prepared, (send, send_count), (recv, recv_count))
    }
}
