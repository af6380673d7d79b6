//! Requests: calls that were started and whose end is waited for later.
//!
//! A started call uses the caller's memory where it lies, and keeps it until the call has ended, also when its request is dropped.

use crate::call::{Call, CallBytes};
use crate::errors::OrException;
use crate::fold;
use crate::kept_call::KeptCall;
use earlybird::{Communicator, Request};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A call under way.
type Started = KeptCall<Request<'static, CallBytes>>;

/// A call that was started.
#[pyclass(name = "Request", module = "earlybird")]
pub struct PyRequest {
    /// `None` once it has ended. Never locked: a method has the object for itself.
    started: Mutex<Option<Started>>,
}

impl PyRequest {
    /// Starts a call, which was checked.
    pub fn start(py: Python<'_>, comm: &Arc<Communicator>, call: Call) -> PyResult<Self> {
        let started = KeptCall::new(py, comm, call, |comm, args| comm.start(args))?;
        Ok(PyRequest { started: Mutex::new(Some(started)) })
    }

    fn started(&mut self) -> &mut Option<Started> {
        self.started.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PyRequest {
    fn drop(&mut self) {
        // Dropping the last reference to a communicator leaves it, and may wait for other ranks.
        if let Some(started) = self.started().take() {
            Python::try_attach(|py| py.detach(|| drop(started)));
        }
    }
}

#[pymethods]
impl PyRequest {
    /// Waits for the result, which lies in the receive buffer then; returns at once where it does already.
    fn wait(&mut self, py: Python<'_>) -> PyResult<bool> {
        fold::refuse_inside(py)?;
        let Some(started) = self.started().take() else { return Ok(true) };
        started.end(py, Request::wait)?;
        Ok(true)
    }

    /// Returns whether the result lies in the receive buffer; never waits for another rank.
    fn test(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(started) = self.started() else { return Ok(true) };
        let tried = py.detach(|| started.call.try_wait()).or_exception(py);
        let tried = started.op.explain(py, tried);
        if !matches!(tried, Ok(None)) {
            *self.started() = None;
        }
        tried.map(|buffers| buffers.is_some())
    }
}
