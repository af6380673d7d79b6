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

mod buffers;
mod exposed;
mod grouped;
mod in_place;
mod parts;
mod registered;
mod small_blocks;
mod small_exchange;
mod small_gather;
mod small_pairs;
mod small_payload;
mod small_scatter;

pub use buffers::Buffers;
pub use small_blocks::{BlockSizes, SmallBlocks};
pub use small_exchange::{PreparedExchange, SmallExchange};
pub use small_gather::{PreparedGather, SmallGather};
pub use small_pairs::{PreparedPairs, SmallPairs};
pub use small_payload::{PreparedPayload, SmallPayload};
pub use small_scatter::{PreparedScatter, SmallScatter, largest_bundle};

#[cfg(earlybird_loom)]
pub use {
    exposed::{load, store},
    registered::look,
};

use super::call::{Arithmetic, Call};
use super::pieces::Pieces;
use super::store_pace::Stores;
use crate::kernels;

/// Bytes of an accumulator that are folded and finished in turn where no kernel does both at once.
const BLOCK_BYTES: usize = 8 << 10;

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

    /// `sum = src`, from elements of the message to those of an accumulator; by such stores where they are the same.
    ///
    /// # Safety
    /// As [`kernels::Kernels::widen`].
    unsafe fn widen(&self, sum: *mut u8, src: *const u8, count: usize, stores: Stores) {
        // SAFETY: the caller's contract.
        unsafe {
            match &self.prepared.arithmetic {
                Arithmetic::Built(kernels::Kernels { widen: Some(widen), .. }) => widen(sum, src, count),
                _ => parts::copy_with(sum, src, count * self.element_bytes, stores),
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
                true => self.widen(sum, from, pieces.len(i), Stores::Ordinary),
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
    pub(super) fn begin(&self, sum: *mut u8, pieces: &Pieces, i: usize, stores: Stores) {
        // SAFETY: B, S, P; private and shared memory do not overlap.
        unsafe { self.widen(sum, self.mine(pieces, i), pieces.len(i), stores) }
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
        unsafe { self.widen(sum, deposit, pieces.len(i), Stores::Ordinary) }
    }

    /// `sum = first op second`, all in shared memory.
    pub(super) fn add_two(&self, sum: *mut u8, first: *const u8, second: *const u8, pieces: &Pieces, i: usize) {
        let len = pieces.len(i);
        // SAFETY: S for the three places, which differ; P.
        unsafe {
            match self.prepared.fold_few {
                Some(_) => self.fold(sum, first, second, len),
                None => {
                    self.widen(sum, first, len, Stores::Ordinary);
                    self.fold(sum, sum, second, len);
                }
            }
        }
    }
}
