//! A result that all ranks of a call share: the words that each rank contributes about its place, and their agreement.

use std::cell::Cell;

/// Places for results that a group has.
pub const RESULTS: usize = 2;

/// One rank's state of a call with a shared result.
#[derive(Debug, Default)]
pub struct SharedResult {
    /// Places that this rank still reads, a bit each.
    pub held: u64,
    /// The number of the place and the name of the memory that rank 0 offers. A name of 0 is no offer.
    pub offer: (usize, u64),
    /// Bytes of the whole result.
    pub bytes: usize,
    agreed: Cell<Option<Agreed>>,
}

/// The agreement of all ranks on the place of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Places that some rank still reads.
    pub held: u64,
    /// The offer of rank 0.
    pub offer: (usize, u64),
    /// True if the result is in the place offered; otherwise every rank has a copy.
    pub taken: bool,
}

impl SharedResult {
    /// A result of `bytes`.
    pub fn new(held: u64, offer: (usize, u64), bytes: usize) -> Self {
        SharedResult { held, offer, bytes, agreed: Cell::new(None) }
    }

    /// The agreement, once all ranks have contributed.
    pub fn agreed(&self) -> Option<Agreed> {
        self.agreed.get()
    }

    /// Stores the agreement.
    pub(super) fn agree(&self, agreed: Agreed) {
        self.agreed.set(Some(agreed));
    }

    /// Returns whether the result is folded in the place that was offered.
    pub(super) fn is_taken(&self) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.taken)
    }
}
