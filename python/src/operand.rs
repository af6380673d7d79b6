//! One operand of a fold by a function of Python: a copy of elements, as an object with the buffer protocol, which knows their format.
//!
//! Invariant **O (operand)**: the memory lies where it is as long as the object lives, which every buffer on it keeps.
#![allow(unsafe_code)]

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CString, c_int};
use std::ptr;
use std::sync::Arc;

/// Elements of an operand.
#[pyclass(frozen)]
pub struct Operand {
    /// The address of `_memory`, through which alone it is read and written.
    address: usize,
    _memory: Vec<u128>,
    /// Elements, and the bytes from one to the next, as the buffer protocol takes them.
    shape: [ffi::Py_ssize_t; 1],
    strides: [ffi::Py_ssize_t; 1],
    format: Arc<CString>,
    is_readonly: bool,
}

impl Operand {
    /// A copy of `count` elements of `bytes` bytes in this format.
    ///
    /// # Safety
    /// They lie at `from`, and nothing writes them meanwhile.
    pub unsafe fn copied<'py>(
        py: Python<'py>,
        from: *const u8,
        count: usize,
        bytes: usize,
        format: &Arc<CString>,
        is_readonly: bool,
    ) -> PyResult<Bound<'py, Operand>> {
        let mut memory = vec![0u128; (count * bytes).div_ceil(size_of::<u128>())];
        let address = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the caller's contract; the memory is as long, and new.
        unsafe { ptr::copy_nonoverlapping(from, address, count * bytes) };
        let (shape, strides) = ([count as ffi::Py_ssize_t], [bytes as ffi::Py_ssize_t]);
        let (address, format) = (address.expose_provenance(), format.clone());
        Bound::new(py, Operand { address, _memory: memory, shape, strides, format, is_readonly })
    }

    fn len(&self) -> usize {
        (self.shape[0] * self.strides[0]).unsigned_abs()
    }

    /// Copies the elements to `to`.
    ///
    /// # Safety
    /// There is room for as many.
    pub unsafe fn copy_to(&self, to: *mut u8) {
        // SAFETY: the caller's contract; O.
        unsafe { ptr::copy_nonoverlapping(ptr::with_exposed_provenance(self.address), to, self.len()) };
    }
}

#[pymethods]
impl Operand {
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        if this.is_readonly && flags & ffi::PyBUF_WRITABLE != 0 {
            return Err(PyBufferError::new_err("the left operand is read-only; write the result into the right one"));
        }
        let requests = |flag: c_int| flags & flag == flag;
        // SAFETY: O: `view`, which Python gives, keeps the object, in which all that is pointed to lies.
        unsafe {
            (*view).buf = ptr::with_exposed_provenance_mut(this.address);
            (*view).len = this.len() as ffi::Py_ssize_t;
            (*view).itemsize = this.strides[0];
            (*view).readonly = this.is_readonly.into();
            (*view).ndim = 1;
            (*view).format =
                if requests(ffi::PyBUF_FORMAT) { this.format.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).shape = if requests(ffi::PyBUF_ND) { this.shape.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).strides =
                if requests(ffi::PyBUF_STRIDES) { this.strides.as_ptr().cast_mut() } else { ptr::null_mut() };
            (*view).suboffsets = ptr::null_mut();
            (*view).internal = ptr::null_mut();
            (*view).obj = slf.into_ptr();
        }
        Ok(())
    }
}
