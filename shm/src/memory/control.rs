//! The layout of the control segment: who is here, and what all agree on. Everything else lives in the arena.
//!
//! Everything is an atomic word in a `repr(C)` structure of fixed size, so a mapping of the right length can be read
//! whatever a peer wrote into it: no offset, length or enumeration from shared memory is followed unchecked.
//!
//! Rules:
//! 1. The creator fills the header and its own entry before it hands the segment to another rank.
//! 2. An entry is written by its own rank only. `state` moves forward only and is stored with Release.
//! 3. `policy` is written by rank 0 before its state becomes `CLAIMED` and never again.
//! 4. `failure` is written once: from 0 to `WRITING` and the writer's rank, then, with the text in place, to `FAILED`. Only
//!    who knows that the writer died may take it over.
//! 5. `bell` changes when joining has failed or is over, and with nothing else, so a rank that waits there sleeps until then.

use core::mem::{offset_of, size_of};
use core::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

use super::process::Identity;
use crate::{Error, error_codec};

/// Largest number of ranks on one node.
pub const MAX_RANKS: usize = 1023;

/// Raised whenever the meaning or place of any word changes; ranks of different layouts do not join.
pub(crate) const LAYOUT_VERSION: u64 = 5;

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
const FAILURE_BYTES: usize = 8192;

#[repr(C, align(128))]
pub(crate) struct Header {
    /// Rank that created the segment and hands it out.
    pub creator: AtomicU64,
    /// True if the group cannot come together; see rule 4.
    failure: AtomicU64,
    /// Bytes of the error in `failure_text`.
    failure_bytes: AtomicU64,
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

/// The words that all ranks of the node share besides the arena.
#[repr(C, align(128))]
pub struct Control {
    pub(crate) header: Header,
    pub(crate) policy: [AtomicU64; 32],
    pub(crate) entries: [Entry; MAX_RANKS],
    /// A word per rank that its owner thread holds and the kernel marks (`liveness.rs`), close together so that a look at
    /// all ranks reads 64 lines.
    pub(crate) living: [AtomicU32; MAX_RANKS + 1],
    failure_text: [AtomicU64; FAILURE_BYTES / 8],
}

/// Bytes of the control segment: the same for every number of ranks.
pub const CONTROL_BYTES: usize = size_of::<Control>();

const _: () = {
    assert!(size_of::<Header>() == 128);
    assert!(size_of::<Entry>() == 256);
    assert!(offset_of!(Entry, affinity) == 128);
    assert!(offset_of!(Control, policy) == 128);
    assert!(offset_of!(Control, entries) == 384);
    assert!(CONTROL_BYTES == 384 + 256 * MAX_RANKS + 4 * (MAX_RANKS + 1) + FAILURE_BYTES);
};

impl Control {
    pub(crate) fn state(&self, rank: usize) -> u64 {
        self.entries.get(rank).map_or(FREE, |entry| entry.state.load(Acquire))
    }

    /// Returns whether all of the first `size` ranks have attached, be they still here or not.
    pub(crate) fn is_complete(&self, size: usize) -> bool {
        self.header.attached.load(Acquire) as usize >= size
            && (0..size).all(|rank| matches!(self.state(rank), ATTACHED | DETACHED))
    }

    /// Moves a rank's state.
    pub(crate) fn announce(&self, rank: usize, state: u64) {
        let Some(entry) = self.entries.get(rank) else { return };
        entry.state.store(state, Release);
        if state == ATTACHED {
            self.header.attached.fetch_add(1, AcqRel);
        }
    }

    /// Ends the wait of all ranks: all have attached, and no name is left.
    pub(crate) fn end_rendezvous(&self) {
        self.header.met.store(1, Release);
        self.ring();
    }

    /// Returns whether the rendezvous has ended well.
    pub(crate) fn is_over(&self) -> bool {
        self.header.met.load(Acquire) == 1
    }

    /// The first error, once a rank has given one.
    pub(crate) fn failure(&self) -> Option<Error> {
        if self.header.failure.load(Acquire) != FAILED {
            return None;
        }
        let bytes = (self.header.failure_bytes.load(Relaxed) as usize).min(FAILURE_BYTES);
        let text: Vec<u8> = self.failure_text.iter().flat_map(|word| word.load(Relaxed).to_le_bytes()).collect();
        Some(error_codec::from_bytes(&text[..bytes]))
    }

    /// Ends the wait of all ranks with the first error given, which is returned: this one, unless another rank was earlier.
    /// `dead` is a rank that is known to have died, whose half-written error this one replaces.
    pub(crate) fn fail(&self, rank: usize, error: &Error, dead: Option<usize>) -> Error {
        let mine = WRITING | rank as u64;
        let free = [Some(0), dead.map(|dead| WRITING | dead as u64)];
        let taken = free
            .into_iter()
            .flatten()
            .any(|before| self.header.failure.compare_exchange(before, mine, AcqRel, Acquire).is_ok());
        if !taken {
            // the error that another rank is just writing stands
            for _ in 0..100 {
                if let Some(stands) = self.failure() {
                    return stands;
                }
                std::thread::sleep(std::time::Duration::from_micros(100));
            }
            return error.clone();
        }
        let mut text = error_codec::to_bytes(error);
        text.truncate(FAILURE_BYTES);
        for (word, bytes) in self.failure_text.iter().zip(text.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            word.store(u64::from_le_bytes(padded), Relaxed);
        }
        self.header.failure_bytes.store(text.len() as u64, Relaxed);
        self.header.failure.store(FAILED, Release);
        self.ring();
        self.failure().unwrap_or_else(|| error.clone())
    }

    fn ring(&self) {
        self.header.bell.fetch_add(1, AcqRel);
        let all = i32::MAX as u32;
        let _ = rustix::thread::futex::wake(&self.header.bell, rustix::thread::futex::Flags::empty(), all);
    }
}

#[cfg(test)]
mod tests {
    use super::super::control_map::ControlMap;
    use super::*;

    #[test]
    fn the_first_error_stands_and_a_dead_writers_is_replaced() {
        let (control, _file) = ControlMap::create().unwrap();
        let (first, second) = (Error::usage("first ".repeat(3000)), Error::usage("second"));
        assert_eq!(control.failure(), None);
        control.header.failure.store(WRITING | 7, Relaxed);
        assert_eq!(control.fail(1, &first, Some(3)), first, "rank 7 is about to say what stands");
        assert_eq!(control.failure(), None);
        let stands = control.fail(1, &first, Some(7));
        assert!(stands.to_string().starts_with("first first") && stands.to_string().len() < FAILURE_BYTES);
        assert_eq!((control.fail(2, &second, None), control.failure()), (stands.clone(), Some(stands)));
    }
}
