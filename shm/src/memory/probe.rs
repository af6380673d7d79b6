//! Probes of the system for `earlybird doctor`, made by the functions that joining and reserving use.

use std::path::Path;
use std::sync::Arc;

use super::arena::Arena;
pub use super::arena::{ARENA_NAME, file_limit};
pub use super::directory::leftovers;
use super::limits;
pub use super::limits::MemoryGroup;
pub use super::process::affinity;
use super::region::Region;
pub use super::rendezvous::try_out;
use crate::Error;
use crate::layout::Layout;

/// Creates an arena of `bytes`, reserves its first page, and drops it.
///
/// # Errors
/// The errors of creating a job's memory: [`Error::Unsupported`], [`Error::NoSpace`], [`Error::System`].
pub fn sealed_memory(bytes: usize) -> Result<(), Error> {
    let page = rustix::param::page_size();
    Region::of(&Arc::new(Arena::create(bytes)?), 0, page)?.reserve(0..page)
}

/// Bytes that the node can still give without swapping.
pub fn node_available_bytes() -> Option<u64> {
    limits::node_available_bytes(Path::new("/"))
}

/// The control group of this process with the least free memory; `None` without a limit.
pub fn memory_group() -> Option<MemoryGroup> {
    limits::tightest_group(Path::new("/"))
}

/// CPUs' worth of time that the control groups grant, rounded up; `None` without a quota.
pub fn cpu_quota() -> Option<usize> {
    limits::cpu_quota(Path::new("/"))
}

/// Bytes of address space that a communicator of `ranks` ranks of a node maps.
pub fn address_space_bytes(ranks: usize) -> usize {
    Layout::new(ranks).bytes()
}
