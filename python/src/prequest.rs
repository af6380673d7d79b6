//! Persistent requests: calls that are prepared once and started again and again, under mpi4py's names.
//!
//! A call uses the caller's memory where it lies, and keeps it from its preparation on.

use crate::call::Call;
use crate::errors::{OrException, exception};
use crate::kept_call::{CallSlot, KeptCall};
use earlybird::{Communicator, Error};
use pyo3::prelude::*;
use std::sync::Arc;

/// A call that is started any number of times, until it is freed.
#[pyclass(name = "Prequest", module = "earlybird")]
pub struct PyPrequest(CallSlot);

impl PyPrequest {
    /// Prepares a call, which was checked.
    pub fn new(py: Python<'_>, comm: &Arc<Communicator>, call: Call) -> PyResult<Self> {
        call.check_persistent()?;
        Ok(PyPrequest(CallSlot::new(KeptCall::prepare(py, comm, call)?)))
    }

    fn prepared(&mut self, py: Python<'_>) -> PyResult<&mut KeptCall> {
        let freed = || exception(py, Error::usage("the persistent request was freed; prepare the call again"));
        self.0.get().as_mut().ok_or_else(freed)
    }
}

#[pymethods]
impl PyPrequest {
    /// Starts the call on what the buffers hold now; never waits for another rank.
    #[pyo3(name = "Start")]
    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        let prepared = self.prepared(py)?;
        prepared.call.buffers_mut().or_exception(py)?.keeper().check_elements()?;
        prepared.start(py)
    }

    /// Starts several calls in this order, the same on all ranks.
    #[pyo3(name = "Startall")]
    #[staticmethod]
    fn start_all(py: Python<'_>, requests: Vec<Py<PyPrequest>>) -> PyResult<()> {
        requests.iter().try_for_each(|request| request.try_borrow_mut(py)?.start(py))
    }

    /// Waits for the result, which lies in the receive buffer then; returns at once where the call is not under way.
    fn wait(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.prepared(py)?.wait(py)
    }

    /// Returns whether the call is not, or no longer, under way; never waits for another rank.
    fn test(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.prepared(py)?.test(py)
    }

    /// Releases the buffers and the communicator; those of a call under way when it has ended.
    #[pyo3(name = "Free")]
    fn free(&mut self, py: Python<'_>) {
        self.0.release(py);
    }
}
