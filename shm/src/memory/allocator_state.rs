//! The allocator's private state in one process: the mapped table of regions, and deferred releases.

use std::sync::{Mutex, OnceLock};

use super::Region;
use super::grant::{BudgetLimits, Origin};

/// This process's access to the table of regions.
#[derive(Debug)]
pub(super) struct Allocator {
    words: Region,
    pub(super) regions: usize,
    pub(super) region_bytes: usize,
    pub(super) limits: OnceLock<BudgetLimits>,
    /// Releases that this process could not carry out in time, for its next thread that holds the lock.
    pub(super) deferred: Mutex<Vec<DeferredRelease>>,
    /// Held by the thread of this process that has the lock, and never while waiting for it.
    pub(super) turn: Mutex<()>,
}

/// A release that is not yet in the table.
#[derive(Debug, Clone, Copy)]
pub(super) enum DeferredRelease {
    Allocation(usize, u64),
    AllOf(Origin),
}

impl Allocator {
    /// The mapping of the table and the records, which come before the regions.
    pub fn words(&self) -> &Region {
        &self.words
    }

    pub fn new(words: Region, regions: usize, region_bytes: usize) -> Allocator {
        let (deferred, turn) = (Mutex::default(), Mutex::default());
        Allocator { words, regions, region_bytes, limits: OnceLock::new(), deferred, turn }
    }
}
