//! The collectives of unmodified MPI programs through earlybird, by `LD_PRELOAD`: `docs/interposer.md` has the rules.
//!
//! A call is taken over or goes to MPI by what MPI demands to be equal on all its ranks: communicator, operation,
//! operator, root and the signature of the data. What only one rank knows (addresses, derived types, `MPI_IN_PLACE`)
//! is dealt with on that rank.
#![cfg(mpi)]

mod abi;
mod buffers;
pub mod entry;
mod fortran;
mod handles;
mod loaded;
mod messages;
mod moves;
mod others;
mod progress;
mod reductions;
mod rule;
mod seats;
mod set_up;
mod settings;
mod summary;
mod users;
