//! The payload of a small allreduce or barrier: what the fast path needs of such a call, and its arithmetic.
//!
//! The invariants are those of the module above; **F (fast path)**: `send` and `recv` are those of whole buffers of `count`
//! elements of `dtype`, `bytes` in all, equal or disjoint. A [`PreparedPayload`] has a fold of that type, whose accumulators are
//! elements.
#![allow(unsafe_code)]

use super::Buffers;
use crate::kernels::{self, FoldFn};
use crate::op::{DType, Datatype};
use crate::protocol::call::{Call, Prepared};
use crate::protocol::lines::{INLINE_BYTES, RankLine};
use crate::protocol::pieces::PIECE_BYTES;
use std::marker::PhantomData;

/// The whole buffers of an allreduce or barrier with an operator of the library, small enough for one piece of a deposit.
#[derive(Debug, Clone, Copy)]
pub struct SmallPayload<'a> {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    bytes: usize,
    dtype: DType,
    borrowed: PhantomData<&'a mut [u8]>,
}

/// A small payload with the prepared state of its call.
#[derive(Debug, Clone, Copy)]
pub struct PreparedPayload<'a> {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    bytes: usize,
    fold: FoldFn,
    prepared: &'a Prepared<'a>,
}

impl Call<'_> {
    /// The payload of the call for the fast path, if it may go there.
    pub(in crate::protocol) fn small_payload(&self) -> Option<PreparedPayload<'_>> {
        let Datatype::Builtin(dtype) = self.prepared.datatype else { return None };
        let whole = self.send_count == self.count && self.recv_count == self.count && self.shared.is_none();
        SmallPayload::new(self.send, self.recv, self.count, dtype).filter(|_| whole)?.with(self.prepared)
    }
}

impl<'a> Buffers<'a> {
    /// The payload for the fast path; `None` where that is not all of them, or they are too large.
    #[inline(always)]
    pub fn small_payload(&self) -> Option<SmallPayload<'a>> {
        let Datatype::Builtin(dtype) = self.datatype else { return None };
        let is_whole = self.is_whole && self.send_count == self.count && self.recv_count == self.count;
        let whole = is_whole && self.are_private();
        SmallPayload::new(self.send, self.recv, self.count, dtype).filter(|_| whole)
    }
}

impl<'a> SmallPayload<'a> {
    /// Elements.
    #[inline(always)]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Its bytes.
    #[inline(always)]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    #[inline(always)]
    fn new(send: *const u8, recv: *mut u8, count: usize, dtype: DType) -> Option<Self> {
        let bytes = count.min(PIECE_BYTES + 1) * dtype.size();
        (bytes <= PIECE_BYTES).then_some(SmallPayload { send, recv, count, bytes, dtype, borrowed: PhantomData })
    }

    /// The payload of the call `prepared`, if that may go the fast path with elements of this type.
    #[inline(always)]
    pub fn with<'b>(self, prepared: &'b Prepared<'b>) -> Option<PreparedPayload<'b>>
    where
        'a: 'b,
    {
        let SmallPayload { send, recv, count, bytes, dtype, .. } = self;
        let [fold_inline, fold_deposits] = prepared.fast_folds?;
        let fold = if bytes <= INLINE_BYTES { fold_inline } else { fold_deposits };
        let is_whole = count.checked_mul(prepared.accumulator_bytes) == Some(bytes);
        let is_of_call = is_whole && prepared.datatype == Datatype::Builtin(dtype);
        is_of_call.then_some(PreparedPayload { send, recv, count, bytes, fold, prepared })
    }
}

impl<'a> PreparedPayload<'a> {
    /// The call as every other part of the protocol knows it.
    #[cold]
    pub(in crate::protocol) fn call(self) -> Call<'a> {
        Call::of_fast_path(self.prepared, (self.send, self.count), (self.recv, self.count))
    }

    /// The hash of the call.
    #[inline(always)]
    pub(in crate::protocol) fn hash(&self) -> u32 {
        self.prepared.hash
    }

    /// Bytes of the payload.
    #[inline(always)]
    pub(in crate::protocol) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Describes the call in `line`.
    #[inline(always)]
    pub(in crate::protocol) fn describe(&self, line: &RankLine) {
        line.describe(self.prepared.signature);
    }

    /// Makes the end of the call warm while there is time: the code of the fold and the place of the result.
    #[inline(always)]
    pub(in crate::protocol) fn prefetch(&self) {
        let PreparedPayload { send, recv, .. } = *self;
        kernels::fetch_for_writing(recv);
        // SAFETY: F; of no elements, so nothing is read or written.
        unsafe { (self.fold)(recv, send, send, 0) }
    }

    /// `place = mine`, for a payload that fits in a line.
    #[inline(always)]
    pub(in crate::protocol) fn send_inline(&self, place: *mut u8) {
        // SAFETY: F, S: the place holds the whole payload.
        unsafe { kernels::copy_few(place, self.send, self.bytes) }
    }

    /// `deposit = mine`.
    #[inline(always)]
    pub(in crate::protocol) fn send(&self, deposit: *mut u8) {
        // SAFETY: F, S: the deposit holds the whole payload.
        unsafe { kernels::copy(deposit, self.send, self.bytes) }
    }

    /// `result = first op second`; `None` stands for this rank's own contribution, which is read from the private buffer: its
    /// line may still be on the way here.
    #[inline(always)]
    pub(in crate::protocol) fn fold_two(&self, first: Option<*const u8>, second: Option<*const u8>) {
        let PreparedPayload { send, recv, count, .. } = *self;
        // SAFETY: F, S; the result equals the private operand or is disjoint from both.
        unsafe { (self.fold)(recv, first.unwrap_or(send), second.unwrap_or(send), count) }
    }

    /// `result = result op next`.
    #[inline(always)]
    pub(in crate::protocol) fn fold_next(&self, next: *const u8) {
        let PreparedPayload { recv, count, .. } = *self;
        // SAFETY: F, S; the destination equals the left operand.
        unsafe { (self.fold)(recv, recv, next, count) }
    }
}
