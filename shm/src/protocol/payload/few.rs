//! The payload of an allreduce or barrier that fits in a line or in one piece of a deposit: what the straight way needs of a
//! call, and its arithmetic.
//!
//! The invariants are those of the module above; **F (few)**: `send` and `recv` are those of whole buffers of `count`
//! elements of `dtype`, `bytes` in all, equal or disjoint, or a part of such. A [`Bound`] has a fold of that type, whose
//! accumulators are elements.
#![allow(unsafe_code)]

use super::{Buffers, Call, Prepared};
use crate::kernels::{self, FoldFn};
use crate::op::{DType, ElementType};
use crate::protocol::flat::PIECE_BYTES;
use crate::protocol::lines::{INLINE_BYTES, RankLine};
use std::marker::PhantomData;

/// Pieces of what goes the straight way at most: one, but a piece of a model is smaller than what it deposits.
const MOST_PIECES: usize = if cfg!(earlybird_loom) { 2 } else { 1 };

/// Bytes that are copied into a deposit by a loop in place: 10 to 70 ns less than the system's function at 425 B under an MPI
/// program that finds it cold, 40 ns more at 1 KiB.
const SOME_BYTES: usize = 512;

/// The whole buffers of an allreduce or barrier with an operator of the library.
#[derive(Debug, Clone, Copy)]
pub struct Few<'a> {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    bytes: usize,
    dtype: DType,
    borrowed: PhantomData<&'a mut [u8]>,
}

/// The same in the call that it is the payload of.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    few: Few<'a>,
    fold: FoldFn,
    prepared: &'a Prepared<'a>,
}

impl Call<'_> {
    /// What the straight way needs of the call, if it may go there.
    pub(in crate::protocol) fn few(&self) -> Option<Bound<'_>> {
        let ElementType::Built(dtype) = self.prepared.element else { return None };
        let whole = self.send_count == self.count && self.recv_count == self.count && self.shared.is_none();
        Few::new(self.send, self.recv, self.count, dtype).filter(|_| whole)?.bind(self.prepared)
    }
}

impl<'a> Buffers<'a> {
    /// What of them the straight way needs; `None` where that is not all of them, or they are too large.
    #[inline(always)]
    pub fn few(&self) -> Option<Few<'a>> {
        let ElementType::Built(dtype) = self.element else { return None };
        let whole = self.send_count == self.count && self.recv_count == self.count && self.are_private();
        Few::new(self.send, self.recv, self.count, dtype).filter(|_| whole)
    }
}

impl<'a> Few<'a> {
    /// `count` elements of `dtype` as bytes, in `recv` where nothing is to `send`. Of another length than they say they never
    /// [`bind`](Few::bind).
    #[inline(always)]
    pub fn of_bytes(send: Option<&'a [u8]>, recv: &'a mut [u8], count: usize, dtype: DType) -> Option<Self> {
        let bytes = recv.len();
        let is_few = bytes <= MOST_PIECES * PIECE_BYTES && send.is_none_or(|send| send.len() == bytes);
        let send = send.map_or(recv.as_ptr(), <[u8]>::as_ptr);
        is_few.then_some(Few { send, recv: recv.as_mut_ptr(), count, bytes, dtype, borrowed: PhantomData })
    }

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
        (bytes <= most).then_some(Few { send, recv, count, bytes, dtype, borrowed: PhantomData })
    }

    /// The payload of the call `prepared`, if that may go the straight way with elements of this type.
    #[inline(always)]
    pub fn bind<'b>(self, prepared: &'b Prepared<'b>) -> Option<Bound<'b>>
    where
        'a: 'b,
    {
        let [few, many] = prepared.straight?;
        let fold = if self.bytes <= INLINE_BYTES { few } else { many };
        let is_whole = self.count.checked_mul(prepared.accumulator_bytes) == Some(self.bytes);
        (is_whole && prepared.element == ElementType::Built(self.dtype)).then_some(Bound { few: self, fold, prepared })
    }
}

impl Bound<'_> {
    /// The call as every other part of the protocol knows it.
    #[cold]
    pub(in crate::protocol) fn call(&self) -> Call<'_> {
        let Bound { few: Few { send, recv, count, .. }, prepared, .. } = *self;
        Call {
            prepared,
            count,
            element_bytes: prepared.element.size(),
            send,
            recv,
            send_count: count,
            recv_count: count,
            window: None,
            lent: None,
            shared: None,
            past_caches: false,
            borrowed: PhantomData,
        }
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

    /// How many pieces of a deposit it is.
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
        (skip, Bound { few: Few { send, recv, count: bytes / size, bytes, ..few }, ..*self })
    }

    /// Describes the call in `line`.
    #[inline(always)]
    pub(in crate::protocol) fn describe(&self, line: &RankLine) {
        line.describe(self.prepared.signature);
    }

    /// Makes the end of the call warm while there is time: the code of the fold and the place of the result.
    #[inline(always)]
    pub(in crate::protocol) fn prefetch(&self) {
        let Few { send, recv, .. } = self.few;
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
        let Few { send, recv, count, .. } = self.few;
        // SAFETY: F, S; the result equals the private operand or is disjoint from both.
        unsafe { (self.fold)(recv, first.unwrap_or(send), second.unwrap_or(send), count) }
    }

    /// `result = result op next`.
    #[inline(always)]
    pub(in crate::protocol) fn take_fold(&self, next: *const u8) {
        let Few { recv, count, .. } = self.few;
        // SAFETY: F, S; the destination equals the left operand.
        unsafe { (self.fold)(recv, recv, next, count) }
    }
}
