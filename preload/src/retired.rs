//! Communicators that outlive those of MPI.
//!
//! A communicator that MPI has freed is kept for the next one of the same processes in the same order, which takes over its state
//! instead of joining anew: operation numbers continue, and the shared memory stays with its ranks. Ranks may keep different ones,
//! so `set_up` compares their keys before all ranks take one over.
//!
//! The largest communicator of one node, the home, is never freed: others are formed of its ranks, in its shared memory.

use crate::intercepted::{CommEntry, InterceptedComm};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Largest number of communicators that are kept.
const MAX_KEPT: usize = 16;
/// Largest shared memory that they may take, together with their other ranks, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The communicators that MPI has freed, in that order, and the most memory that each takes, in bytes.
static RETIRED: Mutex<Vec<(Arc<CommEntry>, u64)>> = Mutex::new(Vec::new());
static HOME: Mutex<Option<Arc<CommEntry>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps the entry of a communicator that MPI has freed, if it can be taken over, and frees the oldest ones beyond the limits.
pub fn keep(entry: Arc<CommEntry>) {
    let Ok(InterceptedComm { comm, has_failed, .. }) = &entry.state else { return };
    // A persistent call may be started after its communicator was freed, in another order than calls of the next one.
    if comm.nodes() > 1 || has_failed.load(Relaxed) || entry.persistent_requests.load(Relaxed) > 0 {
        return;
    }
    let bytes = comm.budget_bytes().min(comm.shared_memory_bytes());
    let mut room = MAX_BYTES;
    let mut fits = |bytes| {
        let rest = room.checked_sub(bytes);
        room = rest.unwrap_or(0);
        rest.is_some()
    };
    let mut retired = lock(&RETIRED);
    retired.push((entry, bytes));
    let kept = retired.iter().rev().take(MAX_KEPT).take_while(|(_, bytes)| fits(*bytes)).count();
    let oldest = retired.len() - kept;
    let freed: Vec<_> = retired.drain(..oldest).collect();
    // Without the lock: leaving a group takes a while.
    drop(retired);
    drop(freed);
}

/// Returns a communicator of these processes, by rank: the one that was freed last.
pub fn take(processes: &[u64]) -> Option<Arc<CommEntry>> {
    let mut retired = lock(&RETIRED);
    let is_one = |entry: &CommEntry| entry.state.as_ref().is_ok_and(|comm| *comm.processes == *processes);
    let at = retired.iter().rposition(|(entry, _)| is_one(entry))?;
    Some(retired.remove(at).0)
}

/// Returns the home.
pub fn home() -> Option<Arc<CommEntry>> {
    lock(&HOME).clone()
}

/// Makes a communicator of one node the home, if it is larger than the one so far.
pub fn make_home_if_largest(entry: &Arc<CommEntry>) {
    let size =
        |entry: &CommEntry| entry.state.as_ref().ok().filter(|comm| comm.comm.nodes() == 1).map(|comm| comm.size);
    let mut home = lock(&HOME);
    if size(entry) > home.as_ref().and_then(|home| size(home)) {
        *home = Some(entry.clone());
    }
}

/// Frees all of them.
pub fn free_all() {
    let (home, retired) = (lock(&HOME).take(), std::mem::take(&mut *lock(&RETIRED)));
    drop((home, retired));
}
