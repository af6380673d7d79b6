//! The operators of reductions as Python objects.

use earlybird::Op;
use pyo3::prelude::*;

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

/// An operator of the library.
#[pyclass(name = "Op", module = "earlybird", frozen, eq, hash)]
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PyOp(pub Op);

#[pymethods]
impl PyOp {
    #[getter]
    fn name(&self) -> &'static str {
        NAMES.iter().find(|(_, op)| *op == self.0).map_or("", |(name, _)| name)
    }

    fn __repr__(&self) -> String {
        format!("earlybird.{}", self.name())
    }

    /// Pickles an operator as the name of the module's constant.
    fn __reduce__(&self) -> &'static str {
        self.name()
    }
}

/// Adds every operator under its name.
pub fn add_operators(module: &Bound<'_, PyModule>) -> PyResult<()> {
    NAMES.iter().try_for_each(|(name, op)| module.add(*name, PyOp(*op)))
}
