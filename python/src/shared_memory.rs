//! Memory that the other ranks of the node reach, as an object with the buffer protocol: an allreduce works in arrays on it where
//! they lie.
//!
//! Arrays are known by their address, so it does not matter through how many views one was made. An array that is the whole
//! memory is a shared buffer; a part of one is used as private memory. Invariant **P (place)**: the memory of a place stays where it is
//! until the place is dropped, which a call that has its buffer keeps, and every object on it.
#![allow(unsafe_code)]

use crate::buffers::BufferArg;
use crate::errors::exception;
use earlybird::{CallBuffers, Error, SharedBuffer};
use pyo3::ffi;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Bytes of the smallest pages: shared memory is whole pages.
const PAGE: usize = 4096;

/// The places of this process by their addresses.
static PLACES: Mutex<BTreeMap<usize, Weak<Place>>> = Mutex::new(BTreeMap::new());

fn places() -> MutexGuard<'static, BTreeMap<usize, Weak<Place>>> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Shared memory of this rank.
struct Place {
    address: usize,
    bytes: usize,
    /// `None` while a call has it.
    buffer: Mutex<Option<SharedBuffer<u8>>>,
}

impl Place {
    fn new(mut buffer: SharedBuffer<u8>) -> Arc<Place> {
        let (address, bytes) = (buffer.as_mut_ptr().expose_provenance(), buffer.len());
        let place = Arc::new(Place { address, bytes, buffer: Mutex::new(Some(buffer)) });
        places().insert(address, Arc::downgrade(&place));
        place
    }

    /// The place that a buffer is the whole of.
    fn of(buffer: &BufferArg) -> Option<Arc<Place>> {
        let address = buffer.raw_bytes().addr();
        // Other buffers hardly ever begin with a page, and need not wait for the lock.
        let place = if address.is_multiple_of(PAGE) { places().get(&address)?.upgrade()? } else { return None };
        (place.bytes == buffer.len()).then_some(place)
    }

    fn buffer(&self) -> MutexGuard<'_, Option<SharedBuffer<u8>>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Before the memory may become another place's.
        places().remove(&self.address);
    }
}

/// The buffer of a place while one call has it; dropping it gives the buffer back.
struct LockedBuffer {
    buffer: Option<SharedBuffer<u8>>,
    place: Arc<Place>,
}

impl LockedBuffer {
    fn take(py: Python<'_>, place: Arc<Place>) -> PyResult<LockedBuffer> {
        let buffer = place.buffer().take();
        match buffer.is_some() {
            true => Ok(LockedBuffer { buffer, place }),
            false => Err(exception(
                py,
                Error::usage("another call has the shared memory; wait for a started one, free a persistent one"),
            )),
        }
    }
}

impl Drop for LockedBuffer {
    fn drop(&mut self) {
        *self.place.buffer() = self.buffer.take();
    }
}

/// The shared memory of a call's buffers.
pub struct LockedBuffers {
    /// `None` in place.
    send: Option<LockedBuffer>,
    recv: LockedBuffer,
}

impl LockedBuffers {
    /// The shared memory that these buffers are; `None` if one of them is none.
    pub fn take(py: Python<'_>, send: Option<&BufferArg>, recv: &BufferArg) -> PyResult<Option<LockedBuffers>> {
        let Some(recv) = Place::of(recv) else { return Ok(None) };
        let send = match send.map(Place::of) {
            Some(None) => return Ok(None),
            Some(Some(send)) => Some(LockedBuffer::take(py, send)?),
            None => None,
        };
        Ok(Some(LockedBuffers { send, recv: LockedBuffer::take(py, recv)? }))
    }

    /// The send buffer, `None` in place, and the receive buffer.
    pub fn buffers(&mut self) -> (Option<&SharedBuffer<u8>>, &mut SharedBuffer<u8>) {
        let here = "until it is dropped";
        let send = self.send.as_ref().map(|send| send.buffer.as_ref().expect(here));
        (send, self.recv.buffer.as_mut().expect(here))
    }

    /// The same for a blocking call.
    pub fn call_buffers(&mut self) -> CallBuffers<'_, u8> {
        match self.buffers() {
            (Some(send), recv) => (send, recv).into(),
            (None, recv) => recv.into(),
        }
    }
}

/// Bytes in the shared memory of the node, zero at first, which arrays are made on.
#[pyclass(name = "SharedMemory", module = "earlybird", frozen)]
pub struct SharedMemory(Arc<Place>);

impl SharedMemory {
    pub fn new(buffer: SharedBuffer<u8>) -> Self {
        SharedMemory(Place::new(buffer))
    }
}

#[pymethods]
impl SharedMemory {
    /// Fills in what `view` shows: all bytes, writable.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let place = &slf.get().0;
        let address = std::ptr::with_exposed_provenance_mut(place.address);
        // A `Vec` is no longer than that either.
        let len = place.bytes as ffi::Py_ssize_t;
        // SAFETY: P: `view`, which Python gives, keeps the object, and that keeps the place.
        match unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, len, 0, flags) } {
            0 => Ok(()),
            _ => Err(PyErr::fetch(slf.py())),
        }
    }

    fn __repr__(&self) -> String {
        format!("<earlybird.SharedMemory: {} bytes>", self.0.bytes)
    }
}
