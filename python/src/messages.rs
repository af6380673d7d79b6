//! Messages between two ranks: sends and receives on the caller's buffers, which are kept until they have ended.
#![allow(unsafe_code)]

use crate::buffers::{BufferArg, Given};
use crate::communicator::PyCommunicator;
use crate::errors::exception;
use crate::signals;
use earlybird::{Communicator, Delivery, Error, PointToPoint, Transfer};
use pyo3::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Weak};

/// Messages between the ranks of a communicator, which owns them.
#[pyclass(name = "Messages", module = "earlybird", frozen)]
pub struct PyMessages {
    comm: Weak<Communicator>,
    messages: Weak<PointToPoint>,
    /// True once collectives that wait look after messages, which they do from the first message on.
    is_driven: AtomicBool,
}

/// A send or a receive that was started.
#[pyclass(name = "Transfer", module = "earlybird", frozen)]
pub struct PyTransfer {
    messages: Weak<PointToPoint>,
    transfer: Transfer,
}

/// The memory of a message under way, which is kept.
struct MessageBuffer(BufferArg);

impl AsRef<[u8]> for MessageBuffer {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: C.
        unsafe { self.0.bytes() }
    }
}

impl AsMut<[u8]> for MessageBuffer {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: C; writable, as checked.
        unsafe { self.0.bytes_mut() }
    }
}

impl MessageBuffer {
    fn read(object: &Bound<'_, PyAny>) -> PyResult<MessageBuffer> {
        Given::read(object, "buf")?.buffer("buf").map(MessageBuffer)
    }
}

fn freed() -> Error {
    Error::usage("the communicator was freed; join again")
}

impl PyMessages {
    /// Starts a transfer with the interpreter released: another thread may need it to release a buffer.
    fn start(
        &self,
        py: Python<'_>,
        begin: impl FnOnce(&PointToPoint) -> Result<Transfer, Error> + Send,
    ) -> PyResult<PyTransfer> {
        let transfer = signals::call(py, || {
            let messages = self.messages.upgrade().ok_or_else(freed)?;
            let transfer = begin(&messages)?;
            if !self.is_driven.swap(true, Relaxed) {
                let comm = self.comm.upgrade().ok_or_else(freed)?;
                // Another thread may be inside a call: the next message tries again.
                let is_driven = signals::interruptible_with(&comm, messages.progress()?).is_ok();
                self.is_driven.store(is_driven, Relaxed);
            }
            Ok(transfer)
        })?;
        Ok(PyTransfer { messages: self.messages.clone(), transfer })
    }
}

#[pymethods]
impl PyCommunicator {
    fn messages(&self, py: Python<'_>) -> PyResult<PyMessages> {
        let comm = self.get(py)?;
        let messages = signals::call(py, || comm.point_to_point())?;
        let (comm, messages) = (Arc::downgrade(comm), Arc::downgrade(&messages));
        Ok(PyMessages { comm, messages, is_driven: AtomicBool::new(false) })
    }
}

#[allow(non_snake_case)]
#[pymethods]
impl PyMessages {
    #[pyo3(signature = (buf, dest, tag=0))]
    fn Isend(&self, py: Python<'_>, buf: &Bound<'_, PyAny>, dest: usize, tag: u32) -> PyResult<PyTransfer> {
        let buffer = MessageBuffer::read(buf)?;
        self.start(py, |messages| messages.send(dest, tag, buffer))
    }

    #[pyo3(signature = (buf, source=None, tag=0))]
    fn Irecv(&self, py: Python<'_>, buf: &Bound<'_, PyAny>, source: Option<usize>, tag: u32) -> PyResult<PyTransfer> {
        let buffer = MessageBuffer::read(buf)?;
        buffer.0.check_writable()?;
        self.start(py, |messages| messages.receive(source, tag, buffer))
    }

    #[pyo3(signature = (buf, dest, tag=0))]
    fn Send(&self, py: Python<'_>, buf: &Bound<'_, PyAny>, dest: usize, tag: u32) -> PyResult<()> {
        self.Isend(py, buf, dest, tag)?.wait(py).map(drop)
    }

    #[pyo3(signature = (buf, source=None, tag=0))]
    fn Recv(&self, py: Python<'_>, buf: &Bound<'_, PyAny>, source: Option<usize>, tag: u32) -> PyResult<()> {
        self.Irecv(py, buf, source, tag)?.wait(py).map(drop)
    }
}

impl PyTransfer {
    fn has_ended(
        &self,
        py: Python<'_>,
        query: impl FnOnce(&PointToPoint) -> Result<Option<Delivery>, Error> + Send,
    ) -> PyResult<bool> {
        let ended = py.detach(|| query(&*self.messages.upgrade().ok_or_else(freed)?));
        ended.map(|ended| ended.is_some()).map_err(|error| exception(py, error))
    }
}

#[pymethods]
impl PyTransfer {
    /// Waits for the end. A signal's handler that raises ends the wait, not the transfer.
    fn wait(&self, py: Python<'_>) -> PyResult<bool> {
        while !self.has_ended(py, |messages| messages.wait(&self.transfer, signals::EVERY))? {
            py.check_signals()?;
        }
        Ok(true)
    }

    /// Returns whether the transfer has ended; never waits for another rank.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        self.has_ended(py, |messages| messages.test(&self.transfer))
    }

    /// The other rank, once the transfer has ended well.
    #[getter]
    fn peer(&self) -> Option<usize> {
        self.transfer.ended().and_then(Result::ok).map(|delivery| delivery.peer)
    }
}
