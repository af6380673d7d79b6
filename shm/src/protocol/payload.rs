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

mod few;
mod grouped;
mod lent;
mod parts;
mod raw;

pub use few::{Bound, Few};

#[cfg(earlybird_loom)]
pub use lent::look;

use super::call::{Arithmetic, Call, Prepared};
use super::geometry::Window;
use super::pieces::Pieces;
use super::shared_result::SharedResult;
use crate::Error;
use crate::kernels;
use crate::op::{Element, ElementType};
use crate::user_op::element_type;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::ops::Range;

/// Bytes of an accumulator that are folded and taken in turn where no kernel does both at once.
const BLOCK_BYTES: usize = 8 << 10;

/// The private buffers of one user call, borrowed for as long as it runs.
#[derive(Debug)]
pub struct Buffers<'a> {
    send: *const u8,
    recv: *mut u8,
    count: usize,
    send_count: usize,
    recv_count: usize,
    element: ElementType,
    /// Where the buffers lie in shared memory: their names.
    lent: Option<[u64; 2]>,
    /// The result that all ranks share.
    shared: Option<&'a SharedResult>,
    borrowed: PhantomData<&'a mut [u8]>,
}

impl<'a> Buffers<'a> {
    /// A contribution and the place of the result.
    ///
    /// # Errors
    /// [`Error::Usage`] when their lengths differ.
    pub fn apart<T: Element>(send: &'a [T], recv: &'a mut [T]) -> Result<Self, Error> {
        Self::of_one_length(send, recv, T::DTYPE.into())
    }

    /// As [`Buffers::apart`], for a user's operator.
    ///
    /// # Errors
    /// Also [`Error::Usage`] and [`Error::Unsupported`] for elements of no size and of too many bytes.
    pub fn apart_of<T: Pod>(send: &'a [T], recv: &'a mut [T]) -> Result<Self, Error> {
        Self::of_one_length(send, recv, element_type::<T>()?)
    }

    #[inline(always)]
    fn of_one_length<T>(send: &'a [T], recv: &'a mut [T], element: ElementType) -> Result<Self, Error> {
        if send.len() != recv.len() {
            return Err(Error::usage(format!(
                "the send buffer has {} elements and the receive buffer {}; give buffers of one length",
                send.len(),
                recv.len()
            )));
        }
        Ok(Buffers::two(send, recv, element))
    }

    /// What is given and the place of what is got, each of its own length.
    pub fn both<T: Element>(send: &'a [T], recv: &'a mut [T]) -> Self {
        Self::two(send, recv, T::DTYPE.into())
    }

    /// As [`Buffers::both`], for a user's operator.
    ///
    /// # Errors
    /// As [`Buffers::apart_of`].
    pub fn both_of<T: Pod>(send: &'a [T], recv: &'a mut [T]) -> Result<Self, Error> {
        Ok(Self::two(send, recv, element_type::<T>()?))
    }

    #[inline(always)]
    fn two<T>(send: &'a [T], recv: &'a mut [T], element: ElementType) -> Self {
        Buffers {
            send: send.as_ptr().cast(),
            recv: recv.as_mut_ptr().cast(),
            count: send.len().max(recv.len()),
            send_count: send.len(),
            recv_count: recv.len(),
            element,
            lent: None,
            shared: None,
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

    /// What this rank gets lies at `own` in what it gives.
    pub fn kept_part<T: Element>(buf: &'a mut [T], own: Range<usize>) -> Self {
        assert!(own.start <= own.end && own.end <= buf.len(), "{own:?} of {}", buf.len());
        let whole = Buffers::in_place(buf);
        let recv = whole.recv.wrapping_add(own.start * size_of::<T>());
        Buffers { recv, recv_count: own.len(), ..whole }
    }

    /// The result replaces the contribution.
    pub fn in_place<T: Element>(buf: &'a mut [T]) -> Self {
        Self::one(buf, T::DTYPE.into())
    }

    /// As [`Buffers::in_place`], for a user's operator.
    ///
    /// # Errors
    /// As [`Buffers::apart_of`].
    pub fn in_place_of<T: Pod>(buf: &'a mut [T]) -> Result<Self, Error> {
        Ok(Self::one(buf, element_type::<T>()?))
    }

    #[inline(always)]
    fn one<T>(buf: &'a mut [T], element: ElementType) -> Self {
        let (recv, count) = (buf.as_mut_ptr().cast::<u8>(), buf.len());
        let (send_count, recv_count) = (count, count);
        Buffers {
            send: recv,
            recv,
            count,
            send_count,
            recv_count,
            element,
            lent: None,
            shared: None,
            borrowed: PhantomData,
        }
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
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The result of a group of one: what it gives. Every operation of one rank has it.
    pub fn copy(&self) {
        if !core::ptr::eq(self.send, self.recv) {
            // SAFETY: B, and they are not equal; the shorter length.
            unsafe { kernels::copy(self.recv, self.send, self.send_count.min(self.recv_count) * self.element.size()) }
        }
    }

    /// The part `elements` of a reduction, barrier or broadcast as one operation.
    #[inline]
    pub fn call<'b>(&'b self, elements: Range<usize>, prepared: &'b Prepared<'b>) -> Call<'b> {
        assert!(elements.start <= elements.end && elements.end <= self.count, "{elements:?} of {}", self.count);
        let count = elements.len();
        let (skip, has) =
            (elements.start * self.element.size(), |whole: usize| if whole == self.count { count } else { 0 });
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
        call.shared = self.shared.map(|shared| (shared, skip));
        call
    }

    /// One window of an exchange.
    pub fn window<'b>(&'b self, window: &'b Window<'b>, prepared: &'b Prepared<'b>) -> Call<'b> {
        Call { window: Some(window), ..self.whole(prepared) }
    }

    #[inline]
    fn whole<'b>(&'b self, prepared: &'b Prepared<'b>) -> Call<'b> {
        assert!(self.element == prepared.element, "a call prepared for {:?}", prepared.element);
        let element_bytes = self.element.size();
        Call {
            prepared,
            count: self.count,
            element_bytes,
            send: self.send,
            recv: self.recv,
            send_count: self.send_count,
            recv_count: self.recv_count,
            window: None,
            lent: self.lent,
            shared: None,
            past_caches: self.send != self.recv && self.count * element_bytes >= kernels::streaming_min_bytes(),
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
                _ if self.past_caches => kernels::copy_streaming(dst, sum, count * self.element_bytes),
                _ => kernels::copy(dst, sum, count * self.element_bytes),
            }
        }
    }

    /// `deposit = mine`.
    pub(super) fn give(&self, deposit: *mut u8, pieces: &Pieces, i: usize) {
        // SAFETY: B, S, P; private and shared memory do not overlap.
        unsafe { kernels::copy(deposit, self.mine(pieces, i), pieces.bytes(i)) }
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
        if let Arithmetic::Built(kernels::Kernels { fold_both: Some(fold_both), .. }) = &self.prepared.arithmetic {
            let fold_both = fold_both[usize::from(self.past_caches)];
            // SAFETY: B, S, P; the second destination equals the right operand or is disjoint from everything.
            return unsafe { fold_both(sum, result, sum, operand, count) };
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
