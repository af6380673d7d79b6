//! The barrier and the reductions.
#![allow(unsafe_code)]

use crate::buffers::{Place, counts, is_in_place, lend, of_all, starts};
use crate::codes::{self, with_type};
use crate::comm::{Comm, of};
use crate::entry::export;
use earlybird::{Communicator, Element, Error, Op};
use std::ffi::{c_int, c_void};

/// The root, which must be a rank.
pub fn root(comm: &Communicator, root: usize) -> Result<usize, Error> {
    match root < comm.size() {
        true => Ok(root),
        false => Err(Error::usage(format!("root {root} does not exist among {} ranks", comm.size()))),
    }
}

/// # Safety
/// C.
unsafe fn allreduce<T: Element>(comm: &Communicator, send: *const c_void, recv: Place, op: Op) -> Result<(), Error> {
    let send = (!is_in_place(send)).then(|| Place::send(send, recv.count));
    // SAFETY: C.
    unsafe {
        lend::<T>(send, recv, |send, recv| match send {
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
    recv: Place,
    op: Op,
    root: usize,
) -> Result<(), Error> {
    let (to, here) = (comm.process_at_rank(root), comm.rank() == root);
    let given = if is_in_place(send) { recv.at.cast_const() } else { send };
    // SAFETY: C.
    unsafe {
        match (here, is_in_place(send)) {
            (false, _) => {
                let nothing = Place::recv(std::ptr::null_mut(), 0);
                let given = Place::send(given, recv.count);
                lend::<T>(Some(given), nothing, |send, _| to.reduce_into(send.unwrap_or(&[]), op))
            }
            (true, true) => lend::<T>(None, recv, |_, recv| to.reduce_in_place(recv, op)),
            (true, false) => lend::<T>(Some(Place::send(send, recv.count)), recv, |send, recv| {
                to.reduce_into_root(send.unwrap_or(&[]), recv, op)
            }),
        }
    }
}

/// Each rank gets `each[rank]` elements, all of them as many where `each` is `None`.
///
/// # Safety
/// C.
unsafe fn reduce_scatter<T: Element>(
    comm: &Communicator,
    send: *const c_void,
    recv: Place,
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
            return lend::<T>(Some(Place::send(send, all)), recv, |send, recv| run(send.unwrap_or(&[]), recv));
        }
        // What is given lies in `recv`, and the result comes to its beginning.
        let whole = Place { count: all, ..recv };
        lend::<T>(None, whole, |_, whole| {
            let mut block = recv.copied::<T>()?;
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
            let (comm, op, recv) = (of(comm)?, codes::op(op)?, Place::recv(recv, count));
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
            let (op, to, recv) = (codes::op(op)?, root(comm, to)?, Place::recv(recv, count));
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
            let (op, all, recv) = (codes::op(op)?, of_all(count, comm.size())?, Place::recv(recv, count));
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
            let (recv, all) = (Place::recv(recv, each[comm.rank()]), starts(each)?[comm.size()]);
            with_type!(codes::dtype(dtype)?, T => reduce_scatter::<T>(comm, send, recv, Some(each), all, op))
        }
    }
}
