//! The operators of reductions as Python objects: the library's, and functions of the caller's on buffers.

use earlybird::Op;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// The names in Python: those of MPI, where it has the operator.
const NAMES: [(&str, Op); 13] = [
    ("SUM", Op::Sum),
    ("PROD", Op::Product),
    ("MIN", Op::Min),
    ("MAX", Op::Max),
    ("AVG", Op::Average),
    ("BAND", Op::BitAnd),
    ("BOR", Op::BitOr),
    ("BXOR", Op::BitXor),
    ("LAND", Op::LogicalAnd),
    ("LOR", Op::LogicalOr),
    ("LXOR", Op::LogicalXor),
    ("MINLOC", Op::MinIndex),
    ("MAXLOC", Op::MaxIndex),
];

/// A reduction operator.
#[derive(Clone)]
pub enum Operator {
    Builtin(Op),
    Function(Arc<UserFunction>),
}

/// A function of Python that reduces buffers.
pub struct UserFunction {
    pub function: Py<PyAny>,
    pub commutes: bool,
}

/// An operator as a value of Python.
#[pyclass(name = "Op", module = "earlybird", frozen)]
pub struct PyOp(pub Operator);

impl PyOp {
    /// Two are one operator if both numbers are equal.
    fn identity(&self) -> (u8, usize) {
        match &self.0 {
            Operator::Builtin(op) => (*op as u8, 0),
            Operator::Function(function) => (u8::MAX, Arc::as_ptr(function).addr()),
        }
    }

    fn constant(&self) -> Option<&'static str> {
        let Operator::Builtin(this) = &self.0 else { return None };
        NAMES.iter().find(|(_, op)| op == this).map(|(name, _)| *name)
    }
}

#[pymethods]
impl PyOp {
    /// Makes an operator of `function(inbuf, inoutbuf, datatype)`, which makes every element of `inoutbuf` that of `inbuf` op that of
    /// `inoutbuf`. If it does not commute, the lower ranks stand in `inbuf`.
    #[pyo3(name = "Create", signature = (function, commute=false))]
    #[staticmethod]
    fn create(function: Bound<'_, PyAny>, commute: bool) -> PyResult<Self> {
        if !function.is_callable() {
            return Err(PyTypeError::new_err(format!("{} cannot be called; give a function", function.repr()?)));
        }
        Ok(PyOp(Operator::Function(Arc::new(UserFunction { function: function.unbind(), commutes: commute }))))
    }

    #[getter]
    fn name(&self, py: Python<'_>) -> PyResult<String> {
        match (&self.0, self.constant()) {
            (Operator::Function(user), _) => Ok(user.function.bind(py).repr()?.to_string()),
            (_, name) => Ok(name.unwrap_or_default().into()),
        }
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.name(py)?;
        Ok(match self.0 {
            Operator::Builtin(_) => format!("earlybird.{name}"),
            Operator::Function(_) => format!("earlybird.Op.Create({name})"),
        })
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast::<PyOp>().is_ok_and(|other| other.get().identity() == self.identity())
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.identity().hash(&mut hasher);
        hasher.finish()
    }

    /// Pickles an operator of the library as the name of the module's constant.
    fn __reduce__(&self) -> PyResult<&'static str> {
        self.constant()
            .ok_or_else(|| PyTypeError::new_err("an operator of a function is not pickled; create it on each rank"))
    }
}

/// Adds every operator under its name.
pub fn add_operators(module: &Bound<'_, PyModule>) -> PyResult<()> {
    NAMES.iter().try_for_each(|(name, op)| module.add(*name, PyOp(Operator::Builtin(*op))))
}
