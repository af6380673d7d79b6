//! The word of a rank in the control segment that the kernel marks when the rank's owner thread ends.

use crate::sync::Ordering::Relaxed;
use crate::sync::{AtomicU32, SyncPoint};

/// The kernel has set this bit: the owner ended without leaving.
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;
/// The rank has left in order, or given up joining. No thread has such a number.
const LEFT: u32 = TID_MASK;
/// The rank could not start an owner thread (`ulimit -u`, a system call filter).
const OWNERLESS: u32 = TID_MASK - 1;

/// The word of a rank. Writers: its rank; the kernel, once, when the owner thread ends; a rank that has seen a death that the
/// kernel did not mark.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct LivenessWord(AtomicU32);

/// The state of a rank, decoded from its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LivenessState {
    /// No process has claimed the rank.
    Unclaimed,
    /// The owner thread lives.
    Owned,
    /// The owner thread ended without leaving: the process is dying, dead, or executing another program.
    OwnerDied,
    /// The rank left in order.
    Left,
    /// The rank has no owner thread; its record lock is the first witness.
    Ownerless,
}

impl LivenessWord {
    /// The rank's state. The writes of a rank that has left, and the owner of a dead one, are visible with it.
    pub fn state(&self) -> LivenessState {
        LivenessState::of(self.0.load(SyncPoint::AliveAcquire.order()))
    }

    /// Makes thread `tid`, which calls this, the owner of the word.
    pub fn own(&self, tid: u32) {
        self.0.store(tid, SyncPoint::AliveRelease.order());
    }

    /// Marks the rank as one without an owner thread.
    pub fn mark_ownerless(&self) {
        self.0.store(OWNERLESS, Relaxed);
    }

    /// Marks the rank as left: none of its threads touches shared memory any more.
    pub fn leave(&self) {
        self.0.store(LEFT, SyncPoint::AliveRelease.order());
    }

    /// Marks a death that the kernel missed: the word says that the rank lives, and `is_dead` returns true.
    pub fn confirm(&self, is_dead: impl FnOnce() -> bool) {
        let word = self.0.load(Relaxed);
        if LivenessState::of(word) == LivenessState::Owned && is_dead() {
            let _ = self.0.compare_exchange(word, word | OWNER_DIED, Relaxed, Relaxed);
        }
    }

    /// The futex word, for the owner's robust list.
    pub fn futex(&self) -> &AtomicU32 {
        &self.0
    }
}

impl LivenessState {
    fn of(word: u32) -> LivenessState {
        match word & TID_MASK {
            _ if word & OWNER_DIED != 0 => LivenessState::OwnerDied,
            0 => LivenessState::Unclaimed,
            LEFT => LivenessState::Left,
            OWNERLESS => LivenessState::Ownerless,
            _ => LivenessState::Owned,
        }
    }
}

#[cfg(earlybird_loom)]
mod modelled {
    use super::*;

    impl Default for LivenessWord {
        fn default() -> Self {
            LivenessWord(AtomicU32::new(0))
        }
    }

    impl LivenessWord {
        /// Marks the word as the kernel does when the owner thread ends.
        pub fn end_of_owner(&self, tid: u32) {
            self.0.compare_exchange(tid, OWNER_DIED, Relaxed, Relaxed).expect("the owner's own number");
        }
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_as_the_kernel_writes_them() {
        let waiters = 0x8000_0000;
        for (word, mark) in [
            (0, LivenessState::Unclaimed),
            (4711, LivenessState::Owned),
            (4711 | waiters, LivenessState::Owned),
            (OWNER_DIED, LivenessState::OwnerDied),
            (OWNER_DIED | waiters, LivenessState::OwnerDied),
            (LEFT, LivenessState::Left),
            (OWNERLESS, LivenessState::Ownerless),
        ] {
            assert_eq!(LivenessWord(AtomicU32::new(word)).state(), mark, "{word:#x}");
        }
    }
}
