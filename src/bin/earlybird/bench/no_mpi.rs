//! The replacement of `mpi.rs` in a program that was built without an MPI library.

use earlybird::{Collective, Communicator, Config, DType, Error};
use std::convert::Infallible;

/// Refuses: this program has no MPI library.
pub fn available() -> Result<(), Error> {
    Err(Error::Unsupported {
        what: "the algorithm mpi of an earlybird that was built without an MPI library".into(),
        hint: "build it with `cargo build --release --features cli,mpi`, which needs mpicc and libclang".into(),
    })
}

/// Fails like [`available`].
pub fn has_type(_: DType) -> Result<(), Error> {
    available()
}

/// MPI, which this program was built without: no value exists.
pub struct Mpi(Infallible);

impl Mpi {
    /// Fails like [`available`].
    pub fn start() -> Result<Mpi, Error> {
        available().and_then(|()| Err(Error::usage("there is no MPI")))
    }

    pub fn size(&self) -> usize {
        match self.0 {}
    }

    pub fn join(&self, _: Config) -> Result<Communicator, Error> {
        match self.0 {}
    }

    pub fn call<T>(
        &self,
        _: Collective,
        _: usize,
        _: &mut [T],
        _: &mut [T],
        _: Option<&mut dyn FnMut()>,
    ) -> Result<(), Error> {
        match self.0 {}
    }
}
