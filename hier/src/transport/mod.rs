//! Transports that need no network.

pub mod threads;
