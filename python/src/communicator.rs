//! The class `Communicator`: joining, splitting, leaving, and a line per collective and form.

use crate::call::Call;
use crate::errors::{OrException, exception};
use crate::op::{Operator, PyOp};
use crate::prequest::PyPrequest;
use crate::request::PyRequest;
use crate::shared_memory::SharedMemory;
use crate::signals;
use earlybird::{Choice, Communicator, Config, Error, FoldOrder, Identity, Op};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The processes of one job, or some of them.
#[pyclass(name = "Communicator", module = "earlybird", weakref)]
pub struct PyCommunicator {
    /// `None` once it was freed.
    comm: Option<Arc<Communicator>>,
}

impl PyCommunicator {
    #[inline]
    pub fn get(&self, py: Python<'_>) -> PyResult<&Arc<Communicator>> {
        self.comm.as_ref().ok_or_else(|| exception(py, Error::usage("the communicator was freed; join again")))
    }

    pub fn of(comm: Communicator) -> Self {
        PyCommunicator { comm: Some(Arc::new(comm)) }
    }

    #[inline]
    pub fn run(&self, py: Python<'_>, describe: impl FnOnce(&Communicator) -> PyResult<Call>) -> PyResult<()> {
        let comm = self.get(py)?;
        describe(comm)?.checked(py)?.run(py, comm)
    }

    pub fn start(&self, py: Python<'_>, describe: impl FnOnce(&Communicator) -> PyResult<Call>) -> PyResult<PyRequest> {
        let comm = self.get(py)?;
        PyRequest::start(py, comm, describe(comm)?.checked(py)?)
    }

    pub fn init(&self, py: Python<'_>, describe: impl FnOnce(&Communicator) -> PyResult<Call>) -> PyResult<PyPrequest> {
        let comm = self.get(py)?;
        PyPrequest::new(py, comm, describe(comm)?.checked(py)?)
    }

    /// Takes the communicator out; requests may still hold it.
    fn take(slf: &Bound<'_, Self>) -> PyResult<Option<Arc<Communicator>>> {
        match slf.try_borrow_mut() {
            Ok(mut this) => Ok(this.comm.take()),
            Err(_) => Err(exception(
                slf.py(),
                Error::usage("another thread is inside a call of the communicator; wait for it"),
            )),
        }
    }
}

impl Drop for PyCommunicator {
    fn drop(&mut self) {
        // A started call may have to wait for other ranks.
        let comm = self.comm.take();
        if comm.is_some() {
            Python::try_attach(|py| py.detach(|| drop(comm)));
        }
    }
}

/// The operator of a reduction, the sum by default.
pub fn operator(op: Option<PyRef<'_, PyOp>>) -> Operator {
    op.map_or(Operator::Builtin(Op::Sum), |op| op.0.clone())
}

/// The settings of the environment, with these options in place of variables.
pub fn configuration(timeout: Option<f64>, options: BTreeMap<String, String>) -> Result<Config, Error> {
    if let Some(name) = options.keys().find(|name| !name.starts_with("EARLYBIRD_")) {
        return Err(Error::usage(format!(
            "the option {name:?} does not begin with EARLYBIRD_; options are named as the variables"
        )));
    }
    let mut config = Config::from_env_and(options)?;
    if let Some(seconds) = timeout {
        let after = Duration::try_from_secs_f64(seconds).ok().filter(|after| !after.is_zero());
        config.timeout =
            Some(after.ok_or_else(|| Error::usage(format!("a timeout of {seconds} s; give a positive number")))?);
    }
    Ok(config)
}

#[pymethods]
impl PyCommunicator {
    #[new]
    #[pyo3(signature = (job=None, rank=None, size=None, *, timeout=None, options=None))]
    fn new(
        py: Python<'_>,
        job: Option<&str>,
        rank: Option<usize>,
        size: Option<usize>,
        timeout: Option<f64>,
        options: Option<BTreeMap<String, String>>,
    ) -> PyResult<Self> {
        let builder = Communicator::builder().try_config(configuration(timeout, options.unwrap_or_default()));
        let builder = match (job, rank, size) {
            (None, None, None) => builder,
            (Some(job), Some(rank), Some(size)) => builder.identity(Identity::named(job, rank, size).or_exception(py)?),
            _ => return Err(PyTypeError::new_err("give job, rank and size, or none of them: a launcher says so then")),
        };
        signals::wait_for(py, move || signals::interruptible(builder.connect()?)).map(PyCommunicator::of)
    }

    #[getter]
    fn rank(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.rank())
    }

    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<usize> {
        Ok(self.get(py)?.size())
    }

    #[pyo3(name = "Get_rank")]
    fn rank_as_mpi_names_it(&self, py: Python<'_>) -> PyResult<usize> {
        self.rank(py)
    }

    #[pyo3(name = "Get_size")]
    fn size_as_mpi_names_it(&self, py: Python<'_>) -> PyResult<usize> {
        self.size(py)
    }

    #[getter]
    fn job_ranks(&self, py: Python<'_>) -> PyResult<Vec<usize>> {
        Ok(self.get(py)?.job_ranks().to_vec())
    }

    #[getter]
    fn last_algorithm(&self, py: Python<'_>) -> PyResult<Option<&'static str>> {
        let comm = self.get(py)?;
        // Another thread that folds may wait for the interpreter.
        Ok(py.detach(|| comm.last_call()).map(|report| report.algorithm.name()))
    }

    /// Explains what a collective would run on blocks of `nbytes` bytes, and why: the text of `earlybird explain`. Any rank may call it alone.
    fn explain(&self, py: Python<'_>, collective: &str, nbytes: usize) -> PyResult<String> {
        let comm = self.get(py)?;
        let explained = collective.parse().and_then(|collective| py.detach(|| comm.explain(collective, nbytes)));
        explained.map(|explained| explained.to_string()).or_exception(py)
    }

    /// The number under which the trace has the calls of this communicator.
    #[getter]
    fn trace(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        Ok(self.get(py)?.traced_as())
    }

    fn set_algorithm(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let comm = self.get(py)?;
        name.parse::<Choice>().and_then(|choice| comm.set_algorithm(choice)).or_exception(py)
    }

    fn set_order(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        let comm = self.get(py)?;
        name.parse::<FoldOrder>().and_then(|order| comm.set_order(order)).or_exception(py)
    }

    /// Allocates bytes in the shared memory of the node. This rank alone takes part.
    #[pyo3(name = "Alloc_mem")]
    fn alloc(&self, py: Python<'_>, size: usize) -> PyResult<SharedMemory> {
        let comm = self.get(py)?;
        signals::call(py, || comm.alloc(size)).map(SharedMemory::new)
    }

    #[pyo3(signature = (color, key=0))]
    fn split(&self, py: Python<'_>, color: Option<u32>, key: i64) -> PyResult<Option<Self>> {
        let comm = self.get(py)?;
        Ok(signals::call(py, || comm.split(color, key))?.map(PyCommunicator::of))
    }

    fn dup(&self, py: Python<'_>) -> PyResult<Self> {
        let comm = self.get(py)?;
        signals::call(py, || comm.duplicate()).map(PyCommunicator::of)
    }

    fn shrink(&self, py: Python<'_>) -> PyResult<Self> {
        let comm = self.get(py)?;
        signals::call(py, || comm.shrink()).map(PyCommunicator::of)
    }

    fn free(slf: &Bound<'_, Self>) -> PyResult<()> {
        let comm = PyCommunicator::take(slf)?;
        slf.py().detach(|| drop(comm));
        Ok(())
    }

    fn close(slf: &Bound<'_, Self>) -> PyResult<()> {
        let comm = PyCommunicator::take(slf)?;
        signals::call(slf.py(), || comm.and_then(Arc::into_inner).map_or(Ok(()), Communicator::close))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __exit__(
        slf: &Bound<'_, Self>,
        _class: &Bound<'_, PyAny>,
        _exception: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        PyCommunicator::free(slf)
    }

    fn __repr__(&self) -> String {
        match &self.comm {
            Some(comm) => format!("<earlybird.Communicator: rank {} of {}>", comm.rank(), comm.size()),
            None => "<earlybird.Communicator: freed>".into(),
        }
    }
}
