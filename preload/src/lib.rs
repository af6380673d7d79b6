//! Interception of the collectives of unmodified MPI programs by `LD_PRELOAD`; `docs/mpi.md` has the rules.
//!
//! A call is intercepted or forwarded to MPI by arguments that MPI requires to be equal on all ranks: communicator, operation, operator,
//! root and the signature of the data. Arguments that one rank alone knows (addresses, derived types, `MPI_IN_PLACE`) are handled on
//! that rank.
#![cfg(mpi)]

mod abi;
mod block;
mod buffers;
mod call;
mod comm_cache;
mod comm_call;
mod completion;
mod data_movement;
mod description;
mod dynamic_linker;
pub mod entry;
mod failure;
mod fortran;
mod forwarded;
mod functions;
mod handles;
mod init;
mod intercepted;
mod kept_calls;
mod kept_handles;
mod machine;
mod messages;
mod new_call;
mod non_blocking;
mod persistent;
mod prepared;
mod progress;
mod reductions;
mod retired;
mod row;
mod scratch;
mod selection;
mod set_up;
mod settings;
mod stderr;
mod summary;
mod transfer;
mod under_way;
mod user_ops;
mod waits;
