//! The arithmetic on buffers that ranks lend each other: the invariants are those of the payload (S, P).
#![allow(unsafe_code)]

use crate::kernels::Kernels;
use crate::protocol::call::{Arithmetic, Call};
use crate::protocol::pieces::Pieces;

impl Call<'_> {
    /// Whether [`Call::fold_into_both`] can be used: one pass, no accumulator.
    pub(in crate::protocol) fn folds_into_both(&self) -> bool {
        matches!(&self.prepared.arithmetic, Arithmetic::Built(Kernels { fold_both: Some(_), .. }))
    }

    /// `first = second = first op second`, piece `i` of the buffers of two ranks.
    pub(in crate::protocol) fn fold_into_both(&self, first: *mut u8, second: *mut u8, pieces: &Pieces, i: usize) {
        let Arithmetic::Built(Kernels { fold_both: Some([fold_both, _]), .. }) = &self.prepared.arithmetic else {
            unreachable!("asked before");
        };
        // SAFETY: S for both places, which belong to two ranks and so are disjoint; each equals one operand.
        unsafe { fold_both(first, second, first, second, pieces.len(i)) }
    }

    /// `sum = first op second`, in a private accumulator of at least one piece.
    pub(in crate::protocol) fn gather_two(
        &self,
        sum: &mut [u64],
        first: *const u8,
        second: *const u8,
        pieces: &Pieces,
        i: usize,
    ) {
        assert!(pieces.accumulator_piece_bytes(i) <= size_of_val(sum), "a private accumulator holds one piece");
        // The accumulator is private, so it differs from both places.
        self.add_two(sum.as_mut_ptr().cast(), first, second, pieces, i);
    }

    /// `result = sum`, from a private accumulator to the place of a rank's result.
    pub(in crate::protocol) fn hand_out(&self, result: *mut u8, sum: &[u64], pieces: &Pieces, i: usize) {
        assert!(pieces.accumulator_piece_bytes(i) <= size_of_val(sum), "a private accumulator holds one piece");
        // SAFETY: S for the result, the check above; `sum` is borrowed exclusively by the caller.
        unsafe { self.finish(result, sum.as_ptr().cast(), pieces.len(i)) }
    }
}
