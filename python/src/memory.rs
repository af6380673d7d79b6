//! Memory of tensors as the C functions of their library show it: without a call of Python, and for types that Python's formats lack.

use crate::dlpack::{self, HostMemory};
use earlybird::Datatype;
use pyo3::prelude::*;

/// `count` elements of a type at an address, which lie there and are writable as long as `owner` lives: invariant C of the crate.
#[pyclass(name = "Memory", module = "earlybird._native", frozen)]
pub struct Memory {
    pub address: usize,
    pub count: usize,
    pub datatype: Datatype,
    pub owner: Py<PyAny>,
}

/// The memory of a contiguous tensor of the host, which must not be given other memory meanwhile. Gradients and the bits of lazy
/// conjugates are not looked at.
#[pyfunction]
pub fn memory(tensor: &Bound<'_, PyAny>) -> PyResult<Memory> {
    let HostMemory { address, count, datatype, .. } = dlpack::describe(tensor, "the tensor")?;
    Ok(Memory { address: address.expose_provenance(), count, datatype, owner: tensor.clone().unbind() })
}
