//! The caller's buffers as bytes: the arguments that a call takes, and those that it refuses before anything is shared.
#![allow(unsafe_code)]

use crate::dlpack::{self, HostMemory};
use crate::elements::{self, is_no_bool};
use crate::memory::Memory;
use earlybird::{DType, Datatype};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};
use std::ffi::{CStr, CString};
use std::ptr;

/// The value `earlybird.IN_PLACE`.
#[pyclass(name = "InPlace", module = "earlybird", frozen)]
pub struct InPlace;

#[pymethods]
impl InPlace {
    fn __repr__(&self) -> &'static str {
        "earlybird.IN_PLACE"
    }
}

/// A buffer, with the counts of its blocks where the caller gave some.
pub struct BufferArg {
    /// The name of the argument in messages.
    name: &'static str,
    address: *mut u8,
    count: usize,
    pub datatype: Datatype,
    pub is_readonly: bool,
    /// True if the elements lie column by column.
    is_by_columns: bool,
    /// Elements of each rank's block.
    pub counts: Option<Vec<usize>>,
    holder: BufferHolder,
}

/// The holder that keeps memory in its place.
enum BufferHolder {
    /// There is none to keep.
    None,
    Export(PyUntypedBuffer),
    Tensor(#[expect(dead_code, reason = "held")] dlpack::Borrowed),
    Owner(#[expect(dead_code, reason = "held")] Py<PyAny>),
}

// SAFETY: C: an address of memory that the exported buffer keeps; it moves between threads as the export does.
unsafe impl Send for BufferArg {}
// SAFETY: as for `Send`.
unsafe impl Sync for BufferArg {}

/// An argument that stands for a buffer.
pub enum Given {
    /// `None`: this rank has none.
    Nothing,
    /// `IN_PLACE`.
    InPlace,
    Buffer(BufferArg),
}

impl Given {
    /// Reads the argument `name`: `None`, `IN_PLACE`, a buffer, or `[buffer, counts]` with displacements that leave no gaps.
    pub fn read(object: &Bound<'_, PyAny>, name: &'static str) -> PyResult<Given> {
        if object.is_none() {
            return Ok(Given::Nothing);
        }
        if object.cast::<InPlace>().is_ok() {
            return Ok(Given::InPlace);
        }
        BufferArg::read(object, name).map(Given::Buffer)
    }

    /// The buffer, where there has to be one.
    pub fn buffer(self, name: &str) -> PyResult<BufferArg> {
        let given = match self {
            Given::Buffer(buffer) => return Ok(buffer),
            Given::Nothing => "None",
            Given::InPlace => "IN_PLACE",
        };
        Err(PyTypeError::new_err(format!(
            "{name} is {given}, which this call does not take on this rank; give a buffer"
        )))
    }
}

impl BufferArg {
    fn read(object: &Bound<'_, PyAny>, name: &'static str) -> PyResult<BufferArg> {
        if object.is_exact_instance_of::<PyList>() || object.is_exact_instance_of::<PyTuple>() {
            let (buffer, counts) = split_specification(object, name)?;
            return Ok(BufferArg { counts: Some(counts), ..BufferArg::read(&buffer, name)? });
        }
        if let Ok(memory) = object.cast::<Memory>() {
            let Memory { address, count, datatype, ref owner } = *memory.get();
            let address = ptr::with_exposed_provenance_mut(address);
            let memory = HostMemory { address, count, datatype, is_readonly: false };
            return Ok(BufferArg::new(name, memory, BufferHolder::Owner(owner.clone_ref(object.py()))));
        }
        let export = match PyUntypedBuffer::get(object) {
            Ok(export) => export,
            Err(error) => {
                let tensor = dlpack::borrow(object, name)?;
                let buffer = tensor.map(|(tensor, memory)| BufferArg::new(name, memory, BufferHolder::Tensor(tensor)));
                return buffer.ok_or_else(|| {
                    PyTypeError::new_err(format!(
                        "{name} is no buffer ({error}); give a numpy array, an array.array, a bytearray or [buffer, counts]"
                    ))
                });
            }
        };
        if !export.is_c_contiguous() && !export.is_fortran_contiguous() {
            return Err(PyValueError::new_err(format!(
                "{name} is not contiguous; give a copy, as numpy.ascontiguousarray makes it"
            )));
        }
        if elements::has_objects(export.format().to_bytes()) {
            return Err(PyTypeError::new_err(format!(
                "{name} has Python objects as elements; use the calls for objects, as allgather, or another type"
            )));
        }
        let datatype = elements::datatype(export.format().to_bytes(), export.item_size()).ok_or_else(|| {
            PyTypeError::new_err(format!("{name} has elements of no size; give elements of at least a byte"))
        })?;
        let (address, count, is_readonly) = (export.buf_ptr().cast(), export.item_count(), export.readonly());
        let (is_by_columns, memory) = (!export.is_c_contiguous(), HostMemory { address, count, datatype, is_readonly });
        Ok(BufferArg { is_by_columns, ..BufferArg::new(name, memory, BufferHolder::Export(export)) })
    }

    fn new(name: &'static str, memory: HostMemory, holder: BufferHolder) -> BufferArg {
        let HostMemory { address, count, datatype, is_readonly } = memory;
        BufferArg { name, address, count, datatype, is_readonly, is_by_columns: false, counts: None, holder }
    }

    /// No buffer of elements of this type.
    pub fn none(name: &'static str, datatype: Datatype) -> BufferArg {
        let memory = HostMemory { address: ptr::null_mut(), count: 0, datatype, is_readonly: false };
        BufferArg::new(name, memory, BufferHolder::None)
    }

    /// Describes the same memory as bytes, for elements of a type that is only moved.
    pub fn become_bytes(&mut self) {
        (self.count, self.datatype) = (self.len(), DType::U8.into());
    }

    /// Describes bools as bytes, since not every byte is a valid bool.
    pub fn allow_any_bytes(&mut self) {
        if self.datatype == DType::Bool.into() {
            self.datatype = DType::U8.into();
        }
    }

    /// The format of the elements, as the buffer protocol writes it.
    pub fn format(&self) -> PyResult<CString> {
        let format = match &self.holder {
            BufferHolder::Export(export) => Some(export.format()),
            _ => elements::format(self.datatype),
        };
        format.map(CStr::to_owned).ok_or_else(|| {
            let elements = describe(self.datatype);
            PyTypeError::new_err(format!("{} has elements of {elements}, which Python has no format for", self.name))
        })
    }

    pub fn len(&self) -> usize {
        self.count * self.datatype.size()
    }

    /// The elements without a lifetime.
    pub fn raw_bytes(&self) -> *mut [u8] {
        let address = if self.len() == 0 { ptr::dangling_mut() } else { self.address };
        ptr::slice_from_raw_parts_mut(address, self.len())
    }

    /// Borrows the elements.
    ///
    /// # Safety
    /// C.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: by the caller's contract; memory that is not empty has an address.
        unsafe { &*self.raw_bytes() }
    }

    /// Borrows the elements exclusively.
    ///
    /// # Safety
    /// C; nothing else refers to them, and they may be written.
    #[expect(clippy::mut_from_ref, reason = "the memory is the caller's, not the argument's")]
    pub unsafe fn bytes_mut(&self) -> &mut [u8] {
        // SAFETY: as in `bytes`.
        unsafe { &mut *self.raw_bytes() }
    }

    /// Refuses memory that cannot be written.
    pub fn check_writable(&self) -> PyResult<()> {
        match self.is_readonly && self.count > 0 {
            false => Ok(()),
            true => Err(PyValueError::new_err(format!(
                "{} is read-only, and the call writes it; give another one",
                self.name
            ))),
        }
    }

    /// Refuses bools that are neither 0 nor 1. No call uses the memory meanwhile.
    pub fn check_elements(&self) -> PyResult<()> {
        // SAFETY: C.
        match self.datatype == DType::Bool.into() && is_no_bool(unsafe { self.bytes() }) {
            false => Ok(()),
            true => Err(PyValueError::new_err(format!(
                "{} has truth values that are neither 0 nor 1; give it as numbers, or make them so",
                self.name
            ))),
        }
    }

    /// Refuses two buffers of different types, and two that share memory.
    pub fn check_pair(&self, other: &BufferArg) -> PyResult<()> {
        if self.datatype != other.datatype {
            let [a, b] = [self, other].map(|buffer| (buffer.name, describe(buffer.datatype)));
            return Err(PyTypeError::new_err(format!(
                "{} has elements of {} and {} of {}; give both of one type",
                a.0, a.1, b.0, b.1
            )));
        }
        if self.is_by_columns != other.is_by_columns && self.count > 0 && other.count > 0 {
            return Err(PyValueError::new_err(format!(
                "{} and {} lie in different orders, by rows and by columns; give both in one",
                self.name, other.name
            )));
        }
        let [a, b] = [self, other].map(|buffer| (buffer.address as usize, buffer.address as usize + buffer.len()));
        if self.count > 0 && other.count > 0 && a.0 < b.1 && b.0 < a.1 {
            return Err(PyValueError::new_err(format!(
                "{} and {} share memory; give buffers apart, or IN_PLACE",
                self.name, other.name
            )));
        }
        Ok(())
    }
}

fn describe(datatype: Datatype) -> String {
    match datatype {
        Datatype::Builtin(dtype) => dtype.name().to_owned(),
        Datatype::Opaque(bytes) => format!("{bytes} bytes"),
    }
}

/// Splits `[buffer, counts]`, `[buffer, counts, displacements]` or `[buffer, (counts, displacements)]`.
fn split_specification<'py>(object: &Bound<'py, PyAny>, name: &str) -> PyResult<(Bound<'py, PyAny>, Vec<usize>)> {
    let parts: Vec<Bound<'py, PyAny>> = object.extract()?;
    let (buffer, counts, displacements) = match parts.as_slice() {
        [buffer, counts, displacements] => (buffer, counts.extract()?, Some(displacements.extract()?)),
        [buffer, both] => match both.extract::<(Vec<usize>, Vec<usize>)>() {
            Ok((counts, displacements)) => (buffer, counts, Some(displacements)),
            Err(_) => (buffer, both.extract()?, None),
        },
        _ => {
            return Err(PyTypeError::new_err(format!(
                "{name} is a list of {}; give a buffer, or [buffer, counts]",
                parts.len()
            )));
        }
    };
    let counts: Vec<usize> = counts;
    let starts = counts.iter().scan(0usize, |end, count| {
        let start = *end;
        *end = end.saturating_add(*count);
        Some(start)
    });
    let are_gapless = displacements.is_none_or(|displacements: Vec<usize>| starts.eq(displacements));
    match are_gapless {
        true => Ok((buffer.clone(), counts)),
        false => Err(PyValueError::new_err(format!(
            "{name} has displacements that leave gaps or another order of the blocks; give blocks one after the other, [buffer, counts]"
        ))),
    }
}
