//! Errors of the library as exceptions, whose classes are Python: `earlybird/errors.py`.

use earlybird::Error;
use pyo3::prelude::*;

/// Returns the exception of an error: of the class with its name, with its fields as attributes.
#[cold]
pub fn exception(py: Python<'_>, error: Error) -> PyErr {
    raise(py, error).unwrap_or_else(|failure| failure)
}

fn raise(py: Python<'_>, error: Error) -> PyResult<PyErr> {
    let classes = py.import("earlybird.errors")?;
    let message = error.to_string();
    let make = |name: &str| classes.getattr(name)?.call1((message.as_str(),));
    let made = match error {
        Error::PeerDied { rank, pid, host, during } => {
            let made = make("PeerDied")?;
            made.setattr("rank", rank)?;
            made.setattr("pid", pid)?;
            made.setattr("host", host)?;
            made.setattr("during", during)?;
            made
        }
        Error::Timeout { missing, after, during } => {
            let made = make("Timeout")?;
            made.setattr("rank", missing.first().copied())?;
            made.setattr("missing", missing)?;
            made.setattr("after", after.as_secs_f64())?;
            made.setattr("during", during)?;
            made
        }
        Error::Mismatch { rank_a, call_a, rank_b, call_b } => {
            let made = make("Mismatch")?;
            made.setattr("rank", rank_b)?;
            made.setattr("ranks", (rank_a, rank_b))?;
            made.setattr("calls", (call_a, call_b))?;
            made
        }
        Error::OperatorPanicked { rank, during, .. } => {
            let made = make("OperatorPanicked")?;
            made.setattr("rank", rank)?;
            made.setattr("during", during)?;
            made
        }
        Error::NoSpace { needed, free, .. } => {
            let made = make("NoSpace")?;
            made.setattr("needed", needed)?;
            made.setattr("free", free)?;
            made
        }
        Error::System { errno, .. } => {
            let made = make("System")?;
            made.setattr("errno", errno)?;
            made
        }
        Error::Poisoned { .. } => make("Poisoned")?,
        Error::Forked => make("Forked")?,
        Error::Unsupported { .. } => make("Unsupported")?,
        Error::Usage { .. } => make("Usage")?,
        // Variants of a later version of the library.
        _ => make("Error")?,
    };
    Ok(PyErr::from_value(made))
}

/// Turns the library's results into Python's.
pub trait OrException<T> {
    fn or_exception(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrException<T> for Result<T, Error> {
    #[inline]
    fn or_exception(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| exception(py, error))
    }
}
