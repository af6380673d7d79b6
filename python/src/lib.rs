//! `earlybird._native`: the compiled part of the Python package. It knows buffers, calls and errors; what can be Python is Python,
//! in `earlybird/`.
//!
//! Nothing is compiled against numpy or torch: an array is what the buffer protocol shows of it. The interpreter is released in
//! every call that may wait. Invariant **C (caller's memory)**: what a buffer shows stays where it is while it is exported, that of a
//! [`memory::Memory`] while its owner lives; no other thread writes there while a call uses it.

mod buffers;
mod call;
mod collectives;
mod communicator;
mod dlpack;
mod elements;
mod errors;
mod fold;
mod kept_call;
mod launch;
mod memory;
mod messages;
mod methods;
mod nodes;
mod op;
mod operand;
mod prequest;
mod report;
mod request;
mod shared_memory;
mod signals;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<communicator::PyCommunicator>()?;
    module.add_class::<request::PyRequest>()?;
    module.add_class::<prequest::PyPrequest>()?;
    for class in [module.py().get_type::<request::PyRequest>(), module.py().get_type::<prequest::PyPrequest>()] {
        // mpi4py has both methods under two names.
        class.setattr("Wait", class.getattr("wait")?)?;
        class.setattr("Test", class.getattr("test")?)?;
    }
    module.add_class::<messages::PyMessages>()?;
    module.add_class::<messages::PyTransfer>()?;
    module.add_class::<nodes::Listener>()?;
    module.add_function(wrap_pyfunction!(nodes::node, module)?)?;
    module.add_class::<memory::Memory>()?;
    module.add_function(wrap_pyfunction!(memory::memory, module)?)?;
    module.add_class::<shared_memory::SharedMemory>()?;
    module.add_class::<op::PyOp>()?;
    op::add_operators(module)?;
    module.add("IN_PLACE", Py::new(module.py(), buffers::InPlace)?)?;
    module.add_function(wrap_pyfunction!(report::read_lateness, module)?)?;
    module.add_function(wrap_pyfunction!(launch::run_job, module)?)?;
    module.add_function(wrap_pyfunction!(launch::hidden_command, module)?)
}
