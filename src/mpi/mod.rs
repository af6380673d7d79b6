//! Ranks on several nodes: the transport over an MPI library.

mod notice;
mod raw;
mod transport;

pub use transport::{MpiOptions, MpiTransport};
