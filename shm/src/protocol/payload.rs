//! The arithmetic of a call on its private buffers and one place in shared memory: the protocol's only unsafe code.
//!
//! Invariants, relied on by every block here:
//!
//! * **B (buffers)**: `send` is readable for `send_count` and `recv` writable for `recv_count` elements while the call
//!   lives, and one of them lies inside the other or they are disjoint: [`Buffers`] borrows them as slices and cuts calls only
//!   inside them. Whole pieces are used only of calls that have both, equal or disjoint, or are checked here.
//! * **S (shared place)**: the pointer argument comes from [`super::board::Board::read`] or `write` for a place that
//!   holds at least piece `i`, and the protocol has ordered this access: promised by the algorithm files, shown by
//!   the loom models.
//! * **P (piece)**: `i < pieces.number` and `pieces` cuts exactly this call, so piece `i` lies inside both buffers.
#![allow(unsafe_code)]

mod exposed;
mod grouped;
mod in_place;
mod parts;
mod registered;
mod small_exchange;
mod small_gather;
mod small_payload;

pub use small_exchange::{PreparedExchange, SmallBlocks, SmallExchange};
pub use small_gather::{PreparedGather, SmallGather};
pub use small_payload::{PreparedPayload, SmallPayload};

#[cfg(earlybird_loom)]
pub use {
    exposed::{load, store},
    registered::look,
};

use super::call::{Arithmetic, Call, Prepared};
use super::geometry::{Exchange, Window};
use super::pieces::Pieces;
use super::{shared_result::SharedResult, store_pace::Stores};
use crate::kernels;
use crate::op::{Datatype, Element};
use std::{borrow::Cow, marker::PhantomData, ops::Range};

/// Bytes of an accumulator that are folded and finished in turn where no kernel does both at once.
const BLOCK_BYTES: usize = 8 << 10;

/// The buffers of one call, borrowed for as long as it runs, without their type.
#[derive(Debug)]
pub struct Buffers<'a> {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    send_count: usize,
    recv_count: usize,
    datatype: Datatype,
    /// The result replaces the contribution.
    in_place: bool,
    /// Both are whole numbers of elements.
    is_whole: bool,
    /// The names of the buffers, where they are registered.
    registered: Option<[u64; 2]>,
    /// The result that all ranks share.
    shared: Option<&'a SharedResult>,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffers<'a> {
    /// A send buffer and a receive buffer, each of its own length.
    pub fn apart<T: Element>(send: &'a [T], recv: &'a mut [T]) -> Self {
        // SAFETY: an `Element` is what its type's tag says.
        unsafe { Self::erased_apart(send, recv, T::DTYPE.into()) }
    }

    /// One buffer, in which the result replaces the contribution.
    pub fn in_place<T: Element>(buf: &'a mut [T]) -> Self {
        // SAFETY: as above.
        unsafe { Self::erased_in_place(buf, T::DTYPE.into()) }
    }

    /// A send buffer and a receive buffer of elements of `datatype`, each of one or more values of `T`.
    ///
    /// # Safety
    /// Whatever a call on `datatype` writes to `recv` is made of values of `T`.
    #[inline(always)]
    pub unsafe fn erased_apart<T>(send: &'a [T], recv: &'a mut [T], datatype: Datatype) -> Self {
        let counts = [elements(send, datatype), elements(recv, datatype)];
        Self::new(send.as_ptr().cast(), recv.as_mut_ptr().cast(), counts, datatype, false)
    }

    /// One buffer of elements of `datatype`, in which the result replaces the contribution.
    /// # Safety
    /// The contract of [`Buffers::erased_apart`].
    #[inline(always)]
    pub unsafe fn erased_in_place<T>(buf: &'a mut [T], datatype: Datatype) -> Self {
        let (recv, count) = (buf.as_mut_ptr().cast::<u8>(), elements(buf, datatype));
        Self::new(recv, recv, [count; 2], datatype, true)
    }

    #[inline(always)]
    fn new(
        send: *const u8,
        recv: *mut u8,
        [(send_count, send_is_whole), (recv_count, recv_is_whole)]: [(usize, bool); 2],
        datatype: Datatype,
        in_place: bool,
    ) -> Self {
        Buffers {
            send,
            recv,
            count: send_count.max(recv_count),
            send_count,
            recv_count,
            datatype,
            in_place,
            is_whole: send_is_whole && recv_is_whole,
            registered: None,
            shared: None,
            borrowed: PhantomData,
        }
    }

    /// The same buffers of a rank whose contribution is only a part of the buffer: where it lies there.
    pub fn with_own_send(self, own: Range<usize>) -> Self {
        assert!(own.start <= own.end && own.end <= self.send_count, "{own:?} of {}", self.send_count);
        Buffers { send: self.send.wrapping_add(own.start * self.datatype.size()), send_count: own.len(), ..self }
    }

    /// The same buffers of a rank whose result is only a part of the buffer: where it lies there.
    pub fn with_own_recv(self, own: Range<usize>) -> Self {
        assert!(own.start <= own.end && own.end <= self.recv_count, "{own:?} of {}", self.recv_count);
        Buffers { recv: self.recv.wrapping_add(own.start * self.datatype.size()), recv_count: own.len(), ..self }
    }

    /// The same buffers of a rank that only sends.
    pub fn without_recv(self) -> Self {
        Buffers { recv_count: 0, count: self.send_count, ..self }
    }

    /// The same buffers of a rank that only receives.
    pub fn without_send(self) -> Self {
        Buffers { send_count: 0, count: self.recv_count, ..self }
    }

    /// The receive buffer, in which the result replaces what was received before.
    pub fn received_in_place(self) -> Self {
        Buffers { send: self.recv, send_count: self.recv_count, count: self.recv_count, in_place: true, ..self }
    }

    /// The send buffer as bytes, and the receive buffer. `None` where both are the same; a copy where one is a part of the other.
    pub fn into_bytes(self) -> (Option<Cow<'a, [u8]>>, &'a mut [u8]) {
        let bytes = [self.send_count, self.recv_count].map(|count| count * self.datatype.size());
        // SAFETY: B: borrowed for `'a`, the receive buffer exclusively. The contribution is given out beside it only where they
        // are apart or one is empty.
        unsafe {
            let send = match () {
                () if !self.in_place || bytes.contains(&0) => {
                    Some(core::slice::from_raw_parts(self.send, bytes[0]).into())
                }
                () if bytes[0] == bytes[1] && core::ptr::eq(self.send, self.recv) => None,
                () => Some(Cow::Owned(core::slice::from_raw_parts(self.send, bytes[0]).to_vec())),
            };
            (send, core::slice::from_raw_parts_mut(self.recv, bytes[1]))
        }
    }

    /// Returns whether the result replaces the contribution.
    pub fn are_in_place(&self) -> bool {
        self.in_place
    }

    /// Returns whether their lengths are whole numbers of elements.
    pub fn are_whole(&self) -> bool {
        self.is_whole
    }

    /// Elements that this rank sends.
    pub fn send_count(&self) -> usize {
        self.send_count
    }

    /// Elements that this rank receives.
    pub fn recv_count(&self) -> usize {
        self.recv_count
    }

    /// Elements of the longer buffer.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The type of the elements.
    pub fn datatype(&self) -> Datatype {
        self.datatype
    }

    /// Makes the result of a group of one, of which `exchange` is: its contribution, where a result has a part of this rank's own.
    pub fn copy(&self, exchange: &Exchange<'_>) {
        if exchange.receives(0, 0) && !core::ptr::eq(self.send, self.recv) {
            // SAFETY: B, and they are not equal; the shorter length.
            unsafe { kernels::copy(self.recv, self.send, self.send_count.min(self.recv_count) * self.datatype.size()) }
        }
    }

    /// The part `elements` of a reduction, barrier or broadcast as one operation.
    #[inline]
    pub fn call<'b>(&'b self, elements: Range<usize>, prepared: &'b Prepared<'b>) -> Call<'b> {
        assert!(elements.start <= elements.end && elements.end <= self.count, "{elements:?} of {}", self.count);
        let count = elements.len();
        let (skip, has) =
            (elements.start * self.datatype.size(), |whole: usize| if whole == self.count { count } else { 0 });
        let mut call = self.whole(prepared, None);
        (call.count, call.send_count, call.recv_count) = (count, has(self.send_count), has(self.recv_count));
        if call.send_count == count {
            // SAFETY: B: the offset lies inside the buffer by the check above.
            call.send = unsafe { call.send.add(skip) };
        }
        if call.recv_count == count {
            // SAFETY: B, as above.
            call.recv = unsafe { call.recv.add(skip) };
        }
        call.shared = self.shared.map(|shared| (shared, skip));
        call
    }

    /// One window of an exchange.
    pub fn window<'b>(&'b self, window: &'b Window<'b>, prepared: &'b Prepared<'b>) -> Call<'b> {
        self.whole(prepared, Some(window))
    }

    #[inline]
    fn whole<'b>(&'b self, prepared: &'b Prepared<'b>, window: Option<&'b Window<'b>>) -> Call<'b> {
        assert!(self.datatype == prepared.datatype, "a call prepared for {:?}", prepared.datatype);
        let (element_bytes, in_place) = (self.datatype.size(), self.send == self.recv);
        let result_bytes = element_bytes * if window.is_some() { self.recv_count } else { self.count };
        Call {
            prepared,
            count: self.count,
            element_bytes,
            send: self.send,
            recv: self.recv,
            send_count: self.send_count,
            recv_count: self.recv_count,
            window,
            registered: self.registered,
            shared: None,
            result_stores: Stores::of_result(prepared.collective, result_bytes, window.is_some(), in_place),
            borrowed: PhantomData,
        }
    }
}

/// Elements of `datatype` in a buffer, and whether they fill it.
#[inline(always)]
fn elements<T>(buffer: &[T], datatype: Datatype) -> (usize, bool) {
    let bytes = size_of_val(buffer);
    match datatype {
        // Powers of two, all of them.
        Datatype::Builtin(dtype) => (bytes >> dtype.size().trailing_zeros(), bytes & (dtype.size() - 1) == 0),
        Datatype::Opaque(size) => match bytes.checked_div(size) {
            Some(count) => (count, count * size == bytes),
            // Elements without size are refused later.
            None => (buffer.len(), true),
        },
    }
}

impl Call<'_> {
    fn mine(&self, pieces: &Pieces, i: usize) -> *const u8 {
        assert!(pieces.count <= self.send_count, "this rank sends nothing");
        // SAFETY: P: the offset lies inside the buffer, or the piece is empty and the offset 0.
        unsafe { self.send.add(pieces.offset(i)) }
    }

    fn result(&self, pieces: &Pieces, i: usize) -> *mut u8 {
        assert!(pieces.count <= self.recv_count, "this rank has no result");
        // SAFETY: P, as above.
        unsafe { self.recv.add(pieces.offset(i)) }
    }

    /// `dst = a op b`, in elements of the accumulator where the operands are one.
    ///
    /// # Safety
    /// As [`kernels::Kernels::fold`].
    #[inline]
    unsafe fn fold(&self, dst: *mut u8, a: *const u8, b: *const u8, count: usize) {
        // SAFETY: the caller's contract; `Buffers::call` has compared the type of the elements.
        unsafe {
            match &self.prepared.arithmetic {
                Arithmetic::Built(kernels) => (kernels.fold)(dst, a, b, count),
                Arithmetic::User(operator) => operator.fold(dst, a, b, count),
                Arithmetic::Moved(_) => unreachable!("a call that folds has an operator"),
            }
        }
    }

    /// `sum = src`, from elements of the message to those of an accumulator.
    ///
    /// # Safety
    /// As [`kernels::Kernels::widen`].
    unsafe fn widen(&self, sum: *mut u8, src: *const u8, count: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            match &self.prepared.arithmetic {
                Arithmetic::Built(kernels::Kernels { widen: Some(widen), .. }) => widen(sum, src, count),
                _ => kernels::copy(sum, src, count * self.element_bytes),
            }
        }
    }

    /// `dst = sum`, from elements of an accumulator to those of the result.
    ///
    /// # Safety
    /// As [`kernels::Kernels::finish`].
    unsafe fn finish(&self, dst: *mut u8, sum: *const u8, count: usize) {
        // SAFETY: the caller's contract.
        unsafe {
            match &self.prepared.arithmetic {
                Arithmetic::Built(kernels::Kernels { finish: Some(finish), .. }) => {
                    finish(dst, sum, count, self.prepared.ranks);
                }
                Arithmetic::Moved(Some(clean)) => clean(dst, sum, count, self.prepared.ranks),
                _ => parts::copy_with(dst, sum, count * self.element_bytes, self.result_stores),
            }
        }
    }

    /// `deposit = mine`.
    pub(super) fn give(&self, deposit: *mut u8, pieces: &Pieces, i: usize, stores: Stores) {
        // SAFETY: B, S, P; private and shared memory do not overlap.
        unsafe { parts::copy_with(deposit, self.mine(pieces, i), pieces.bytes(i), stores) }
    }

    /// `deposit = mine`, for a payload that fits in a line.
    #[inline(always)]
    pub(super) fn give_few(&self, deposit: *mut u8) {
        // SAFETY: B, S: the place holds the whole payload.
        unsafe { kernels::copy_few(deposit, self.send, self.bytes()) }
    }

    /// `result = deposit`, where the result is its own accumulator.
    pub(super) fn take_first(&self, deposit: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S, P; private and shared memory do not overlap.
        unsafe { kernels::copy(self.result(pieces, i), deposit, pieces.bytes(i)) }
    }

    /// `result = result op deposit`, where the result is its own accumulator.
    pub(super) fn take_fold(&self, deposit: *const u8, pieces: &Pieces, i: usize) {
        let result = self.result(pieces, i);
        // SAFETY: B, S, P; the destination equals the left operand.
        unsafe { self.fold(result, result, deposit, pieces.len(i)) }
    }

    /// `sum = sum op deposit`, or `sum = deposit` if it `starts`, in a private accumulator of at least one piece; `None`
    /// stands for this rank's own contribution.
    pub(super) fn gather(&self, sum: &mut [u64], starts: bool, deposit: Option<*const u8>, pieces: &Pieces, i: usize) {
        assert!(pieces.accumulator_piece_bytes(i) <= size_of_val(sum), "a private accumulator holds one piece");
        let (sum, from) = (sum.as_mut_ptr().cast::<u8>(), deposit.unwrap_or(self.mine(pieces, i)));
        // SAFETY: B, S, P, and the check above; `sum` is borrowed exclusively, so it is neither buffer nor place.
        unsafe {
            match starts {
                true => self.widen(sum, from, pieces.len(i)),
                false => self.fold(sum, sum, from, pieces.len(i)),
            }
        }
    }

    /// `result = sum`, from a private accumulator.
    pub(super) fn take_gathered(&self, sum: &[u64], pieces: &Pieces, i: usize) {
        assert!(pieces.accumulator_piece_bytes(i) <= size_of_val(sum), "a private accumulator holds one piece");
        self.take(sum.as_ptr().cast(), pieces, i);
    }

    /// `result = sum`.
    pub(super) fn take(&self, sum: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S, P; the result does not overlap the accumulator.
        unsafe { self.finish(self.result(pieces, i), sum, pieces.len(i)) }
    }

    /// `sum = mine`.
    pub(super) fn begin(&self, sum: *mut u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S, P; private and shared memory do not overlap.
        unsafe { self.widen(sum, self.mine(pieces, i), pieces.len(i)) }
    }

    /// `sum = sum op mine`.
    pub(super) fn add_mine(&self, sum: *mut u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S, P; the destination equals the left operand.
        unsafe { self.fold(sum, sum, self.mine(pieces, i), pieces.len(i)) }
    }

    /// `result = sum = sum op mine`.
    pub(super) fn add_mine_and_take(&self, sum: *mut u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S, P: `mine` is this rank's part of the piece.
        unsafe { self.fold_and_take(sum, self.mine(pieces, i), pieces, i) }
    }

    /// `result = sum = sum op shared`, the last two in shared memory.
    pub(super) fn add_and_take(&self, sum: *mut u8, shared: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S for both places, which differ; P.
        unsafe { self.fold_and_take(sum, shared, pieces, i) }
    }

    /// # Safety
    /// S for `sum`; `operand` holds the elements of the piece and is this rank's own part of it or disjoint from the
    /// result.
    unsafe fn fold_and_take(&self, sum: *mut u8, operand: *const u8, pieces: &Pieces, i: usize) {
        let (result, count) = (self.result(pieces, i), pieces.len(i));
        if let Arithmetic::Built(kernels::Kernels { fold_all: Some(fold_all), .. }) = &self.prepared.arithmetic {
            let (both, near) = ([sum, result], if self.result_stores == Stores::PastCaches { 1 } else { 2 });
            // SAFETY: B, S, P; the second destination equals the right operand or is disjoint from everything.
            return unsafe { fold_all(&both[..near], &both[near..], &[sum.cast_const(), operand], count) };
        }
        // Block by block, so that what is folded is still near when it is taken.
        let block = (BLOCK_BYTES / pieces.accumulator_bytes).max(1);
        for at in (0..count).step_by(block) {
            let (n, bytes) = (block.min(count - at), at * self.element_bytes);
            // SAFETY: B, S, P: elements `at..at + n` of the piece; a block of `mine` is read before it is overwritten
            // where the result replaces it.
            unsafe {
                let sum = sum.add(at * pieces.accumulator_bytes);
                self.fold(sum, sum, operand.add(bytes), n);
                self.finish(result.add(bytes), sum, n);
            }
        }
    }

    /// `sum = sum op deposit`, both in shared memory.
    pub(super) fn add(&self, sum: *mut u8, deposit: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: S for both places, which differ; P.
        unsafe { self.fold(sum, sum, deposit, pieces.len(i)) }
    }

    /// `sum = deposit`, both in shared memory.
    pub(super) fn start(&self, sum: *mut u8, deposit: *const u8, pieces: &Pieces, i: usize) {
        // SAFETY: S for both places, which differ; P.
        unsafe { self.widen(sum, deposit, pieces.len(i)) }
    }

    /// `sum = first op second`, all in shared memory.
    pub(super) fn add_two(&self, sum: *mut u8, first: *const u8, second: *const u8, pieces: &Pieces, i: usize) {
        let len = pieces.len(i);
        // SAFETY: S for the three places, which differ; P.
        unsafe {
            match self.prepared.fold_few {
                Some(_) => self.fold(sum, first, second, len),
                None => {
                    self.widen(sum, first, len);
                    self.fold(sum, sum, second, len);
                }
            }
        }
    }
}
