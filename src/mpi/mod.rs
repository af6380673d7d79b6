//! Ranks on several nodes: the transport over an MPI library, and communicators made from MPI's.

mod communicator;
mod nodes;
mod raw;

use crate::messages::{Failure, MessageTransport};
use ::mpi::ffi;
use ::mpi::traits::AsRaw;

#[doc(hidden)]
pub use crate::messages::{MessageOptions as MpiOptions, MessageTransport as MpiTransport};

impl MessageTransport {
    /// A transport between the ranks of `comm`, which is duplicated. Collective over `comm`.
    ///
    /// # Errors
    /// The errors that MPI reports.
    pub fn new<C: AsRaw<Raw = ffi::MPI_Comm>>(comm: &C, options: MpiOptions) -> Result<MpiTransport, Failure> {
        Self::over(Box::new(raw::Comm::duplicate(comm)?), options)
    }
}
