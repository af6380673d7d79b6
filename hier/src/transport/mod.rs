//! Transports that need no network: between threads of one process, and one that misbehaves on purpose.

pub mod faulty;
pub mod threads;
