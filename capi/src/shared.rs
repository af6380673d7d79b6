//! Buffers in shared memory, and results that all ranks read where they lie.
//!
//! Invariant **K (kept)**: a view holds the communicator that its result borrows, and drops the result before it lets go of it.
#![allow(unsafe_code)]

use crate::buffers::{Place, is_in_place};
use crate::codes::{self, with_type};
use crate::comm::{Comm, end, must_be, of, put};
use crate::entry::export;
use earlybird::{Communicator, DType, Element, Error, Op, SharedBuffer, SharedView};
use std::any::Any;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// `eb_buffer`.
pub struct Buffer(Box<dyn Shared>);

/// A buffer of some type.
trait Shared: Any {
    fn data(&mut self) -> *mut c_void;

    fn reduce_in_place(&mut self, comm: &Communicator, op: Op) -> Result<(), Error>;

    /// Refuses a `send` of another type.
    fn reduce_from(&mut self, send: &dyn Any, comm: &Communicator, op: Op) -> Result<(), Error>;
}

impl<T: Element> Shared for SharedBuffer<T> {
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

/// # Safety
/// H, and nobody else uses the handle.
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
    result: Box<dyn Shown>,
    /// After the result.
    _comm: Arc<Communicator>,
}

/// A result of some type, to read.
trait Shown {
    fn data(&self) -> *const c_void;

    fn is_copy(&self) -> bool;
}

impl<T: Element> Shown for SharedView<'static, T> {
    fn data(&self) -> *const c_void {
        self.as_ptr().cast()
    }

    fn is_copy(&self) -> bool {
        SharedView::is_copy(self)
    }
}

/// # Safety
/// C.
unsafe fn shown<T: Element>(comm: &'static Communicator, send: Place, op: Op) -> Result<Box<dyn Shown>, Error> {
    send.check::<T>()?;
    // SAFETY: C, checked.
    Ok(Box::new(comm.all_reduce_shared(&unsafe { send.read::<T>()? }, op)?))
}

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
        must_be(view, "view")?;
        // SAFETY: C, H. K: the only use of the communicator is the result, which lies in one structure with what keeps it.
        unsafe {
            view.write(std::ptr::null_mut());
            let (comm, op, send) = (of(comm)?.clone(), codes::op(op)?, Place::send(send, count));
            let kept: &'static Communicator = &*Arc::as_ptr(&comm);
            let result = with_type!(codes::dtype(dtype)?, T => shown::<T>(kept, send, op))?;
            view.write(Box::into_raw(Box::new(View { result, _comm: comm })));
        }
        Ok(())
    }

    fn eb_view_data(from: *const View, data: *mut *const c_void) {
        // SAFETY: H, C.
        unsafe { put(data, "data", view(from)?.result.data()) }
    }

    fn eb_view_is_copy(from: *const View, is_copy: *mut c_int) {
        // SAFETY: H, C.
        unsafe { put(is_copy, "is_copy", view(from)?.result.is_copy().into()) }
    }

    fn eb_view_free(view: *mut *mut View) {
        // SAFETY: C, H.
        unsafe { end(view, "view") }
    }

    fn eb_buffer_alloc(comm: *const Comm, count: usize, dtype: c_int, buffer: *mut *mut Buffer) {
        must_be(buffer, "buffer")?;
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
            let shared: Box<dyn Shared> = with_type!(dtype, T => Box::new(comm.alloc::<T>(count)?));
            buffer.write(Box::into_raw(Box::new(Buffer(shared))));
        }
        Ok(())
    }

    fn eb_buffer_data(from: *mut Buffer, data: *mut *mut c_void) {
        // SAFETY: H, C.
        unsafe { put(data, "data", buffer(from)?.0.data()) }
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
        unsafe { end(buffer, "buffer") }
    }
}
