//! The layout of the control segment: who is here, and what all agree on. Everything else lives in the arena.
//!
//! Everything is an atomic word in a `repr(C)` structure of fixed size, so a mapping of the right length can be read
//! whatever a peer wrote into it: no offset, length or enumeration from shared memory is followed unchecked.
//!
//! Rules:
//! 1. `magic` is stored last, with Release, by the creator; nobody reads anything else before seeing it (Acquire).
//! 2. An entry is written by its own rank only. `state` moves forward only and is stored with Release.
//! 3. `policy` is written by rank 0 before its state becomes `CLAIMED` and never again.
//! 4. `bell` counts changes of states; it carries no information, only wakes those who wait at attach.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed},
};

use super::process::Identity;

/// Largest number of ranks on one node.
pub const MAX_RANKS: usize = 1023;

pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"earlybrd");
/// Raised whenever the meaning or place of any word changes.
pub(crate) const LAYOUT_VERSION: u64 = 4;

pub(crate) const FREE: u64 = 0;
/// The rank's process is known and holds its lock on the rendezvous file.
pub(crate) const CLAIMED: u64 = 1;
/// The rank has mapped the arena and holds its lock on the arena.
pub(crate) const ATTACHED: u64 = 2;
/// The rank left in order after everybody had attached.
pub(crate) const BYE: u64 = 3;

/// Why a group could not come together: the first to find out is believed by all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// This rank died, or could not join.
    Lost(usize),
    /// Somebody's timeout of so many milliseconds was over.
    TimedOut(u64),
}

impl Failure {
    const TIMED_OUT: u64 = 1 << 56;
    const LOST: u64 = 2 << 56;

    fn to_word(self) -> u64 {
        match self {
            Failure::TimedOut(after_ms) => Failure::TIMED_OUT | after_ms.min(Failure::TIMED_OUT - 1),
            Failure::Lost(rank) => Failure::LOST | rank as u64,
        }
    }

    fn from_word(word: u64) -> Option<Failure> {
        let value = word & (Failure::TIMED_OUT - 1);
        match word - value {
            0 => None,
            Failure::TIMED_OUT => Some(Failure::TimedOut(value)),
            // whatever else stands there, the group is lost; a rank that does not exist names none
            _ => Some(Failure::Lost(value.min(MAX_RANKS as u64 - 1) as usize)),
        }
    }
}

#[repr(C, align(128))]
pub(crate) struct Header {
    pub magic: AtomicU64,
    pub layout_version: AtomicU64,
    pub control_bytes: AtomicU64,
    pub size: AtomicU64,
    pub region_bytes: AtomicU64,
    /// Rank that created the segment and hands out the arena.
    pub creator: AtomicU64,
    /// Descriptor number of the arena in the creator, for peers that cannot reach its socket.
    pub arena_fd: AtomicU64,
    /// Why the group cannot come together ([`Failure`]), 0 while it can. Written once, by compare-and-swap from 0.
    pub failure: AtomicU64,
    /// Regions that the arena has room for: as many as the creator's `ulimit -f` allows.
    pub regions: AtomicU64,
    /// 1 once the table of regions is in use: a job that never splits does without.
    pub pooled: AtomicU64,
    /// 1 once a rank has warned about late ranks, so that only one does.
    pub warned: AtomicU64,
    pub bell: AtomicU32,
    pub attached: AtomicU32,
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
    _unused: [AtomicU64; 11],
    /// CPUs this rank may run on, bit n of word n / 64.
    pub affinity: [AtomicU64; 16],
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

/// What all ranks of the node share besides the arena.
#[repr(C, align(128))]
pub struct Control {
    pub(crate) header: Header,
    pub(crate) policy: [AtomicU64; 32],
    pub(crate) entries: [Entry; MAX_RANKS],
    /// A word per rank that its owner thread holds and the kernel marks (`liveness.rs`), close together so that a look at
    /// all ranks reads 64 lines.
    pub(crate) living: [AtomicU32; MAX_RANKS + 1],
}

/// Bytes of the control segment: the same for every number of ranks.
pub const CONTROL_BYTES: usize = size_of::<Control>();

const _: () = {
    assert!(size_of::<Header>() == 128);
    assert!(size_of::<Entry>() == 256);
    assert!(offset_of!(Entry, affinity) == 128);
    assert!(offset_of!(Control, header) == 0);
    assert!(offset_of!(Control, policy) == 128);
    assert!(offset_of!(Control, entries) == 384);
    assert!(CONTROL_BYTES == 384 + 256 * MAX_RANKS + 4 * (MAX_RANKS + 1));
};

impl Control {
    pub(crate) fn state(&self, rank: usize) -> u64 {
        self.entries.get(rank).map_or(FREE, |entry| entry.state.load(Acquire))
    }

    /// Whether all of the first `size` ranks have attached, be they still here or not.
    pub(crate) fn is_complete(&self, size: usize) -> bool {
        (0..size).all(|rank| matches!(self.state(rank), ATTACHED | BYE))
    }

    /// Moves a rank's state and rings. Wakes the waiters only where that can end their wait.
    pub(crate) fn announce(&self, rank: usize, state: u64, size: usize) {
        let Some(entry) = self.entries.get(rank) else { return };
        entry.state.store(state, core::sync::atomic::Ordering::Release);
        self.header.bell.fetch_add(1, AcqRel);
        let before = if state == ATTACHED { u64::from(self.header.attached.fetch_add(1, AcqRel)) } else { 0 };
        if before + 1 >= size as u64 {
            self.wake();
        }
    }

    pub(crate) fn failure(&self) -> Option<Failure> {
        Failure::from_word(self.header.failure.load(Acquire))
    }

    /// Ends everybody's attach and returns the reason that counts: the first one given.
    pub(crate) fn fail(&self, why: Failure) -> Failure {
        let _ = self.header.failure.compare_exchange(0, why.to_word(), AcqRel, Acquire);
        self.header.bell.fetch_add(1, AcqRel);
        self.wake();
        self.failure().unwrap_or(why)
    }

    fn wake(&self) {
        let everybody = i32::MAX as u32;
        let _ = rustix::thread::futex::wake(&self.header.bell, rustix::thread::futex::Flags::empty(), everybody);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_survives_its_word() {
        for failure in [Failure::Lost(0), Failure::Lost(1022), Failure::TimedOut(0), Failure::TimedOut(1 << 40)] {
            assert_eq!(Failure::from_word(failure.to_word()), Some(failure));
        }
        assert_eq!(Failure::from_word(0), None);
        assert_eq!(Failure::from_word(u64::MAX), Some(Failure::Lost(MAX_RANKS - 1)));
    }
}
