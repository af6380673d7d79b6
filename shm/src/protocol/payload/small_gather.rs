//! The root of a gather whose owners announce the lengths of their blocks: what the fast path needs of its call, and its copies.
//!
//! The invariants are those of the module above; **G (gather)**: `recv` is writable for the blocks of all ranks one after the other, and
//! `own` readable for this rank's: [`SmallGather::with`] compares their lengths with both buffers.
#![allow(unsafe_code)]

use super::small_blocks::{MOST_BYTES_OF_MANY, starts};
use super::{Buffers, SmallExchange};
use crate::kernels;
use crate::protocol::call::{Arithmetic, Call, Lane, Prepared};
use crate::protocol::geometry::{Exchange, Lens};
use crate::protocol::lines::RankLine;
use crate::protocol::pieces::PIECE_BYTES;
use crate::protocol::store_pace::Stores;
use crate::protocol::window::Window;

/// The buffers of a gather whose owners announce their lengths. On the root `counts` are the elements of each rank's block.
#[derive(Debug, Clone, Copy)]
pub struct SmallGather<'a> {
    /// The buffers, by which every rank but the root takes part.
    pub exchange: SmallExchange<'a>,
    counts: &'a [usize],
}

/// The gather with the prepared state of its call, on its root.
#[derive(Debug, Clone, Copy)]
pub struct PreparedGather<'a> {
    prepared: &'a Prepared<'a>,
    counts: &'a [usize],
    own: *const u8,
    /// Bytes before this rank's block in the result.
    own_at: usize,
    recv: *mut u8,
    recv_bytes: usize,
    window_bytes: usize,
}

impl<'a> Buffers<'a> {
    /// The buffers for the fast path, of a gather of which the root has these `counts`.
    #[inline(always)]
    pub fn small_gather(&self, counts: &'a [usize]) -> Option<SmallGather<'a>> {
        Some(SmallGather { exchange: self.small_exchange()?, counts })
    }
}

impl Call<'_> {
    /// The call on its root `me` for the fast path, if it may go there.
    pub(in crate::protocol) fn small_gather(&self, me: usize) -> Option<PreparedGather<'_>> {
        let gathers = |exchange: &Exchange<'_>| exchange.owners_announce && !exchange.traits.in_parts;
        let window = self.window.filter(|window| gathers(window.exchange))?;
        let gather = SmallGather { exchange: self.whole_exchange()?, counts: window.exchange.counts()? };
        gather.with(self.prepared, me, window.stride() * self.element_bytes)
    }
}

impl<'a> SmallGather<'a> {
    /// The gather of the call `prepared` on its root `me`, where deposits have at most `window_bytes`; `None` on other ranks, where the
    /// buffers have other lengths, and where others' large blocks would wait for a late rank.
    #[inline(always)]
    pub fn with<'b>(self, prepared: &'b Prepared<'b>, me: usize, window_bytes: usize) -> Option<PreparedGather<'b>>
    where
        'a: 'b,
    {
        let SmallGather { exchange: SmallExchange { send, recv, send_bytes, recv_bytes, .. }, counts } = self;
        let bytes = |count: usize| count.checked_mul(prepared.datatype.size());
        let own_count = *counts.get(me)?;
        let before = counts[..me].iter().try_fold(0usize, |sum, count| sum.checked_add(*count))?;
        let all = counts[me..].iter().try_fold(before, |sum, count| sum.checked_add(*count))?;
        let is_whole_in_place = send == recv.cast_const() && send_bytes == recv_bytes;
        let fits = prepared.root == Some(me)
            && prepared.lane == Lane::Exchange
            && matches!(prepared.arithmetic, Arithmetic::Moved(None))
            && counts.len() == prepared.ranks
            && bytes(all)? == recv_bytes
            && (is_whole_in_place || bytes(own_count)? == send_bytes);
        let largest = counts.iter().copied().max()?;
        let is_in_order = prepared.ranks == 2 || bytes(largest)? <= MOST_BYTES_OF_MANY;
        let own_at = bytes(before)?;
        let own = if is_whole_in_place { send.wrapping_add(own_at) } else { send };
        let gather = PreparedGather { prepared, counts, own, own_at, recv, recv_bytes, window_bytes };
        (fits && is_in_order).then_some(gather)
    }
}

impl PreparedGather<'_> {
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

    /// Elements that the root expects of `rank`.
    #[inline(always)]
    pub(in crate::protocol) fn count(&self, rank: usize) -> usize {
        self.counts[rank]
    }

    /// Bytes of so many elements.
    #[inline(always)]
    pub(in crate::protocol) fn bytes(&self, count: usize) -> usize {
        count * self.prepared.datatype.size()
    }

    /// Bytes of the largest block that is deposited as one piece.
    #[inline(always)]
    pub(in crate::protocol) fn most_of_a_piece(&self) -> usize {
        PIECE_BYTES.min(self.window_bytes)
    }

    /// `result[me] = mine`, unless it lies there.
    #[inline(always)]
    pub(in crate::protocol) fn keep_own(&self, me: usize) {
        let bytes = self.bytes(self.count(me));
        let to = self.part(self.own_at, bytes);
        if self.own != to.cast_const() {
            // SAFETY: G; both are equal or disjoint by B.
            unsafe { kernels::copy(to, self.own, bytes) }
        }
    }

    /// `result[at..] = theirs`, which lies beside a mark.
    #[inline(always)]
    pub(in crate::protocol) fn receive(&self, theirs: *const u8, at: usize, bytes: usize) {
        // SAFETY: G by the check in `part`; S: the place has as many bytes.
        unsafe { kernels::copy_few(self.part(at, bytes), theirs, bytes) }
    }

    /// The same out of a deposit.
    pub(in crate::protocol) fn receive_larger(&self, theirs: *const u8, at: usize, bytes: usize) {
        // SAFETY: G by the check in `part`; S: the place has as many bytes.
        unsafe { kernels::copy(self.part(at, bytes), theirs, bytes) }
    }

    /// The place of `bytes` bytes of the result.
    #[inline(always)]
    fn part(&self, at: usize, bytes: usize) -> *mut u8 {
        assert!(at <= self.recv_bytes && bytes <= self.recv_bytes - at, "{at}+{bytes} of {}", self.recv_bytes);
        self.recv.wrapping_add(at)
    }

    /// The call as the waits of the protocol know it.
    #[cold]
    pub(in crate::protocol) fn call(&self) -> Call<'_> {
        let count = self.recv_bytes / self.prepared.datatype.size();
        // What this rank gives itself is copied already.
        let call = Call::of_fast_path(self.prepared, (self.own, 0), (self.recv, count));
        Call { result_stores: Stores::of_result(self.prepared.collective, self.recv_bytes, true, false), ..call }
    }

    /// The sums of the counts before each rank, and of all.
    pub(in crate::protocol) fn starts(&self) -> Vec<usize> {
        starts(self.counts)
    }

    /// The exchange of the call, with these [`PreparedGather::starts`].
    pub(in crate::protocol) fn exchange<'b>(&'b self, starts: &'b [usize]) -> Exchange<'b> {
        let (root, ranks) = (self.prepared.root.unwrap_or(0), self.prepared.ranks);
        Exchange::new(self.prepared.collective, root, ranks, Lens::Each(self.counts, starts)).announced_by_owners()
    }

    /// The first part of every block.
    pub(in crate::protocol) fn window<'b>(&self, exchange: &'b Exchange<'b>) -> Window<'b> {
        exchange.of_owner(self.prepared.datatype.size(), self.window_bytes)
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;
    use crate::config::Algorithm;
    use crate::op::{DType, FoldOrder, Op};
    use crate::protocol::collective::Collective;
    use crate::protocol::signature::Signature;

    /// Of empty blocks it has the lengths of one.
    #[test]
    fn the_root_of_a_scatter_is_not_that_of_a_gather() {
        for (collective, gathers) in [(Collective::Gather, true), (Collective::Scatter, false)] {
            let exchange = Exchange::new(collective, 0, 3, Lens::Each(&[0; 3], &[0; 4])).announced_by_owners();
            let window = exchange.of_owner(8, 4096);
            let signature = Signature::new(collective, DType::U64, Op::Sum, FoldOrder::Arrival, Algorithm::Auto, 0);
            let prepared =
                Prepared::new(signature.rooted(0).in_lane(true), DType::U64, Op::Sum, 3, false, Algorithm::Flat);
            let (prepared, mut result) = (prepared.unwrap(), [0u64; 0]);
            let buffers = Buffers::apart(&[0u64; 0], &mut result);
            assert_eq!(buffers.window(&window, &prepared).small_gather(0).is_some(), gathers, "{}", collective.name());
        }
    }
}
