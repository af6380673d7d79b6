//! A started or prepared call together with the communicator that it borrows, for requests of Python.
//!
//! Invariant **K (kept)**: a call lies in one structure with the handle that keeps its communicator, and is dropped before it.
#![allow(unsafe_code)]

use crate::call::{Call, CallBytes};
use crate::errors::OrException;
use crate::fold::CallOp;
use crate::signals;
use earlybird::{Communicator, Error, OwnedArgs, SharedReduceOp};
use pyo3::prelude::*;
use std::sync::Arc;

/// A call `C` that was started or prepared.
pub struct KeptCall<C> {
    pub call: C,
    pub op: CallOp,
    /// Dropped after the call.
    comm: Arc<Communicator>,
}

impl<C: Send> KeptCall<C> {
    /// Starts or prepares a call, which was checked, by `begin`.
    pub fn new(
        py: Python<'_>,
        comm: &Arc<Communicator>,
        call: Call,
        begin: impl FnOnce(&'static Communicator, OwnedArgs<'_, CallBytes, SharedReduceOp>) -> Result<C, Error> + Send,
    ) -> PyResult<Self> {
        let (comm, op) = (comm.clone(), call.op.clone());
        // SAFETY: K: the only use is the call.
        let kept: &'static Communicator = unsafe { &*Arc::as_ptr(&comm) };
        let call = op.explain(py, py.detach(|| call.owned(|args| begin(kept, args))).or_exception(py))?;
        Ok(KeptCall { call, op, comm })
    }

    /// Ends the call by `wait`, and releases the communicator.
    pub fn end<T: Send>(self, py: Python<'_>, wait: impl FnOnce(C) -> Result<T, Error> + Send) -> PyResult<T> {
        let KeptCall { call, op, comm } = self;
        let done = signals::call(py, move || {
            let done = wait(call);
            drop(comm);
            done
        });
        op.explain(py, done)
    }
}
