//! Registered buffers and shared results, and the arithmetic on them: the invariants are those of the payload (S, P).
#![allow(unsafe_code)]

use super::Buffers;
use super::buffers::elements;
use crate::kernels::Kernels;
use crate::protocol::call::{Arithmetic, Call};
use crate::protocol::pieces::Pieces;
use crate::protocol::shared_result::SharedResult;
use crate::protocol::signature::Signature;

impl<'a> Buffers<'a> {
    /// The same buffers, which are registered under these names: they lie whole in shared memory.
    pub fn registered(self, names: [u64; 2]) -> Self {
        Buffers { registered: Some(names), ..self }
    }

    /// The same buffers, of which the place of the result is used only if all ranks do not share one.
    pub fn shared(self, shared: &'a SharedResult) -> Self {
        Buffers { shared: Some(shared), ..self }
    }

    /// The same send buffer, and the bytes of a receive buffer.
    pub fn received_in<'b>(self, recv: &'b mut [u8]) -> Buffers<'b>
    where
        'a: 'b,
    {
        let recv_count = elements(recv, self.datatype).0;
        let count = self.send_count.max(recv_count);
        Buffers { recv: recv.as_mut_ptr(), recv_count, count, in_place: false, ..self }
    }

    /// The call as its ranks must agree on it: what is said of where buffers and result lie is added.
    pub fn mark(&self, asked: Signature) -> Signature {
        match (self.registered, self.shared) {
            (Some(_), _) => asked.registered(),
            (None, Some(_)) => asked.shared(),
            (None, None) => asked,
        }
    }

    /// Returns whether neither they nor the result lie in shared memory.
    #[inline(always)]
    pub fn are_private(&self) -> bool {
        self.registered.is_none() && self.shared.is_none()
    }

    /// Returns whether they are registered.
    pub fn are_registered(&self) -> bool {
        self.registered.is_some()
    }
}

/// The words at `at`, for models that look at a shared result.
#[cfg(earlybird_loom)]
pub fn look<B: crate::protocol::board::Board>(board: &B, at: crate::protocol::board::Place, words: usize) -> Vec<u64> {
    // SAFETY: S: a modelled place holds at least a piece, and loom refuses the access if it is not ordered.
    board.read(at, |from| unsafe { core::slice::from_raw_parts(from.cast::<u64>(), words).to_vec() })
}

impl Call<'_> {
    /// Returns whether [`Call::fold_all`] can be used: one pass, no accumulator.
    pub(in crate::protocol) fn folds_all(&self) -> bool {
        matches!(&self.prepared.arithmetic, Arithmetic::Built(Kernels { fold_all: Some(_), .. }))
    }

    /// `results = sources[0] op sources[1] op …`, piece `i`, the results being those in `near` and in `far`: the registered
    /// buffers of all ranks. Those in `far` are written past the caches.
    pub(in crate::protocol) fn fold_all(
        &self,
        near: &[*mut u8],
        far: &[*mut u8],
        sources: &[*const u8],
        pieces: &Pieces,
        i: usize,
    ) {
        let Arithmetic::Built(Kernels { fold_all: Some(fold_all), .. }) = &self.prepared.arithmetic else {
            unreachable!("asked before");
        };
        // SAFETY: S for all places; each result is its rank's contribution or disjoint from all, and they belong to different
        // ranks, so they are disjoint.
        unsafe { fold_all(near, far, sources, pieces.len(i)) }
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
