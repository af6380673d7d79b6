//! The arithmetic of a call on its private buffers and one place in shared memory: the protocol's only unsafe code.
//!
//! Invariants, relied on by every block here:
//!
//! * **B (buffers)**: `send` is readable and `recv` writable for the call's elements while the call lives, and they
//!   are equal or disjoint: [`Buffers`] borrows them as slices and cuts calls only inside them.
//! * **S (shared place)**: the pointer argument comes from [`super::board::Board::read`] or `write` for a place that
//!   holds at least piece `i`, and the protocol has ordered this access: promised by the algorithm files, shown by
//!   the loom models.
//! * **P (piece)**: `i < pieces.number` and `pieces` cuts exactly this call, so piece `i` lies inside both buffers.
#![allow(unsafe_code)]

use super::call::{Call, Pieces, Prepared};
use crate::Error;
use crate::kernels;
use crate::op::{DType, Element};
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes of a whole message from which its result no longer fits in a core's cache beside the operands, and is
/// written past the caches: slower at 256 KiB, faster from 1 MiB, with 2 MiB of cache per core.
const PAST_CACHES_MIN_BYTES: usize = 1 << 20;

/// The private buffers of one user call, borrowed for as long as it runs.
#[derive(Debug)]
pub struct Buffers<'a> {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    dtype: DType,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffers<'a> {
    /// A contribution and the place of the result.
    ///
    /// # Errors
    /// [`Error::Usage`] when their lengths differ.
    pub fn apart<T: Element>(send: &'a [T], recv: &'a mut [T]) -> Result<Self, Error> {
        if send.len() != recv.len() {
            return Err(Error::usage(format!(
                "the send buffer has {} elements and the receive buffer {}; give buffers of one length",
                send.len(),
                recv.len()
            )));
        }
        let (send, count) = (send.as_ptr().cast(), send.len());
        Ok(Buffers { send, recv: recv.as_mut_ptr().cast(), count, dtype: T::DTYPE, borrowed: PhantomData })
    }

    /// The result replaces the contribution.
    pub fn in_place<T: Element>(buf: &'a mut [T]) -> Self {
        let recv = buf.as_mut_ptr().cast::<u8>();
        Buffers { send: recv, recv, count: buf.len(), dtype: T::DTYPE, borrowed: PhantomData }
    }

    /// Elements.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Their type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The result of a group of one: the contribution.
    pub fn copy(&self) {
        if !core::ptr::eq(self.send, self.recv) {
            // SAFETY: B, and they are not equal.
            unsafe { kernels::copy(self.recv, self.send, self.count * self.dtype.size()) }
        }
    }

    /// The part `elements` of the call as one operation.
    #[inline]
    pub fn call<'b>(&'b self, elements: Range<usize>, prepared: &'b Prepared) -> Call<'b> {
        assert!(elements.start <= elements.end && elements.end <= self.count, "{elements:?} of {}", self.count);
        assert!(self.dtype == prepared.dtype, "a call prepared for {:?}", prepared.dtype);
        let element_bytes = self.dtype.size();
        let offset = elements.start * element_bytes;
        // SAFETY: B: the offset lies inside both buffers by the check above.
        let (send, recv) = unsafe { (self.send.add(offset), self.recv.add(offset)) };
        let past_caches = self.count * element_bytes >= PAST_CACHES_MIN_BYTES && self.send != self.recv;
        Call { prepared, count: elements.len(), element_bytes, send, recv, past_caches, borrowed: PhantomData }
    }
}

impl Call<'_> {
    fn mine(&self, pieces: &Pieces, i: usize) -> *const u8 {
        // SAFETY: P: the offset lies inside the buffer, or the piece is empty and the offset 0.
        unsafe { self.send.add(pieces.offset(i)) }
    }

    fn result(&self, pieces: &Pieces, i: usize) -> *mut u8 {
        // SAFETY: P, as above.
        unsafe { self.recv.add(pieces.offset(i)) }
    }

    /// `shared = mine`.
    pub(super) fn give(&self, shared: *mut u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S, P; private and shared memory do not overlap.
        unsafe { kernels::copy(shared, self.mine(pieces, i), pieces.bytes(i)) }
    }

    /// `result = shared`.
    pub(super) fn take(&self, shared: *const u8, pieces: &Pieces, i: usize) {
        let result = self.result(pieces, i);
        // SAFETY: B, S, P; private and shared memory do not overlap.
        unsafe {
            match self.past_caches {
                true => (self.prepared.kernels.copy_streaming)(result, shared, pieces.len(i)),
                false => kernels::copy(result, shared, pieces.bytes(i)),
            }
        }
    }

    /// `shared = mine`, for a payload that fits in a line.
    #[inline(always)]
    pub(super) fn give_few(&self, shared: *mut u8) {
        // SAFETY: B, S: the place holds the whole payload; element sizes are 4 and 8.
        unsafe { kernels::copy_few(shared, self.send, self.bytes()) }
    }

    /// `result = first op second`, for payloads that fit in a line; `None` stands for this rank's own, which is read
    /// from the private buffer: its line may still be on the way here.
    #[inline(always)]
    pub(super) fn take_few(&self, first: Option<*const u8>, second: Option<*const u8>) {
        // SAFETY: B, S; the result equals the private operand or is disjoint from both.
        unsafe {
            (self.prepared.fold_few)(self.recv, first.unwrap_or(self.send), second.unwrap_or(self.send), self.count)
        }
    }

    /// `result = result op shared`, for a payload that fits in a line.
    #[inline(always)]
    pub(super) fn take_fold_few(&self, shared: *const u8) {
        // SAFETY: B, S; the destination equals the left operand.
        unsafe { (self.prepared.fold_few)(self.recv, self.recv, shared, self.count) }
    }

    /// `result = result op shared`.
    pub(super) fn take_fold(&self, shared: *const u8, pieces: &Pieces, i: usize) {
        let result = self.result(pieces, i);
        // SAFETY: B, S, P; the destination equals the left operand.
        unsafe { (self.prepared.kernels.fold)(result, result, shared, pieces.len(i)) }
    }

    /// `shared = shared op mine`.
    pub(super) fn add_mine(&self, shared: *mut u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S, P; the destination equals the left operand.
        unsafe { (self.prepared.kernels.fold)(shared, shared, self.mine(pieces, i), pieces.len(i)) }
    }

    /// `result = shared = shared op mine`.
    pub(super) fn add_mine_and_take(&self, shared: *mut u8, pieces: &Pieces, i: usize) {
        let (mine, result) = (self.mine(pieces, i), self.result(pieces, i));
        let kernels = &self.prepared.kernels;
        let fold_both = if self.past_caches { kernels.fold_both_streaming } else { kernels.fold_both };
        // SAFETY: B, S, P; the second destination equals the right operand or is disjoint from everything.
        unsafe { fold_both(shared, result, shared, mine, pieces.len(i)) }
    }

    /// `sum = sum op shared`, both in shared memory.
    pub(super) fn add(&self, sum: *mut u8, shared: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: S for both places, which differ; P.
        unsafe { (self.prepared.kernels.fold)(sum, sum, shared, pieces.len(i)) }
    }

    /// `sum = shared`, both in shared memory.
    pub(super) fn start(&self, sum: *mut u8, shared: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: S for both places, which differ; P.
        unsafe { kernels::copy(sum, shared, pieces.bytes(i)) }
    }
}
