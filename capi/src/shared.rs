//! Buffers in shared memory, and results in shared memory that all ranks read without copies.
//!
//! Invariant **K (kept)**: a view holds the communicator that its result borrows, and drops the result before the communicator.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, is_in_place};
use crate::codes::{self, with_type};
use crate::comm::{Comm, check_out_pointer, free_handle, of, write_out};
use crate::export::export;
use earlybird::{Communicator, DType, Element, Error, Op, SharedBuffer, SharedView};
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// `eb_buffer`.
pub struct Buffer(Box<dyn ErasedBuffer>);

/// A shared buffer of any element type.
trait ErasedBuffer: Any {
    fn data(&mut self) -> *mut c_void;

    fn reduce_in_place(&mut self, comm: &Communicator, op: Op) -> Result<(), Error>;

    /// Reduces from `send`; refuses a buffer of another type.
    fn reduce_from(&mut self, send: &dyn Any, comm: &Communicator, op: Op) -> Result<(), Error>;
}

impl<T: Element> ErasedBuffer for SharedBuffer<T> {
    fn data(&mut self) -> *mut c_void {
        self.as_mut_ptr().cast()
    }

    fn reduce_in_place(&mut self, comm: &Communicator, op: Op) -> Result<(), Error> {
        comm.all_reduce_shared_in_place(self, op)
    }

    fn reduce_from(&mut self, send: &dyn Any, comm: &Communicator, op: Op) -> Result<(), Error> {
        let send = send.downcast_ref::<SharedBuffer<T>>();
        let send =
            send.ok_or_else(|| Error::usage("the buffers are of different types; allocate both with one type"))?;
        comm.all_reduce_shared_into(send, self, op)
    }
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
    result: Box<dyn ErasedView>,
    /// Dropped after the result.
    _comm: Arc<Communicator>,
}

/// A shared result of any element type.
trait ErasedView {
    fn data(&self) -> *const c_void;

    fn is_copy(&self) -> bool;
}

impl<T: Element> ErasedView for SharedView<'static, T> {
    fn data(&self) -> *const c_void {
        self.as_ptr().cast()
    }

    fn is_copy(&self) -> bool {
        SharedView::is_copy(self)
    }
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
) -> Result<Box<dyn ErasedView>, Error> {
    send.check(dtype.into())?;
    // SAFETY: C, checked.
    let bytes = unsafe { send.bytes(dtype.size()) };
    if dtype == DType::Bool {
        // Not every byte is a `bool`.
        let values: Vec<bool> = bytes.iter().map(|byte| *byte != 0).collect();
        return Ok(Box::new(comm.all_reduce_shared(&values, op)?));
    }
    with_type!(dtype, T => {
        let values = match send.count {
            0 => &[],
            // SAFETY: aligned as checked, and every pattern of bytes is a value.
            count => unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<T>(), count) },
        };
        Ok(Box::new(comm.all_reduce_shared(values, op)?))
    })
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
        check_out_pointer(view, "view")?;
        // SAFETY: C, H. K: the only use of the communicator is the result, which is in one structure with the handle
        // of the communicator.
        unsafe {
            view.write(std::ptr::null_mut());
            let (comm, op, send) = (of(comm)?.clone(), codes::op(op)?, BufferArg::send(send, count));
            let kept: &'static Communicator = &*Arc::as_ptr(&comm);
            let result = all_reduce_view(kept, send, codes::dtype(dtype)?, op)?;
            view.write(Box::into_raw(Box::new(View { result, _comm: comm })));
        }
        Ok(())
    }

    fn eb_view_data(from: *const View, data: *mut *const c_void) {
        // SAFETY: H, C.
        unsafe { write_out(data, "data", view(from)?.result.data()) }
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
        check_out_pointer(buffer, "buffer")?;
        // SAFETY: C, H.
        unsafe {
            buffer.write(std::ptr::null_mut());
            let (comm, dtype) = (of(comm)?, codes::dtype(dtype)?);
            if dtype == DType::Bool {
                return Err(Error::Unsupported {
                    what: "a shared buffer of EB_BOOL".into(),
                    hint: "allocate one of EB_U8, which has the same operators".into(),
                });
            }
            let shared: Box<dyn ErasedBuffer> = with_type!(dtype, T => Box::new(comm.alloc::<T>(count)?));
            buffer.write(Box::into_raw(Box::new(Buffer(shared))));
        }
        Ok(())
    }

    fn eb_buffer_data(from: *mut Buffer, data: *mut *mut c_void) {
        // SAFETY: H, C.
        unsafe { write_out(data, "data", buffer(from)?.0.data()) }
    }

    fn eb_allreduce_shared(comm: *const Comm, send: *mut Buffer, recv: *mut Buffer, op: c_int) {
        // SAFETY: H; the handles are different where both are used.
        unsafe {
            let (comm, op) = (of(comm)?, codes::op(op)?);
            if is_in_place(send.cast()) {
                return buffer(recv)?.0.reduce_in_place(comm, op);
            }
            if std::ptr::eq(send, recv) {
                return Err(Error::usage("the buffers are one; give EB_IN_PLACE and the buffer"));
            }
            let send: &dyn Any = &*buffer(send)?.0;
            buffer(recv)?.0.reduce_from(send, comm, op)
        }
    }

    fn eb_buffer_free(buffer: *mut *mut Buffer) {
        // SAFETY: C, H.
        unsafe { free_handle(buffer, "buffer") }
    }
}
