//! Reductions with user-defined operators, and on types that earlybird does not support. Packed elements move between ranks; each
//! rank folds them in its own layout of the type by `MPI_Reduce_local`.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants, query};
use crate::block::Block;
use crate::buffers::{ReductionBuffers, check_address};
use crate::call::NewRequest;
use crate::description::StartDescription;
use crate::failure::{CallFailure, CallResult};
use crate::functions::MpiFunction;
use crate::handles::OpKind;
use crate::intercepted::InterceptedComm;
use crate::kept_handles::{HandleKind, KeptHandle};
use crate::new_call::NewCall;
use crate::prepared::RequestBuffers;
use crate::row::Row;
use crate::scratch::Scratch;
use earlybird::{BytesOp, CallBuffers, Collective, CollectiveArgs, Counts, SharedReduceOp};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// An intercepted reduction whose elements MPI folds.
pub struct MpiFoldedReduction {
    intercepted: &'static InterceptedComm,
    comm: Handle,
    is_commutative: bool,
    block: Block,
    fold: MpiFold,
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
        let layout = if block.is_dense { None } else { Some(RowLayout::new(dtype)?) };
        if op == constants().null_op || op == 0 {
            return None;
        }
        // SAFETY: MPI runs and the operator is the caller's; writes one int.
        let is_commutative = query(|flag| unsafe { abi::PMPI_Op_commutative(op, flag) })? != 0;
        // Elements are packed for this process alone, perhaps when the call's communicator has been freed.
        let fold = MpiFold { op, element: Block { comm: constants().comm_self, ..block.with_count(1) }, layout };
        Some(MpiFoldedReduction { intercepted, comm, is_commutative, block, fold })
    }

    /// Bytes of a block.
    pub fn bytes(&self) -> usize {
        self.block.bytes()
    }

    /// Runs the reduction on the caller's elements where they follow one another and the buffers are apart, else on copies, packed.
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
        let comm = &self.intercepted.comm;
        let op = self.fold_op(())?;
        // SAFETY: by the caller's contract.
        if let Some((send, recv)) = unsafe { buffers.borrow(self.block.element_bytes) }.filter(|_| self.block.is_dense)
        {
            let buffers = CallBuffers::of_bytes(send, recv, op.datatype());
            return Ok(comm.run(CollectiveArgs::describe(collective, root, counts, buffers, &op))?);
        }
        let [sent, received] = [buffers.sent, buffers.received].map(|count| self.block.with_count(count));
        let mut values = Scratch::new(sent.bytes());
        // SAFETY: by the caller's contract; the memory is as long as the signature.
        unsafe { sent.copy_in(buffers.contribution(), &mut values)? };
        let result = if sent.count == received.count {
            comm.run(CollectiveArgs::describe(collective, root, counts, &mut values[..], &op))?;
            values
        } else {
            let mut result = Scratch::new(received.bytes());
            comm.run(CollectiveArgs::describe(collective, root, counts, (&values[..], &mut result[..]), &op))?;
            result
        };
        // SAFETY: by the caller's contract.
        unsafe { received.copy_out(&result, buffers.recv) }
    }

    /// Makes a request of the reduction on copies of the elements, packed; the result is copied to the receive buffer in the end. The
    /// operator runs wherever the call makes progress: in a thread that is inside a function of MPI.
    ///
    /// # Safety
    /// The contract of `run`; `request` is where the caller wants the request.
    pub unsafe fn begin(
        &self,
        buffers: ReductionBuffers,
        function: MpiFunction,
        root: Option<usize>,
        counts: Counts<'_>,
        request: NewRequest,
    ) -> CallResult {
        let (handles, block) = (self.intercepted.handles, &self.block);
        let [sent, received] = [buffers.sent, buffers.received].map(|count| block.with_count(count));
        if block.is_dense {
            check_address(buffers.contribution(), sent.bytes())?;
            check_address(buffers.recv, received.bytes())?;
        }
        let is_user_op = handles.op(self.fold.op) == OpKind::User;
        let kept_op = is_user_op.then(|| KeptHandle::new(HandleKind::Op, self.fold.op));
        let is_derived = handles.dtype(block.dtype).is_none();
        let kept_type = is_derived.then(|| KeptHandle::new(HandleKind::Type, block.dtype));
        let op = self.fold_op((kept_op, kept_type))?;
        let send = Some(Row::joined(buffers.contribution().cast_mut(), sent).into_copy()?);
        let recv = Row::joined(buffers.recv, received).into_copy()?;
        let (intercepted, comm, dtype) = (self.intercepted, self.comm, op.datatype());
        let op = SharedReduceOp::User(Arc::new(op));
        let call = StartDescription { function, root, counts, dtype, op };
        let new = NewCall { intercepted, comm, call };
        // SAFETY: by the caller's contract.
        unsafe { new.begin(RequestBuffers { send, recv }, request) }
    }

    /// Returns the operator for earlybird, which holds on to `kept`. If MPI fails to fold, the call fails on every rank, as with an
    /// operator that panics.
    #[allow(clippy::type_complexity)] // a closure has no name to give it
    fn fold_op<K: Send + Sync>(
        &self,
        kept: K,
    ) -> Result<BytesOp<impl Fn(&[u8], &mut [u8]) + Send + Sync + use<K>>, CallFailure> {
        let fold = self.fold;
        let fold = move |left: &[u8], right: &mut [u8]| {
            let _kept = &kept;
            let result = fold.fold(left, right);
            assert!(result.is_ok(), "MPI_Reduce_local or packing for it failed: {result:?}");
        };
        Ok(BytesOp::new(self.block.element_bytes, self.is_commutative, fold)?)
    }
}

/// The means by which MPI folds elements: the operator, and an element in the caller's layout.
#[derive(Clone, Copy)]
struct MpiFold {
    op: Handle,
    element: Block,
    /// The layout of elements that must be packed.
    layout: Option<RowLayout>,
}

impl MpiFold {
    /// Folds two rows of elements into the right one, packed ones by their layout.
    fn fold(&self, left: &[u8], right: &mut [u8]) -> CallResult {
        let count = left.len() / self.element.element_bytes;
        let Some(layout) = self.layout else {
            return self.reduce_local(left.as_ptr().cast(), right.as_mut_ptr().cast(), count);
        };
        let elements = self.element.with_count(count);
        let (bytes, first) = layout.span(count);
        let words = bytes.div_ceil(size_of::<u128>());
        let mut memory = Scratch::new(2 * words * size_of::<u128>());
        let (a, b) = memory.split_at_mut(words * size_of::<u128>());
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
        match unsafe { abi::PMPI_Reduce_local(left, right, count as c_int, self.element.dtype, self.op) } {
            0 => Ok(()),
            code => Err(CallFailure::Mpi(code)),
        }
    }
}

/// The layout of a row of elements in memory.
#[derive(Clone, Copy)]
struct RowLayout {
    extent: isize,
    true_lower: isize,
    true_extent: isize,
}

impl RowLayout {
    fn new(dtype: Handle) -> Option<RowLayout> {
        let ((_, extent), (true_lower, true_extent)) = (abi::extent(dtype)?, abi::true_extent(dtype)?);
        Some(RowLayout { extent, true_lower, true_extent })
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
