//! Calls that are completed later than they are posted: once, or again and again.
//!
//! Such a call owns copies of what it gives and gets, so that nothing of the library looks at the caller's memory but the
//! function that posts it, `eb_wait` and `eb_test`. Invariant **K (kept)**: a request holds the communicator that its call
//! borrows, and drops the call before it lets go of it.
#![allow(unsafe_code)]

use crate::buffers::{Place, zeros};
use crate::comm::{Comm, end, must_be, of};
use crate::entry::export;
use earlybird::{Communicator, Element, Error, Persistent};
use std::ffi::c_int;
use std::marker::PhantomData;
use std::sync::Arc;

/// `eb_request`.
pub struct Started {
    call: Box<dyn Pending>,
    /// Whether it stays when the call has ended, to be started again.
    again: bool,
}

trait Pending {
    /// Reads what the caller gives, unless it was read when the call was prepared, and posts.
    fn start(&mut self) -> Result<(), Error>;

    /// Waits for what was started, if anything, and puts the result where the caller wants it.
    fn wait(&mut self) -> Result<(), Error>;

    /// The same if the result is there; whether it was.
    fn test(&mut self) -> Result<bool, Error>;
}

/// The vectors of a call on elements of `T`, and the caller's places that they stand for.
pub trait Buffers<T>: Sized {
    /// Copies what the next start gives. The places are checked.
    ///
    /// # Safety
    /// C.
    unsafe fn read(call: &mut Persistent<'static, Self>, from: &[Place]) -> Result<(), Error>;

    /// Copies what the last start got. The places are checked.
    ///
    /// # Safety
    /// C.
    unsafe fn write(call: &mut Persistent<'static, Self>, to: &[Place]) -> Result<(), Error>;
}

impl<T> Buffers<T> for () {
    unsafe fn read(_: &mut Persistent<'static, Self>, _: &[Place]) -> Result<(), Error> {
        Ok(())
    }

    unsafe fn write(_: &mut Persistent<'static, Self>, _: &[Place]) -> Result<(), Error> {
        Ok(())
    }
}

impl<T: Element> Buffers<T> for Vec<T> {
    unsafe fn read(call: &mut Persistent<'static, Self>, from: &[Place]) -> Result<(), Error> {
        let buffer = call.buffer_mut()?;
        // SAFETY: C, checked.
        from.iter().for_each(|from| unsafe { from.copy_to(buffer) });
        Ok(())
    }

    unsafe fn write(call: &mut Persistent<'static, Self>, to: &[Place]) -> Result<(), Error> {
        let buffer = call.buffer_mut()?;
        // SAFETY: C, checked.
        to.iter().for_each(|to| unsafe { to.fill(buffer) });
        Ok(())
    }
}

impl<T: Element> Buffers<T> for (Vec<T>, Vec<T>) {
    unsafe fn read(call: &mut Persistent<'static, Self>, from: &[Place]) -> Result<(), Error> {
        let send = call.send_mut()?;
        // SAFETY: C, checked.
        from.iter().for_each(|from| unsafe { from.copy_to(send) });
        Ok(())
    }

    unsafe fn write(call: &mut Persistent<'static, Self>, to: &[Place]) -> Result<(), Error> {
        let recv = call.recv()?;
        // SAFETY: C, checked.
        to.iter().for_each(|to| unsafe { to.fill(recv) });
        Ok(())
    }
}

impl<T: Element> Buffers<T> for Vec<Vec<T>> {
    unsafe fn read(call: &mut Persistent<'static, Self>, from: &[Place]) -> Result<(), Error> {
        // SAFETY: C, checked.
        call.parts_mut()?.zip(from).for_each(|(part, from)| unsafe { from.copy_to(part) });
        Ok(())
    }

    unsafe fn write(call: &mut Persistent<'static, Self>, to: &[Place]) -> Result<(), Error> {
        // SAFETY: C, checked.
        call.parts_mut()?.zip(to).for_each(|(part, to)| unsafe { to.fill(part) });
        Ok(())
    }
}

struct Call<T, B: 'static> {
    call: Persistent<'static, B>,
    from: Vec<Place>,
    to: Vec<Place>,
    elements: PhantomData<T>,
    /// After the call.
    _comm: Arc<Communicator>,
}

impl<T: Element, B: Buffers<T>> Pending for Call<T, B> {
    fn start(&mut self) -> Result<(), Error> {
        if !self.call.is_started() {
            // SAFETY: C: the caller's buffers stay until the request is freed; they were checked when it was made.
            unsafe { B::read(&mut self.call, &self.from)? };
        }
        self.call.start()
    }

    fn wait(&mut self) -> Result<(), Error> {
        if !self.call.is_started() {
            return Ok(());
        }
        self.call.wait()?;
        // SAFETY: C: the caller's buffers are the library's until the call has ended; they were checked when it was made.
        unsafe { B::write(&mut self.call, &self.to) }
    }

    fn test(&mut self) -> Result<bool, Error> {
        let ended = self.call.is_started() && self.call.test()?;
        if ended {
            // SAFETY: as above.
            unsafe { B::write(&mut self.call, &self.to)? };
        }
        Ok(!self.call.is_started())
    }
}

/// A communicator, where the request goes, and of which kind it is.
pub struct Start<'a> {
    pub comm: &'a Arc<Communicator>,
    request: *mut *mut Started,
    /// Whether the call is only prepared, to be started again and again; otherwise it is posted at once.
    again: bool,
}

impl<'a> Start<'a> {
    /// # Safety
    /// H, C.
    pub unsafe fn new(comm: *const Comm, request: *mut *mut Started, again: bool) -> Result<Start<'a>, Error> {
        must_be(request, "request")?;
        // SAFETY: C, H.
        unsafe {
            request.write(std::ptr::null_mut());
            Ok(Start { comm: of(comm)?, request, again })
        }
    }

    /// Memory for what is given, with a copy of it where the call is posted at once.
    ///
    /// # Safety
    /// C.
    pub unsafe fn give<T: Element>(&self, from: Place) -> Result<Vec<T>, Error> {
        from.check::<T>()?;
        match self.again {
            true => zeros(from.count),
            // SAFETY: C, checked.
            false => unsafe { from.copied() },
        }
    }

    /// Makes the request for a call that gives what lies in `from` and whose result goes to `to`; both are checked.
    ///
    /// # Safety
    /// C: also when the call is started and when it ends.
    pub unsafe fn make<T: Element, B: Buffers<T> + 'static>(
        &self,
        from: &[Place],
        to: &[Place],
        call: impl FnOnce(&'static Communicator) -> Result<Persistent<'static, B>, Error>,
    ) -> Result<(), Error> {
        let comm = self.comm.clone();
        // SAFETY: K: the only use is the call, which lies in one structure with the handle that keeps it.
        let kept: &'static Communicator = unsafe { &*Arc::as_ptr(&comm) };
        let from = if self.again { from.to_vec() } else { Vec::new() };
        let (call, to, elements) = (call(kept)?, to.to_vec(), PhantomData::<T>);
        let mut call: Box<dyn Pending> = Box::new(Call { call, from, to, elements, _comm: comm });
        if !self.again {
            call.start()?;
        }
        // SAFETY: C, checked.
        unsafe { self.request.write(Box::into_raw(Box::new(Started { call, again: self.again }))) };
        Ok(())
    }
}

/// Memory for what is got.
pub fn room<T: Element>(to: Place) -> Result<Vec<T>, Error> {
    to.check::<T>()?;
    zeros(to.count)
}

/// Exports the two forms of a call: posted at once, and prepared to be started again and again. Both take the communicator
/// before these arguments and the place of the request behind them.
macro_rules! both_forms {
    ($(fn $now:ident, $init:ident($($arg:ident: $type:ty),* $(,)?) |$start:ident| $body:block)*) => {
        $crate::entry::export! {
            $(
            fn $now(comm: *const $crate::comm::Comm, $($arg: $type,)* request: *mut *mut $crate::requests::Started) {
                // SAFETY: H, C.
                let $start = unsafe { $crate::requests::Start::new(comm, request, false)? };
                $body
            }

            fn $init(comm: *const $crate::comm::Comm, $($arg: $type,)* request: *mut *mut $crate::requests::Started) {
                // SAFETY: H, C.
                let $start = unsafe { $crate::requests::Start::new(comm, request, true)? };
                $body
            }
            )*
        }
    };
}
pub(crate) use both_forms;

export! {
    fn eb_start(request: *mut Started) {
        // SAFETY: H.
        let started = unsafe { request.as_mut() };
        match started {
            None => Err(Error::usage("the request is null; make it by a function that ends in _init")),
            Some(Started { again: false, .. }) => {
                Err(Error::usage("the request stands for a call that is made once; wait for it"))
            }
            Some(started) => started.call.start(),
        }
    }

    fn eb_wait(request: *mut *mut Started) {
        must_be(request, "request")?;
        // SAFETY: C, H: what is there is null or a handle, which ends here unless it can be started again.
        unsafe {
            let Some(started) = (*request).as_mut() else { return Ok(()) };
            let ended = started.call.wait();
            if !started.again {
                drop(Box::from_raw(request.replace(std::ptr::null_mut())));
            }
            ended
        }
    }

    fn eb_test(request: *mut *mut Started, done: *mut c_int) {
        must_be(request, "request")?;
        must_be(done, "done")?;
        // SAFETY: C, H: what is there is null or a handle, which ends here with the call or its error, as above.
        unsafe {
            done.write(1);
            let Some(started) = (*request).as_mut() else { return Ok(()) };
            let ended = started.call.test();
            match ended {
                Ok(false) => done.write(0),
                _ if started.again => {}
                _ => drop(Box::from_raw(request.replace(std::ptr::null_mut()))),
            }
            ended.map(drop)
        }
    }

    fn eb_progress(left: *mut c_int) {
        let any = earlybird::progress();
        if !left.is_null() {
            must_be(left, "left")?;
            // SAFETY: C: the place of an int.
            unsafe { left.write(any.into()) };
        }
        Ok(())
    }

    fn eb_request_free(request: *mut *mut Started) {
        // SAFETY: C, H.
        unsafe { end(request, "request") }
    }
}
