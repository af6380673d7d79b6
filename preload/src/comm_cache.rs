//! The interposer's state of each MPI communicator: found by its handle, created by its first call, freed with it.
//!
//! The table is read without a lock: a slot holds one handle from the time that it is written until MPI frees the communicator,
//! and no rank frees a communicator during a call on it. Only changes take the lock, never while waiting for other ranks.
#![allow(unsafe_code)]

use crate::abi::{self, Handle};
use crate::handles::first_cell;
use crate::intercepted::InterceptedComm;
use crate::summary::ForwardReason;
use crate::{set_up, settings};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use std::sync::{Mutex, OnceLock};

/// The state of one communicator.
pub struct CommEntry {
    /// The communicator, or the reason why its calls are forwarded.
    pub state: Result<InterceptedComm, ForwardReason>,
}

struct Slot {
    /// The handle, or `FREE` or `DELETED`, which are not handles in any MPI.
    handle: AtomicU64,
    entry: AtomicPtr<CommEntry>,
}

const FREE: u64 = 0;
const DELETED: u64 = 1;
const SLOTS: usize = 1024;
/// Largest number of communicators in the table, which keeps searches short.
pub const MAX_ENTRIES: usize = 768;

static TABLE: [Slot; SLOTS] =
    [const { Slot { handle: AtomicU64::new(FREE), entry: AtomicPtr::new(ptr::null_mut()) } }; SLOTS];
static CHANGES: Mutex<()> = Mutex::new(());
static ENTRIES: AtomicUsize = AtomicUsize::new(0);
/// Set when MPI_Finalize begins.
static FINALIZED: AtomicBool = AtomicBool::new(false);
/// The entry of every communicator for which the table has no room.
static TOO_MANY: CommEntry = CommEntry { state: Err(ForwardReason::TooMany) };

/// Returns the state of `comm`. The first call on a communicator, which all its ranks make, creates it. An error is the reason why
/// its calls are forwarded.
#[inline]
pub fn get(comm: Handle) -> Result<&'static InterceptedComm, ForwardReason> {
    match find(comm) {
        Some(entry) => entry.state.as_ref().map_err(|reason| *reason),
        None => create(comm),
    }
}

#[inline(always)]
#[allow(clippy::useless_conversion)] // a handle is as wide as MPI makes it
fn find(comm: Handle) -> Option<&'static CommEntry> {
    let (key, at) = (comm as u64, first_cell(comm, SLOTS));
    let slot = &TABLE[at];
    match slot.handle.load(Acquire) == key && key > DELETED {
        // SAFETY: as in `search`.
        true => Some(unsafe { &*slot.entry.load(Relaxed) }),
        false => search(key, at),
    }
}

#[cold]
fn search(key: u64, mut at: usize) -> Option<&'static CommEntry> {
    for _ in 0..SLOTS {
        let slot = &TABLE[at];
        match slot.handle.load(Acquire) {
            // SAFETY: a leaked box that is freed when MPI frees `comm`, which is not during a call on it.
            handle if handle == key && key > DELETED => return Some(unsafe { &*slot.entry.load(Relaxed) }),
            FREE => return None,
            _ => at = (at + 1) % SLOTS,
        }
    }
    None
}

/// A reservation of one entry of the table, returned when it is dropped unused.
pub struct EntryReservation(bool);

impl EntryReservation {
    pub fn new() -> Option<EntryReservation> {
        ENTRIES
            .fetch_update(Relaxed, Relaxed, |used| (used < MAX_ENTRIES).then_some(used + 1))
            .is_ok()
            .then_some(EntryReservation(true))
    }
}

impl Drop for EntryReservation {
    fn drop(&mut self) {
        if self.0 {
            ENTRIES.fetch_sub(1, Relaxed);
        }
    }
}

#[cold]
fn create(comm: Handle) -> Result<&'static InterceptedComm, ForwardReason> {
    if settings::get().interpose == earlybird::Interpose::Off {
        return Err(ForwardReason::Off);
    }
    if FINALIZED.load(Relaxed) || !abi::is_running() {
        return Err(ForwardReason::NotRunning);
    }
    if comm == abi::constants().null_comm || comm == 0 {
        return Err(ForwardReason::Argument);
    }
    let keyval = keyval();
    let mut known = ptr::null_mut();
    // SAFETY: MPI runs; writes an address and an int.
    let found = abi::query(|found| unsafe { abi::PMPI_Comm_get_attr(comm, keyval, &mut known, found) });
    let entry = match found {
        None => return Err(ForwardReason::Argument),
        // SAFETY: `insert` stored the attribute under this key, and the communicator has not been freed.
        Some(1..) => unsafe { &*known.cast::<CommEntry>() },
        Some(_) => {
            let reservation = EntryReservation::new();
            let state = set_up::set_up(comm, reservation.is_some());
            insert(comm, keyval, CommEntry { state }, reservation)
        }
    };
    entry.state.as_ref().map_err(|reason| *reason)
}

fn insert(comm: Handle, keyval: c_int, entry: CommEntry, reservation: Option<EntryReservation>) -> &'static CommEntry {
    let entry: *mut CommEntry = match reservation {
        None => (&raw const TOO_MANY).cast_mut(),
        Some(mut reservation) => {
            reservation.0 = false;
            let entry = Box::into_raw(Box::new(entry));
            let _changes = CHANGES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let mut at = first_cell(comm, SLOTS);
            while TABLE[at].handle.load(Relaxed) > DELETED {
                at = (at + 1) % SLOTS;
            }
            TABLE[at].entry.store(entry, Relaxed);
            TABLE[at].handle.store(comm as u64, Release);
            entry
        }
    };
    // SAFETY: MPI runs, the key is this library's, the entry lives until `on_delete`.
    if unsafe { abi::PMPI_Comm_set_attr(comm, keyval, entry.cast()) } != 0 {
        settings::die("MPI_Comm_set_attr failed");
    }
    // SAFETY: made above, and freed only when MPI frees `comm`; or the static one.
    unsafe { &*entry }
}

/// Returns the key of this library's attribute of communicators.
fn keyval() -> c_int {
    static KEYVAL: OnceLock<c_int> = OnceLock::new();
    // SAFETY: MPI runs; writes one int.
    let create = || abi::query(|keyval| unsafe { abi::eb_create_keyval(on_delete, keyval) });
    *KEYVAL.get_or_init(|| create().unwrap_or_else(|| settings::die("MPI_Comm_create_keyval failed")))
}

/// Frees the entry of a communicator that MPI frees. An entry that `free_all` has freed is no longer in the table.
unsafe extern "C" fn on_delete(comm: Handle, _keyval: c_int, entry: *mut c_void, _extra: *mut c_void) -> c_int {
    free(|slot| slot.handle.load(Relaxed) == comm as u64 && slot.entry.load(Relaxed) == entry.cast());
    0
}

/// Frees every entry. Calls from callbacks of MPI_Finalize are forwarded from now on, because attributes still point to freed entries.
pub fn free_all() {
    FINALIZED.store(true, Relaxed);
    free(|slot| slot.handle.load(Relaxed) > DELETED);
}

fn free(which: impl Fn(&Slot) -> bool) {
    let mut entries = Vec::new();
    {
        let _changes = CHANGES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for slot in TABLE.iter().filter(|slot| which(slot)) {
            slot.handle.store(DELETED, Release);
            // SAFETY: a box leaked by `insert`, taken out once: its slot held its handle until now.
            entries.push(unsafe { Box::from_raw(slot.entry.load(Relaxed)) });
        }
    }
    ENTRIES.fetch_sub(entries.len(), Relaxed);
}
