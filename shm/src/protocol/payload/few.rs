//! The payload of an allreduce or barrier that fits in a line or in one piece of a deposit: what the fast path needs of a
//! call, and its arithmetic.
//!
//! The invariants are those of the module above; **F (few)**: `send` and `recv` are those of whole buffers of `count`
//! elements of `dtype`, `bytes` in all, equal or disjoint, or a part of such. A [`BoundPayload`] has a fold of that type, whose
//! accumulators are elements.
#![allow(unsafe_code)]

use super::{Buffers, Call, Prepared};
use crate::kernels::{self, FoldFn};
use crate::op::{DType, Datatype};
use crate::protocol::lines::{INLINE_BYTES, RankLine};
use crate::protocol::pieces::PIECE_BYTES;
use std::marker::PhantomData;

/// Pieces of what goes the fast path at most: one, but a piece of a model is smaller than what it deposits.
const MOST_PIECES: usize = if cfg!(earlybird_loom) { 2 } else { 1 };

/// Bytes that are copied into a deposit by a loop in place: 10 to 70 ns less than the system's function at 425 B under an MPI
/// program that finds it cold, 40 ns more at 1 KiB.
const SOME_BYTES: usize = 512;

/// The whole buffers of an allreduce or barrier with an operator of the library.
#[derive(Debug, Clone, Copy)]
pub struct SmallPayload<'a> {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    bytes: usize,
    dtype: DType,
    borrowed: PhantomData<&'a mut [u8]>,
}

/// The same in the call that it is the payload of.
#[derive(Debug, Clone, Copy)]
pub struct BoundPayload<'a> {
    few: SmallPayload<'a>,
    fold: FoldFn,
    prepared: &'a Prepared<'a>,
}

impl Call<'_> {
    /// The payload of the call for the fast path, if it may go there.
    pub(in crate::protocol) fn small_payload(&self) -> Option<BoundPayload<'_>> {
        let Datatype::Builtin(dtype) = self.prepared.datatype else { return None };
        let whole = self.send_count == self.count && self.recv_count == self.count && self.shared.is_none();
        SmallPayload::new(self.send, self.recv, self.count, dtype).filter(|_| whole)?.bind(self.prepared)
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

    /// Their type.
    #[inline(always)]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    #[inline(always)]
    fn new(send: *const u8, recv: *mut u8, count: usize, dtype: DType) -> Option<Self> {
        let most = MOST_PIECES * PIECE_BYTES;
        let bytes = count.min(most + 1) * dtype.size();
        (bytes <= most).then_some(SmallPayload { send, recv, count, bytes, dtype, borrowed: PhantomData })
    }

    /// The payload of the call `prepared`, if that may go the fast path with elements of this type.
    #[inline(always)]
    pub fn bind<'b>(self, prepared: &'b Prepared<'b>) -> Option<BoundPayload<'b>>
    where
        'a: 'b,
    {
        let [few, many] = prepared.fast_folds?;
        let fold = if self.bytes <= INLINE_BYTES { few } else { many };
        let is_whole = self.count.checked_mul(prepared.accumulator_bytes) == Some(self.bytes);
        (is_whole && prepared.datatype == Datatype::Builtin(self.dtype)).then_some(BoundPayload {
            few: self,
            fold,
            prepared,
        })
    }
}

impl BoundPayload<'_> {
    /// The call as every other part of the protocol knows it.
    #[cold]
    pub(in crate::protocol) fn call(&self) -> Call<'_> {
        let SmallPayload { send, recv, count, .. } = self.few;
        Call::of_fast_path(self.prepared, (send, count), (recv, count))
    }

    /// The hash of the call.
    #[inline(always)]
    pub(in crate::protocol) fn hash(&self) -> u32 {
        self.prepared.hash
    }

    /// Bytes of it.
    #[inline(always)]
    pub(in crate::protocol) fn bytes(&self) -> usize {
        self.few.bytes
    }

    /// The number of pieces of a deposit that it takes.
    #[inline(always)]
    pub(in crate::protocol) fn pieces(&self) -> usize {
        if MOST_PIECES == 1 { 1 } else { self.few.bytes.div_ceil(PIECE_BYTES) }
    }

    /// Piece `i` and how many bytes lie before it.
    #[inline(always)]
    pub(in crate::protocol) fn piece(&self, i: usize) -> (usize, Self) {
        if MOST_PIECES == 1 {
            return (0, *self);
        }
        let (few, size) = (self.few, self.few.dtype.size());
        let skip = (i * PIECE_BYTES).min(few.bytes);
        let bytes = (few.bytes - skip).min(PIECE_BYTES);
        // SAFETY: F, and `skip` is at most the length of both.
        let (send, recv) = unsafe { (few.send.add(skip), few.recv.add(skip)) };
        (skip, BoundPayload { few: SmallPayload { send, recv, count: bytes / size, bytes, ..few }, ..*self })
    }

    /// Describes the call in `line`.
    #[inline(always)]
    pub(in crate::protocol) fn describe(&self, line: &RankLine) {
        line.describe(self.prepared.signature);
    }

    /// Makes the end of the call warm while there is time: the code of the fold and the place of the result.
    #[inline(always)]
    pub(in crate::protocol) fn prefetch(&self) {
        let SmallPayload { send, recv, .. } = self.few;
        kernels::fetch_for_writing(recv);
        // SAFETY: F; of no elements, so nothing is read or written.
        unsafe { (self.fold)(recv, send, send, 0) }
    }

    /// `place = mine`.
    #[inline(always)]
    pub(in crate::protocol) fn give(&self, place: *mut u8) {
        // SAFETY: F, S: the place holds the whole payload.
        unsafe { kernels::copy_few(place, self.few.send, self.few.bytes) }
    }

    /// The same for what does not fit in a line.
    #[inline(always)]
    pub(in crate::protocol) fn give_many(&self, place: *mut u8) {
        // SAFETY: F, S: the place holds the whole payload.
        unsafe {
            match self.few.bytes {
                32..=SOME_BYTES => kernels::copy_some(place, self.few.send, self.few.bytes),
                bytes => kernels::copy(place, self.few.send, bytes),
            }
        }
    }

    /// `result = first op second`; `None` stands for this rank's own, which is read from the private buffer: its line may
    /// still be on the way here.
    #[inline(always)]
    pub(in crate::protocol) fn take(&self, first: Option<*const u8>, second: Option<*const u8>) {
        let SmallPayload { send, recv, count, .. } = self.few;
        // SAFETY: F, S; the result equals the private operand or is disjoint from both.
        unsafe { (self.fold)(recv, first.unwrap_or(send), second.unwrap_or(send), count) }
    }

    /// `result = result op next`.
    #[inline(always)]
    pub(in crate::protocol) fn take_fold(&self, next: *const u8) {
        let SmallPayload { recv, count, .. } = self.few;
        // SAFETY: F, S; the destination equals the left operand.
        unsafe { (self.fold)(recv, recv, next, count) }
    }
}
