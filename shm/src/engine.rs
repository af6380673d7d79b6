//! The progress engine: non-blocking calls of this process progress while any of its threads waits for something else.
//!
//! A started call may need this rank for more than its contribution: a leader for the exchange between nodes, any rank for
//! the later pieces of a large call. Its communicator is on the process's one list while that may be so, and a thread that
//! waits, in any communicator, drives the list at intervals.
//!
//! No thread can wait for ever here, by these rules:
//!
//! 1. One thread drives at a time. Another one goes on with its own wait instead.
//! 2. The driving thread only tries the lock of a communicator, waits for no rank, and does not drive recursively. A
//!    communicator inside a call is left to that call.
//! 3. A call that finds its communicator locked waits until no thread drives and tries once more ([`enter`]): the driving
//!    thread does not count as a second thread inside a call.
//! 4. The end of a [`Handle`] waits until no thread drives, so a communicator ends in the thread that drops it.
//! 5. Errors that are found stay with their call, and deadlines do not run: no caller waits for that call yet.

use crate::{Error, clock};
use std::cell::Cell;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::Duration;

/// Longest interval at which a thread that waits longer than it spins drives the active calls.
const EVERY: Duration = Duration::from_micros(200);
const EVERY_NS: u64 = EVERY.as_nanos() as u64;
/// Longest sleep that is never shortened.
const SHORT_SLEEP_NS: u64 = 1_000_000;

/// A communicator with active calls.
pub trait Drive: Send + Sync {
    /// Progresses its calls without waiting; returns whether any may need it again. Called by any thread.
    fn drive(&self) -> bool;
}

type Listed = Weak<dyn Drive>;

/// True if the list has, or may have, something on it.
static ACTIVE: AtomicBool = AtomicBool::new(false);
static LIST: Mutex<Vec<Listed>> = Mutex::new(Vec::new());
/// Held by the driving thread.
static DRIVER: Mutex<()> = Mutex::new(());
/// The process that drove last; a forked child finds its parent's number here.
static PROCESS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static DRIVING: Cell<bool> = const { Cell::new(false) };
}

#[cfg(feature = "fault")]
static STILL: AtomicBool = AtomicBool::new(false);

/// Stops the engine, for tests of what happens without it.
#[cfg(feature = "fault")]
pub fn stand_still() {
    STILL.store(true, Relaxed);
}

fn list() -> MutexGuard<'static, Vec<Listed>> {
    LIST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn add(list: &mut Vec<Listed>, it: Listed) {
    if !list.iter().any(|other| other.ptr_eq(&it)) {
        list.push(it);
    }
}

#[inline]
fn is_active() -> bool {
    #[cfg(feature = "fault")]
    if STILL.load(Relaxed) {
        return false;
    }
    ACTIVE.load(Relaxed)
}

/// Returns whether this thread is driving: then it may be inside a wait of the same communicator, and no caller waits for its result.
pub fn is_driving() -> bool {
    DRIVING.get()
}

/// Makes progress in all started calls of this process, on every communicator, without waiting; returns whether any may be active.
pub fn progress() -> bool {
    if is_active() {
        run();
    }
    is_active()
}

#[cold]
fn run() {
    PROCESS.store(std::process::id(), Relaxed);
    let _alone = match DRIVER.try_lock() {
        Ok(alone) => alone,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    DRIVING.set(true);
    let mut listed = std::mem::take(&mut *list());
    // A panic leaves its communicator's lock poisoned, which the next call there reports.
    let drive = |it: Arc<dyn Drive>| catch_unwind(AssertUnwindSafe(|| it.drive())).unwrap_or(false);
    listed.retain(|weak| weak.upgrade().is_some_and(drive));
    let mut list = list();
    // Calls that were started meanwhile.
    for it in list.drain(..) {
        add(&mut listed, it);
    }
    ACTIVE.store(!listed.is_empty(), Relaxed);
    *list = listed;
    drop(list);
    DRIVING.set(false);
}

/// Waits until no thread drives, which none does then until the guard is dropped; `None` where this thread does.
pub(crate) fn pause() -> Option<MutexGuard<'static, ()>> {
    while !is_driving() {
        match DRIVER.try_lock() {
            Ok(alone) => return Some(alone),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            // Forked while another thread drove, which this process does not have.
            Err(TryLockError::WouldBlock) if PROCESS.load(Relaxed) != std::process::id() => return None,
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
        }
    }
    None
}

/// Shortens a sleep of `most_ns` while calls are in progress.
pub(crate) fn sleep_ns(most_ns: u64) -> u64 {
    if most_ns > SHORT_SLEEP_NS && is_active() { EVERY_NS } else { most_ns }
}

/// Shortens a sleep of `most` while calls are in progress.
pub(crate) fn sleep(most: Duration) -> Duration {
    Duration::from_nanos(sleep_ns(crate::nanoseconds(most)))
}

/// Time of the last drive by a waiting thread.
#[derive(Debug, Default)]
pub struct Pace {
    driven_ns: Cell<u64>,
}

impl Pace {
    /// Makes progress in the active operations if that is due.
    #[inline]
    pub fn drive(&self) {
        if is_active() {
            self.drive_at(clock::now_ns());
        }
    }

    /// Drives the calls in progress if it is time to, at the given time.
    #[inline]
    pub(crate) fn drive_at(&self, now_ns: u64) {
        if is_active() && now_ns.saturating_sub(self.driven_ns.get()) >= EVERY_NS {
            self.driven_ns.set(now_ns);
            run();
        }
    }
}

/// A communicator's registration with the progress engine.
#[derive(Debug)]
pub struct Handle<T: Drive + 'static>(Arc<T>);

impl<T: Drive + 'static> Handle<T> {
    /// The registration of a value without active operations.
    pub fn new(it: impl Into<Arc<T>>) -> Self {
        Handle(it.into())
    }

    fn listed(&self) -> Listed {
        let weak: Weak<T> = Arc::downgrade(&self.0);
        weak
    }

    /// Puts the communicator on the list after a call was started: it is driven until no call is left.
    pub fn watch(&self) {
        add(&mut list(), self.listed());
        ACTIVE.store(true, Relaxed);
    }
}

impl<T: Drive + 'static> Deref for Handle<T> {
    type Target = Arc<T>;

    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

impl<T: Drive + 'static> Drop for Handle<T> {
    fn drop(&mut self) {
        let it = self.listed();
        let _alone = pause();
        list().retain(|other| !other.ptr_eq(&it));
    }
}

/// Enters a call of a communicator, whose `state` no second thread may touch meanwhile.
///
/// # Errors
/// [`Error::Usage`] while another thread is inside a call; [`Error::Poisoned`] after a panic there: it cannot leave shared
/// words broken, but this rank's place in the operation is lost.
#[inline]
pub fn enter<T>(state: &Mutex<T>) -> Result<MutexGuard<'_, T>, Error> {
    state.try_lock().or_else(|_| enter_late(state))
}

#[cold]
fn enter_late<T>(state: &Mutex<T>) -> Result<MutexGuard<'_, T>, Error> {
    let _alone = pause();
    state.try_lock().map_err(|error| match error {
        TryLockError::WouldBlock => occupied(),
        TryLockError::Poisoned(_) => panicked(),
    })
}

#[cold]
pub(crate) fn occupied() -> Error {
    Error::usage(
        "another thread of this process is inside a call of this communicator; \
         make one call at a time, or give each thread a communicator of its own",
    )
}

#[cold]
pub(crate) fn panicked() -> Error {
    Error::Poisoned { cause: "an earlier call of this process panicked".into() }
}
