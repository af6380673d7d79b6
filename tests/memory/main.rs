//! Users' buffers in shared memory, and machines that have little of it.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/data.rs"]
mod data;

#[cfg(feature = "fault")]
mod shared_buffers;
mod shared_views;
mod small_memory;
