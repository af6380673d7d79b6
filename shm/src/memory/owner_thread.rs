//! The parked thread that owns this rank's word, so that the kernel marks the word when the process ends, however it ends.
//!
//! It holds the word as the owner of a robust futex: when a thread ends, the kernel walks its robust list and sets
//! `FUTEX_OWNER_DIED` in every word on it that carries the thread's number. No pthread mutex is used, since its word lies
//! elsewhere in every C library, and no other thread's list is touched. It costs a process one thread that sleeps.
//!
//! Invariant **R (robust list)**: the page with the list is a mapping of this process alone, not inherited by forked
//! children, and it and the control segment stay mapped until the owner thread has ended.
#![allow(unsafe_code)]

use std::io;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::thread::futex;

use super::control_map::ControlMap;
use super::descriptor::read_names;
use super::process;

/// Interval at which a parked owner checks whether it is the last thread of its process.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Address range of an owner's stack. It uses two pages.
const STACK_BYTES: usize = 128 << 10;

#[repr(C)]
struct RobustListNode {
    next: *mut RobustListNode,
}

/// `struct robust_list_head` of the kernel, with the only element that the list ever has, and the word that ends the thread.
#[repr(C)]
struct RobustListHead {
    first: RobustListNode,
    /// From an element to its futex word, bytes.
    futex_offset: libc::c_long,
    pending: *mut RobustListNode,
    element: RobustListNode,
    stop: AtomicU32,
}

/// Bytes of the part of [`RobustListHead`] that the kernel knows.
const HEAD_BYTES: usize = 3 * size_of::<usize>();

/// A page of its own for a [`RobustListHead`].
struct RobustListPage(*mut RobustListHead);

// SAFETY: R: the page is written before the owner thread starts; afterwards only `stop` changes, which is an atomic.
unsafe impl Send for RobustListPage {}
// SAFETY: as above.
unsafe impl Sync for RobustListPage {}

impl RobustListPage {
    fn new(word: *const AtomicU32) -> io::Result<RobustListPage> {
        let bytes = rustix::param::page_size();
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address that the kernel chooses.
        let page = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::SHARED) }?;
        let page = RobustListPage(page.cast());
        // SAFETY: exactly the page just mapped; the advice changes only what forked children get.
        unsafe { rustix::mm::madvise(page.0.cast(), bytes, Advice::LinuxDontFork) }?;
        let list = page.0;
        // SAFETY: the page is this function's alone, large enough and aligned for a `RobustListHead`.
        unsafe {
            let (first, element) = (&raw mut (*list).first, &raw mut (*list).element);
            (*list).futex_offset = (word as libc::c_long).wrapping_sub(element as libc::c_long);
            (*list).first.next = element;
            (*list).element.next = first;
        }
        Ok(page)
    }

    fn stop(&self) -> &AtomicU32 {
        // SAFETY: R; the word is touched as an atomic only.
        unsafe { &(*self.0).stop }
    }

    /// Gives the list to the calling thread, for the kernel to walk when that thread ends.
    fn adopt(&self) -> io::Result<()> {
        // SAFETY: R: the list stays as it is until the thread has ended; a thread of this module owns no other robust futex.
        match unsafe { libc::syscall(libc::SYS_set_robust_list, self.0, HEAD_BYTES) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

impl Drop for RobustListPage {
    fn drop(&mut self) {
        // SAFETY: the page was mapped in `new`; R: the last share goes after the thread that adopted it has ended.
        let _ = unsafe { rustix::mm::munmap(self.0.cast(), rustix::param::page_size()) };
    }
}

/// Owner threads of this process.
static OWNERS: AtomicUsize = AtomicUsize::new(0);

/// The parked thread that owns this rank's word. Dropping it marks the rank as left.
pub(super) struct OwnerThread {
    control: Arc<ControlMap>,
    rank: usize,
    /// The process that started the thread: a forked child has the handle and no such thread.
    pid: u32,
    running: Option<(Arc<RobustListPage>, JoinHandle<()>)>,
}

impl OwnerThread {
    /// Starts the owner thread of `rank`'s word; the word is marked ownerless if no thread can be started.
    pub fn start(control: &Arc<ControlMap>, rank: usize) -> OwnerThread {
        let running = spawn(control, rank).ok();
        if running.is_none() {
            control.living[rank].mark_ownerless();
        }
        OwnerThread { control: control.clone(), rank, pid: std::process::id(), running }
    }
}

impl Drop for OwnerThread {
    fn drop(&mut self) {
        if std::process::id() != self.pid {
            // the page was not inherited, and the word is the parent's
            std::mem::forget(self.running.take());
            return;
        }
        self.control.living[self.rank].leave();
        if let Some((page, thread)) = self.running.take() {
            page.stop().store(1, Relaxed);
            let _ = futex::wake(page.stop(), futex::Flags::PRIVATE, 1);
            let _ = thread.join();
        }
    }
}

fn spawn(control: &Arc<ControlMap>, rank: usize) -> io::Result<(Arc<RobustListPage>, JoinHandle<()>)> {
    let page = Arc::new(RobustListPage::new(control.living[rank].futex())?);
    let (sender, receiver) = mpsc::channel();
    let (list, control) = (page.clone(), control.clone());
    let _blocked = BlockedSignals::new();
    let thread =
        std::thread::Builder::new().name("earlybird-alive".into()).stack_size(STACK_BYTES).spawn(move || {
            let owned = list.adopt();
            if owned.is_ok() {
                let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
                control.own(rank, tid);
            }
            let adopted = owned.is_ok();
            let _ = sender.send(owned);
            if adopted {
                park(list.stop());
            }
        })?;
    match receiver.recv() {
        Ok(Ok(())) => Ok((page, thread)),
        Ok(Err(error)) => Err(error),
        Err(_) => Err(io::Error::other("the owner thread ended at once")),
    }
}

/// Sleeps until `stop` is set. A program whose first thread has called `pthread_exit` ends with its last thread, which must
/// not be an owner thread.
fn park(stop: &AtomicU32) {
    OWNERS.fetch_add(1, Relaxed);
    let every = rustix::time::Timespec { tv_sec: LOOK_EVERY.as_secs() as i64, tv_nsec: 0 };
    while stop.load(Relaxed) == 0 {
        let _ = futex::wait(stop, futex::Flags::PRIVATE, 0, Some(&every));
        if matches!(process::stat("self"), Some(('Z', _))) {
            let threads = read_names("/proc/self/task").map_or(usize::MAX, |threads| threads.len());
            if threads <= 1 + OWNERS.load(Relaxed) {
                std::process::exit(0);
            }
        }
    }
    OWNERS.fetch_sub(1, Relaxed);
}

/// All signals blocked in the calling thread until this is dropped, so that a thread started meanwhile never runs the
/// program's handlers.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn new() -> BlockedSignals {
        // SAFETY: a signal set is plain memory, for which all-zero is a value; both calls get valid sets.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (core::mem::zeroed(), core::mem::zeroed());
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            BlockedSignals(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the one that was in force before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, ptr::null_mut()) };
    }
}

/// `Some(false)` if thread `tid` of process `pid` does not exist; `None` if it exists or this process may not ask.
pub(super) fn exists(pid: u32, tid: u32) -> Option<bool> {
    // SAFETY: signal 0 only asks whether the thread exists.
    let asked = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    (asked != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)).then_some(false)
}
