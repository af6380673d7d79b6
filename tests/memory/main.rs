//! Users' buffers in shared memory, and machines that have little of it.

#[path = "../common/mod.rs"]
mod common;

#[cfg(feature = "fault")]
mod shared_buffers;
mod shared_views;
mod small_memory;
