//! The arithmetic of an exchange, on parts of the buffers: the invariants are those of the payload (B, S).
#![allow(unsafe_code)]

use crate::kernels;
use crate::protocol::call::{Arithmetic, Call};
use crate::protocol::lines::INLINE_BYTES;
use crate::protocol::store_pace::Stores;

/// Copies by such stores.
///
/// # Safety
/// The contract of [`kernels::copy`].
pub(super) unsafe fn copy_with(dst: *mut u8, src: *const u8, bytes: usize, stores: Stores) {
    // SAFETY: the contract of this function.
    unsafe {
        match stores {
            Stores::PastCaches => kernels::copy_streaming(dst, src, bytes),
            Stores::Ordinary | Stores::Timed { .. } => kernels::copy(dst, src, bytes),
        }
    }
}

impl Call<'_> {
    /// `piece[within..] = mine[from..]`, `len` elements.
    pub(in crate::protocol) fn deposit_part(
        &self,
        piece: *mut u8,
        within: usize,
        from: usize,
        len: usize,
        stores: Stores,
    ) {
        assert!(from <= self.send_count && len <= self.send_count - from, "{from}+{len} of {}", self.send_count);
        let size = self.element_bytes;
        // SAFETY: B by the check, S: the piece holds `within + len` elements.
        unsafe { copy_with(piece.add(within * size), self.send.add(from * size), len * size, stores) }
    }

    /// `result[to..] = piece[within..]`, `len` elements.
    pub(in crate::protocol) fn receive_part(&self, piece: *const u8, within: usize, to: usize, len: usize) {
        let (from, result) = (piece.wrapping_add(within * self.element_bytes), self.part(to, len));
        // SAFETY: B by the check in `part`, S: the piece holds `within + len` elements.
        unsafe {
            match &self.prepared.arithmetic {
                Arithmetic::Moved(Some(clean)) => clean(result, from, len, self.prepared.ranks),
                _ => copy_with(result, from, len * self.element_bytes, self.result_stores),
            }
        }
    }

    /// `result[to..] = result[to..] op piece[within..]`, `len` elements, where the result is its own accumulator.
    pub(in crate::protocol) fn fold_part(&self, piece: *const u8, within: usize, to: usize, len: usize) {
        let result = self.part(to, len);
        // SAFETY: B by the check in `part`, S; the destination equals the left operand.
        unsafe {
            let piece = piece.add(within * self.element_bytes);
            match self.prepared.fold_few {
                Some(fold) if len * self.element_bytes <= INLINE_BYTES => fold(result, result, piece, len),
                _ => self.fold(result, result, piece, len),
            }
        }
    }

    /// `sum[at..] = sum[at..] op piece[within..]`, or `= piece[within..]` if it `starts`, `len` elements, in a private
    /// accumulator.
    pub(in crate::protocol) fn gather_part(
        &self,
        sum: &mut [u64],
        at: usize,
        starts: bool,
        piece: *const u8,
        within: usize,
        len: usize,
    ) {
        let bytes = self.prepared.accumulator_bytes;
        assert!((at + len) * bytes <= size_of_val(sum), "{at}+{len} of a private accumulator");
        // SAFETY: the check above, S: the piece holds `within + len` elements; `sum` is borrowed exclusively.
        unsafe {
            let sum = sum.as_mut_ptr().cast::<u8>().add(at * bytes);
            let piece = piece.add(within * self.element_bytes);
            match starts {
                true => self.widen(sum, piece, len, Stores::Ordinary),
                false => self.fold(sum, sum, piece, len),
            }
        }
    }

    /// `sum[..] = mine[from..]`, `len` elements, in a private accumulator.
    pub(in crate::protocol) fn gather_mine(&self, sum: &mut [u64], from: usize, len: usize) {
        assert!(from <= self.send_count && len <= self.send_count - from, "{from}+{len} of {}", self.send_count);
        // In B by the check above: what is gathered lies in this rank's contribution.
        self.gather_part(sum, 0, true, self.send, from, len);
    }

    /// `result[to..] = sum[..]`, `len` elements, from a private accumulator.
    pub(in crate::protocol) fn finish_part(&self, sum: &[u64], to: usize, len: usize) {
        assert!(len * self.prepared.accumulator_bytes <= size_of_val(sum), "{len} of a private accumulator");
        // SAFETY: B by the check in `part`, the check above.
        unsafe { self.finish(self.part(to, len), sum.as_ptr().cast(), len) }
    }

    /// `result[to..] = mine[from..]`, `len` elements, both private.
    pub(in crate::protocol) fn keep_part(&self, from: usize, to: usize, len: usize) {
        assert!(from <= self.send_count && len <= self.send_count - from, "{from}+{len} of {}", self.send_count);
        let (bytes, result) = (len * self.element_bytes, self.part(to, len));
        // SAFETY: B by the checks; the two may overlap where the contribution lies in the result.
        unsafe {
            let mine = self.send.add(from * self.element_bytes);
            match mine.addr().abs_diff(result.addr()) >= bytes {
                true => copy_with(result, mine, bytes, self.result_stores),
                false => core::ptr::copy(mine, result, bytes),
            }
        }
    }

    pub(super) fn part(&self, to: usize, len: usize) -> *mut u8 {
        assert!(to <= self.recv_count && len <= self.recv_count - to, "{to}+{len} of {}", self.recv_count);
        // SAFETY: B by the check.
        unsafe { self.recv.add(to * self.element_bytes) }
    }
}
