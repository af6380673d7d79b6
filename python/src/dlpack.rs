//! Tensors of other libraries through DLPack: memory of the host that an object exports by `__dlpack__`, as PyTorch's do, or that a C
//! function of its type describes.
//!
//! The structures are those of version 1 of the DLPack standard, and those before it. Invariant **T (tensor)**: a capsule with one of
//! its names holds the address of such a structure, which is valid until its deleter is called; whoever renames the capsule calls it once.
//! That of a type's functions is valid for ever.
#![allow(unsafe_code)]

use earlybird::{DType, Datatype};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi::{self, c_str};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyCapsule};
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::slice;

#[repr(C)]
struct Device {
    kind: i32,
    number: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ElementType {
    code: u8,
    bits: u8,
    lanes: u16,
}

#[repr(C)]
struct Tensor {
    data: *mut u8,
    device: Device,
    ndim: i32,
    element: ElementType,
    shape: *const i64,
    /// Strides in elements; null if the tensor is contiguous.
    strides: *const i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// The functions of a library for the tensors of one type; the other ones are not called.
#[repr(C)]
struct Exchange {
    major: u32,
    minor: u32,
    older: *const c_void,
    others: [*const c_void; 3],
    describe: Option<unsafe extern "C" fn(*mut ffi::PyObject, *mut Tensor) -> c_int>,
}

/// The flags of memory that cannot be written, and of a copy, in which nobody would see what is written.
const NOT_WRITTEN: u64 = 0b11;

/// A tensor that was taken out of its capsule.
pub struct Borrowed(Origin);

enum Origin {
    Unversioned(NonNull<Managed>),
    Versioned(NonNull<ManagedVersioned>),
}

/// The memory of a tensor.
pub struct HostMemory {
    pub address: *mut u8,
    pub count: usize,
    pub datatype: Datatype,
    pub is_readonly: bool,
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // Deleters may be Python's. Once the interpreter has ended nothing needs to be freed.
        Python::try_attach(|_| {
            // SAFETY: T.
            unsafe {
                match self.0 {
                    Origin::Unversioned(at) => at.as_ref().deleter.map(|delete| delete(at.as_ptr())),
                    Origin::Versioned(at) => at.as_ref().deleter.map(|delete| delete(at.as_ptr())),
                }
            }
        });
    }
}

/// Renames a capsule with this name, and returns its address.
fn take<T>(capsule: &Bound<'_, PyCapsule>, name: &CStr, used: &'static CStr) -> PyResult<Option<NonNull<T>>> {
    // SAFETY: the object is a capsule, and names are strings; T.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) == 0 {
            return Ok(None);
        }
        let at = NonNull::new(ffi::PyCapsule_GetPointer(capsule.as_ptr(), name.as_ptr()).cast());
        match ffi::PyCapsule_SetName(capsule.as_ptr(), used.as_ptr()) {
            0 => Ok(at),
            _ => Err(PyErr::fetch(capsule.py())),
        }
    }
}

/// Borrows the memory of an object with `__dlpack__`; `None` if it has none.
pub fn borrow(object: &Bound<'_, PyAny>, name: &str) -> PyResult<Option<(Borrowed, HostMemory)>> {
    let py = object.py();
    if !object.hasattr("__dlpack__")? {
        return Ok(None);
    }
    let (kind, number): (i32, i32) = object.call_method0("__dlpack_device__")?.extract()?;
    check_device(name, kind, number)?;
    let newest = [("max_version", (1, 1))].into_py_dict(py)?;
    let capsule = match object.call_method("__dlpack__", (), Some(&newest)) {
        // Objects of before version 1 do not take the argument.
        Err(error) if error.is_instance_of::<PyTypeError>(py) => object.call_method0("__dlpack__")?,
        other => other?,
    };
    let capsule = capsule.cast::<PyCapsule>()?;
    let origin = if let Some(at) = take(capsule, c_str!("dltensor_versioned"), c_str!("used_dltensor_versioned"))? {
        Origin::Versioned(at)
    } else if let Some(at) = take(capsule, c_str!("dltensor"), c_str!("used_dltensor"))? {
        Origin::Unversioned(at)
    } else {
        return Err(PyValueError::new_err(format!("{name} gave a capsule that holds no tensor, or one that was used")));
    };
    let borrowed = Borrowed(origin);
    let memory = borrowed.memory(name)?;
    Ok(Some((borrowed, memory)))
}

/// Describes the memory of an object whose type has functions of C for that (`__dlpack_c_exchange_api__`); it stays while the object has
/// no other memory.
pub fn describe(object: &Bound<'_, PyAny>, name: &str) -> PyResult<HostMemory> {
    let py = object.py();
    let capsule = object.get_type().getattr(intern!(py, "__dlpack_c_exchange_api__"))?;
    let mut tensor = MaybeUninit::zeroed();
    // SAFETY: T; the object is of the type that has the functions. One that returns 0 has filled in the tensor.
    unsafe {
        let exchange = ffi::PyCapsule_GetPointer(capsule.as_ptr(), c_str!("dlpack_exchange_api").as_ptr());
        let exchange = exchange.cast::<Exchange>().as_ref().ok_or_else(|| PyErr::fetch(py))?;
        let describe = exchange.describe.filter(|_| exchange.major == 1).ok_or_else(|| {
            PyTypeError::new_err(format!("{name} has no functions of version 1 of DLPack that describe it"))
        })?;
        match describe(object.as_ptr(), tensor.as_mut_ptr()) {
            0 => tensor.assume_init_ref().memory(name, false),
            _ => Err(PyErr::take(py)
                .unwrap_or_else(|| PyTypeError::new_err(format!("{name} is none that DLPack describes")))),
        }
    }
}

impl Borrowed {
    fn memory(&self, name: &str) -> PyResult<HostMemory> {
        // SAFETY: T. Of another major version only the fields before the flags are known.
        let (tensor, is_readonly) = unsafe {
            match self.0 {
                Origin::Unversioned(at) => (&at.as_ref().tensor, false),
                Origin::Versioned(at) if at.as_ref().major > 1 => {
                    let major = at.as_ref().major;
                    return Err(PyTypeError::new_err(format!(
                        "{name} is a tensor of version {major} of DLPack; give one of version 1"
                    )));
                }
                Origin::Versioned(at) => (&at.as_ref().tensor, at.as_ref().flags & NOT_WRITTEN != 0),
            }
        };
        tensor.memory(name, is_readonly)
    }
}

impl Tensor {
    fn memory(&self, name: &str, is_readonly: bool) -> PyResult<HostMemory> {
        check_device(name, self.device.kind, self.device.number)?;
        let datatype = datatype(name, self.element)?;
        let dimensions = usize::try_from(self.ndim).map_err(|_| no_shape(name))?;
        let numbers = |at: *const i64| match dimensions > 0 && !at.is_null() {
            // SAFETY: T: both have a number for each dimension, unless they are null.
            true => Some(unsafe { slice::from_raw_parts(at, dimensions) }),
            false => None,
        };
        let shape = numbers(self.shape).unwrap_or_default();
        if shape.len() != dimensions {
            return Err(no_shape(name));
        }
        let count = shape.iter().try_fold(1usize, |count, &length| count.checked_mul(usize::try_from(length).ok()?));
        let bytes = count.and_then(|count| count.checked_mul(datatype.size()));
        let (Some(count), Some(_)) = (count, bytes.filter(|bytes| isize::try_from(*bytes).is_ok())) else {
            return Err(no_shape(name));
        };
        if count > 0 && numbers(self.strides).is_some_and(|strides| !are_contiguous(shape, strides)) {
            return Err(PyValueError::new_err(format!(
                "{name} is not contiguous; give a copy, as its method contiguous() makes it"
            )));
        }
        let offset = usize::try_from(self.byte_offset).map_err(|_| no_shape(name))?;
        if count > 0 && self.data.is_null() {
            return Err(PyValueError::new_err(format!("{name} is a tensor without memory; give one that has some")));
        }
        Ok(HostMemory { address: self.data.wrapping_add(offset), count, datatype, is_readonly })
    }
}

fn no_shape(name: &str) -> PyErr {
    PyValueError::new_err(format!("{name} is a tensor of a shape that does not exist"))
}

/// Returns whether elements of this shape lie row by row without gaps.
fn are_contiguous(shape: &[i64], strides: &[i64]) -> bool {
    let mut next = 1;
    shape.iter().zip(strides).rev().all(|(&length, &stride)| {
        let expected = next;
        next *= length;
        length == 1 || stride == expected
    })
}

/// Refuses memory that the processor does not reach.
fn check_device(name: &str, kind: i32, number: i32) -> PyResult<()> {
    let device = match kind {
        // The processor; memory of the host that CUDA or ROCm has pinned.
        1 | 3 | 11 => return Ok(()),
        2 | 13 => "CUDA",
        4 => "OpenCL",
        7 => "Vulkan",
        8 => "Metal",
        10 => "ROCm",
        14 => "oneAPI",
        15 => "WebGPU",
        _ => {
            return Err(PyTypeError::new_err(format!(
                "{name} lies on device {number} of DLPack's kind {kind}; copy it to the host"
            )));
        }
    };
    Err(PyTypeError::new_err(format!("{name} lies on the {device} device {number}; copy it to the host")))
}

fn datatype(name: &str, element: ElementType) -> PyResult<Datatype> {
    let ElementType { code, bits, lanes } = element;
    let builtin = match (code, bits, lanes) {
        (0, 8, 1) => DType::I8,
        (0, 16, 1) => DType::I16,
        (0, 32, 1) => DType::I32,
        (0, 64, 1) => DType::I64,
        (1, 8, 1) => DType::U8,
        (1, 16, 1) => DType::U16,
        (1, 32, 1) => DType::U32,
        (1, 64, 1) => DType::U64,
        (2, 16, 1) => DType::F16,
        (2, 32, 1) => DType::F32,
        (2, 64, 1) => DType::F64,
        (4, 16, 1) => DType::BF16,
        (5, 64, 1) => DType::ComplexF32,
        (5, 128, 1) => DType::ComplexF64,
        (6, 8, 1) => DType::Bool,
        _ => {
            let all = u32::from(bits) * u32::from(lanes);
            return match all > 0 && all % 8 == 0 {
                true => Ok(Datatype::Opaque(all as usize / 8)),
                false => Err(PyTypeError::new_err(format!(
                    "{name} has elements of {all} bits; give elements of whole bytes"
                ))),
            };
        }
    };
    Ok(builtin.into())
}
