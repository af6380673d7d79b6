//! What the interposer keeps per communicator of MPI: found by its handle, made at its first call, gone with it.
//!
//! The table is read without locks: a slot holds one handle from when it is written until MPI frees that communicator,
//! which no rank does while it calls on it. Only changes take the lock, and never while anything waits for other ranks.
#![allow(unsafe_code)]

use crate::abi::{self, Handle};
use crate::handles::{Handles, Pairs, place};
use crate::rule::Rule;
use crate::summary::Why;
use crate::{set_up, settings};
use earlybird::Communicator;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize};
use std::sync::{Mutex, OnceLock};

/// This process in a communicator of MPI.
pub struct Seat {
    pub route: Result<Carried, Why>,
}

/// A communicator whose calls are taken over. What a small call looks at comes first, in one cache line.
#[repr(C, align(64))]
pub struct Carried {
    pub pairs: &'static Pairs,
    pub rule: Rule,
    pub comm: Communicator,
    pub rank: usize,
    pub size: usize,
    pub handles: &'static Handles,
}

struct Slot {
    /// The handle, or `FREE` or `GONE`, which are no handles of any MPI.
    handle: AtomicU64,
    seat: AtomicPtr<Seat>,
}

const FREE: u64 = 0;
const GONE: u64 = 1;
const SLOTS: usize = 1024;
/// Communicators that are kept at most, so that a search ends soon.
pub const MOST: usize = 768;

static TABLE: [Slot; SLOTS] =
    [const { Slot { handle: AtomicU64::new(FREE), seat: AtomicPtr::new(ptr::null_mut()) } }; SLOTS];
static CHANGES: Mutex<()> = Mutex::new(());
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// Set when MPI_Finalize begins.
static LEFT: AtomicBool = AtomicBool::new(false);
/// The seat of those that are too many.
static TOO_MANY: Seat = Seat { route: Err(Why::TooMany) };

/// What is kept for `comm`, made by a call that every rank of it makes. An error is why its calls go to MPI.
#[inline]
pub fn of(comm: Handle) -> Result<&'static Carried, Why> {
    match find(comm) {
        Some(seat) => seat.route.as_ref().map_err(|why| *why),
        None => first(comm),
    }
}

#[inline(always)]
#[allow(clippy::useless_conversion)] // a handle is as wide as MPI makes it
fn find(comm: Handle) -> Option<&'static Seat> {
    let (key, at) = (comm as u64, place(comm, SLOTS));
    let slot = &TABLE[at];
    match slot.handle.load(Acquire) == key && key > GONE {
        // SAFETY: as in `search`.
        true => Some(unsafe { &*slot.seat.load(Relaxed) }),
        false => search(key, at),
    }
}

#[cold]
fn search(key: u64, mut at: usize) -> Option<&'static Seat> {
    for _ in 0..SLOTS {
        let slot = &TABLE[at];
        match slot.handle.load(Acquire) {
            // SAFETY: a leaked box that is freed when MPI frees `comm`, which is not while somebody calls on it.
            found if found == key && key > GONE => return Some(unsafe { &*slot.seat.load(Relaxed) }),
            FREE => return None,
            _ => at = (at + 1) % SLOTS,
        }
    }
    None
}

/// Room for one more communicator, given back when dropped unless it was used.
pub struct Room(bool);

impl Room {
    pub fn take() -> Option<Room> {
        KEPT.fetch_update(Relaxed, Relaxed, |kept| (kept < MOST).then_some(kept + 1)).is_ok().then_some(Room(true))
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        if self.0 {
            KEPT.fetch_sub(1, Relaxed);
        }
    }
}

#[cold]
fn first(comm: Handle) -> Result<&'static Carried, Why> {
    if settings::get().interpose == earlybird::Interpose::Off {
        return Err(Why::Off);
    }
    if LEFT.load(Relaxed) || !abi::is_running() {
        return Err(Why::NotRunning);
    }
    if comm == abi::constants().no_comm || comm == 0 {
        return Err(Why::Argument);
    }
    let keyval = keyval();
    let mut known = ptr::null_mut();
    // SAFETY: MPI runs; writes an address and an int.
    let found = abi::asked(|found| unsafe { abi::PMPI_Comm_get_attr(comm, keyval, &mut known, found) });
    let seat = match found {
        None => return Err(Why::Argument),
        // SAFETY: under our key MPI holds what `keep` stored, and this communicator lives.
        Some(1..) => unsafe { &*known.cast::<Seat>() },
        Some(_) => {
            let room = Room::take();
            let route = set_up::route(comm, room.is_some());
            keep(comm, keyval, Seat { route }, room)
        }
    };
    seat.route.as_ref().map_err(|why| *why)
}

fn keep(comm: Handle, keyval: c_int, seat: Seat, room: Option<Room>) -> &'static Seat {
    let seat: *mut Seat = match room {
        None => (&raw const TOO_MANY).cast_mut(),
        Some(mut room) => {
            room.0 = false;
            let seat = Box::into_raw(Box::new(seat));
            let _changes = CHANGES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let mut at = place(comm, SLOTS);
            while TABLE[at].handle.load(Relaxed) > GONE {
                at = (at + 1) % SLOTS;
            }
            TABLE[at].seat.store(seat, Relaxed);
            TABLE[at].handle.store(comm as u64, Release);
            seat
        }
    };
    // SAFETY: MPI runs, the key is ours, the seat lives until `deleted`.
    if unsafe { abi::PMPI_Comm_set_attr(comm, keyval, seat.cast()) } != 0 {
        settings::die("MPI_Comm_set_attr failed");
    }
    // SAFETY: made above, and freed only when MPI frees `comm`; or the static one.
    unsafe { &*seat }
}

/// The key of our attribute.
fn keyval() -> c_int {
    static KEYVAL: OnceLock<c_int> = OnceLock::new();
    // SAFETY: MPI runs; writes one int.
    let make = || abi::asked(|keyval| unsafe { abi::eb_create_keyval(deleted, keyval) });
    *KEYVAL.get_or_init(|| make().unwrap_or_else(|| settings::die("MPI_Comm_create_keyval failed")))
}

/// MPI frees a communicator: so do we. What `leave_all` has freed is in no slot any more.
unsafe extern "C" fn deleted(comm: Handle, _keyval: c_int, seat: *mut c_void, _extra: *mut c_void) -> c_int {
    free(|slot| slot.handle.load(Relaxed) == comm as u64 && slot.seat.load(Relaxed) == seat.cast());
    0
}

/// Leaves every communicator, for good: what callbacks of MPI_Finalize call is MPI's, whose attributes still lead to what is freed here.
pub fn leave_all() {
    LEFT.store(true, Relaxed);
    free(|slot| slot.handle.load(Relaxed) > GONE);
}

fn free(which: impl Fn(&Slot) -> bool) {
    let mut seats = Vec::new();
    {
        let _changes = CHANGES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for slot in TABLE.iter().filter(|slot| which(slot)) {
            slot.handle.store(GONE, Release);
            // SAFETY: a box leaked by `keep`, taken out once: its slot held its handle until now.
            seats.push(unsafe { Box::from_raw(slot.seat.load(Relaxed)) });
        }
    }
    KEPT.fetch_sub(seats.len(), Relaxed);
}
