//! The arithmetic of a call on its private buffers and one place in shared memory: the protocol's only unsafe code.
//!
//! Invariants, relied on by every block here:
//!
//! * **B (buffers)**: `send` is readable for `send_count` and `recv` writable for `recv_count` elements while the call
//!   lives, and `send` lies inside `recv` or is disjoint from it: [`Buffers`] borrows them as slices and cuts calls only
//!   inside them. Whole pieces are used only of calls that have both, equal or disjoint, or are checked here.
//! * **S (shared place)**: the pointer argument comes from [`super::board::Board::read`] or `write` for a place that
//!   holds at least piece `i`, and the protocol has ordered this access: promised by the algorithm files, shown by
//!   the loom models.
//! * **P (piece)**: `i < pieces.number` and `pieces` cuts exactly this call, so piece `i` lies inside both buffers.
#![allow(unsafe_code)]

use super::call::{Call, Pieces, Prepared};
use super::geometry::Window;
use super::lines::INLINE_BYTES;
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
    send_count: usize,
    recv_count: usize,
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
        Ok(Buffers::both(send, recv))
    }

    /// What is given and the place of what is got, each of its own length.
    pub fn both<T: Element>(send: &'a [T], recv: &'a mut [T]) -> Self {
        Buffers {
            send: send.as_ptr().cast(),
            recv: recv.as_mut_ptr().cast(),
            count: send.len().max(recv.len()),
            send_count: send.len(),
            recv_count: recv.len(),
            dtype: T::DTYPE,
            borrowed: PhantomData,
        }
    }

    /// What this rank gives lies at `own` in the place of what it gets.
    pub fn own_part<T: Element>(buf: &'a mut [T], own: Range<usize>) -> Self {
        assert!(own.start <= own.end && own.end <= buf.len(), "{own:?} of {}", buf.len());
        let whole = Buffers::in_place(buf);
        let send = whole.send.wrapping_add(own.start * size_of::<T>());
        Buffers { send, send_count: own.len(), ..whole }
    }

    /// The result replaces the contribution.
    pub fn in_place<T: Element>(buf: &'a mut [T]) -> Self {
        let (recv, count) = (buf.as_mut_ptr().cast::<u8>(), buf.len());
        let (send_count, recv_count) = (count, count);
        Buffers { send: recv, recv, count, send_count, recv_count, dtype: T::DTYPE, borrowed: PhantomData }
    }

    /// Elements that this rank gives.
    pub fn send_count(&self) -> usize {
        self.send_count
    }

    /// Elements that this rank gets.
    pub fn recv_count(&self) -> usize {
        self.recv_count
    }

    /// Elements of the longer buffer.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Their type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The result of a group of one: what it gives. Every operation of one rank has it.
    pub fn copy(&self) {
        if !core::ptr::eq(self.send, self.recv) {
            // SAFETY: B, and they are not equal; the shorter length.
            unsafe { kernels::copy(self.recv, self.send, self.send_count.min(self.recv_count) * self.dtype.size()) }
        }
    }

    /// The part `elements` of a reduction, barrier or broadcast as one operation.
    #[inline]
    pub fn call<'b>(&'b self, elements: Range<usize>, prepared: &'b Prepared) -> Call<'b> {
        assert!(elements.start <= elements.end && elements.end <= self.count, "{elements:?} of {}", self.count);
        let count = elements.len();
        let (skip, has) =
            (elements.start * self.dtype.size(), |whole: usize| if whole == self.count { count } else { 0 });
        let mut call = self.whole(prepared);
        (call.count, call.send_count, call.recv_count) = (count, has(self.send_count), has(self.recv_count));
        if call.send_count == count {
            // SAFETY: B: the offset lies inside the buffer by the check above.
            call.send = unsafe { call.send.add(skip) };
        }
        if call.recv_count == count {
            // SAFETY: B, as above.
            call.recv = unsafe { call.recv.add(skip) };
        }
        call
    }

    /// One window of an exchange.
    pub fn window<'b>(&'b self, window: &'b Window<'b>, prepared: &'b Prepared) -> Call<'b> {
        Call { window: Some(window), ..self.whole(prepared) }
    }

    #[inline]
    fn whole<'b>(&'b self, prepared: &'b Prepared) -> Call<'b> {
        assert!(self.dtype == prepared.dtype, "a call prepared for {:?}", prepared.dtype);
        let element_bytes = self.dtype.size();
        Call {
            prepared,
            count: self.count,
            element_bytes,
            send: self.send,
            recv: self.recv,
            send_count: self.send_count,
            recv_count: self.recv_count,
            window: None,
            past_caches: self.count * element_bytes >= PAST_CACHES_MIN_BYTES && self.send != self.recv,
            borrowed: PhantomData,
        }
    }
}

impl Call<'_> {
    fn mine(&self, pieces: &Pieces, i: usize) -> *const u8 {
        assert!(pieces.count <= self.send_count, "this rank gives nothing");
        // SAFETY: P: the offset lies inside the buffer, or the piece is empty and the offset 0.
        unsafe { self.send.add(pieces.offset(i)) }
    }

    fn result(&self, pieces: &Pieces, i: usize) -> *mut u8 {
        assert!(pieces.count <= self.recv_count, "this rank has no result");
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

    /// `result = sum = sum op shared`, the last two in shared memory.
    pub(super) fn add_and_take(&self, sum: *mut u8, shared: *const u8, pieces: &Pieces, i: usize) {
        let (result, kernels) = (self.result(pieces, i), &self.prepared.kernels);
        let fold_both = if self.past_caches { kernels.fold_both_streaming } else { kernels.fold_both };
        // SAFETY: B, S for both places, which differ; P; the second destination is private.
        unsafe { fold_both(sum, result, sum, shared, pieces.len(i)) }
    }

    /// `sum = first op second`, all in shared memory.
    pub(super) fn add_two(&self, sum: *mut u8, first: *const u8, second: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: S for the three places, which differ; P.
        unsafe { (self.prepared.kernels.fold)(sum, first, second, pieces.len(i)) }
    }

    /// `sum = shared`, both in shared memory.
    pub(super) fn start(&self, sum: *mut u8, shared: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: S for both places, which differ; P.
        unsafe { kernels::copy(sum, shared, pieces.bytes(i)) }
    }

    /// `piece[within..] = mine[from..]`, `len` elements.
    pub(super) fn give_part(&self, piece: *mut u8, within: usize, from: usize, len: usize) {
        assert!(from <= self.send_count && len <= self.send_count - from, "{from}+{len} of {}", self.send_count);
        let size = self.element_bytes;
        // SAFETY: B by the check, S: the piece holds `within + len` elements.
        unsafe { kernels::copy(piece.add(within * size), self.send.add(from * size), len * size) }
    }

    /// `result[to..] = piece[within..]`, `len` elements.
    pub(super) fn take_part(&self, piece: *const u8, within: usize, to: usize, len: usize) {
        let size = self.element_bytes;
        // SAFETY: B by the check in `part`, S: the piece holds `within + len` elements.
        unsafe { kernels::copy(self.part(to, len), piece.add(within * size), len * size) }
    }

    /// `result[to..] = result[to..] op piece[within..]`, `len` elements.
    pub(super) fn fold_part(&self, piece: *const u8, within: usize, to: usize, len: usize) {
        let result = self.part(to, len);
        // SAFETY: B by the check in `part`, S; the destination equals the left operand.
        unsafe {
            let piece = piece.add(within * self.element_bytes);
            match len * self.element_bytes <= INLINE_BYTES {
                true => (self.prepared.fold_few)(result, result, piece, len),
                false => (self.prepared.kernels.fold)(result, result, piece, len),
            }
        }
    }

    /// `result[to..] = mine[from..]`, `len` elements, both private.
    pub(super) fn keep_part(&self, from: usize, to: usize, len: usize) {
        assert!(from <= self.send_count && len <= self.send_count - from, "{from}+{len} of {}", self.send_count);
        let (size, result) = (self.element_bytes, self.part(to, len));
        // SAFETY: B by the checks; they may overlap where the contribution lies in the result.
        unsafe { core::ptr::copy(self.send.add(from * size), result, len * size) }
    }

    fn part(&self, to: usize, len: usize) -> *mut u8 {
        assert!(to <= self.recv_count && len <= self.recv_count - to, "{to}+{len} of {}", self.recv_count);
        // SAFETY: B by the check.
        unsafe { self.recv.add(to * self.element_bytes) }
    }
}
