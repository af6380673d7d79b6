//! Reductions that MPI folds, two rows of elements at a time: by operators of users, and on types that earlybird does not
//! have. What moves between ranks is packed; each rank folds in its own layout of the type, by `MPI_Reduce_local`.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, asked, constants};
use crate::buffers::{Failure, Packable, bytes_of, not_null, read, write};
use crate::seats::Carried;
use earlybird::BytesOp;
use std::ffi::{c_int, c_void};

type Done = Result<(), Failure>;

/// A reduction that is taken over and folded by MPI.
pub struct Users {
    seat: &'static Carried,
    op: Handle,
    commutes: bool,
    /// The elements of a block.
    block: Packable,
    /// Whether they lie in memory as they are packed.
    dense: bool,
}

impl Users {
    /// `None` where MPI must have the call: elements without data, no operator.
    pub fn new(seat: &'static Carried, count: usize, dtype: Handle, op: Handle, comm: Handle) -> Option<Users> {
        let bytes = abi::type_size(dtype).filter(|bytes| *bytes > 0)?;
        if op == constants().no_op || op == 0 || bytes_of(count, bytes).is_none() {
            return None;
        }
        // SAFETY: MPI runs and the operator is the caller's; writes one int.
        let commutes = asked(|flag| unsafe { abi::PMPI_Op_commutative(op, flag) })?;
        // Of a derived type only MPI knows the order in memory.
        let dense = seat.handles.dtype(dtype).is_some_and(|known| known.dense);
        Some(Users { seat, op, commutes: commutes != 0, block: Packable { dtype, comm, bytes, count }, dense })
    }

    /// Bytes of a block.
    pub fn bytes(&self) -> usize {
        self.block.bytes * self.block.count
    }

    /// # Safety
    /// `send` (unless in place) and `receive` have the elements of a block, as MPI demands.
    pub unsafe fn allreduce(&self, send: *const c_void, receive: *mut c_void) -> Done {
        let (comm, row) = (&self.seat.comm, Row::of(self.block.dtype)?);
        let op = self.folder(&row)?;
        // SAFETY: by the caller's contract.
        unsafe { self.in_place(send, receive, |values| Ok(comm.all_reduce_raw(None, values, &op)?)) }
    }

    /// # Safety
    /// As `allreduce`; `receive` on the root only.
    pub unsafe fn reduce(&self, send: *const c_void, receive: *mut c_void, root: usize) -> Done {
        let (comm, row) = (&self.seat.comm, Row::of(self.block.dtype)?);
        let op = self.folder(&row)?;
        let reduce = |values: &mut [u8]| Ok(comm.process_at_rank(root).reduce_raw(None, values, &op)?);
        if root == self.seat.rank {
            // SAFETY: by the caller's contract.
            return unsafe { self.in_place(send, receive, reduce) };
        }
        if send == constants().in_place {
            let what = "MPI_IN_PLACE on a rank that is not the root";
            return Err(Failure::Argument(constants().err_buffer, what));
        }
        // SAFETY: by the caller's contract.
        let mut values = unsafe { self.packed(send, self.block)? };
        reduce(&mut values)
    }

    /// # Safety
    /// `send`, or `receive` if in place, has a block for each rank; `receive` has room for one.
    pub unsafe fn reduce_scatter_block(&self, send: *const c_void, receive: *mut c_void) -> Done {
        let (comm, row) = (&self.seat.comm, Row::of(self.block.dtype)?);
        let op = self.folder(&row)?;
        let from = if send == constants().in_place { receive.cast_const() } else { send };
        let all = Packable { count: self.block.count * self.seat.size, ..self.block };
        let mut own = vec![0; self.bytes()];
        // SAFETY: by the caller's contract.
        unsafe {
            let values = self.packed(from, all)?;
            comm.reduce_scatter_block_raw(&values, &mut own, &op)?;
            self.unpacked(&own, receive)
        }
    }

    /// Runs `reduce` on this rank's elements, and puts what it leaves there in `receive`.
    ///
    /// # Safety
    /// As `allreduce`.
    unsafe fn in_place(
        &self,
        send: *const c_void,
        receive: *mut c_void,
        reduce: impl FnOnce(&mut [u8]) -> Done,
    ) -> Done {
        let from = if send == constants().in_place { receive.cast_const() } else { send };
        // SAFETY: by the caller's contract.
        unsafe {
            let mut values = self.packed(from, self.block)?;
            reduce(&mut values)?;
            self.unpacked(&values, receive)
        }
    }

    /// # Safety
    /// `from` points to the elements `what`.
    unsafe fn packed(&self, from: *const c_void, what: Packable) -> Result<Vec<u8>, Failure> {
        let bytes = what.bytes * what.count;
        if self.dense {
            not_null(from, bytes)?;
            // SAFETY: by the caller's contract; bytes have no alignment and no invalid values.
            return Ok(unsafe { read::<u8>(from, bytes) }.to_vec());
        }
        let mut packed = vec![0; bytes];
        // SAFETY: by the caller's contract; the vector is as long as the signature.
        unsafe { what.pack(from, &mut packed)? };
        Ok(packed)
    }

    /// # Safety
    /// `to` has room for a block.
    unsafe fn unpacked(&self, from: &[u8], to: *mut c_void) -> Done {
        if self.dense {
            not_null(to, from.len())?;
            // SAFETY: by the caller's contract; `from` is this library's own.
            unsafe { write::<u8>(to, from.len()) }.copy_from_slice(from);
            return Ok(());
        }
        // SAFETY: by the caller's contract; `from` is as long as the signature.
        unsafe { self.block.unpack(from, to) }
    }

    /// The operator. A row that MPI does not fold fails the call on every rank, as an operator that panics.
    #[allow(clippy::type_complexity)] // a closure has no name to give it
    fn folder<'a>(&'a self, row: &'a Row) -> Result<BytesOp<impl Fn(&[u8], &mut [u8]) + Sync + 'a>, Failure> {
        let fold = move |left: &[u8], right: &mut [u8]| {
            let done = self.fold(row, left, right);
            assert!(done.is_ok(), "MPI_Reduce_local or packing for it failed: {done:?}");
        };
        Ok(BytesOp::new(self.block.bytes, self.commutes, fold)?)
    }

    /// Folds two rows of packed elements into the right one.
    fn fold(&self, row: &Row, left: &[u8], right: &mut [u8]) -> Done {
        let count = left.len() / self.block.bytes;
        if self.dense {
            return self.call(left.as_ptr().cast(), right.as_mut_ptr().cast(), count);
        }
        let elements = Packable { count, ..self.block };
        let (bytes, first) = row.span(count);
        let words = bytes.div_ceil(size_of::<u128>());
        let mut memory = vec![0u128; 2 * words];
        let (a, b) = memory.split_at_mut(words);
        // Where the first element is said to lie; what is touched lies inside.
        let [a, b] = [a, b].map(|part| part.as_mut_ptr().wrapping_byte_offset(first.wrapping_neg()).cast::<c_void>());
        // SAFETY: each part has room for the elements as their type lays them out.
        unsafe {
            elements.unpack(left, a)?;
            elements.unpack(right, b)?;
            self.call(a, b, count)?;
            elements.pack(b, right)
        }
    }

    /// `right[i] = left[i] op right[i]`: two rows of elements in the layout of their type.
    fn call(&self, left: *const c_void, right: *mut c_void, count: usize) -> Done {
        // SAFETY: MPI runs; both rows are this library's own and have `count` elements, fewer than an `int` can say.
        match unsafe { abi::PMPI_Reduce_local(left, right, count as c_int, self.block.dtype, self.op) } {
            0 => Ok(()),
            code => Err(Failure::Mpis(code)),
        }
    }
}

/// How rows of elements lie in memory.
struct Row {
    extent: isize,
    true_lower: isize,
    true_extent: isize,
}

impl Row {
    fn of(dtype: Handle) -> Result<Row, Failure> {
        let unknown = Failure::Argument(constants().err_other, "MPI does not tell the extent of a type");
        match (abi::extent(dtype), abi::true_extent(dtype)) {
            (Some((_, extent)), Some((true_lower, true_extent))) => Ok(Row { extent, true_lower, true_extent }),
            _ => Err(unknown),
        }
    }

    /// Bytes that `count` elements, at least one, span, and where their first byte lies from the address of the first element.
    fn span(&self, count: usize) -> (usize, isize) {
        let last = self.extent * (count as isize - 1);
        ((self.true_extent + last.abs()) as usize, self.true_lower + last.min(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_span_what_their_elements_touch() {
        // Elements that begin 4 bytes after their address, 8 long, 16 apart; the same one after the other backwards.
        let row = Row { extent: 16, true_lower: 4, true_extent: 8 };
        assert_eq!((row.span(1), row.span(3)), ((8, 4), (40, 4)));
        assert_eq!(Row { extent: -16, ..row }.span(3), (40, -28));
    }
}
