//! The turns of started calls: the call that may exchange between leaders, and the one whose leader may deliver.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The turns of started calls, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub exchange: AtomicU64,
    pub deliver: AtomicU64,
    /// True if the polled call may wait for other ranks: only while its caller waits for it and nothing else is under way.
    pub waits: AtomicBool,
}

impl Turns {
    /// The turn of call `number` has come.
    pub(super) fn is(turn: &AtomicU64, number: u64) -> bool {
        turn.load(Relaxed) == number
    }

    /// The next one's comes.
    pub(super) fn pass_on(turn: &AtomicU64) {
        // One thread polls at a time, handed over by the queue's lock.
        turn.fetch_add(1, Relaxed);
    }
}
