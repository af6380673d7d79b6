//! Requests: calls that were started and whose end is waited for later.
//!
//! A started call uses the caller's memory where it lies, and keeps it until the call has ended, also when its request is dropped.

use crate::call::Call;
use crate::fold;
use crate::kept_call::{CallSlot, KeptCall};
use earlybird::Communicator;
use pyo3::prelude::*;
use std::sync::Arc;

/// A call that was started, until it has ended.
#[pyclass(name = "Request", module = "earlybird")]
pub struct PyRequest(CallSlot);

impl PyRequest {
    /// Starts a call, which was checked.
    pub fn start(py: Python<'_>, comm: &Arc<Communicator>, call: Call) -> PyResult<Self> {
        let mut started = KeptCall::prepare(py, comm, call)?;
        started.start(py)?;
        Ok(PyRequest(CallSlot::new(started)))
    }
}

#[pymethods]
impl PyRequest {
    /// Waits for the result, which lies in the receive buffer then; returns at once where it does already.
    fn wait(&mut self, py: Python<'_>) -> PyResult<bool> {
        fold::refuse_inside(py)?;
        let Some(started) = self.0.get() else { return Ok(true) };
        let waited = started.wait(py);
        self.0.release(py);
        waited
    }

    /// Returns whether the result lies in the receive buffer; never waits for another rank.
    fn test(&mut self, py: Python<'_>) -> PyResult<bool> {
        let Some(started) = self.0.get() else { return Ok(true) };
        let tested = started.test(py);
        if !matches!(tested, Ok(false)) {
            self.0.release(py);
        }
        tested
    }
}
