//! A call that was prepared on the caller's buffers, which a request of Python keeps.

use crate::call::{Call, CallBytes};
use crate::errors::OrException;
use crate::fold::CallOp;
use crate::signals;
use earlybird::{Communicator, Persistent};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// A call that was prepared, under way or not.
pub struct KeptCall {
    pub call: Persistent<'static, CallBytes>,
    op: CallOp,
}

impl KeptCall {
    /// Prepares a call, which was checked.
    pub fn prepare(py: Python<'_>, comm: &Arc<Communicator>, call: Call) -> PyResult<Self> {
        let op = call.op.clone();
        let call = op.explain(py, py.detach(|| call.owned(|args| comm.init_owned(args))).or_exception(py))?;
        Ok(KeptCall { call, op })
    }

    /// Starts the call; never waits for another rank.
    pub fn start(&mut self, py: Python<'_>) -> PyResult<()> {
        self.op.explain(py, py.detach(|| self.call.start()).or_exception(py))
    }

    /// Waits for the result.
    pub fn wait(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.op.explain(py, signals::call(py, || self.call.wait()))?;
        Ok(true)
    }

    /// Returns whether the call is not, or no longer, under way; never waits for another rank.
    pub fn test(&mut self, py: Python<'_>) -> PyResult<bool> {
        self.op.explain(py, py.detach(|| self.call.try_wait()).or_exception(py))
    }
}

/// The call of a request until it is released. Never locked: a method has the request for itself.
pub struct CallSlot(Mutex<Option<KeptCall>>);

impl CallSlot {
    pub fn new(call: KeptCall) -> Self {
        CallSlot(Mutex::new(Some(call)))
    }

    /// The call; `None` once it was released.
    pub fn get(&mut self) -> &mut Option<KeptCall> {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Releases the buffers and the communicator; those of a call under way when it has ended.
    pub fn release(&mut self, py: Python<'_>) {
        // Dropping the last reference to a communicator leaves it, and may wait for other ranks.
        if let Some(call) = self.get().take() {
            py.detach(|| drop(call));
        }
    }
}

impl Drop for CallSlot {
    fn drop(&mut self) {
        Python::try_attach(|py| self.release(py));
    }
}
