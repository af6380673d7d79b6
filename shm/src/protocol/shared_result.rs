//! A result that all ranks of a call share: what each rank says about it, and what they agree on.

use std::cell::Cell;

/// Places for results that a group has.
pub const RESULTS: usize = 2;

/// A call whose result is to be one for all ranks, as one of them sees it.
#[derive(Debug, Default)]
pub struct SharedResult {
    /// Places in which this rank still reads a result, a bit each.
    pub held: u64,
    /// The number of the place and the name of the memory that rank 0 offers. A name of 0 is no offer.
    pub offer: (usize, u64),
    /// Bytes of the whole result.
    pub bytes: usize,
    agreed: Cell<Option<Agreed>>,
}

/// The agreement of all ranks once all have come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Agreed {
    /// Places in which some rank still reads.
    pub held: u64,
    /// The offer of rank 0.
    pub offer: (usize, u64),
    /// Whether the result lies there; otherwise every rank has a copy.
    pub taken: bool,
}

impl SharedResult {
    /// A result of `bytes`.
    pub fn new(held: u64, offer: (usize, u64), bytes: usize) -> Self {
        SharedResult { held, offer, bytes, agreed: Cell::new(None) }
    }

    /// The agreement, if the call has come so far.
    pub fn agreed(&self) -> Option<Agreed> {
        self.agreed.get()
    }

    /// Takes note of what all ranks agreed on.
    pub(super) fn agree(&self, agreed: Agreed) {
        self.agreed.set(Some(agreed));
    }

    /// Returns whether the result is folded in the place that was offered.
    pub(super) fn is_taken(&self) -> bool {
        self.agreed.get().is_some_and(|agreed| agreed.taken)
    }
}
