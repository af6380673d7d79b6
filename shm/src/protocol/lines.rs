//! The cache lines that ranks share, with the writers of each. They are 128 bytes apart, so that no two writers share one.

use super::signature::Signature;
use crate::sync::{AtomicU32, AtomicU64, Ordering, SyncPoint};

/// Payload bytes that fit beside the mark in a rank's own line; fewer than a piece of a deposit.
pub const INLINE_BYTES: usize = if cfg!(earlybird_loom) { 32 } else { 104 };

/// Words of a rank's error details.
pub const DETAILS: usize = 8;

/// The event count on which ranks of one operation sleep and are woken.
///
/// Writers: every rank of the operation, by read-modify-write only.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct EventLine {
    /// Changes at every wake-up; the futex word.
    pub event: AtomicU32,
    /// Ranks that sleep or are about to.
    pub sleepers: AtomicU32,
}

/// One rank's part of one operation slot. Writer: that rank.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct RankLine {
    /// `word::entered`: the mark of entry, and in `flat` the flag of the payload beside it.
    pub entered: AtomicU64,
    /// The call's whole signature, for errors; in place of its count the lengths that the rank announces, where no other knows them.
    pub call: [AtomicU64; 2],
    /// Up to [`INLINE_BYTES`] of payload, ordered by `entered`.
    #[cfg(not(earlybird_loom))]
    pub payload: [AtomicU64; INLINE_BYTES / 8],
    /// `word::deposited`: the number of pieces of the deposit that are ready.
    pub deposited: AtomicU64,
    /// The names of the buffers that the rank registers for this operation, contribution and result; or its words about a shared
    /// result. Ordered by `deposited`.
    pub registered: [AtomicU64; 2],
    /// `word::deposited`: whether the rank has read what others expose.
    pub read: AtomicU64,
    #[cfg(not(earlybird_loom))]
    _reserved: [u64; 12],
}

/// The words of a member that belong to no operation. Writer: that member.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct MemberLines {
    /// "Every operation up to this one is left"; alone on its line, since every operation writes it.
    pub left: WordLine,
    /// The details of an error that the member reported.
    pub details: [AtomicU64; DETAILS],
    /// 1 once the member has dropped its handle.
    pub gone: AtomicU64,
    /// `word::ended` once the member has made its last call.
    pub ended: AtomicU64,
    /// `wait 32 | looks 32`: the member's current or last long wait, and its number of unsuccessful looks.
    #[cfg(not(earlybird_loom))]
    pub waits: AtomicU64,
    #[cfg(not(earlybird_loom))]
    _reserved: [u64; 5],
}

impl RankLine {
    /// Writes the call in full beside the mark of entry that is to come.
    #[inline(always)]
    pub(super) fn describe(&self, call: Signature) {
        self.call[0].store(call.kind, Ordering::Relaxed);
        self.call[1].store(call.count, Ordering::Relaxed);
    }

    /// Replaces the count of the described call by the lengths that this rank announces in it.
    #[inline(always)]
    pub(super) fn announce(&self, lengths: u64) {
        self.call[1].store(lengths, Ordering::Relaxed);
    }
}

impl MemberLines {
    /// Marks the member as gone; called after the last operation it left.
    pub fn go(&self) {
        self.gone.store(1, SyncPoint::GoneRelease.order());
    }

    /// Returns whether the member is gone. If so, its final `left` is visible too.
    pub fn is_gone(&self) -> bool {
        self.gone.load(SyncPoint::GoneAcquire.order()) != 0
    }
}

/// The group's one error, and the identity of the group that owns the memory.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct PoisonLine {
    /// [`word::PoisonWord`](super::word::PoisonWord); writers: all, by read-modify-write.
    pub poison: AtomicU64,
    /// The value of `poison` while the group is healthy; every member stores the same one when it joins.
    pub group: AtomicU64,
}

impl PoisonLine {
    /// Initializes the line for the group whose healthy word is `healthy`. Free memory is zero.
    pub fn begin(&self, healthy: u64) {
        for word in [&self.group, &self.poison] {
            // Another member may have been first, or the group may have failed already.
            let _ = word.compare_exchange(0, healthy, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

/// A multi-writer word alone on its line.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct WordLine(pub AtomicU64);

/// Words of a set with a bit for every rank; a model has few ranks.
const SET_WORDS: usize = if cfg!(earlybird_loom) { 1 } else { 16 };

/// The ranks whose deposits are in the accumulator, a bit each. Writer: the holder of the fold word.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct RankSet(pub [AtomicU64; SET_WORDS]);

#[cfg(not(earlybird_loom))]
const _: () = {
    assert!(size_of::<EventLine>() == 128);
    assert!(size_of::<MemberLines>() == 256);
    assert!(core::mem::offset_of!(MemberLines, details) == 128);
    assert!(size_of::<RankLine>() == 256);
    assert!(core::mem::offset_of!(RankLine, payload) == 24);
    assert!(core::mem::offset_of!(RankLine, deposited) == 128);
    assert!(size_of::<WordLine>() == 128);
    assert!(size_of::<PoisonLine>() == 128);
    assert!(size_of::<RankSet>() == 128);
};

#[cfg(earlybird_loom)]
mod modelled {
    use super::*;

    impl Default for EventLine {
        fn default() -> Self {
            EventLine { event: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
        }
    }
    impl Default for MemberLines {
        fn default() -> Self {
            MemberLines {
                left: WordLine::default(),
                details: std::array::from_fn(|_| AtomicU64::promised(0)),
                gone: AtomicU64::new(0),
                ended: AtomicU64::new(0),
            }
        }
    }
    impl Default for RankLine {
        fn default() -> Self {
            RankLine {
                entered: AtomicU64::new(0),
                call: [AtomicU64::promised(0), AtomicU64::promised(0)],
                deposited: AtomicU64::new(0),
                registered: [AtomicU64::new(0), AtomicU64::new(0)],
                read: AtomicU64::new(0),
            }
        }
    }
    impl Default for WordLine {
        fn default() -> Self {
            WordLine(AtomicU64::new(0))
        }
    }
    impl Default for RankSet {
        fn default() -> Self {
            RankSet(std::array::from_fn(|_| AtomicU64::new(0)))
        }
    }
}
