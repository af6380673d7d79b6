//! The arithmetic of a call on its private buffers and one place in shared memory: the protocol's only unsafe code.
//!
//! Invariants, relied on by every block here:
//!
//! * **B (buffers)**: `send` is readable and `recv` writable for `count` elements while the call runs, and they are
//!   disjoint or equal: promised by the caller of [`Call::new`].
//! * **S (shared place)**: the pointer argument comes from [`super::board::Board::read`] or `write` for a place that
//!   holds at least piece `i`, and the protocol has ordered this access: promised by the algorithm files, shown by
//!   the loom models.
//! * **P (piece)**: `i < pieces.number` and `pieces` cuts exactly this call, so piece `i` lies inside both buffers.
#![allow(unsafe_code)]

use super::call::{Call, Pieces, Signature};
use crate::config::Algorithm;
use crate::kernels::{self, Kernels};

impl Call {
    /// A call on private memory.
    ///
    /// # Safety
    ///
    /// `send` must be readable and `recv` writable for `count * element_bytes` bytes until the operation that runs
    /// this call has returned; they are equal (in place) or do not overlap. `kernels` must belong to elements of
    /// `element_bytes` bytes.
    #[allow(clippy::too_many_arguments)]
    pub unsafe fn new(
        signature: Signature,
        count: usize,
        element_bytes: usize,
        kernels: Kernels,
        send: *const u8,
        recv: *mut u8,
        by_rank: bool,
        algorithm: Algorithm,
    ) -> Self {
        let hash = signature.hash();
        Call { signature, hash, count, element_bytes, kernels, send, recv, by_rank, algorithm }
    }

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
