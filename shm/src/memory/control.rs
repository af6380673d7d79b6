//! The layout of the control segment: the processes of all ranks, rank 0's settings, and the first error of joining.
//!
//! Everything is an atomic word in a `repr(C)` structure of fixed size, so a mapping of the right length can be read
//! whatever a peer wrote into it: no offset, length or enumeration from shared memory is followed unchecked.
//!
//! Rules:
//! 1. The creator fills the header and its own entry before it hands the segment to another rank.
//! 2. An entry is written by its own rank only. `state` moves forward only, and is stored last.
//! 3. `policy` is written by rank 0 before its state becomes `CLAIMED` and never again.
//! 4. `failure` is written once: from 0 to `WRITING` and the writer's rank, then, with the text in place, to `FAILED`. Only a
//!    rank that knows of the writer's death may overwrite it.
//! 5. `bell`, the futex of joining, changes only when joining has failed or is over, so a rank that waits there sleeps until then.

use core::time::Duration;

use serde::{Deserialize, Serialize};

use super::liveness_word::LivenessWord;
use crate::sync::Ordering::Relaxed;
use crate::sync::{AtomicU32, AtomicU64, SyncPoint, futex, poll};
use crate::{Error, error_codec, text};

/// Largest number of ranks on one node; fewer in a model.
pub const MAX_RANKS: usize = if cfg!(earlybird_loom) { 3 } else { 1023 };

/// Raised whenever the meaning or place of any word changes; ranks of different layouts do not join.
#[cfg(not(earlybird_loom))]
pub(crate) const LAYOUT_VERSION: u64 = 7;

pub(crate) const FREE: u64 = 0;
/// The rank has the arena, and its process holds the rank's lock on it.
pub(crate) const CLAIMED: u64 = 1;
/// The rank has mapped the arena.
pub(crate) const ATTACHED: u64 = 2;
/// The rank left in order after all had attached.
pub(crate) const DETACHED: u64 = 3;

const WRITING: u64 = 1 << 32;
const FAILED: u64 = 2 << 32;

/// Bytes of the first error.
const FAILURE_BYTES: usize = if cfg!(earlybird_loom) { 32 } else { 8192 };

/// Words of an affinity mask.
const AFFINITY_WORDS: usize = if cfg!(earlybird_loom) { 1 } else { 16 };

/// Words of rank 0's settings.
const POLICY_WORDS: usize = if cfg!(earlybird_loom) { 1 } else { 32 };

/// Limit of the wait for a rank that is writing the first error: the number of polls, and the pause between two.
const WRITING_LOOKS: (u32, Duration) = (100, Duration::from_micros(100));

/// The identity of a process, different from every other one on this machine, past and present, in any pid namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub pid: u32,
    pub pid_namespace: u64,
    pub start_ticks: u64,
}

#[repr(C, align(128))]
pub(crate) struct Header {
    /// Rank that created the segment and hands it out.
    pub creator: AtomicU64,
    /// Not 0 if joining has failed; see rule 4.
    failure: AtomicU64,
    /// 1 once the table of regions is in use: a job that never splits does without.
    pub pooled: AtomicU64,
    /// 1 once a rank has warned about late ranks, so that only one does.
    pub warned: AtomicU64,
    pub bell: AtomicU32,
    attached: AtomicU32,
    /// 1 once all have attached and no name is left.
    met: AtomicU32,
}

#[repr(C, align(128))]
pub(crate) struct Entry {
    pub pid: AtomicU64,
    /// Inode of the pid namespace, so that equal numbers in two containers are not taken for one process.
    pub pid_namespace: AtomicU64,
    /// Start time of the process in clock ticks since boot (field 22 of /proc/pid/stat).
    pub start_ticks: AtomicU64,
    pub state: AtomicU64,
    /// The thread that owns the rank's word in [`Control::living`], 0 if it has none.
    pub owner: AtomicU64,
    #[cfg(not(earlybird_loom))]
    _unused: [AtomicU64; 11],
    /// CPUs this rank may run on, bit n of word n / 64.
    pub affinity: [AtomicU64; AFFINITY_WORDS],
}

impl Entry {
    /// The process that wrote the entry.
    pub fn identity(&self) -> Identity {
        Identity {
            pid: self.pid.load(Relaxed) as u32,
            pid_namespace: self.pid_namespace.load(Relaxed),
            start_ticks: self.start_ticks.load(Relaxed),
        }
    }
}

/// The words that all ranks of the node share besides the arena.
#[repr(C, align(128))]
pub struct Control {
    pub(crate) header: Header,
    pub(crate) policy: [AtomicU64; POLICY_WORDS],
    pub(crate) entries: [Entry; MAX_RANKS],
    /// A word per rank that its owner thread holds and the kernel marks (`liveness.rs`), close together so that a look at
    /// all ranks reads 64 lines.
    pub(crate) living: [LivenessWord; MAX_RANKS + 1],
    failure_text: [AtomicU64; FAILURE_BYTES / 8],
}

/// Bytes of the control segment: the same for every number of ranks.
pub const CONTROL_BYTES: usize = size_of::<Control>();

#[cfg(not(earlybird_loom))]
const _: () = {
    use core::mem::offset_of;
    assert!(size_of::<Header>() == 128);
    assert!(size_of::<Entry>() == 256);
    assert!(offset_of!(Entry, affinity) == 128);
    assert!(offset_of!(Control, policy) == 128);
    assert!(offset_of!(Control, entries) == 384);
    assert!(CONTROL_BYTES == 384 + 256 * MAX_RANKS + 4 * (MAX_RANKS + 1) + FAILURE_BYTES);
};

impl Control {
    /// Fills in the entry of `rank`, and rank 0's settings, and moves its state to `CLAIMED`.
    pub(crate) fn claim(
        &self,
        rank: usize,
        process: Identity,
        affinity: [u64; AFFINITY_WORDS],
        policy: [u64; POLICY_WORDS],
    ) {
        let entry = &self.entries[rank];
        entry.pid.store(u64::from(process.pid), Relaxed);
        entry.pid_namespace.store(process.pid_namespace, Relaxed);
        entry.start_ticks.store(process.start_ticks, Relaxed);
        entry.affinity.iter().zip(affinity).for_each(|(word, bits)| word.store(bits, Relaxed));
        if rank == 0 {
            self.policy.iter().zip(policy).for_each(|(word, value)| word.store(value, Relaxed));
        }
        self.announce(rank, CLAIMED);
    }

    /// Makes thread `tid`, which calls this, the owner of the word of `rank`.
    pub(crate) fn own(&self, rank: usize, tid: u32) {
        self.entries[rank].owner.store(u64::from(tid), Relaxed);
        self.living[rank].own(tid);
    }

    pub(crate) fn state(&self, rank: usize) -> u64 {
        self.entries.get(rank).map_or(FREE, |entry| entry.state.load(SyncPoint::EntryAcquire.order()))
    }

    /// Returns whether all of the first `size` ranks have attached; some may have left since.
    pub(crate) fn is_complete(&self, size: usize) -> bool {
        self.header.attached.load(Relaxed) as usize >= size
            && (0..size).all(|rank| matches!(self.state(rank), ATTACHED | DETACHED))
    }

    /// Moves a rank's state.
    pub(crate) fn announce(&self, rank: usize, state: u64) {
        let Some(entry) = self.entries.get(rank) else { return };
        entry.state.store(state, SyncPoint::EntryRelease.order());
        if state == ATTACHED {
            self.header.attached.fetch_add(1, Relaxed);
        }
    }

    /// Ends the wait of all ranks: all have attached, and no name is left.
    pub(crate) fn end_rendezvous(&self) {
        self.header.met.store(1, SyncPoint::MetRelease.order());
        self.ring();
    }

    /// Returns whether the rendezvous has succeeded.
    pub(crate) fn is_over(&self) -> bool {
        self.header.met.load(SyncPoint::MetAcquire.order()) == 1
    }

    /// Waits until the rendezvous has succeeded. `look`, called before each sleep, returns its longest duration or ends the wait.
    pub(crate) fn until_over(&self, mut look: impl FnMut() -> Result<Duration, Error>) -> Result<(), Error> {
        loop {
            let seen = self.header.bell.load(SyncPoint::BellAcquire.order());
            if self.is_over() {
                return Ok(());
            }
            let most = look()?;
            futex::wait(&self.header.bell, seen, most);
        }
    }

    /// The first error, if a rank has written one.
    pub(crate) fn failure(&self) -> Option<Error> {
        if self.header.failure.load(SyncPoint::PoisonAcquire.order()) != FAILED {
            return None;
        }
        let words: Vec<u64> = self.failure_text.iter().map(|word| word.load(Relaxed)).collect();
        Some(error_codec::from_text(&text::unpack(&words)))
    }

    /// Fails the joining of all ranks with this error, unless another rank was earlier. Returns the first error. `dead` is a rank
    /// known to have died, whose half-written error is replaced.
    pub(crate) fn fail(&self, rank: usize, error: &Error, dead: Option<usize>) -> Error {
        if !self.begin_failure(rank, dead) {
            // the error that another rank is just writing stands
            return poll(WRITING_LOOKS, || self.failure()).unwrap_or_else(|| error.clone());
        }
        let mut words = [0; FAILURE_BYTES / 8];
        text::pack(&error_codec::to_text(error, FAILURE_BYTES), &mut words);
        self.failure_text.iter().zip(words).for_each(|(to, word)| to.store(word, Relaxed));
        self.header.failure.store(FAILED, SyncPoint::PoisonRelease.order());
        self.ring();
        self.failure().unwrap_or_else(|| error.clone())
    }

    /// Takes it upon `rank` to write the first error. Returns false if another rank has, other than the dead one.
    pub(crate) fn begin_failure(&self, rank: usize, dead: Option<usize>) -> bool {
        let free = [Some(0), dead.map(|dead| WRITING | dead as u64)];
        let take = |before| self.header.failure.compare_exchange(before, WRITING | rank as u64, Relaxed, Relaxed);
        free.into_iter().flatten().any(|before| take(before).is_ok())
    }

    fn ring(&self) {
        self.header.bell.fetch_add(1, SyncPoint::BellRelease.order());
        futex::wake_all(&self.header.bell);
    }
}

#[cfg(earlybird_loom)]
mod modelled {
    use super::*;
    use core::array::from_fn;

    impl Default for Control {
        fn default() -> Self {
            let (word, promised) = (|| AtomicU64::new(0), || AtomicU64::promised(0));
            let entry = || Entry {
                pid: promised(),
                pid_namespace: promised(),
                start_ticks: promised(),
                state: word(),
                owner: promised(),
                affinity: from_fn(|_| promised()),
            };
            let header = Header {
                creator: promised(),
                failure: word(),
                pooled: word(),
                warned: word(),
                bell: AtomicU32::new(0),
                attached: AtomicU32::new(0),
                met: AtomicU32::new(0),
            };
            Control {
                header,
                policy: from_fn(|_| promised()),
                entries: from_fn(|_| entry()),
                living: from_fn(|_| LivenessWord::default()),
                failure_text: from_fn(|_| promised()),
            }
        }
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests;
