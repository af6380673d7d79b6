//! Persistent requests: calls that are prepared once and started again and again, under mpi4py's names.
//!
//! A call uses the caller's memory where it lies, and keeps it from its preparation on.

use crate::call::{Call, CallBytes};
use crate::errors::{OrException, exception};
use crate::kept_call::KeptCall;
use crate::signals;
use earlybird::{Communicator, Error, Persistent};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A call that was prepared, under way or not.
type Prepared = KeptCall<Persistent<'static, CallBytes>>;

/// A call that is started any number of times.
#[pyclass(name = "Prequest", module = "earlybird")]
pub struct PyPrequest {
    /// `None` once it was freed. Never locked: a method has the object for itself.
    prepared: Mutex<Option<Prepared>>,
}

impl PyPrequest {
    /// Prepares a call, which was checked.
    pub fn new(py: Python<'_>, comm: &Arc<Communicator>, call: Call) -> PyResult<Self> {
        call.check_persistent()?;
        let prepared = KeptCall::new(py, comm, call, |comm, args| comm.init(args))?;
        Ok(PyPrequest { prepared: Mutex::new(Some(prepared)) })
    }

    fn prepared(&mut self, py: Python<'_>) -> PyResult<&mut Prepared> {
        let prepared = self.prepared.get_mut().unwrap_or_else(PoisonError::into_inner).as_mut();
        let freed = || exception(py, Error::usage("the persistent request was freed; prepare the call again"));
        prepared.ok_or_else(freed)
    }
}

impl Drop for PyPrequest {
    fn drop(&mut self) {
        Python::try_attach(|py| self.free(py));
    }
}

#[pymethods]
impl PyPrequest {
    /// Starts the call on what the buffers hold now; never waits for another rank.
    #[pyo3(name = "Start")]
    fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        let KeptCall { call, op, .. } = self.prepared(py)?;
        call.buffers_mut().or_exception(py)?.keeper().check_elements()?;
        op.explain(py, py.detach(|| call.start()).or_exception(py))
    }

    /// Starts several calls in this order, the same on all ranks.
    #[pyo3(name = "Startall")]
    #[staticmethod]
    fn start_all(py: Python<'_>, requests: Vec<Py<PyPrequest>>) -> PyResult<()> {
        requests.iter().try_for_each(|request| request.try_borrow_mut(py)?.start(py))
    }

    /// Waits for the result, which lies in the receive buffer then; returns at once where the call is not under way.
    fn wait(&mut self, py: Python<'_>) -> PyResult<bool> {
        let KeptCall { call, op, .. } = self.prepared(py)?;
        op.explain(py, signals::call(py, || call.wait()))?;
        Ok(true)
    }

    /// Returns whether the call is not, or no longer, under way; never waits for another rank.
    fn test(&mut self, py: Python<'_>) -> PyResult<bool> {
        let KeptCall { call, op, .. } = self.prepared(py)?;
        op.explain(py, py.detach(|| call.try_wait()).or_exception(py))
    }

    /// Releases the buffers and the communicator; those of a call under way when it has ended.
    #[pyo3(name = "Free")]
    fn free(&mut self, py: Python<'_>) {
        // Dropping the last reference to a communicator leaves it, and may wait for other ranks.
        if let Some(prepared) = self.prepared.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            py.detach(|| drop(prepared));
        }
    }
}
