//! The few MPI calls the transport needs, each with its return code looked at: rsmpi's own wrappers discard them.
//!
//! Invariants, relied on by every block here:
//!
//! * **I (initialised)**: a [`Comm`] is made from a communicator of rsmpi, which exists between MPI_Init and
//!   MPI_Finalize only; what is dropped after MPI_Finalize makes no MPI call.
//! * **B (buffers)**: a [`Pending`] owns its buffer, on the heap and never resized, until MPI has said that the
//!   operation is complete; if it cannot be completed the buffer is leaked.
//! * **T (threads)**: calls come from one thread at a time, and from the thread that made the communicator where the
//!   library allows no other: `may_call` is asked before every call.
#![allow(unsafe_code)]

use crate::messages::{Failure, Message, Messages};
use mpi::ffi;
use mpi::traits::AsRaw;
use std::mem::{MaybeUninit, take};
use std::os::raw::{c_int, c_void};
use std::thread::{self, ThreadId};

/// A communicator of our own, so that our messages are separate from all others.
#[derive(Debug)]
pub struct Comm {
    raw: ffi::MPI_Comm,
    rank: usize,
    size: usize,
    /// The only thread that may call MPI, where that is so.
    bound_to: Option<ThreadId>,
    /// True if several threads may at the same time.
    concurrent: bool,
    /// True if it must never be freed, because messages may still arrive.
    abandoned: bool,
}

// SAFETY: T: what differs between threads is checked before every call.
unsafe impl Send for Comm {}

/// An operation under way, with its buffer.
#[derive(Debug)]
pub struct Pending {
    request: ffi::MPI_Request,
    buffer: Vec<u8>,
    is_receive: bool,
    bound_to: Option<ThreadId>,
}

// SAFETY: T, and the buffer is owned.
unsafe impl Send for Pending {}

impl Comm {
    /// Duplicates `comm`, with errors as return codes. Collective.
    ///
    /// # Errors
    /// The errors that MPI reports; [`Failure::Transport`] when MPI was initialised for one thread only and this is another.
    pub fn duplicate<C: AsRaw<Raw = ffi::MPI_Comm>>(comm: &C) -> Result<Comm, Failure> {
        let mut level: c_int = 0;
        // SAFETY: I; the argument is a valid place for the result.
        check("MPI_Query_thread", unsafe { ffi::MPI_Query_thread(&mut level) })?;
        // SAFETY: constants of the library.
        let (any_thread, concurrent) =
            unsafe { (level >= ffi::RSMPI_THREAD_SERIALIZED, level >= ffi::RSMPI_THREAD_MULTIPLE) };
        let mut raw = MaybeUninit::uninit();
        // SAFETY: I; the communicator is valid by its owner's promise.
        check("MPI_Comm_dup", unsafe { ffi::MPI_Comm_dup(comm.as_raw(), raw.as_mut_ptr()) })?;
        // SAFETY: MPI_Comm_dup has written it.
        let raw = unsafe { raw.assume_init() };
        Self::own(raw, (!any_thread).then(|| thread::current().id()), concurrent)
    }

    /// A communicator of the ranks that give one color, ordered by key. Collective.
    fn split(&self, color_and_key: Option<(usize, usize)>) -> Result<Option<Comm>, Failure> {
        may_call(self.bound_to)?;
        // SAFETY: a constant of the library.
        let nothing = unsafe { ffi::RSMPI_UNDEFINED };
        let (color, key) = color_and_key.map_or((nothing, 0), |(color, key)| (color as c_int, key as c_int));
        let mut raw = MaybeUninit::uninit();
        // SAFETY: I, T.
        check("MPI_Comm_split", unsafe { ffi::MPI_Comm_split(self.raw, color, key, raw.as_mut_ptr()) })?;
        // SAFETY: MPI_Comm_split has written it; without a color it is no communicator and nothing is done with it.
        let raw = unsafe { raw.assume_init() };
        color_and_key.map(|_| Self::own(raw, self.bound_to, self.concurrent)).transpose()
    }

    /// Takes over a communicator that was just made.
    fn own(raw: ffi::MPI_Comm, bound_to: Option<ThreadId>, concurrent: bool) -> Result<Comm, Failure> {
        let (mut rank, mut size): (c_int, c_int) = (0, 0);
        // SAFETY: I; the communicator was just made.
        unsafe {
            check("MPI_Comm_set_errhandler", ffi::MPI_Comm_set_errhandler(raw, ffi::RSMPI_ERRORS_RETURN))?;
            check("MPI_Comm_rank", ffi::MPI_Comm_rank(raw, &mut rank))?;
            check("MPI_Comm_size", ffi::MPI_Comm_size(raw, &mut size))?;
        }
        Ok(Comm { raw, rank: rank as usize, size: size as usize, bound_to, concurrent, abandoned: false })
    }

    /// Drives MPI's progress, for the calls in progress on all communicators: it probes for a message that is never sent.
    ///
    /// # Errors
    /// The errors that MPI reports.
    pub fn drive(&self) -> Result<(), Failure> {
        may_call(self.bound_to)?;
        if is_finalized() {
            return Ok(());
        }
        let mut found: c_int = 0;
        // SAFETY: I, T; the arguments are valid places for the results.
        let code = unsafe {
            let (from, tag) = (ffi::RSMPI_ANY_SOURCE, ffi::RSMPI_ANY_TAG);
            ffi::MPI_Iprobe(from, tag, self.raw, &mut found, ffi::RSMPI_STATUS_IGNORE)
        };
        check("MPI_Iprobe", code)
    }
}

impl Messages for Comm {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn may_call(&self) -> Result<(), Failure> {
        match is_finalized() {
            true => Err(Failure::Transport("MPI is finalized; drop communicators before".into())),
            false => may_call(self.bound_to),
        }
    }

    fn is_concurrent(&self) -> bool {
        self.concurrent
    }

    fn send(&self, to: usize, tag: i32, buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure> {
        may_call(self.bound_to)?;
        let mut request = MaybeUninit::uninit();
        // SAFETY: I, B, T.
        let code = unsafe {
            let (at, bytes) = (buffer.as_ptr().cast::<c_void>(), buffer.len() as c_int);
            ffi::MPI_Isend(at, bytes, ffi::RSMPI_UINT8_T, to as c_int, tag, self.raw, request.as_mut_ptr())
        };
        check("MPI_Isend", code)?;
        // SAFETY: MPI_Isend has written it.
        let request = unsafe { request.assume_init() };
        Ok(Box::new(Pending { request, buffer, is_receive: false, bound_to: self.bound_to }))
    }

    fn receive(&self, from: Option<usize>, tag: i32, mut buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure> {
        may_call(self.bound_to)?;
        let mut request = MaybeUninit::uninit();
        // SAFETY: I, B, T.
        let code = unsafe {
            let from = from.map_or(ffi::RSMPI_ANY_SOURCE, |rank| rank as c_int);
            let (at, bytes) = (buffer.as_mut_ptr().cast::<c_void>(), buffer.len() as c_int);
            ffi::MPI_Irecv(at, bytes, ffi::RSMPI_UINT8_T, from, tag, self.raw, request.as_mut_ptr())
        };
        check("MPI_Irecv", code)?;
        // SAFETY: MPI_Irecv has written it.
        let request = unsafe { request.assume_init() };
        Ok(Box::new(Pending { request, buffer, is_receive: true, bound_to: self.bound_to }))
    }

    fn split(&self, color_and_key: Option<(usize, usize)>) -> Result<Option<Box<dyn Messages>>, Failure> {
        Ok(Comm::split(self, color_and_key)?.map(|comm| Box::new(comm) as Box<dyn Messages>))
    }

    fn abandon(&mut self) {
        self.abandoned = true;
    }
}

impl Message for Pending {
    fn test(&mut self) -> Result<Option<usize>, Failure> {
        may_call(self.bound_to)?;
        let mut done: c_int = 0;
        let mut status = MaybeUninit::<ffi::MPI_Status>::zeroed();
        // SAFETY: I, T; the request is active, or null and then complete.
        check("MPI_Test", unsafe { ffi::MPI_Test(&mut self.request, &mut done, status.as_mut_ptr()) })?;
        if done == 0 {
            return Ok(None);
        }
        if !self.is_receive {
            return Ok(Some(0));
        }
        let mut bytes: c_int = 0;
        // SAFETY: MPI_Test has filled the status of a completed receive.
        check("MPI_Get_count", unsafe { ffi::MPI_Get_count(status.as_ptr(), ffi::RSMPI_UINT8_T, &mut bytes) })?;
        usize::try_from(bytes)
            .ok()
            .filter(|bytes| *bytes <= self.buffer.len())
            .map(Some)
            .ok_or_else(|| Failure::Transport(format!("MPI reports a message of {bytes} bytes")))
    }

    fn contents(&self) -> &[u8] {
        debug_assert!(self.is_complete());
        &self.buffer
    }

    fn into_buffer(mut self: Box<Self>) -> Vec<u8> {
        debug_assert!(self.is_complete());
        take(&mut self.buffer)
    }
}

impl Drop for Comm {
    fn drop(&mut self) {
        if self.abandoned || is_finalized() || may_call(self.bound_to).is_err() {
            return;
        }
        // SAFETY: I, T; freed once. A failure changes nothing for us.
        unsafe {
            ffi::MPI_Comm_free(&mut self.raw);
        }
    }
}

impl Pending {
    fn is_complete(&self) -> bool {
        // SAFETY: a constant of the library.
        self.request == unsafe { ffi::RSMPI_REQUEST_NULL }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.is_complete() {
            return;
        }
        // SAFETY: I: nothing is called after MPI_Finalize. A receive that was cancelled completes without a sender.
        let completed = self.is_receive
            && !is_finalized()
            && unsafe {
                ffi::MPI_Cancel(&mut self.request) == 0
                    && ffi::MPI_Wait(&mut self.request, ffi::RSMPI_STATUS_IGNORE) == 0
            };
        if !completed {
            // B: MPI may still read it.
            std::mem::forget(take(&mut self.buffer));
        }
    }
}

/// Checks that this thread may call MPI: T.
fn may_call(bound_to: Option<ThreadId>) -> Result<(), Failure> {
    match bound_to {
        Some(owner) if owner != thread::current().id() => Err(Failure::Transport(
            "MPI was initialised without MPI_THREAD_SERIALIZED, so only the thread that made this communicator may \
             use it; initialise MPI with MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE, or stay on that thread"
                .into(),
        )),
        _ => Ok(()),
    }
}

fn is_finalized() -> bool {
    let mut finalized: c_int = 0;
    // SAFETY: may be called at any time.
    unsafe { ffi::MPI_Finalized(&mut finalized) != 0 || finalized != 0 }
}

/// An MPI return code as a failure with MPI's text.
fn check(call: &str, code: c_int) -> Result<(), Failure> {
    if code == 0 {
        return Ok(());
    }
    let mut text = [0u8; 4096];
    let mut length: c_int = 0;
    // SAFETY: I; the buffer is longer than MPI_MAX_ERROR_STRING of every known library.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut length) };
    let text = String::from_utf8_lossy(&text[..(length as usize).min(text.len())]);
    Err(Failure::Transport(format!("{call} failed: {text}")))
}
