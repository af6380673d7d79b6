//! Reductions with user-defined operators.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, count_of_all, is_in_place};
use crate::comm::{Comm, of};
use crate::export::export;
use crate::reductions::{Reduction, root};
use crate::requests::{both_forms, recv_buffer};
use earlybird::{BytesOp, Counts, Error, ReduceOp};
use std::ffi::{c_int, c_uint, c_void};

type FoldFn = unsafe extern "C" fn(*const c_void, *mut c_void, usize, *mut c_void);

/// `eb_operator`.
#[repr(C)]
pub struct Operator {
    fold: Option<FoldFn>,
    context: *mut c_void,
    commutative: c_int,
    tag: c_uint,
}

/// The caller's function, its context, and the size of its elements.
struct UserFunction {
    fold: FoldFn,
    context: *mut c_void,
    bytes: usize,
}

// SAFETY: C: threads inside calls of the library run the function, one at a time per call; the context is only passed to it.
unsafe impl Sync for UserFunction {}
// SAFETY: as for `Sync`.
unsafe impl Send for UserFunction {}

impl UserFunction {
    fn call(&self, left: &[u8], right: &mut [u8]) {
        let count = right.len() / self.bytes;
        // SAFETY: C: the function does with elements what the header says, and returns; both hold `count` elements.
        unsafe { (self.fold)(left.as_ptr().cast(), right.as_mut_ptr().cast(), count, self.context) }
    }
}

/// Converts the caller's description to an operator on elements of `bytes` bytes.
///
/// # Safety
/// C: also while the operator is used.
#[allow(clippy::type_complexity)] // a closure has no name to give it
unsafe fn operator(
    op: *const Operator,
    bytes: usize,
) -> Result<BytesOp<impl Fn(&[u8], &mut [u8]) + Send + Sync + 'static>, Error> {
    // SAFETY: C.
    let op = unsafe { op.as_ref() };
    let op = op.ok_or_else(|| Error::usage("the operator is null; give the address of an eb_operator"))?;
    let Operator { fold, context, commutative, tag } = *op;
    let fold = fold.ok_or_else(|| Error::usage("the function of the operator is null; set its member fold"))?;
    if !(0..=1).contains(&commutative) {
        return Err(Error::usage(format!("the operator's member commutative is {commutative}; set it to 0 or 1")));
    }
    let function = UserFunction { fold, context, bytes };
    let op = BytesOp::new(bytes, commutative == 1, move |left: &[u8], right: &mut [u8]| function.call(left, right))?;
    op.tagged(u8::try_from(tag).unwrap_or(u8::MAX))
}

/// A reduction by the caller's operator.
fn reduction<F: Fn(&[u8], &mut [u8]) + Sync>(op: &BytesOp<F>) -> Reduction<'_> {
    Reduction { datatype: op.datatype(), op: ReduceOp::User(op) }
}

/// Returns the size of `count` elements.
fn in_bytes(count: usize, bytes: usize) -> Result<usize, Error> {
    let all = count.checked_mul(bytes);
    all.ok_or_else(|| Error::usage(format!("{count} elements of {bytes} bytes exceed the address space")))
}

export! {
    fn eb_allreduce_with(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
    ) {
        // SAFETY: H, C.
        unsafe {
            let op = operator(op, element_bytes)?;
            reduction(&op).allreduce(of(comm)?, send, BufferArg::recv(recv, count))
        }
    }

    fn eb_reduce_with(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
        to: usize,
    ) {
        // SAFETY: H, C.
        unsafe {
            let op = operator(op, element_bytes)?;
            reduction(&op).reduce(of(comm)?, send, BufferArg::recv(recv, count), to)
        }
    }

    fn eb_reduce_scatter_with(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
    ) {
        // SAFETY: H, C.
        unsafe {
            let comm = of(comm)?;
            let (op, blocks) = (operator(op, element_bytes)?, (Counts::Uniform, count_of_all(count, comm.size())?));
            reduction(&op).reduce_scatter(comm, send, BufferArg::recv(recv, count), blocks)
        }
    }
}

both_forms! {
    fn eb_iallreduce_with, eb_allreduce_with_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
    ) |builder| {
        let to = BufferArg::recv(recv, in_bytes(count, element_bytes)?);
        let from = if is_in_place(send) { to } else { BufferArg::send(send, to.count) };
        // SAFETY: C.
        unsafe {
            let (op, recv_values, send_values) = (operator(op, element_bytes)?, recv_buffer::<u8>(to)?, builder.send_buffer::<u8>(from)?);
            builder.build::<u8, _>(&[from], &[to], |comm| comm.all_reduce_raw_init(send_values, recv_values, op))
        }
    }

    fn eb_ireduce_with, eb_reduce_with_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
        to: usize,
    ) |builder| {
        let (root, recv) = (root(builder.comm, to)?, BufferArg::recv(recv, in_bytes(count, element_bytes)?));
        let from = if is_in_place(send) { recv } else { BufferArg::send(send, recv.count) };
        let to = if builder.comm.rank() == root { &[recv][..] } else { &[] };
        // SAFETY: C.
        unsafe {
            let recv_values = to.first().map_or(Ok(Vec::new()), |to| recv_buffer::<u8>(*to))?;
            let (op, send_values) = (operator(op, element_bytes)?, builder.send_buffer::<u8>(from)?);
            builder.build::<u8, _>(&[from], to, |comm| comm.process_at_rank(root).reduce_raw_init(send_values, recv_values, op))
        }
    }

    fn eb_ireduce_scatter_with, eb_reduce_scatter_with_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
    ) |builder| {
        let to = BufferArg::recv(recv, in_bytes(count, element_bytes)?);
        let all = count_of_all(to.count, builder.comm.size())?;
        let from = if is_in_place(send) { BufferArg { count: all, ..to } } else { BufferArg::send(send, all) };
        // SAFETY: C.
        unsafe {
            let (op, recv_values, send_values) = (operator(op, element_bytes)?, recv_buffer::<u8>(to)?, builder.send_buffer::<u8>(from)?);
            builder.build::<u8, _>(&[from], &[to], |comm| comm.reduce_scatter_block_raw_init(send_values, recv_values, op))
        }
    }
}
