//! Requests: calls that were started and whose end is waited for later.
//!
//! A request owns copies of its buffers, so that only the call that starts it, `wait` and `test` use the caller's memory.
//! Invariant **K (kept)**: a request holds the communicator that its call borrows, and drops the call before the communicator.
#![allow(unsafe_code)]

use crate::call::Call;
use crate::errors::OrException;
use crate::signals;
use earlybird::{Communicator, Error, OwnedBytes, Persistent};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A call under way.
struct Started {
    call: Persistent<'static, OwnedBytes>,
    buffers: Call,
    /// Dropped after the call.
    _comm: Arc<Communicator>,
}

impl Started {
    fn write(&mut self) -> Result<(), Error> {
        self.buffers.write(self.call.buffers_mut()?);
        Ok(())
    }
}

/// A call that was started.
#[pyclass(name = "Request", module = "earlybird")]
pub struct PyRequest {
    /// `None` once it has ended. Never locked: a method has the object for itself.
    started: Mutex<Option<Started>>,
}

impl PyRequest {
    fn started(&mut self) -> &mut Option<Started> {
        self.started.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a call.
pub fn start(py: Python<'_>, comm: &Arc<Communicator>, call: Call) -> PyResult<PyRequest> {
    let (comm, call) = (comm.clone(), call.checked()?);
    // SAFETY: K: the only use is the call, which lies in one structure with the handle that keeps it.
    let kept: &'static Communicator = unsafe { &*Arc::as_ptr(&comm) };
    let started = py.detach(move || {
        let mut started = Started { call: call.prepare(kept)?, buffers: call, _comm: comm };
        started.call.start().map(|()| started)
    });
    let started = started.or_exception(py)?;
    Ok(PyRequest { started: Mutex::new(Some(started)) })
}

#[pymethods]
impl PyRequest {
    /// Waits for the result, which lies in the receive buffer then; returns at once where it does already.
    fn wait(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(mut started) = self.started().take() else { return Ok(true) };
        signals::call(py, move || {
            started.call.wait()?;
            started.write()
        })?;
        Ok(true)
    }

    /// Returns whether the result lies in the receive buffer; never waits for another rank.
    fn test(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(started) = self.started() else { return Ok(true) };
        let tried = py.detach(|| {
            let has_ended = started.call.try_wait()?;
            if has_ended { started.write().map(|()| true) } else { Ok(false) }
        });
        if !matches!(tried, Ok(false)) {
            *self.started() = None;
        }
        tried.or_exception(py)
    }

    #[pyo3(name = "Wait")]
    fn wait_under_its_other_name(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.wait(py)
    }

    #[pyo3(name = "Test")]
    fn test_under_its_other_name(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.test(py)
    }
}
