//! The reasons for which an intercepted call fails.

use earlybird::Error;
use std::ffi::c_int;

/// The error of an intercepted call.
#[derive(Debug)]
pub enum CallFailure {
    /// An error of earlybird.
    Earlybird(Error),
    /// An error code of MPI, which has already called the communicator's error handler.
    Mpi(c_int),
    /// Invalid arguments: the class of MPI's error, and a description.
    Argument(c_int, &'static str),
}

/// The result of an intercepted call.
pub type CallResult = Result<(), CallFailure>;

impl From<Error> for CallFailure {
    fn from(error: Error) -> Self {
        CallFailure::Earlybird(error)
    }
}
