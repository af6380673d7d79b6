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
    // An exception of this class, with these attributes.
    macro_rules! made {
        ($class:literal $(, $name:ident: $value:expr)*) => {{
            let made = classes.getattr($class)?.call1((message.as_str(),))?;
            $(made.setattr(stringify!($name), $value)?;)*
            made
        }};
    }
    let made = match error {
        Error::PeerDied { rank, pid, host, during } => {
            made!("PeerDied", rank: rank, pid: pid, host: host, during: during)
        }
        Error::Timeout { missing, after, during } => {
            let rank = missing.first().copied();
            made!("Timeout", rank: rank, missing: missing, after: after.as_secs_f64(), during: during)
        }
        Error::Mismatch { rank_a, call_a, rank_b, call_b } => {
            made!("Mismatch", rank: rank_b, ranks: (rank_a, rank_b), calls: (call_a, call_b))
        }
        Error::OperatorPanicked { rank, during, .. } => made!("OperatorPanicked", rank: rank, during: during),
        Error::NoSpace { needed, free, .. } => made!("NoSpace", needed: needed, free: free),
        Error::System { errno, .. } => made!("System", errno: errno),
        Error::Poisoned { .. } => made!("Poisoned"),
        Error::Forked => made!("Forked"),
        Error::Unsupported { .. } => made!("Unsupported"),
        Error::Usage { .. } => made!("Usage"),
        // Variants of a later version of the library.
        _ => made!("Error"),
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
