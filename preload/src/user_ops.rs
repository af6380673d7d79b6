//! Reductions with user-defined operators, and on types that earlybird does not support. Packed elements move between ranks; each
//! rank folds them in its own layout of the type by `MPI_Reduce_local`.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants, query};
use crate::block::Block;
use crate::buffers::ReductionBuffers;
use crate::call::{CallFailure, CallResult};
use crate::intercepted::InterceptedComm;
use earlybird::{BytesOp, Collective, CollectiveArgs, Counts};
use std::ffi::{c_int, c_void};

/// An intercepted reduction whose elements MPI folds.
pub struct MpiFoldedReduction {
    intercepted: &'static InterceptedComm,
    op: Handle,
    is_commutative: bool,
    block: Block,
}

impl MpiFoldedReduction {
    /// `None` for a call that is forwarded: elements without data, no operator.
    pub fn new(
        intercepted: &'static InterceptedComm,
        count: usize,
        dtype: Handle,
        op: Handle,
        comm: Handle,
    ) -> Option<MpiFoldedReduction> {
        let count = i64::try_from(count).ok()?;
        let block = Block::new(intercepted.handles, count, dtype, comm).filter(|block| block.element_bytes > 0)?;
        if op == constants().null_op || op == 0 {
            return None;
        }
        // SAFETY: MPI runs and the operator is the caller's; writes one int.
        let is_commutative = query(|flag| unsafe { abi::PMPI_Op_commutative(op, flag) })? != 0;
        Some(MpiFoldedReduction { intercepted, op, is_commutative, block })
    }

    /// Bytes of a block.
    pub fn bytes(&self) -> usize {
        self.block.bytes()
    }

    /// Runs the reduction on copies of the elements, packed, and copies the result to the receive buffer.
    ///
    /// # Safety
    /// The buffers hold their elements, or have room for them, as MPI demands.
    pub unsafe fn run(
        &self,
        buffers: ReductionBuffers,
        collective: Collective,
        root: Option<usize>,
        counts: Counts<'_>,
    ) -> CallResult {
        let (comm, layout) = (&self.intercepted.comm, RowLayout::new(self.block.dtype)?);
        let op = self.fold_op(&layout)?;
        let [sent, received] = [buffers.sent, buffers.received].map(|count| self.block.with_count(count));
        let mut values = vec![0; sent.bytes()];
        // SAFETY: by the caller's contract; the vector is as long as the signature.
        unsafe { sent.copy_in(buffers.contribution(), &mut values)? };
        let mut result = Vec::new();
        if sent.count == received.count {
            comm.run(CollectiveArgs::describe(collective, root, counts, &mut values[..], &op))?;
            result = values;
        } else {
            result.resize(received.bytes(), 0);
            comm.run(CollectiveArgs::describe(collective, root, counts, (&values[..], &mut result[..]), &op))?;
        }
        // SAFETY: by the caller's contract.
        unsafe { received.copy_out(&result, buffers.recv) }
    }

    /// Returns the operator for earlybird. If MPI fails to fold, the call fails on every rank, as with an operator that panics.
    #[allow(clippy::type_complexity)] // a closure has no name to give it
    fn fold_op<'a>(
        &'a self,
        layout: &'a RowLayout,
    ) -> Result<BytesOp<impl Fn(&[u8], &mut [u8]) + Sync + 'a>, CallFailure> {
        let fold = move |left: &[u8], right: &mut [u8]| {
            let result = self.fold(layout, left, right);
            assert!(result.is_ok(), "MPI_Reduce_local or packing for it failed: {result:?}");
        };
        Ok(BytesOp::new(self.block.element_bytes, self.is_commutative, fold)?)
    }

    /// Folds two rows of packed elements into the right one.
    fn fold(&self, layout: &RowLayout, left: &[u8], right: &mut [u8]) -> CallResult {
        let count = left.len() / self.block.element_bytes;
        if self.block.is_dense {
            return self.reduce_local(left.as_ptr().cast(), right.as_mut_ptr().cast(), count);
        }
        let elements = self.block.with_count(count);
        let (bytes, first) = layout.span(count);
        let words = bytes.div_ceil(size_of::<u128>());
        let mut memory = vec![0u128; 2 * words];
        let (a, b) = memory.split_at_mut(words);
        // The address of the first element, which may lie outside of the part; all bytes that are read or written lie inside.
        let [a, b] = [a, b].map(|part| part.as_mut_ptr().wrapping_byte_offset(first.wrapping_neg()).cast::<c_void>());
        // SAFETY: each part has room for the elements as their type lays them out.
        unsafe {
            elements.unpack(left, a)?;
            elements.unpack(right, b)?;
            self.reduce_local(a, b, count)?;
            elements.pack(b, right)
        }
    }

    /// `right[i] = left[i] op right[i]`: two rows of elements in the layout of their type.
    fn reduce_local(&self, left: *const c_void, right: *mut c_void, count: usize) -> CallResult {
        // SAFETY: MPI runs; both rows are this library's own and have `count` elements, fewer than an `int` can say.
        match unsafe { abi::PMPI_Reduce_local(left, right, count as c_int, self.block.dtype, self.op) } {
            0 => Ok(()),
            code => Err(CallFailure::Mpi(code)),
        }
    }
}

/// The layout of a row of elements in memory.
struct RowLayout {
    extent: isize,
    true_lower: isize,
    true_extent: isize,
}

impl RowLayout {
    fn new(dtype: Handle) -> Result<RowLayout, CallFailure> {
        let unknown = CallFailure::Argument(constants().err_other, "MPI does not return the extent of a type");
        match (abi::extent(dtype), abi::true_extent(dtype)) {
            (Some((_, extent)), Some((true_lower, true_extent))) => Ok(RowLayout { extent, true_lower, true_extent }),
            _ => Err(unknown),
        }
    }

    /// Returns the bytes that `count` elements, at least one, span, and the offset of their first byte from the address of the first element.
    fn span(&self, count: usize) -> (usize, isize) {
        let last = self.extent * (count as isize - 1);
        ((self.true_extent + last.abs()) as usize, self.true_lower + last.min(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_span_the_bytes_of_their_elements() {
        // Elements that begin 4 bytes after their address, 8 long, 16 apart; the same in descending order of addresses.
        let layout = RowLayout { extent: 16, true_lower: 4, true_extent: 8 };
        assert_eq!((layout.span(1), layout.span(3)), ((8, 4), (40, 4)));
        assert_eq!(RowLayout { extent: -16, ..layout }.span(3), (40, -28));
    }
}
