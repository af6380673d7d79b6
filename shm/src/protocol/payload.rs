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

use super::call::{Call, Pieces, Signature};
use crate::Error;
use crate::config::Algorithm;
use crate::kernels::{self, kernels};
use crate::op::{DType, Element, Op};
use std::marker::PhantomData;
use std::ops::Range;

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
    pub fn call(
        &self,
        elements: Range<usize>,
        signature: Signature,
        op: Op,
        by_rank: bool,
        algorithm: Algorithm,
    ) -> Call<'_> {
        assert!(elements.start <= elements.end && elements.end <= self.count, "{elements:?} of {}", self.count);
        let element_bytes = self.dtype.size();
        let offset = elements.start * element_bytes;
        // SAFETY: B: the offset lies inside both buffers by the check above.
        let (send, recv) = unsafe { (self.send.add(offset), self.recv.add(offset)) };
        Call {
            signature,
            hash: signature.hash(),
            count: elements.len(),
            element_bytes,
            kernels: kernels(self.dtype, op),
            send,
            recv,
            by_rank,
            algorithm,
            borrowed: PhantomData,
        }
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
        // SAFETY: B, S, P; private and shared memory do not overlap.
        unsafe { kernels::copy(self.result(pieces, i), shared, pieces.bytes(i)) }
    }

    /// `result = result op shared`.
    pub(super) fn take_fold(&self, shared: *const u8, pieces: &Pieces, i: usize) {
        let result = self.result(pieces, i);
        // SAFETY: B, S, P; the destination equals the left operand.
        unsafe { (self.kernels.fold)(result, result, shared, pieces.len(i)) }
    }

    /// `shared = shared op mine`.
    pub(super) fn add_mine(&self, shared: *mut u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S, P; the destination equals the left operand.
        unsafe { (self.kernels.fold)(shared, shared, self.mine(pieces, i), pieces.len(i)) }
    }

    /// `result = shared = shared op mine`.
    pub(super) fn add_mine_and_take(&self, shared: *mut u8, pieces: &Pieces, i: usize) {
        let (mine, result) = (self.mine(pieces, i), self.result(pieces, i));
        // SAFETY: B, S, P; the second destination equals the right operand or is disjoint from everything.
        unsafe { (self.kernels.fold_both)(shared, result, shared, mine, pieces.len(i)) }
    }

    /// `sum = sum op shared`, both in shared memory.
    pub(super) fn add(&self, sum: *mut u8, shared: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: S for both places, which differ; P.
        unsafe { (self.kernels.fold)(sum, sum, shared, pieces.len(i)) }
    }

    /// `sum = shared`, both in shared memory.
    pub(super) fn start(&self, sum: *mut u8, shared: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: S for both places, which differ; P.
        unsafe { kernels::copy(sum, shared, pieces.bytes(i)) }
    }
}
