//! Calls that are posted now and completed later.
//!
//! A posted call owns copies of what it gives and gets, so that nothing of the library looks at the caller's memory but this
//! call, `eb_wait` and `eb_test`. Invariant **K (kept)**: a request holds the communicator that it borrows, and is dropped
//! before it lets go of it.
#![allow(unsafe_code)]

use crate::buffers::{Place, is_in_place, of_all, zeros};
use crate::codes::{self, with_type};
use crate::comm::{Comm, must_be, of};
use crate::entry::export;
use crate::reductions::root;
use earlybird::{Communicator, Element, Error, Request};
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// `eb_request`.
pub struct Started(Box<dyn Pending>);

trait Pending {
    /// Waits, and puts the result where the caller wants it. Once.
    fn wait(&mut self) -> Result<(), Error>;

    /// The same if the result is there; whether it was.
    fn test(&mut self) -> Result<bool, Error>;
}

/// A call with buffers `B`, of which the last is the result.
struct Posted<T: 'static, B: 'static> {
    /// Until the call has ended.
    request: Option<Request<'static, B>>,
    result: fn(B) -> Vec<T>,
    to: Place,
    /// After the request.
    _comm: Arc<Communicator>,
}

impl<T: Element, B> Posted<T, B> {
    fn end(&self, buffers: B) {
        // SAFETY: C: the caller's buffer is the library's until the call has ended; it was checked when the call began.
        unsafe { self.to.fill(&(self.result)(buffers)) }
    }
}

impl<T: Element, B> Pending for Posted<T, B> {
    fn wait(&mut self) -> Result<(), Error> {
        if let Some(request) = self.request.take() {
            self.end(request.wait()?);
        }
        Ok(())
    }

    fn test(&mut self) -> Result<bool, Error> {
        if let Some(request) = self.request.take() {
            match request.test()? {
                Ok(buffers) => self.end(buffers),
                Err(request) => {
                    self.request = Some(request);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }
}

/// A communicator and where the request goes.
struct Start<'a> {
    comm: &'a Arc<Communicator>,
    request: *mut *mut Started,
}

impl<'a> Start<'a> {
    /// # Safety
    /// H, C.
    unsafe fn new(comm: *const Comm, request: *mut *mut Started) -> Result<Start<'a>, Error> {
        must_be(request, "request")?;
        // SAFETY: C, H.
        unsafe {
            request.write(std::ptr::null_mut());
            Ok(Start { comm: of(comm)?, request })
        }
    }

    /// Posts a call whose result goes to `to`.
    ///
    /// # Safety
    /// C: also when the call ends.
    unsafe fn post<T: Element, B: 'static>(
        &self,
        to: Place,
        result: fn(B) -> Vec<T>,
        call: impl FnOnce(&'static Communicator) -> Result<Request<'static, B>, Error>,
    ) -> Result<(), Error> {
        let comm = self.comm.clone();
        // SAFETY: K: the only use is the request, which lies in one structure with the handle that keeps it.
        let kept: &'static Communicator = unsafe { &*Arc::as_ptr(&comm) };
        let pending: Box<dyn Pending> = Box::new(Posted { request: Some(call(kept)?), result, to, _comm: comm });
        // SAFETY: C, checked.
        unsafe { self.request.write(Box::into_raw(Box::new(Started(pending)))) };
        Ok(())
    }
}

/// What a call gives, and what it gets.
type Pair<T> = (Vec<T>, Vec<T>);

fn second<T>(buffers: Pair<T>) -> Vec<T> {
    buffers.1
}

fn none<T, B>(_: B) -> Vec<T> {
    Vec::new()
}

const NOWHERE: Place = Place { name: "receive buffer", at: std::ptr::null_mut(), count: 0 };

/// A copy of what is given.
///
/// # Safety
/// C.
unsafe fn given<T: Element>(from: Place) -> Result<Vec<T>, Error> {
    from.check::<T>()?;
    // SAFETY: C, checked.
    Ok(unsafe { from.copied() })
}

/// Memory for what is got.
fn room<T: Element>(to: Place) -> Result<Vec<T>, Error> {
    to.check::<T>()?;
    Ok(zeros(to.count))
}

export! {
    fn eb_ibarrier(comm: *const Comm, request: *mut *mut Started) {
        // SAFETY: H, C.
        unsafe { Start::new(comm, request)?.post::<u8, ()>(NOWHERE, none, |comm| comm.immediate_barrier()) }
    }

    fn eb_iallreduce(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
        request: *mut *mut Started,
    ) {
        // SAFETY: H, C.
        unsafe {
            let (start, op, to) = (Start::new(comm, request)?, codes::op(op)?, Place::recv(recv, count));
            let from = if is_in_place(send) { to } else { Place::send(send, count) };
            with_type!(codes::dtype(dtype)?, T => {
                let (_, mine) = (to.check::<T>()?, given::<T>(from)?);
                start.post(to, |buffer| buffer, |comm| comm.immediate_all_reduce(mine, op))
            })
        }
    }

    fn eb_ireduce(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
        to: usize,
        request: *mut *mut Started,
    ) {
        // SAFETY: H, C.
        unsafe {
            let (start, op) = (Start::new(comm, request)?, codes::op(op)?);
            let (to, recv) = (root(start.comm, to)?, Place::recv(recv, count));
            let from = if is_in_place(send) { recv } else { Place::send(send, count) };
            with_type!(codes::dtype(dtype)?, T => match start.comm.rank() == to {
                true => {
                    let (room, mine) = (room::<T>(recv)?, given::<T>(from)?);
                    start.post(recv, second, |comm| comm.process_at_rank(to).immediate_reduce_into_root(mine, room, op))
                }
                false => {
                    let mine = given::<T>(from)?;
                    start.post(NOWHERE, none::<T, _>, |comm| comm.process_at_rank(to).immediate_reduce_into(mine, op))
                }
            })
        }
    }

    fn eb_ireduce_scatter(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        op: c_int,
        request: *mut *mut Started,
    ) {
        // SAFETY: H, C.
        unsafe {
            let (start, op, to) = (Start::new(comm, request)?, codes::op(op)?, Place::recv(recv, count));
            let all = of_all(count, start.comm.size())?;
            let from = if is_in_place(send) { Place { count: all, ..to } } else { Place::send(send, all) };
            with_type!(codes::dtype(dtype)?, T => {
                let (room, mine) = (room::<T>(to)?, given::<T>(from)?);
                start.post(to, second, |comm| comm.immediate_reduce_scatter_block_into(mine, room, op))
            })
        }
    }

    fn eb_ibroadcast(
        comm: *const Comm,
        buffer: *mut c_void,
        count: usize,
        dtype: c_int,
        from: usize,
        request: *mut *mut Started,
    ) {
        // SAFETY: H, C.
        unsafe {
            let start = Start::new(comm, request)?;
            let (from, buffer) = (root(start.comm, from)?, Place { name: "buffer", ..Place::recv(buffer, count) });
            with_type!(codes::dtype(dtype)?, T => {
                let (root, values) = match start.comm.rank() == from {
                    true => (true, given::<T>(buffer)?),
                    false => (false, room::<T>(buffer)?),
                };
                let to = if root { NOWHERE } else { buffer };
                let result: fn(Vec<T>) -> Vec<T> = if root { none } else { |buffer| buffer };
                start.post(to, result, |comm| comm.process_at_rank(from).immediate_broadcast(values))
            })
        }
    }

    fn eb_iallgather(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        request: *mut *mut Started,
    ) {
        // SAFETY: H, C.
        unsafe {
            let start = Start::new(comm, request)?;
            let to = Place::recv(recv, of_all(count, start.comm.size())?);
            with_type!(codes::dtype(dtype)?, T => {
                let room = room::<T>(to)?;
                let from = if is_in_place(send) { to.block::<T>(start.comm.rank(), count) } else { Place::send(send, count) };
                let mine = given::<T>(from)?;
                start.post(to, second, |comm| comm.immediate_all_gather_into(mine, room))
            })
        }
    }

    fn eb_igather(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        to: usize,
        request: *mut *mut Started,
    ) {
        // SAFETY: H, C.
        unsafe {
            let start = Start::new(comm, request)?;
            let (to, here) = (root(start.comm, to)?, start.comm.rank());
            let recv = Place::recv(recv, of_all(count, start.comm.size())?);
            with_type!(codes::dtype(dtype)?, T => match to == here {
                true => {
                    let room = room::<T>(recv)?;
                    let from = if is_in_place(send) { recv.block::<T>(here, count) } else { Place::send(send, count) };
                    let mine = given::<T>(from)?;
                    start.post(recv, second, |comm| comm.process_at_rank(to).immediate_gather_into_root(mine, room))
                }
                false => {
                    let mine = given::<T>(Place::send(send, count))?;
                    start.post(NOWHERE, none::<T, _>, |comm| comm.process_at_rank(to).immediate_gather_into(mine))
                }
            })
        }
    }

    fn eb_iscatter(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        from: usize,
        request: *mut *mut Started,
    ) {
        // SAFETY: H, C.
        unsafe {
            let start = Start::new(comm, request)?;
            let from = root(start.comm, from)?;
            let (here, to) = (start.comm.rank() == from, Place::recv(recv, count));
            let to_root = if is_in_place(recv) { NOWHERE } else { to };
            let all = of_all(count, start.comm.size())?;
            with_type!(codes::dtype(dtype)?, T => match here {
                true => {
                    to_root.check::<T>()?;
                    let mine = given::<T>(Place::send(send, all))?;
                    let result: fn(Pair<T>) -> Vec<T> = if is_in_place(recv) { none } else { second };
                    let room = zeros(count);
                    start.post(to_root, result, |comm| {
                        comm.process_at_rank(from).immediate_scatter_into_root(mine, room)
                    })
                }
                false => {
                    let room = room::<T>(to)?;
                    start.post(to, |buffer| buffer, |comm| comm.process_at_rank(from).immediate_scatter_into(room))
                }
            })
        }
    }

    fn eb_ialltoall(
        comm: *const Comm,
        send: *const c_void,
        recv: *mut c_void,
        count: usize,
        dtype: c_int,
        request: *mut *mut Started,
    ) {
        // SAFETY: H, C.
        unsafe {
            let start = Start::new(comm, request)?;
            let to = Place::recv(recv, of_all(count, start.comm.size())?);
            let from = if is_in_place(send) { to } else { Place::send(send, to.count) };
            with_type!(codes::dtype(dtype)?, T => {
                let (room, mine) = (room::<T>(to)?, given::<T>(from)?);
                start.post(to, second, |comm| comm.immediate_all_to_all_into(mine, room))
            })
        }
    }

    fn eb_wait(request: *mut *mut Started) {
        must_be(request, "request")?;
        // SAFETY: C, H: what is there is null or a handle, which ends here.
        unsafe {
            let started = request.replace(std::ptr::null_mut());
            if started.is_null() {
                return Ok(());
            }
            Box::from_raw(started).0.wait()
        }
    }

    fn eb_test(request: *mut *mut Started, done: *mut c_int) {
        must_be(request, "request")?;
        must_be(done, "done")?;
        // SAFETY: C, H: what is there is null or a handle, which ends here with the call or its error.
        unsafe {
            done.write(1);
            let Some(started) = (*request).as_mut() else { return Ok(()) };
            let ended = started.0.test();
            match ended {
                Ok(false) => done.write(0),
                _ => drop(Box::from_raw(request.replace(std::ptr::null_mut()))),
            }
            ended.map(drop)
        }
    }

    fn eb_request_free(request: *mut *mut Started) {
        must_be(request, "request")?;
        // SAFETY: C, H: as above.
        unsafe {
            let started = request.replace(std::ptr::null_mut());
            if !started.is_null() {
                drop(Box::from_raw(started));
            }
        }
        Ok(())
    }
}
