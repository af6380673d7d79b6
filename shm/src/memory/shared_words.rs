//! The traits through which the table of regions and the records of agreements reach shared memory, so that tests can
//! put a model in place of the arena.

use crate::Error;
use crate::sync::{AtomicU64, Ordering, SyncPoint};

/// Words in memory that processes share.
pub trait SharedWords {
    /// Loads a word; writes made before its store are visible (acquire).
    fn load(&self, word: usize) -> u64;
    /// Stores a word after all earlier writes (release).
    fn store(&self, word: usize, value: u64);
    /// Returns whether no thread of the rank's process can touch the shared memory any more.
    fn has_ended(&self, rank: usize) -> bool;
}

/// Loads a word as [`SharedWords::load`] promises.
pub fn load(word: &AtomicU64) -> u64 {
    word.load(SyncPoint::TableAcquire.order())
}

/// Stores a word as [`SharedWords::store`] promises.
pub fn store(word: &AtomicU64, value: u64) {
    word.store(value, SyncPoint::TableRelease.order());
}

/// Exchanges a word as [`RegionMemory::compare_exchange`] promises. The old value was loaded before, so that load's acquire
/// suffices.
pub fn exchange(word: &AtomicU64, from: u64, to: u64) -> Result<(), u64> {
    word.compare_exchange(from, to, SyncPoint::TableRelease.order(), Ordering::Relaxed).map(drop)
}

/// The words of the table of regions, and the memory of the regions.
pub trait RegionMemory: SharedWords {
    /// Stores `to` after all earlier writes if the word is `from`, which this rank has loaded or stored before; otherwise returns
    /// the value found.
    fn compare_exchange(&self, word: usize, from: u64, to: u64) -> Result<(), u64>;
    /// Returns whether the rank's process lives, as far as can be seen: false while it is dying.
    fn is_alive(&self, rank: usize) -> bool;
    /// Makes the words in a range of bytes present.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::System`].
    fn prepare(&self, start: usize, bytes: usize) -> Result<(), Error>;
    /// Reserves the first bytes of a region.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::System`].
    fn reserve(&self, slot: usize, bytes: usize) -> Result<(), Error>;
    /// Returns all memory of a region to the system: the region reads as zero from then on.
    ///
    /// # Errors
    /// [`Error::System`].
    fn give_back(&self, slot: usize) -> Result<(), Error>;
}
