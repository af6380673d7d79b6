//! Ranks on several nodes: the transport over an MPI library, and communicators made from MPI's.

mod communicator;
mod line;
mod nodes;
mod notice;
mod raw;
mod transport;

pub(crate) use line::MpiLine;
pub use transport::{MpiOptions, MpiTransport};
