//! The interposer's state of each MPI communicator: an attribute of it, created by its first call and ended with it.
//!
//! The table finds most entries by the communicator's handle, without a lock: a slot holds one handle from the time that it is
//! written until MPI frees the communicator, and no rank frees a communicator during a call on it. Only changes take the lock, never
//! while waiting for other ranks.
#![allow(unsafe_code)]

use crate::abi::{self, Handle, constants};
use crate::handles::first_cell;
use crate::intercepted::{CommEntry, InterceptedComm};
use crate::summary::ForwardReason;
use crate::{retired, set_up, settings};
use earlybird::Interpose;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64};
use std::sync::{Arc, Mutex, OnceLock};

struct Slot {
    /// The handle, or `FREE` or `DELETED`, which are not handles in any MPI.
    handle: AtomicU64,
    entry: AtomicPtr<CommEntry>,
}

const FREE: u64 = 0;
const DELETED: u64 = 1;
const SLOTS: usize = 1024;
/// Largest number of communicators in the table, which keeps searches short. Calls on others ask MPI for the attribute.
const MAX_ENTRIES: usize = 768;

static TABLE: [Slot; SLOTS] =
    [const { Slot { handle: AtomicU64::new(FREE), entry: AtomicPtr::new(ptr::null_mut()) } }; SLOTS];
/// The number of entries in the table, held while it changes.
static CHANGES: Mutex<usize> = Mutex::new(0);
/// Set when MPI_Finalize begins.
static FINALIZED: AtomicBool = AtomicBool::new(false);

/// Returns the state of `comm`, for a call that all its ranks make. An error is the reason why the call is forwarded.
#[inline]
pub fn get(comm: Handle) -> Result<&'static InterceptedComm, ForwardReason> {
    match find(comm) {
        Some(CommEntry { state: Ok(intercepted), .. }) => Ok(intercepted),
        Some(entry) => get_again(comm, entry),
        None => get_first(comm),
    }
}

/// Notes that a call on `comm` has failed: no other communicator takes over what it has.
#[cold]
pub fn note_failure(comm: Handle) {
    if let Some(CommEntry { state: Ok(intercepted), .. }) = find(comm).or_else(|| attribute(comm).ok()?) {
        intercepted.has_failed.store(true, Relaxed);
    }
}

#[inline(always)]
fn find(comm: Handle) -> Option<&'static CommEntry> {
    let slot = &TABLE[first_cell(comm, SLOTS)];
    #[allow(clippy::useless_conversion)] // a handle is as wide as MPI makes it
    let key = comm as u64;
    let slot = match slot.handle.load(Acquire) == key && key > DELETED {
        true => slot,
        false => search(comm)?,
    };
    // SAFETY: released when MPI frees `comm`, which is not during a call on it.
    Some(unsafe { &*slot.entry.load(Relaxed) })
}

/// Returns the slot of a communicator that is not in its first one.
#[cold]
fn search(comm: Handle) -> Option<&'static Slot> {
    let key = comm as u64;
    let slots = (first_cell(comm, SLOTS)..).take(SLOTS).map(|at| &TABLE[at % SLOTS]);
    let mut taken = slots.map(|slot| (slot, slot.handle.load(Acquire))).take_while(|(_, handle)| *handle != FREE);
    taken.find(|(_, handle)| *handle == key && key > DELETED).map(|(slot, _)| slot)
}

/// Returns the entry that is the attribute of `comm`, if it has one.
fn attribute(comm: Handle) -> Result<Option<&'static CommEntry>, ForwardReason> {
    let mut value = ptr::null_mut();
    // SAFETY: MPI runs; writes an address and an int.
    match abi::query(|found| unsafe { abi::PMPI_Comm_get_attr(comm, keyval(), &mut value, found) }) {
        None => Err(ForwardReason::Argument),
        Some(0) => Ok(None),
        // SAFETY: `keep` stored the attribute under this key, and the communicator has not been freed.
        Some(_) => Ok(Some(unsafe { &*value.cast::<CommEntry>() })),
    }
}

/// Returns the state of `comm` for a non-blocking call, which sets up no communicator: that would wait for other ranks. Blocking calls
/// before it have, on all ranks or on none.
pub fn get_ready(comm: Handle) -> Result<&'static InterceptedComm, ForwardReason> {
    let entry = match find(comm) {
        Some(entry) => entry,
        None => kept(comm)?.ok_or(ForwardReason::FirstCalls)?,
    };
    entry.state.as_ref().map_err(|reason| *reason)?.startable()
}

/// Returns a holder of the entry of `comm`, which has one: it outlives the communicator of MPI.
pub fn hold(comm: Handle) -> Option<Arc<CommEntry>> {
    let entry = find(comm).or_else(|| attribute(comm).ok()?)?;
    // SAFETY: `keep` made the address of an `Arc`, which is released when MPI frees `comm`: not during a call on it.
    unsafe {
        Arc::increment_strong_count(entry);
        Some(Arc::from_raw(entry))
    }
}

/// Returns whether `entry` is still that of `comm`, which may have been freed.
pub fn is_state(comm: Handle, entry: &Arc<CommEntry>) -> bool {
    find(comm).is_some_and(|found| ptr::eq(found, Arc::as_ptr(entry)))
}

/// The entry of a communicator that is not in the table, if it has one; an error is the reason why its calls are forwarded.
#[cold]
fn kept(comm: Handle) -> Result<Option<&'static CommEntry>, ForwardReason> {
    if settings::get().interpose == Interpose::Off {
        return Err(ForwardReason::Off);
    }
    check(comm)?;
    attribute(comm)
}

/// Refuses what MPI must not be asked about.
fn check(comm: Handle) -> Result<(), ForwardReason> {
    if FINALIZED.load(Relaxed) || !abi::is_running() {
        return Err(ForwardReason::NotRunning);
    }
    if comm == constants().null_comm || comm == 0 {
        return Err(ForwardReason::Argument);
    }
    Ok(())
}

/// The state of a communicator that is not in the table.
#[cold]
fn get_first(comm: Handle) -> Result<&'static InterceptedComm, ForwardReason> {
    if let Some(entry) = kept(comm)? {
        return get_again(comm, entry);
    }
    get_again(comm, keep_first(comm))
}

/// Makes an entry of a communicator without one.
fn keep_first(comm: Handle) -> &'static CommEntry {
    let state = match settings::get().interpose {
        Interpose::Off => Err(ForwardReason::Off),
        _ => set_up::members(comm).and(Err(ForwardReason::FirstCalls)),
    };
    keep(comm, CommEntry::new(state))
}

/// The entry of a communicator that a call is forwarded on; it gets one if it has none.
pub fn entry(comm: Handle) -> Option<&'static CommEntry> {
    find(comm).or_else(|| {
        check(comm).ok()?;
        Some(attribute(comm).ok()?.unwrap_or_else(|| keep_first(comm)))
    })
}

/// The state of a communicator that has an entry, and perhaps not enough calls to be set up.
#[cold]
fn get_again(comm: Handle, entry: &'static CommEntry) -> Result<&'static InterceptedComm, ForwardReason> {
    let entry = match &entry.state {
        Err(ForwardReason::FirstCalls) => match entry.first_calls.fetch_add(1, Relaxed) + 1 < set_up::from_call(comm) {
            true => entry,
            false => keep(comm, set_up::set_up(comm)),
        },
        _ => entry,
    };
    entry.state.as_ref().map_err(|reason| *reason)
}

/// Makes `entry` the attribute of `comm`, and enters it into the table. MPI calls `on_delete` for the one before.
fn keep(comm: Handle, entry: Arc<CommEntry>) -> &'static CommEntry {
    retired::make_home_if_largest(&entry);
    let entry = Arc::into_raw(entry).cast_mut();
    // SAFETY: MPI runs, the key is this library's, the entry lives until `on_delete`.
    if unsafe { abi::PMPI_Comm_set_attr(comm, keyval(), entry.cast()) } != 0 {
        settings::die("MPI_Comm_set_attr failed");
    }
    let mut entries = CHANGES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if *entries < MAX_ENTRIES {
        let mut at = first_cell(comm, SLOTS);
        while TABLE[at].handle.load(Relaxed) > DELETED {
            at = (at + 1) % SLOTS;
        }
        TABLE[at].entry.store(entry, Relaxed);
        TABLE[at].handle.store(comm as u64, Release);
        *entries += 1;
    }
    drop(entries);
    // SAFETY: released only when MPI frees `comm` or replaces the attribute.
    unsafe { &*entry }
}

/// Returns the key of this library's attribute of communicators.
fn keyval() -> c_int {
    static KEYVAL: OnceLock<c_int> = OnceLock::new();
    // SAFETY: MPI runs; writes one int.
    let create = || abi::query(|keyval| unsafe { abi::eb_create_keyval(on_delete, keyval) });
    *KEYVAL.get_or_init(|| create().unwrap_or_else(|| settings::die("MPI_Comm_create_keyval failed")))
}

/// Frees the entry of a communicator that MPI frees, or whose attribute is replaced. `free_all` has freed those in the table.
unsafe extern "C" fn on_delete(comm: Handle, _keyval: c_int, entry: *mut c_void, _extra: *mut c_void) -> c_int {
    if FINALIZED.load(Relaxed) {
        return 0;
    }
    {
        let mut entries = CHANGES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(slot) = search(comm) {
            slot.handle.store(DELETED, Release);
            *entries -= 1;
        }
    }
    // SAFETY: `keep` made it the attribute, which MPI deletes once.
    retired::keep(unsafe { Arc::from_raw(entry.cast_const().cast::<CommEntry>()) });
    0
}

/// Frees the entries of the table. Calls from callbacks of MPI_Finalize are forwarded from now on, because attributes still point to
/// freed entries.
pub fn free_all() {
    FINALIZED.store(true, Relaxed);
    let taken_out: Vec<_> = {
        let _entries = CHANGES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let entered = TABLE.iter().filter(|slot| slot.handle.load(Relaxed) > DELETED);
        let slots = entered.inspect(|slot| slot.handle.store(DELETED, Release));
        // SAFETY: `keep` entered it; taken out once: its slot held its handle until now, and `on_delete` frees no more.
        slots.map(|slot| unsafe { Arc::from_raw(slot.entry.load(Relaxed)) }).collect()
    };
    drop(taken_out);
    retired::free_all();
}
