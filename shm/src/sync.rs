//! The one door to atomics: shipping code gets the machine's, a model gets loom's.
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

// One list makes the enum and `ALL`: no point can be missing from the twins' walk.
macro_rules! sync_points {
    ($(#[$doc:meta])* $($point:ident)*) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[allow(missing_docs)]
        pub enum SyncPoint { $($point,)* }

        impl SyncPoint {
            /// Every point; the twins test walks this list, so a new point without a twin does not pass.
            pub const ALL: &'static [SyncPoint] = &[$(SyncPoint::$point,)*];
        }
    };
}

sync_points! {
    #[doc(hidden)]
    /// Every end of a synchronizes-with edge of the node protocol.
    ///
    /// | release end | acquire end | what it carries |
    /// | --- | --- | --- |
    /// | `DepositRelease` | `DepositAcquire` | a rank's payload in its own line or deposit, to the rank that folds it |
    /// | `ChunkRelease` | `ClaimAcquire` | an accumulator chunk, from one folder to the next |
    /// | `ChunkRelease` | `FinalAcquire` | a finished chunk, to the ranks that copy it out |
    /// | `LeftRelease` | `LeftAcquire` | "I touch nothing of this operation any more", to the next user of its memory |
    /// | `GoneRelease` | `GoneAcquire` | the last operation that a member left before it went |
    /// | `CallRelease` | `CallAcquire` | the description of a call, to the rank that reports a mismatch |
    /// | `PoisonRelease` | `PoisonAcquire` | the details of the group's one error |
    /// | `PacketRelease` | `PacketAcquire` | a packet in a ring, to its consumer |
    /// | `RoomRelease` | `RoomAcquire` | a slot of a ring that was read, to its producer |
    /// | `PublisherFence` | `SleeperFence` | whichever comes second sees the other: no lost wake-up |
    /// | `EndFence` | `EndFence` | of two ranks that end at once, at least one sees what the other called |
    DepositRelease DepositAcquire
    ChunkRelease ClaimAcquire FinalAcquire
    LeftRelease LeftAcquire
    GoneRelease GoneAcquire
    CallRelease CallAcquire
    PoisonRelease PoisonAcquire
    PacketRelease PacketAcquire
    RoomRelease RoomAcquire
    PublisherFence SleeperFence
    EndFence
}

impl SyncPoint {
    /// The ordering that ships.
    #[inline(always)]
    const fn shipped(self) -> Ordering {
        match self {
            SyncPoint::DepositRelease
            | SyncPoint::ChunkRelease
            | SyncPoint::LeftRelease
            | SyncPoint::GoneRelease
            | SyncPoint::CallRelease
            | SyncPoint::PoisonRelease
            | SyncPoint::PacketRelease
            | SyncPoint::RoomRelease => Ordering::Release,
            SyncPoint::DepositAcquire
            | SyncPoint::ClaimAcquire
            | SyncPoint::FinalAcquire
            | SyncPoint::LeftAcquire
            | SyncPoint::GoneAcquire
            | SyncPoint::CallAcquire
            | SyncPoint::PoisonAcquire
            | SyncPoint::PacketAcquire
            | SyncPoint::RoomAcquire => Ordering::Acquire,
            SyncPoint::PublisherFence | SyncPoint::SleeperFence | SyncPoint::EndFence => Ordering::SeqCst,
        }
    }

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
