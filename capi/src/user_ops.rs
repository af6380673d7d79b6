//! Reductions with user-defined operators.
#![allow(unsafe_code)]

use earlybird::{BytesOp, Datatype, Error, SharedReduceOp};
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

/// The type of elements of `bytes` bytes, and the caller's operator on them.
///
/// # Safety
/// C: also while the operator is used.
pub unsafe fn operator(op: *const Operator, bytes: usize) -> Result<(Datatype, SharedReduceOp), Error> {
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
    Ok((op.datatype(), SharedReduceOp::User(Arc::new(op))))
}
