//! The word of a rank in the control segment that the kernel marks when the rank's owner thread ends.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Acquire;

/// The kernel has set this bit: the owner ended without leaving.
pub(super) const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;
/// The rank has left in order, or given up joining. No thread has such a number.
pub(super) const LEFT: u32 = TID_MASK;
/// The rank could not start an owner thread (`ulimit -u`, a system call filter).
pub(super) const OWNERLESS: u32 = TID_MASK - 1;

/// The state of a rank that its word shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LivenessState {
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

impl LivenessState {
    pub fn of(word: &AtomicU32) -> LivenessState {
        LivenessState::from_word(word.load(Acquire))
    }

    pub fn from_word(word: u32) -> LivenessState {
        match word & TID_MASK {
            _ if word & OWNER_DIED != 0 => LivenessState::OwnerDied,
            0 => LivenessState::Unclaimed,
            LEFT => LivenessState::Left,
            OWNERLESS => LivenessState::Ownerless,
            _ => LivenessState::Owned,
        }
    }
}

#[cfg(test)]
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
            assert_eq!(LivenessState::of(&AtomicU32::new(word)), mark, "{word:#x}");
        }
    }
}
