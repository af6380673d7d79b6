//! Buffers in shared memory, and results in shared memory that all ranks read without copies.
//!
//! Invariant **K (kept)**: a view holds the communicator that its result borrows, and drops the result before the communicator.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, is_in_place};
use crate::codes;
use crate::comm::{Comm, free_handle, of, write_handle, write_out};
use crate::export::export;
use earlybird::{CallBuffers, CollectiveArgs, Communicator, DType, Error, Op, ReduceOp, SharedBuffer, SharedView};
use std::borrow::Cow;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// `eb_buffer`: the bytes of elements of `dtype`.
pub struct Buffer {
    bytes: SharedBuffer<u8>,
    dtype: DType,
}

/// Returns the buffer of a handle.
///
/// # Safety
/// H, and no other thread uses the handle.
unsafe fn buffer<'a>(at: *mut Buffer) -> Result<&'a mut Buffer, Error> {
    if is_in_place(at.cast()) {
        return Err(Error::usage("EB_IN_PLACE is not allowed as the receive buffer; give one of eb_buffer_alloc"));
    }
    // SAFETY: H.
    let buffer = unsafe { at.as_mut() };
    buffer.ok_or_else(|| Error::usage("the buffer is null; allocate it with eb_buffer_alloc"))
}

/// `eb_view`.
pub struct View {
    result: SharedView<'static, u8>,
    /// Dropped after the result.
    _comm: Arc<Communicator>,
}

/// Runs the allreduce of a view.
///
/// # Safety
/// C.
unsafe fn all_reduce_view(
    comm: &'static Communicator,
    send: BufferArg,
    dtype: DType,
    op: Op,
) -> Result<SharedView<'static, u8>, Error> {
    send.check(dtype.into())?;
    // SAFETY: C, checked.
    let mut bytes = Cow::Borrowed(unsafe { send.bytes(dtype.size()) });
    if dtype == DType::Bool {
        // Not every byte is a valid bool.
        bytes.to_mut().iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
    }
    let mut view = comm.view();
    let buffers = CallBuffers::from((&*bytes, &mut view)).datatype(dtype.into());
    comm.run(CollectiveArgs::all_reduce(buffers, ReduceOp::Builtin(op)))?;
    Ok(view)
}

/// Returns the view of a handle.
///
/// # Safety
/// H.
unsafe fn view<'a>(at: *const View) -> Result<&'a View, Error> {
    // SAFETY: H.
    let view = unsafe { at.as_ref() };
    view.ok_or_else(|| Error::usage("the view is null; make it with eb_allreduce_view"))
}

export! {
    fn eb_allreduce_view(
        comm: *const Comm,
        send: *const c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
        view: *mut *mut View,
    ) {
        let reduce = || {
            // SAFETY: H.
            let (comm, op, send) = (unsafe { of(comm)? }.clone(), codes::op(op)?, BufferArg::send(send, count));
            // SAFETY: C. K: the only use of the communicator is the result, which is in one structure with the handle of the
            // communicator.
            let result = unsafe { all_reduce_view(&*Arc::as_ptr(&comm), send, codes::dtype(dtype)?, op)? };
            Ok(Some(View { result, _comm: comm }))
        };
        // SAFETY: C.
        unsafe { write_handle(view, "view", reduce) }
    }

    fn eb_view_data(from: *const View, data: *mut *const c_void) {
        // SAFETY: H, C.
        unsafe { write_out(data, "data", view(from)?.result.as_ptr().cast()) }
    }

    fn eb_view_is_copy(from: *const View, is_copy: *mut c_int) {
        // SAFETY: H, C.
        unsafe { write_out(is_copy, "is_copy", view(from)?.result.is_copy().into()) }
    }

    fn eb_view_free(view: *mut *mut View) {
        // SAFETY: C, H.
        unsafe { free_handle(view, "view") }
    }

    fn eb_buffer_alloc(comm: *const Comm, count: usize, dtype: c_int, buffer: *mut *mut Buffer) {
        let alloc = || {
            // SAFETY: H.
            let (comm, dtype) = (unsafe { of(comm)? }, codes::dtype(dtype)?);
            if dtype == DType::Bool {
                return Err(Error::Unsupported {
                    what: "a shared buffer of EB_BOOL".into(),
                    hint: "allocate one of EB_U8, which has the same operators".into(),
                });
            }
            let bytes = count.checked_mul(dtype.size()).ok_or_else(|| {
                Error::usage(format!("a buffer of {count} elements of {} exceeds the address space", dtype.name()))
            })?;
            Ok(Some(Buffer { bytes: comm.alloc(bytes)?, dtype }))
        };
        // SAFETY: C.
        unsafe { write_handle(buffer, "buffer", alloc) }
    }

    fn eb_buffer_data(from: *mut Buffer, data: *mut *mut c_void) {
        // SAFETY: H, C.
        unsafe { write_out(data, "data", buffer(from)?.bytes.as_mut_ptr().cast()) }
    }

    fn eb_allreduce_shared(comm: *const Comm, send: *mut Buffer, recv: *mut Buffer, op: c_int) {
        // SAFETY: H; the handles are different where both are used.
        unsafe {
            let (comm, op) = (of(comm)?, codes::op(op)?);
            let (recv, in_place, is_one) = (buffer(recv)?, is_in_place(send.cast()), std::ptr::eq(send, recv));
            let buffers = match () {
                () if in_place => CallBuffers::from(&mut recv.bytes),
                () if is_one => return Err(Error::usage("the buffers are one; give EB_IN_PLACE and the buffer")),
                () => {
                    let send = &*buffer(send)?;
                    if send.dtype != recv.dtype {
                        let hint = "the buffers are of different types; allocate both with one type";
                        return Err(Error::usage(hint));
                    }
                    CallBuffers::from((&send.bytes, &mut recv.bytes))
                }
            };
            let buffers = buffers.datatype(recv.dtype.into());
            comm.run(CollectiveArgs::all_reduce(buffers, ReduceOp::Builtin(op)))
        }
    }

    fn eb_buffer_free(buffer: *mut *mut Buffer) {
        // SAFETY: C, H.
        unsafe { free_handle(buffer, "buffer") }
    }
}
