//! The barrier and the reductions.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, block_starts, count_of_all, counts, is_in_place, with_slices};
use crate::codes::{self, with_type};
use crate::comm::{Comm, of};
use crate::export::export;
use earlybird::{Communicator, Element, Error, Op};
use std::ffi::{c_int, c_void};

/// Checks that the root is a rank.
pub fn root(comm: &Communicator, root: usize) -> Result<usize, Error> {
    match root < comm.size() {
        true => Ok(root),
        false => Err(Error::usage(format!("root {root} does not exist among {} ranks", comm.size()))),
    }
}

/// # Safety
/// C.
unsafe fn allreduce<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: BufferArg,
    op: Op,
) -> Result<(), Error> {
    let send = (!is_in_place(send)).then(|| BufferArg::send(send, recv.count));
    // SAFETY: C.
    unsafe {
        with_slices::<T>(send, recv, |send, recv| match send {
            Some(send) => comm.all_reduce_into(send, recv, op),
            None => comm.all_reduce_in_place(recv, op),
        })
    }
}

/// # Safety
/// C.
unsafe fn reduce<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: BufferArg,
    op: Op,
    root: usize,
) -> Result<(), Error> {
    let (to, here) = (comm.process_at_rank(root), comm.rank() == root);
    let contribution = if is_in_place(send) { recv.at.cast_const() } else { send };
    // SAFETY: C.
    unsafe {
        match (here, is_in_place(send)) {
            (false, _) => {
                let nothing = BufferArg::recv(std::ptr::null_mut(), 0);
                let contribution = BufferArg::send(contribution, recv.count);
                with_slices::<T>(Some(contribution), nothing, |send, _| to.reduce_into(send.unwrap_or(&[]), op))
            }
            (true, true) => with_slices::<T>(None, recv, |_, recv| to.reduce_in_place(recv, op)),
            (true, false) => with_slices::<T>(Some(BufferArg::send(send, recv.count)), recv, |send, recv| {
                to.reduce_into_root(send.unwrap_or(&[]), recv, op)
            }),
        }
    }
}

/// BlockCounts rank recv_counts `each[rank]` elements, all of them as many where `each` is `None`.
///
/// # Safety
/// C.
unsafe fn reduce_scatter<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: BufferArg,
    each: Option<&[usize]>,
    all: usize,
    op: Op,
) -> Result<(), Error> {
    let run = |send: &[T], recv: &mut [T]| match each {
        None => comm.reduce_scatter_block_into(send, recv, op),
        Some(each) => comm.reduce_scatter_varcount_into(send, recv, each, op),
    };
    // SAFETY: C.
    unsafe {
        if !is_in_place(send) {
            return with_slices::<T>(Some(BufferArg::send(send, all)), recv, |send, recv| {
                run(send.unwrap_or(&[]), recv)
            });
        }
        // `recv` holds the contribution, and the result goes to its beginning.
        let whole = BufferArg { count: all, ..recv };
        with_slices::<T>(None, whole, |_, whole| {
            let mut block = recv.copy_in::<T>()?;
            run(whole, &mut block)?;
            whole[..block.len()].copy_from_slice(&block);
            Ok(())
        })
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
            let (comm, op, recv) = (of(comm)?, codes::op(op)?, BufferArg::recv(recv, count));
            with_type!(codes::dtype(dtype)?, T => allreduce::<T>(comm, send, recv, op))
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
            let comm = of(comm)?;
            let (op, to, recv) = (codes::op(op)?, root(comm, to)?, BufferArg::recv(recv, count));
            with_type!(codes::dtype(dtype)?, T => reduce::<T>(comm, send, recv, op, to))
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
            let (op, all, recv) = (codes::op(op)?, count_of_all(count, comm.size())?, BufferArg::recv(recv, count));
            with_type!(codes::dtype(dtype)?, T => reduce_scatter::<T>(comm, send, recv, None, all, op))
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
            let (comm, op) = (of(comm)?, codes::op(op)?);
            let each = counts(each, comm.size())?;
            let (recv, all) = (BufferArg::recv(recv, each[comm.rank()]), block_starts(each)?[comm.size()]);
            with_type!(codes::dtype(dtype)?, T => reduce_scatter::<T>(comm, send, recv, Some(each), all, op))
        }
    }
}
