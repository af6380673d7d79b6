//! Reductions with user-defined operators.
#![allow(unsafe_code)]

use crate::buffers::Blocks;
use crate::reductions::Reduction;
use crate::requests::export_forms;
use earlybird::{BytesOp, Collective, Error, SharedReduceOp};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

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

/// Describes the reduction of elements of `bytes` bytes with the caller's operator.
///
/// # Safety
/// C: also while the operator is used.
unsafe fn reduction(op: *const Operator, bytes: usize) -> Result<Reduction, Error> {
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
    let op = op.tagged(u8::try_from(tag).unwrap_or(u8::MAX))?;
    Ok(Reduction { datatype: op.datatype(), op: SharedReduceOp::User(Arc::new(op)) })
}

export_forms! {
    fn eb_allreduce_with, eb_iallreduce_with, eb_allreduce_with_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
    ) |comm| {
        // SAFETY: C.
        unsafe { reduction(op, element_bytes)? }.all_reduce(send, recv, count)
    }

    fn eb_reduce_with, eb_ireduce_with, eb_reduce_with_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
        root: usize,
    ) |comm| {
        // SAFETY: C.
        unsafe { reduction(op, element_bytes)? }.reduce(comm, send, recv, count, root)
    }

    fn eb_reduce_scatter_with, eb_ireduce_scatter_with, eb_reduce_scatter_with_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
    ) |comm| {
        // SAFETY: C.
        unsafe { reduction(op, element_bytes)? }.reduce_scatter(send, recv, Blocks::uniform(comm, count)?)
    }

    fn eb_scan_with, eb_iscan_with, eb_scan_with_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
    ) |comm| {
        // SAFETY: C.
        unsafe { reduction(op, element_bytes)? }.scan(comm, Collective::Scan, send, recv, count)
    }

    fn eb_exscan_with, eb_iexscan_with, eb_exscan_with_init(
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        element_bytes: usize,
        op: *const Operator,
    ) |comm| {
        // SAFETY: C.
        unsafe { reduction(op, element_bytes)? }.scan(comm, Collective::ExclusiveScan, send, recv, count)
    }
}
