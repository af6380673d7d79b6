//! Transports that need no network: between threads of one process, and one with injected faults.

pub mod faulty;
pub mod threads;
