//! The one door to atomics and to sleep on them: shipping code gets the machine's, a model gets loom's.
//!
//! Every access that orders other memory names its [`SyncPoint`]; the orderings stand here and nowhere else. A model
//! run may weaken exactly one of them (`EARLYBIRD_WEAKEN=ChunkRelease`), which is how each is shown to be needed:
//! see `shm/tests/loom_twins.rs`.

#[cfg(earlybird_loom)]
pub use crate::model::words::{AtomicU32, AtomicU64};
#[cfg(not(earlybird_loom))]
pub use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
#[cfg(earlybird_loom)]
pub use loom::sync::atomic::{Ordering, fence};
/// Threads of what is modelled. A wait in code of users is a loop around its `yield_now`.
#[cfg(earlybird_loom)]
pub use loom::thread;
/// Threads of what is modelled. A wait in code of users is a loop around its `yield_now`.
#[cfg(not(earlybird_loom))]
#[doc(no_inline)]
pub use std::thread;

/// Sleep on a word that ranks share.
#[cfg(not(earlybird_loom))]
pub(crate) mod futex {
    use super::AtomicU32;
    use core::time::Duration;
    use rustix::thread::{Timespec, futex};

    /// Sleeps until woken, while `word` holds `expected`, or for `most`. The caller looks again, whatever ended the sleep.
    pub fn wait(word: &AtomicU32, expected: u32, most: Duration) {
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: most.subsec_nanos().into() };
        let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&most));
    }

    /// Wakes every rank that sleeps on `word`.
    pub fn wake_all(word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }
}
/// Sleep on a word of a model.
#[cfg(earlybird_loom)]
pub(crate) mod futex {
    pub(crate) use crate::model::words::{futex_wait as wait, futex_wake_all as wake_all};
}

/// Looks so often, with this pause between two looks, until something is found that is about to come.
#[cfg(not(earlybird_loom))]
pub(crate) fn poll<T>((looks, pause): (u32, core::time::Duration), mut look: impl FnMut() -> Option<T>) -> Option<T> {
    (0..looks).find_map(|_| {
        look().or_else(|| {
            thread::sleep(pause);
            None
        })
    })
}
/// Looks until something is found that is about to come: a model has no clock that could say how long.
#[cfg(earlybird_loom)]
pub(crate) fn poll<T>(_: (u32, core::time::Duration), look: impl FnMut() -> Option<T>) -> Option<T> {
    Some(crate::model::words::poll(look))
}

// One list makes the enum, `ALL` and the orderings: no point can be missing from the twins' walk.
macro_rules! sync_points {
    ($(#[$doc:meta])* $($ordering:ident: $($point:ident)*;)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum SyncPoint { $($($point,)*)* }

        impl SyncPoint {
            /// Every point; the twins test walks this list, so a new point without a twin does not pass.
            pub const ALL: &'static [SyncPoint] = &[$($(SyncPoint::$point,)*)*];

            /// The ordering that ships.
            #[inline(always)]
            const fn shipped(self) -> Ordering {
                match self {
                    $($(SyncPoint::$point)|* => Ordering::$ordering,)*
                }
            }
        }
    };
}

sync_points! {
    #[doc(hidden)]
    /// Every end of a synchronizes-with edge between the ranks of a node.
    ///
    /// | release end | acquire end | what it carries |
    /// | --- | --- | --- |
    /// | `DepositRelease` | `DepositAcquire` | a rank's payload in its own line or deposit, to the rank that folds it |
    /// | `ChunkRelease` | `ClaimAcquire` | an accumulator chunk, from one folder to the next |
    /// | `ChunkRelease` | `FinalAcquire` | a finished chunk, to the ranks that copy it out |
    /// | `ReadRelease` | `ReadAcquire` | "I have read your private buffer", or that half of your deposit, to its owner, who uses it again |
    /// | `LeftRelease` | `LeftAcquire` | "I touch nothing of this operation any more", to the next user of its memory |
    /// | `GoneRelease` | `GoneAcquire` | the last operation that a member left before it was gone |
    /// | `CallRelease` | `CallAcquire` | the description of a call, to the rank that reports a mismatch; the lengths that a rank announces |
    /// | `PoisonRelease` | `PoisonAcquire` | the details of the group's one error; of the first error of joining |
    /// | `PacketRelease` | `PacketAcquire` | a packet in a ring, to its consumer |
    /// | `RoomRelease` | `RoomAcquire` | a slot of a ring that was read, to its producer |
    /// | `EntryRelease` | `EntryAcquire` | a rank's entry in the control segment, to a rank that reads its state |
    /// | `MetRelease` | `MetAcquire` | the entries of all ranks, to a rank that has joined |
    /// | `BellRelease` | `BellAcquire` | that joining is over or has failed, to a rank that sleeps on the bell next |
    /// | `AliveRelease` | `AliveAcquire` | a rank's writes before it left; its owner thread, to a rank that sees the owner's death |
    /// | `TableRelease` | `TableAcquire` | the table of regions and the votes of survivors, from one holder of the lock to the next |
    /// | `PublisherFence` | `SleeperFence` | whichever comes second sees the other: no lost wake-up |
    /// | `EndFence` | `EndFence` | of two ranks that end at once, at least one sees the other's call history |
    Release:
        DepositRelease ChunkRelease ReadRelease LeftRelease GoneRelease CallRelease PoisonRelease PacketRelease RoomRelease
        EntryRelease MetRelease BellRelease AliveRelease TableRelease;
    Acquire:
        DepositAcquire ClaimAcquire FinalAcquire ReadAcquire LeftAcquire GoneAcquire CallAcquire PoisonAcquire PacketAcquire
        RoomAcquire EntryAcquire MetAcquire BellAcquire AliveAcquire TableAcquire;
    SeqCst:
        PublisherFence SleeperFence EndFence;
}

impl SyncPoint {
    /// The ordering of the access at this point.
    #[cfg(not(earlybird_loom))]
    #[inline(always)]
    pub const fn order(self) -> Ordering {
        self.shipped()
    }

    /// Executes the fence of this point.
    #[cfg(not(earlybird_loom))]
    #[inline(always)]
    pub fn fence(self) {
        fence(self.shipped());
    }

    /// The ordering of the access at this point: relaxed in the one twin that weakens it.
    #[cfg(earlybird_loom)]
    pub fn order(self) -> Ordering {
        if self.weakened() { Ordering::Relaxed } else { self.shipped() }
    }

    /// Executes the fence of this point: nothing in the one twin that weakens it.
    #[cfg(earlybird_loom)]
    pub fn fence(self) {
        if !self.weakened() {
            fence(self.shipped());
        }
    }

    #[cfg(earlybird_loom)]
    fn weakened(self) -> bool {
        use std::sync::OnceLock;
        static WEAK: OnceLock<Option<SyncPoint>> = OnceLock::new();
        let weak = WEAK.get_or_init(|| {
            let name = std::env::var_os("EARLYBIRD_WEAKEN")?;
            let point = SyncPoint::ALL.iter().copied().find(|p| *name == *format!("{p:?}"));
            // A name with a typing error would weaken nothing, and the twin would pass for the wrong reason.
            Some(point.unwrap_or_else(|| {
                panic!("EARLYBIRD_WEAKEN={name:?} is not a sync point; expected one of {:?}", SyncPoint::ALL)
            }))
        });
        *weak == Some(self)
    }
}

/// Rules of the protocol that are no ordering; a model may break one of them, to show that it is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Rule {
    /// `left` is the last operation before all that are under way.
    LeftIsAPrefix,
    /// A rank that contributes to an operation has left the one before only if that was not started as a non-blocking call.
    StartedIsNotLeft,
    /// A result that some rank still reads is not written.
    HeldIsNotWritten,
    /// Who folds a part of a chunk wakes the ranks that sleep since they found it held.
    PartOfAChunkWakes,
}

impl Rule {
    /// Returns whether the rule is kept: always, in what ships.
    #[cfg(not(earlybird_loom))]
    #[inline(always)]
    pub const fn is_kept(self) -> bool {
        true
    }

    /// Returns whether the rule is kept: always, but in the twin that breaks it.
    #[cfg(earlybird_loom)]
    pub fn is_kept(self) -> bool {
        BROKEN.get() != Some(self)
    }
}

// All ranks of a model run on the operating system thread of its test.
#[cfg(earlybird_loom)]
std::thread_local! {
    static BROKEN: std::cell::Cell<Option<Rule>> = const { std::cell::Cell::new(None) };
}

/// Breaks a rule in the models that this thread runs from here on, or none.
#[cfg(earlybird_loom)]
pub fn break_rule(rule: Option<Rule>) {
    BROKEN.set(rule);
}
