//! Non-blocking calls: each is a started call of the library, whose end completes a generalized request of MPI. Programs wait for it and
//! test it, among other requests, by all functions that MPI has for that.
//!
//! Progress comes from MPI: Open MPI calls `make_progress` whenever it waits in any function, so a rank that receives a message
//! meanwhile does its part of all calls under way. MPICH has no such function, so its non-blocking calls are forwarded.
//!
//! Invariant **R (request)**: a request's state is freed by `free_state`, which MPI calls once, after `complete` at the earliest.
//! Invariant **M (memory)**: MPI forbids the program to touch a call's buffers before its request has ended.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::call::{CallFailure, CallResult, return_code};
use crate::comm_cache;
use crate::functions::MpiFunction;
use crate::intercepted::{CommEntry, InterceptedComm};
use crate::row::{CallMemory, KeptRow};
use crate::waits;
use earlybird::{BorrowedBytes, CollectiveArgs, Counts, DType, Error, MemoryKeeper, Op, Request};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex, Once, PoisonError};

/// The memory of a call under way.
pub struct RequestBuffers {
    /// `None` where the result replaces what lies in `recv`.
    pub send: Option<CallMemory>,
    pub recv: CallMemory,
    /// The caller's blocks that the result is copied to, if it lies in a copy.
    pub deliver_to: Option<KeptRow>,
}

// SAFETY: M: the caller's memory is nobody else's until the call has ended.
unsafe impl Send for RequestBuffers {}

impl MemoryKeeper for RequestBuffers {}

impl RequestBuffers {
    /// Copies the result to the caller's blocks, if it does not lie there.
    fn deliver(&self) -> CallResult {
        match (&self.deliver_to, &self.recv) {
            // SAFETY: M.
            (Some(row), CallMemory::Owned(result)) => unsafe { row.unpack(result) },
            _ => Ok(()),
        }
    }
}

type CallBytes = BorrowedBytes<RequestBuffers>;

/// The description of a call to start; the counts are in elements of `dtype`.
pub struct NewCall<'a> {
    pub intercepted: &'static InterceptedComm,
    pub function: MpiFunction,
    pub comm: Handle,
    pub root: Option<usize>,
    pub counts: Counts<'a>,
    pub dtype: DType,
    pub op: Op,
}

impl NewCall<'_> {
    /// Starts the call on these buffers and writes its request.
    ///
    /// # Safety
    /// The buffers are what MPI demands of the caller, and `request` is where it wants the request.
    #[cold]
    pub unsafe fn start(self, mut buffers: RequestBuffers, request: *mut Handle) -> CallResult {
        let (send, recv) = (buffers.send.as_mut().map(|send| send.bytes().cast_const()), buffers.recv.bytes());
        // SAFETY: M; the two lie apart, and vectors stay where they are when `buffers` moves.
        let bytes: CallBytes = unsafe { BorrowedBytes::new(send, recv, self.dtype.into(), buffers) };
        let args = CollectiveArgs::describe(self.function.collective(), self.root, self.counts, bytes, self.op);
        let started = self.intercepted.comm.start(args)?;
        // SAFETY: by the caller's contract.
        unsafe { create_request(started, self.function, self.comm, request) }
    }
}

/// The state of a request of MPI, which has its address.
struct RequestState {
    function: MpiFunction,
    comm: Handle,
    /// The result of a call that has ended, until MPI queries the status.
    result: Option<Result<CallBytes, Error>>,
    code: c_int,
    /// The communicator may be freed before the call has ended.
    entry: Arc<CommEntry>,
}

/// A call under way. Its communicator lives as long as the state.
struct UnderWay {
    started: Request<'static, CallBytes>,
    request: Handle,
    state: *mut RequestState,
}

// SAFETY: R: nobody else uses the state before the call is complete.
unsafe impl Send for UnderWay {}

static UNDER_WAY: Mutex<Vec<UnderWay>> = Mutex::new(Vec::new());

impl UnderWay {
    /// Completes the request if the call has ended; returns whether it has.
    fn complete(&mut self) -> bool {
        let result = match self.started.try_wait() {
            // Another call of the communicator waits, in which MPI makes progress.
            Ok(None) | Err(Error::Usage { .. }) => return false,
            Ok(Some(bytes)) => Ok(bytes),
            Err(error) => Err(error),
        };
        // SAFETY: R: not complete so far.
        unsafe {
            (*self.state).result = Some(result);
            abi::PMPI_Grequest_complete(self.request);
        }
        true
    }
}

/// Makes the request of a call that was started.
///
/// # Safety
/// `request` is where the caller wants the request.
unsafe fn create_request(
    started: Request<'static, CallBytes>,
    function: MpiFunction,
    comm: Handle,
    request: *mut Handle,
) -> CallResult {
    let lost = CallFailure::Argument(constants().err_other, "the communicator has no state");
    let entry = comm_cache::hold(comm).ok_or(lost)?;
    let state = Box::into_raw(Box::new(RequestState { function, comm, result: None, code: 0, entry }));
    // SAFETY: MPI runs; the functions are those of the state.
    let code = unsafe { abi::PMPI_Grequest_start(query_status, free_state, refuse_cancel, state.cast(), request) };
    if code != 0 {
        // SAFETY: MPI has not taken it.
        drop(unsafe { Box::from_raw(state) });
        return Err(CallFailure::Mpi(code));
    }
    // SAFETY: written by MPI.
    let mut call = UnderWay { started, request: unsafe { *request }, state };
    if !call.complete() {
        UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner).push(call);
        register();
    }
    Ok(())
}

/// Writes the status of a request that is complete, after its result has been delivered.
unsafe extern "C" fn query_status(state: *mut c_void, status: *mut c_void) -> c_int {
    // SAFETY: R.
    let state = unsafe { &mut *state.cast::<RequestState>() };
    if let Some(result) = state.result.take() {
        let delivered = result.map_err(CallFailure::from).and_then(|bytes| bytes.keeper().deliver());
        // The error handler of a communicator that was freed is unknown.
        let comm = if comm_cache::is_state(state.comm, &state.entry) { state.comm } else { constants().world };
        state.code = return_code(state.function, comm, delivered);
    }
    // SAFETY: a status of MPI.
    unsafe { abi::eb_set_status(status, state.code) }
}

unsafe extern "C" fn free_state(state: *mut c_void) -> c_int {
    // SAFETY: R.
    drop(unsafe { Box::from_raw(state.cast::<RequestState>()) });
    0
}

/// MPI forbids to cancel collectives.
unsafe extern "C" fn refuse_cancel(_state: *mut c_void, _is_complete: c_int) -> c_int {
    constants().err_request
}

/// Registers `make_progress`, at the first call that is started.
fn register() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| waits::register(make_progress));
}

/// Removes `make_progress` from MPI's registry, before MPI_Finalize.
pub fn stop() {
    waits::unregister(make_progress);
}

/// Completes the requests of calls that have ended; returns how many.
unsafe extern "C" fn make_progress() -> c_int {
    // The lock is held if MPI waits inside this function and calls it again.
    let Ok(mut calls) = UNDER_WAY.try_lock() else { return 0 };
    let before = calls.len();
    calls.retain_mut(|call| !call.complete());
    (before - calls.len()) as c_int
}
