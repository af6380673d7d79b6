//! Reductions with user-defined operators, and on types that earlybird does not support. Packed elements move between ranks; each
//! rank folds them in its own layout of the type by `MPI_Reduce_local`.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants, query};
use crate::block::{Block, per_rank};
use crate::functions::MpiFunction;
use crate::intercepted::InterceptedComm;
use crate::outcome::{CallFailure, CallResult};
use earlybird::{BytesOp, CollectiveArgs, Counts};
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

    /// Runs MPI_Allreduce.
    ///
    /// # Safety
    /// `send` (unless in place) and `recv` have the elements of a block, as MPI demands.
    pub unsafe fn allreduce(&self, send: *const c_void, recv: *mut c_void) -> CallResult {
        let (comm, layout) = (&self.intercepted.comm, RowLayout::new(self.block.dtype)?);
        let op = self.fold_op(&layout)?;
        // SAFETY: by the caller's contract.
        unsafe { self.in_place(send, recv, |values| Ok(comm.all_reduce_in_place(values, &op)?)) }
    }

    /// Runs MPI_Reduce.
    ///
    /// # Safety
    /// The contract of `allreduce`; `recv` on the root only.
    pub unsafe fn reduce(&self, send: *const c_void, recv: *mut c_void, root: usize) -> CallResult {
        let (comm, layout) = (&self.intercepted.comm, RowLayout::new(self.block.dtype)?);
        let op = self.fold_op(&layout)?;
        let reduce = |values: &mut [u8]| Ok(comm.process_at_rank(root).reduce_in_place(values, &op)?);
        if root == self.intercepted.rank {
            // SAFETY: by the caller's contract.
            return unsafe { self.in_place(send, recv, reduce) };
        }
        if send == constants().in_place {
            let what = "MPI_IN_PLACE on a rank that is not the root";
            return Err(CallFailure::Argument(constants().err_buffer, what));
        }
        // SAFETY: by the caller's contract.
        let mut values = unsafe { packed(&self.block, send)? };
        reduce(&mut values)
    }

    /// Runs MPI_Scan or MPI_Exscan, which leaves `recv` of the first rank as it is.
    ///
    /// # Safety
    /// The contract of `allreduce`; `recv` of the first rank is used in place only.
    pub unsafe fn scan(&self, send: *const c_void, recv: *mut c_void, call: MpiFunction) -> CallResult {
        let (comm, layout) = (&self.intercepted.comm, RowLayout::new(self.block.dtype)?);
        let op = self.fold_op(&layout)?;
        let scan = |values: &mut [u8]| {
            Ok(comm.run(CollectiveArgs::describe(call.collective(), None, Counts::Uniform, values, &op))?)
        };
        if call == MpiFunction::Scan || self.intercepted.rank > 0 {
            // SAFETY: by the caller's contract.
            return unsafe { self.in_place(send, recv, scan) };
        }
        let from = if send == constants().in_place { recv.cast_const() } else { send };
        // SAFETY: by the caller's contract.
        scan(&mut unsafe { packed(&self.block, from)? })
    }

    /// Runs MPI_Reduce_scatter_block.
    ///
    /// # Safety
    /// `send`, or `recv` if in place, has a block for each rank; `recv` has room for one.
    pub unsafe fn reduce_scatter_block(&self, send: *const c_void, recv: *mut c_void) -> CallResult {
        // SAFETY: by the caller's contract.
        unsafe { self.reduce_scatter(send, recv, &vec![self.block.count; self.intercepted.size]) }
    }

    /// Runs MPI_Reduce_scatter, with as many elements for each rank.
    ///
    /// # Safety
    /// `send`, or `recv` if in place, has all ranks' elements; `recv` has room for this rank's.
    pub unsafe fn reduce_scatter(&self, send: *const c_void, recv: *mut c_void, counts: &[usize]) -> CallResult {
        let layout = RowLayout::new(self.block.dtype)?;
        let op = self.fold_op(&layout)?;
        let from = if send == constants().in_place { recv.cast_const() } else { send };
        let own = self.block.with_count(counts[self.intercepted.rank]);
        let mut result = vec![0; own.bytes()];
        // SAFETY: by the caller's contract.
        unsafe {
            let values = packed(&self.block.with_count(counts.iter().sum()), from)?;
            let args = CollectiveArgs::reduce_scatter((&values[..], &mut result[..]), &op).counts(per_rank(counts));
            self.intercepted.comm.run(args)?;
            own.copy_out(&result, recv)
        }
    }

    /// Runs `reduce` on a copy of this rank's elements, and copies its result to `recv`.
    ///
    /// # Safety
    /// The contract of `allreduce`.
    unsafe fn in_place(
        &self,
        send: *const c_void,
        recv: *mut c_void,
        reduce: impl FnOnce(&mut [u8]) -> CallResult,
    ) -> CallResult {
        let from = if send == constants().in_place { recv.cast_const() } else { send };
        // SAFETY: by the caller's contract.
        unsafe {
            let mut values = packed(&self.block, from)?;
            reduce(&mut values)?;
            self.block.copy_out(&values, recv)
        }
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

/// Copies or packs the elements of `block` into a vector.
///
/// # Safety
/// `from` points to them.
unsafe fn packed(block: &Block, from: *const c_void) -> Result<Vec<u8>, CallFailure> {
    let mut packed = vec![0; block.bytes()];
    // SAFETY: by the caller's contract; the vector is as long as the signature.
    unsafe { block.copy_in(from, &mut packed)? };
    Ok(packed)
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
