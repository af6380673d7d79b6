//! Requests of non-blocking and persistent calls.
//!
//! A request owns copies of its buffers, so that only the function that starts the call, `eb_wait` and `eb_test` use the caller's
//! memory. Invariant **K (kept)**: a request holds the communicator that its call borrows, and drops the call before the communicator.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, zeroed};
use crate::comm::{Comm, check_out_pointer, free_handle, of};
use crate::export::export;
use earlybird::{Communicator, Element, Error, Persistent};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::Arc;

/// `eb_request`.
pub struct Request {
    call: Box<dyn AnyRequest>,
    /// True if the request stays when the call has ended, to be started again.
    persistent: bool,
}

/// A request with buffers of any type.
trait AnyRequest {
    /// Copies the send buffer, unless it was copied when the request was created, and starts the call.
    fn start(&mut self) -> Result<(), Error>;

    /// Waits for the started call, if any, and copies the result to the receive buffer.
    fn wait(&mut self) -> Result<(), Error>;

    /// Does the same without waiting. Returns whether the call has ended.
    fn test(&mut self) -> Result<bool, Error>;
}

/// The vectors of a call on elements of `T`, which stand for the caller's buffers.
pub trait RequestBuffers<T>: Sized {
    /// Copies the send buffers for the next start. The buffers are checked.
    ///
    /// # Safety
    /// C.
    unsafe fn read(call: &mut Persistent<'static, Self>, from: &[BufferArg]) -> Result<(), Error>;

    /// Copies the results of the last start to the receive buffers. The buffers are checked.
    ///
    /// # Safety
    /// C.
    unsafe fn write(call: &mut Persistent<'static, Self>, to: &[BufferArg]) -> Result<(), Error>;
}

impl<T> RequestBuffers<T> for () {
    unsafe fn read(_: &mut Persistent<'static, Self>, _: &[BufferArg]) -> Result<(), Error> {
        Ok(())
    }

    unsafe fn write(_: &mut Persistent<'static, Self>, _: &[BufferArg]) -> Result<(), Error> {
        Ok(())
    }
}

impl<T: Element> RequestBuffers<T> for Vec<T> {
    unsafe fn read(call: &mut Persistent<'static, Self>, from: &[BufferArg]) -> Result<(), Error> {
        let buffer = call.buffer_mut()?;
        // SAFETY: C, checked.
        from.iter().for_each(|from| unsafe { from.copy_into(buffer) });
        Ok(())
    }

    unsafe fn write(call: &mut Persistent<'static, Self>, to: &[BufferArg]) -> Result<(), Error> {
        let buffer = call.buffer_mut()?;
        // SAFETY: C, checked.
        to.iter().for_each(|to| unsafe { to.copy_out(buffer) });
        Ok(())
    }
}

impl<T: Element> RequestBuffers<T> for (Vec<T>, Vec<T>) {
    unsafe fn read(call: &mut Persistent<'static, Self>, from: &[BufferArg]) -> Result<(), Error> {
        let send = call.send_mut()?;
        // SAFETY: C, checked.
        from.iter().for_each(|from| unsafe { from.copy_into(send) });
        Ok(())
    }

    unsafe fn write(call: &mut Persistent<'static, Self>, to: &[BufferArg]) -> Result<(), Error> {
        let recv = call.recv()?;
        // SAFETY: C, checked.
        to.iter().for_each(|to| unsafe { to.copy_out(recv) });
        Ok(())
    }
}

impl<T: Element> RequestBuffers<T> for Vec<Vec<T>> {
    unsafe fn read(call: &mut Persistent<'static, Self>, from: &[BufferArg]) -> Result<(), Error> {
        // SAFETY: C, checked.
        call.parts_mut()?.zip(from).for_each(|(part, from)| unsafe { from.copy_into(part) });
        Ok(())
    }

    unsafe fn write(call: &mut Persistent<'static, Self>, to: &[BufferArg]) -> Result<(), Error> {
        // SAFETY: C, checked.
        call.parts_mut()?.zip(to).for_each(|(part, to)| unsafe { to.copy_out(part) });
        Ok(())
    }
}

struct TypedRequest<T, B: 'static> {
    call: Persistent<'static, B>,
    from: Vec<BufferArg>,
    to: Vec<BufferArg>,
    elements: PhantomData<T>,
    /// Dropped after the call.
    _comm: Arc<Communicator>,
}

impl<T: Element, B: RequestBuffers<T>> AnyRequest for TypedRequest<T, B> {
    fn start(&mut self) -> Result<(), Error> {
        if !self.call.is_started() {
            // SAFETY: C: the caller's buffers stay until the request is freed; they were checked when the request was created.
            unsafe { B::read(&mut self.call, &self.from)? };
        }
        self.call.start()
    }

    fn wait(&mut self) -> Result<(), Error> {
        if !self.call.is_started() {
            return Ok(());
        }
        self.call.wait()?;
        // SAFETY: C: the library may use the caller's buffers until the call has ended; they were checked when the request was created.
        unsafe { B::write(&mut self.call, &self.to) }
    }

    fn test(&mut self) -> Result<bool, Error> {
        let ended = self.call.is_started() && self.call.test()?;
        if ended {
            // SAFETY: as in `wait`.
            unsafe { B::write(&mut self.call, &self.to)? };
        }
        Ok(!self.call.is_started())
    }
}

/// The arguments that every non-blocking or persistent function shares.
pub struct RequestBuilder<'a> {
    pub comm: &'a Arc<Communicator>,
    request: *mut *mut Request,
    /// True if the request is persistent; otherwise the call starts at once.
    persistent: bool,
}

impl<'a> RequestBuilder<'a> {
    /// Checks the communicator and the variable for the request, which becomes null.
    ///
    /// # Safety
    /// H, C.
    pub unsafe fn new(
        comm: *const Comm,
        request: *mut *mut Request,
        persistent: bool,
    ) -> Result<RequestBuilder<'a>, Error> {
        check_out_pointer(request, "request")?;
        // SAFETY: C, H.
        unsafe {
            request.write(std::ptr::null_mut());
            Ok(RequestBuilder { comm: of(comm)?, request, persistent })
        }
    }

    /// Returns a vector for the send buffer: a copy of it if the call starts at once, else zeros.
    ///
    /// # Safety
    /// C.
    pub unsafe fn send_buffer<T: Element>(&self, from: BufferArg) -> Result<Vec<T>, Error> {
        from.check(T::DTYPE.into())?;
        match self.persistent {
            true => zeroed(from.count),
            // SAFETY: C, checked.
            false => unsafe { from.copy_in() },
        }
    }

    /// Creates the request of a call with the send buffers `from` and the receive buffers `to`, which are checked, and starts the call unless
    /// it is persistent.
    ///
    /// # Safety
    /// C: also when the call is started and when it ends.
    pub unsafe fn build<T: Element, B: RequestBuffers<T> + 'static>(
        &self,
        from: &[BufferArg],
        to: &[BufferArg],
        call: impl FnOnce(&'static Communicator) -> Result<Persistent<'static, B>, Error>,
    ) -> Result<(), Error> {
        let comm = self.comm.clone();
        // SAFETY: K: the only use is the call, which lies in one structure with the handle that keeps it.
        let kept: &'static Communicator = unsafe { &*Arc::as_ptr(&comm) };
        let from = if self.persistent { from.to_vec() } else { Vec::new() };
        let (call, to, elements) = (call(kept)?, to.to_vec(), PhantomData::<T>);
        let mut call: Box<dyn AnyRequest> = Box::new(TypedRequest { call, from, to, elements, _comm: comm });
        if !self.persistent {
            call.start()?;
        }
        // SAFETY: C, checked.
        unsafe { self.request.write(Box::into_raw(Box::new(Request { call, persistent: self.persistent }))) };
        Ok(())
    }
}

/// Returns a vector for a receive buffer, which is checked.
pub fn recv_buffer<T: Element>(to: BufferArg) -> Result<Vec<T>, Error> {
    to.check(T::DTYPE.into())?;
    zeroed(to.count)
}

/// Exports the non-blocking and the persistent form of a call. Both take the communicator before these arguments and the address of
/// the request after them.
macro_rules! both_forms {
    ($(fn $immediate:ident, $init:ident($($arg:ident: $type:ty),* $(,)?) |$builder:ident| $body:block)*) => {
        $crate::export::export! {
            $(
            fn $immediate(comm: *const $crate::comm::Comm, $($arg: $type,)* request: *mut *mut $crate::requests::Request) {
                // SAFETY: H, C.
                let $builder = unsafe { $crate::requests::RequestBuilder::new(comm, request, false)? };
                $body
            }

            fn $init(comm: *const $crate::comm::Comm, $($arg: $type,)* request: *mut *mut $crate::requests::Request) {
                // SAFETY: H, C.
                let $builder = unsafe { $crate::requests::RequestBuilder::new(comm, request, true)? };
                $body
            }
            )*
        }
    };
}
pub(crate) use both_forms;

export! {
    fn eb_start(request: *mut Request) {
        // SAFETY: H.
        let started = unsafe { request.as_mut() };
        match started {
            None => Err(Error::usage("the request is null; create it by a function whose name ends in _init")),
            Some(Request { persistent: false, .. }) => {
                Err(Error::usage("the request is not persistent; wait for it"))
            }
            Some(started) => started.call.start(),
        }
    }

    fn eb_wait(request: *mut *mut Request) {
        check_out_pointer(request, "request")?;
        // SAFETY: C, H: the variable is null or a handle, which is freed here unless it is persistent.
        unsafe {
            let Some(current) = (*request).as_mut() else { return Ok(()) };
            let result = current.call.wait();
            if !current.persistent {
                drop(Box::from_raw(request.replace(std::ptr::null_mut())));
            }
            result
        }
    }

    fn eb_test(request: *mut *mut Request, done: *mut c_int) {
        check_out_pointer(request, "request")?;
        check_out_pointer(done, "done")?;
        // SAFETY: C, H: the variable is null or a handle, which is freed here when the call has ended, unless it is persistent.
        unsafe {
            done.write(1);
            let Some(current) = (*request).as_mut() else { return Ok(()) };
            let result = current.call.test();
            match result {
                Ok(false) => done.write(0),
                _ if current.persistent => {}
                _ => drop(Box::from_raw(request.replace(std::ptr::null_mut()))),
            }
            result.map(drop)
        }
    }

    fn eb_progress(left: *mut c_int) {
        let is_left = earlybird::progress();
        if !left.is_null() {
            check_out_pointer(left, "left")?;
            // SAFETY: C: the address of an int.
            unsafe { left.write(is_left.into()) };
        }
        Ok(())
    }

    fn eb_request_free(request: *mut *mut Request) {
        // SAFETY: C, H.
        unsafe { free_handle(request, "request") }
    }
}
