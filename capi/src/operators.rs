//! Reductions by functions of the caller's.
#![allow(unsafe_code)]

use crate::buffers::{Place, is_in_place, lend, of_all};
use crate::comm::{Comm, of};
use crate::entry::export;
use crate::reductions::root;
use earlybird::{BytesOp, Error};
use std::ffi::{c_int, c_uint, c_void};

type Fold = unsafe extern "C" fn(*const c_void, *mut c_void, usize, *mut c_void);

/// `eb_operator`.
#[repr(C)]
pub struct Operator {
    fold: Option<Fold>,
    context: *mut c_void,
    commutative: c_int,
    tag: c_uint,
}

/// The caller's function and what it wants to be told.
struct Function {
    fold: Fold,
    context: *mut c_void,
    bytes: usize,
}

// SAFETY: C: the thread that is inside the call runs the function, no other one, and the context is only handed on to it.
unsafe impl Sync for Function {}

impl Function {
    fn call(&self, left: &[u8], right: &mut [u8]) {
        let count = right.len() / self.bytes;
        // SAFETY: C: the function does with elements what the header says, and returns; both hold `count` elements.
        unsafe { (self.fold)(left.as_ptr().cast(), right.as_mut_ptr().cast(), count, self.context) }
    }
}

type Folding<'a> = &'a (dyn Fn(&[u8], &mut [u8]) + Sync);

/// Runs `call` with an operator on elements of `bytes` bytes.
///
/// # Safety
/// C.
unsafe fn with(
    op: *const Operator,
    bytes: usize,
    call: impl FnOnce(&BytesOp<Folding<'_>>) -> Result<(), Error>,
) -> Result<(), Error> {
    // SAFETY: C.
    let op = unsafe { op.as_ref() };
    let op = op.ok_or_else(|| Error::usage("the operator is null; give the address of an eb_operator"))?;
    let Operator { fold, context, commutative, tag } = *op;
    let fold = fold.ok_or_else(|| Error::usage("the function of the operator is null; set its member fold"))?;
    if !(0..=1).contains(&commutative) {
        return Err(Error::usage(format!("the operator's member commutative is {commutative}; set it to 0 or 1")));
    }
    let function = Function { fold, context, bytes };
    let fold = |left: &[u8], right: &mut [u8]| function.call(left, right);
    let op = BytesOp::new(bytes, commutative == 1, &fold as Folding<'_>)?;
    call(&op.tagged(u8::try_from(tag).unwrap_or(u8::MAX))?)
}

/// `count` elements in bytes.
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
            let (comm, len) = (of(comm)?, in_bytes(count, element_bytes)?);
            let send = (!is_in_place(send)).then(|| Place::send(send, len));
            with(op, element_bytes, |op| {
                lend::<u8>(send, Place::recv(recv, len), |send, recv| comm.all_reduce_raw(send, recv, op))
            })
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
            let (comm, len) = (of(comm)?, in_bytes(count, element_bytes)?);
            let to = comm.process_at_rank(root(comm, to)?);
            let here = to.rank() == comm.rank();
            let given = if is_in_place(send) { recv.cast_const() } else { send };
            let send = (!here || !is_in_place(send)).then(|| Place::send(given, len));
            let recv = if here { Place::recv(recv, len) } else { Place::recv(std::ptr::null_mut(), 0) };
            with(op, element_bytes, |op| lend::<u8>(send, recv, |send, recv| to.reduce_raw(send, recv, op)))
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
            let (comm, len) = (of(comm)?, in_bytes(count, element_bytes)?);
            let all = of_all(len, comm.size())?;
            with(op, element_bytes, |op| match is_in_place(send) {
                false => lend::<u8>(Some(Place::send(send, all)), Place::recv(recv, len), |send, recv| {
                    comm.reduce_scatter_block_raw(send.unwrap_or(&[]), recv, op)
                }),
                true => lend::<u8>(None, Place::recv(recv, all), |_, whole| {
                    let mut block = whole[..len].to_vec();
                    comm.reduce_scatter_block_raw(whole, &mut block, op)?;
                    whole[..len].copy_from_slice(&block);
                    Ok(())
                }),
            })
        }
    }
}
