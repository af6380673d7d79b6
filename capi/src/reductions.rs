//! The barrier and the reductions.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, NO_RECV, block_starts, count_of_all, counts, is_in_place, run, zeroed_bytes};
use crate::codes;
use crate::comm::{Comm, of};
use crate::export::export;
use earlybird::{CollectiveArgs, Communicator, Counts, Datatype, Error, ReduceOp};
use std::ffi::{c_int, c_void};

/// Checks that the root is a rank.
pub fn root(comm: &Communicator, root: usize) -> Result<usize, Error> {
    match root < comm.size() {
        true => Ok(root),
        false => Err(Error::usage(format!("root {root} does not exist among {} ranks", comm.size()))),
    }
}

/// The elements and the operator of a reduction.
#[derive(Clone, Copy)]
pub struct Reduction<'a> {
    pub datatype: Datatype,
    pub op: ReduceOp<'a>,
}

impl Reduction<'static> {
    /// Of a type and an operator as C numbers them.
    pub fn of_codes(dtype: c_int, op: c_int) -> Result<Self, Error> {
        Ok(Reduction { datatype: codes::dtype(dtype)?.into(), op: ReduceOp::Builtin(codes::op(op)?) })
    }
}

impl Reduction<'_> {
    /// # Safety
    /// C.
    #[inline]
    pub unsafe fn allreduce(self, comm: &Communicator, send: *const c_void, recv: BufferArg) -> Result<(), Error> {
        let send = (!is_in_place(send)).then(|| BufferArg::send(send, recv.count));
        // SAFETY: C.
        unsafe { run(comm, self.datatype, send, recv, |buffers| CollectiveArgs::all_reduce(buffers, self.op)) }
    }

    /// # Safety
    /// C.
    pub unsafe fn reduce(
        self,
        comm: &Communicator,
        send: *const c_void,
        recv: BufferArg,
        to: usize,
    ) -> Result<(), Error> {
        let (is_root, in_place) = (comm.rank() == root(comm, to)?, is_in_place(send));
        let contribution = if in_place { recv.at.cast_const() } else { send };
        let send = (!is_root || !in_place).then(|| BufferArg::send(contribution, recv.count));
        let recv = if is_root { recv } else { NO_RECV };
        // SAFETY: C.
        unsafe { run(comm, self.datatype, send, recv, |buffers| CollectiveArgs::reduce(to, buffers, self.op)) }
    }

    /// `recv` has this rank's block of as many elements as `counts` says, and all elements are `all`.
    ///
    /// # Safety
    /// C.
    pub unsafe fn reduce_scatter(
        self,
        comm: &Communicator,
        send: *const c_void,
        recv: BufferArg,
        (counts, all): (Counts<'_>, usize),
    ) -> Result<(), Error> {
        let scatter = |send: BufferArg, recv: BufferArg| {
            let args = |buffers| CollectiveArgs::reduce_scatter(buffers, self.op).counts(counts);
            // SAFETY: C.
            unsafe { run(comm, self.datatype, Some(send), recv, args) }
        };
        if !is_in_place(send) {
            return scatter(BufferArg::send(send, all), recv);
        }
        // `recv` holds the contribution, and the result goes to its beginning.
        let mut block = zeroed_bytes(recv.count, self.datatype)?;
        let result = BufferArg { at: block.as_mut_ptr().cast(), ..recv };
        scatter(BufferArg { count: all, ..recv }, result)?;
        if !block.is_empty() {
            // SAFETY: C: the buffer has room for a block, and was checked.
            unsafe { std::ptr::copy_nonoverlapping(block.as_ptr(), recv.at.cast(), block.len()) };
        }
        Ok(())
    }
}

export! {
    fn eb_barrier(comm: *const Comm) {
        // SAFETY: H.
        unsafe { of(comm)? }.barrier()
    }

    fn eb_allreduce(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
    ) {
        // SAFETY: H, C.
        unsafe {
            Reduction::of_codes(dtype, op)?.allreduce(of(comm)?, send, BufferArg::recv(recv, count))
        }
    }

    fn eb_reduce(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
        to: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            Reduction::of_codes(dtype, op)?.reduce(of(comm)?, send, BufferArg::recv(recv, count), to)
        }
    }

    fn eb_reduce_scatter(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let blocks = (Counts::Uniform, count_of_all(count, comm.size())?);
            Reduction::of_codes(dtype, op)?.reduce_scatter(comm, send, BufferArg::recv(recv, count), blocks)
        }
    }

    fn eb_reduce_scatterv(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        each: *const usize,
        dtype: c_int,
        op: c_int,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let each = counts(each, comm.size())?;
            let blocks = (Counts::PerRank(each), block_starts(each)?[comm.size()]);
            let recv = BufferArg::recv(recv, each[comm.rank()]);
            Reduction::of_codes(dtype, op)?.reduce_scatter(comm, send, recv, blocks)
        }
    }
}
