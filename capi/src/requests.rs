//! Requests of non-blocking and persistent calls, and the macro that exports the three forms of a call.
//!
//! A request owns copies of its buffers, so that only the function that starts the call, `eb_wait` and `eb_test` use the caller's
//! memory.
#![allow(unsafe_code)]

use crate::call::{Call, CallerBuffers};
use crate::comm::{check_out_pointer, free_handle};
use crate::export::export;
use earlybird::{Communicator, Error, OwnedBytes, Persistent};
use std::ffi::c_int;
use std::sync::Arc;

/// `eb_request`.
pub struct Request {
    call: Persistent<'static, OwnedBytes>,
    buffers: CallerBuffers,
    /// True if the request stays when the call has ended, to be started again.
    persistent: bool,
}

impl Request {
    /// Copies the send buffer and starts the call.
    fn start(&mut self) -> Result<(), Error> {
        if !self.call.is_started() {
            // SAFETY: C: the caller's buffers stay until the request is freed; they were checked when the request was created.
            unsafe { self.buffers.read(self.call.buffers_mut()?) };
        }
        self.call.start()
    }

    /// Waits for the started call, if any, and copies the result to the receive buffer.
    fn wait(&mut self) -> Result<(), Error> {
        if !self.call.is_started() {
            return Ok(());
        }
        self.call.wait()?;
        self.write()
    }

    /// Does the same without waiting. Returns whether the call has ended.
    fn test(&mut self) -> Result<bool, Error> {
        if self.call.is_started() && self.call.try_wait()? {
            self.write()?;
        }
        Ok(!self.call.is_started())
    }

    fn write(&mut self) -> Result<(), Error> {
        // SAFETY: C: the library may use the caller's buffers until the call has ended; they were checked when the request was
        // created.
        unsafe { self.buffers.write(self.call.buffers_mut()?) };
        Ok(())
    }
}

/// Creates the request of a call, and starts the call unless the request is persistent.
///
/// # Safety
/// C: also when the call is started and when it ends.
pub unsafe fn create(comm: &Arc<Communicator>, call: Call<'_>, persistent: bool) -> Result<Option<Request>, Error> {
    let mut created = Request { call: call.init(comm)?, buffers: call.buffers, persistent };
    if !persistent {
        created.start()?;
    }
    Ok(Some(created))
}

/// Exports the blocking, the non-blocking and the persistent form of a call. All take the communicator before these arguments, and
/// the last two the address of the request after them.
macro_rules! export_forms {
    ($(fn $blocking:ident, $nonblocking:ident, $persistent:ident($($arg:ident: $type:ty),* $(,)?) |$comm:ident| $call:block)*) => {
        $crate::export::export! {
            $(
            fn $blocking(comm: *const $crate::comm::Comm, $($arg: $type),*) {
                // SAFETY: H.
                let $comm = unsafe { $crate::comm::of(comm)? };
                let call = $call;
                // SAFETY: C.
                unsafe { call.run($comm) }
            }
            )*
        }
        $(
        $crate::requests::export_forms!(@request $nonblocking false ($($arg: $type),*) $comm $call);
        $crate::requests::export_forms!(@request $persistent true ($($arg: $type),*) $comm $call);
        )*
    };
    (@request $name:ident $is_persistent:literal ($($arg:ident: $type:ty),*) $comm:ident $call:block) => {
        $crate::export::export! {
            fn $name(comm: *const $crate::comm::Comm, $($arg: $type,)* request: *mut *mut $crate::requests::Request) {
                let create = || {
                    // SAFETY: H.
                    let $comm = unsafe { $crate::comm::of(comm)? };
                    let call = $call;
                    // SAFETY: C.
                    unsafe { $crate::requests::create($comm, call, $is_persistent) }
                };
                // SAFETY: C.
                unsafe { $crate::comm::write_handle(request, "request", create) }
            }
        }
    };
}
pub(crate) use export_forms;

export! {
    fn eb_start(request: *mut Request) {
        // SAFETY: H.
        let started = unsafe { request.as_mut() };
        match started {
            None => Err(Error::usage("the request is null; create it by a function whose name ends in _init")),
            Some(Request { persistent: false, .. }) => {
                Err(Error::usage("the request is not persistent; wait for it"))
            }
            Some(started) => started.start(),
        }
    }

    fn eb_wait(request: *mut *mut Request) {
        check_out_pointer(request, "request")?;
        // SAFETY: C, H: the variable is null or a handle, which is freed here unless it is persistent.
        unsafe {
            let Some(current) = (*request).as_mut() else { return Ok(()) };
            let result = current.wait();
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
            let result = current.test();
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
