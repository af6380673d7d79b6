//! Memory by address, for objects without the buffer protocol whose element type Python's formats lack: tensors.

use earlybird::{DType, Datatype};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// `count` elements of a type at an address, which lie there and are writable as long as `owner` lives: invariant C of the crate.
#[pyclass(name = "Memory", module = "earlybird._native", frozen)]
pub struct Memory {
    pub address: usize,
    pub count: usize,
    pub datatype: Datatype,
    pub owner: Py<PyAny>,
}

#[pymethods]
impl Memory {
    /// Describes `count` elements of the type with this name (`f32`, `bf16`, `complex-f64`; `bytes-N` for N bytes that are only
    /// moved) at `address`, in memory that `owner` keeps.
    #[new]
    fn new(address: usize, count: usize, dtype: &str, owner: Py<PyAny>) -> PyResult<Self> {
        let datatype = match dtype.strip_prefix("bytes-").map(str::parse) {
            Some(Ok(bytes @ 1..)) => Some(Datatype::Opaque(bytes)),
            _ => DType::ALL.into_iter().find(|known| known.name() == dtype).map(Datatype::from),
        };
        let datatype = datatype.ok_or_else(|| {
            let names: Vec<&str> = DType::ALL.iter().map(|known| known.name()).collect();
            PyValueError::new_err(format!("there is no type {dtype:?}; use one of {}, bytes-N", names.join(", ")))
        })?;
        let bytes = count.checked_mul(datatype.size()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let fits = bytes.is_some_and(|bytes| address.checked_add(bytes).is_some());
        if count > 0 && (address == 0 || !fits) {
            return Err(PyValueError::new_err(format!(
                "{count} elements of {dtype} cannot lie at address {address:#x}"
            )));
        }
        Ok(Memory { address, count, datatype, owner })
    }
}
