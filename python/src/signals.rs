//! Signals that come while a call waits: Python's handlers run then, and one that raises, as that of Ctrl-C does, ends the call.
//!
//! A call that was begun cannot be taken back: the other ranks count on it. So a call that is given up fails its group, with an
//! error on all ranks that names this one.

use crate::errors::exception;
use crate::fold;
use earlybird::{Communicator, Error, Progress};
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The interval at which a waiting call is looked at.
pub const EVERY: Duration = Duration::from_millis(50);

thread_local! {
    /// The number of this thread's calls.
    static CALLS: Cell<u64> = const { Cell::new(0) };
    /// The call that was waiting when it was looked at last.
    static WAITING: Cell<u64> = const { Cell::new(0) };
    /// The exception of a handler.
    static RAISED: Cell<Option<PyErr>> = const { Cell::new(None) };
}

/// The communicator, whose calls, and those of communicators that are made from it, can be interrupted.
pub fn interruptible(comm: Communicator) -> Result<Communicator, Error> {
    comm.set_progress(Some(Progress::interrupting(EVERY, is_interrupted)?))?;
    Ok(comm)
}

/// The same, and what else is driven in waits.
pub fn interruptible_with(comm: &Communicator, other: Progress) -> Result<(), Error> {
    comm.set_progress(Some(Progress::interrupting(EVERY, is_interrupted)?.and(other)))
}

/// Runs the handlers of signals that have come. Only a call that has waited for an interval pays for that: another thread may
/// hold the interpreter for long.
fn is_interrupted() -> bool {
    let this = CALLS.get();
    if WAITING.replace(this) != this {
        return false;
    }
    let raised = Python::try_attach(|py| py.check_signals().err()).flatten();
    let is_interrupted = raised.is_some();
    if is_interrupted {
        RAISED.set(raised);
    }
    is_interrupted
}

/// Makes a call with the interpreter released. What a handler of a signal has raised meanwhile comes before its error.
#[inline]
pub fn call<T: Send>(py: Python<'_>, call: impl FnOnce() -> Result<T, Error> + Send) -> PyResult<T> {
    fold::refuse_inside(py)?;
    CALLS.set(CALLS.get().wrapping_add(1));
    let done = py.detach(call);
    // Also where the call was completed all the same.
    match RAISED.take() {
        Some(raised) => Err(raised),
        None => done.map_err(|error| exception(py, error)),
    }
}

/// Waits for what another thread does, with the interpreter released; a signal's handler that raises ends the wait, not the work.
pub fn wait_for<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> PyResult<T> {
    let (sender, mut receiver) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("earlybird-join".into()).spawn(move || {
        // A communicator that no caller waits for any more is dropped.
        let _ = sender.send(work());
    });
    thread.map_err(|error| exception(py, Error::system("start a thread to join with", error)))?;
    loop {
        let received;
        (received, receiver) = py.detach(move || (receiver.recv_timeout(EVERY), receiver));
        match received {
            Ok(result) => return result.map_err(|error| exception(py, error)),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(exception(py, Error::system("join", "the thread that joins has panicked")));
            }
        }
    }
}
