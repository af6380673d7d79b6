//! Record locks, which the kernel drops when a process dies or executes another program: a witness of liveness.
//!
//! A process-associated `fcntl` lock belongs to the process and not to the descriptor. A forked child does not inherit it; it
//! is gone when the process dies (also while its parent has not reaped it) and when `exec` closes the descriptor; it stays
//! while the process is stopped. One query costs well under a microsecond and needs no descriptor per peer. Its one trap:
//! closing *any* descriptor of the file drops all locks that the process has on the file, so a file that carries locks is
//! opened once per process.
//!
//! Also here, since they need the same kind of system calls: the user at the other end of a socket, and the flag that
//! distinguishes a forked child from the process that attached.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

use super::control::Identity;
use super::process;
use crate::Error;

fn request(kind: libc::c_int, first: usize, count: usize) -> libc::flock {
    // SAFETY: flock is a plain C structure of integers, for which all-zero is a value.
    let mut lock: libc::flock = unsafe { core::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    lock.l_start = first as libc::off_t;
    lock.l_len = count as libc::off_t;
    lock
}

fn fcntl(file: &impl AsFd, command: libc::c_int, lock: &mut libc::flock) -> std::io::Result<()> {
    loop {
        // SAFETY: the descriptor is open while it is borrowed, and `lock` is a valid flock for these commands.
        let result = unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, lock as *mut libc::flock) };
        if result != -1 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Takes the lock on one byte for this process; false when another process has it.
pub(crate) fn try_take(file: &impl AsFd, byte: usize) -> Result<bool, Error> {
    match fcntl(file, libc::F_SETLK, &mut request(libc::F_WRLCK, byte, 1)) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(Error::system(format!("taking the record lock on byte {byte}"), error)),
    }
}

/// The process that holds a lock in `[first, first + count)`, if any *other* process does; 0 when it lives in another
/// pid namespace.
///
/// # Errors
/// The system's error, which means that `file` is not open any more, and nothing about the holder.
pub(crate) fn holder(file: &impl AsFd, first: usize, count: usize) -> std::io::Result<Option<u32>> {
    let mut lock = request(libc::F_WRLCK, first, count);
    fcntl(file, libc::F_GETLK, &mut lock)?;
    Ok((i32::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid.max(0) as u32))
}

/// User id of the process at the other end of a unix socket.
///
/// Calls libc directly because the pid in the kernel's answer is 0 for a peer in another pid namespace, which a wrapper with a
/// non-zero pid type cannot represent.
pub(crate) fn peer_uid(socket: &impl AsFd) -> std::io::Result<u32> {
    peer_credentials(socket).map(|credentials| credentials.uid)
}

/// The process at the other end of a connection, the one that connected or that made the socket at which it was accepted; `None`
/// where it cannot be seen from here.
pub(crate) fn peer_process(socket: &impl AsFd) -> Option<Identity> {
    let pid = peer_credentials(socket).ok().and_then(|credentials| u32::try_from(credentials.pid).ok())?;
    let start_ticks = process::stat(&pid.to_string()).map_or(0, |(_, start)| start);
    (pid != 0).then(|| Identity { pid, start_ticks, ..Identity::own() })
}

fn peer_credentials(socket: &impl AsFd) -> std::io::Result<libc::ucred> {
    let mut credentials = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = core::mem::size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is open while borrowed; the buffer is a ucred and `length` is its size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if result == 0 { Ok(credentials) } else { Err(std::io::Error::last_os_error()) }
}

/// A private page that the kernel zeroes in forked children, which distinguishes them from the process that attached.
pub(crate) struct ForkFlag {
    page: Option<MmapRaw>,
    pid: u32,
}

impl ForkFlag {
    pub fn new() -> Result<ForkFlag, Error> {
        let pid = std::process::id();
        let page_bytes = rustix::param::page_size();
        let page = MmapOptions::new().len(page_bytes).map_anon().map_err(|e| Error::system("mapping a page", e))?;
        let page = MmapRaw::from(page);
        // SAFETY: the range is exactly the private anonymous mapping just made; the advice changes only what a child
        // of fork sees.
        let advised =
            unsafe { rustix::mm::madvise(page.as_mut_ptr().cast(), page_bytes, rustix::mm::Advice::LinuxWipeOnFork) };
        // kernels before 4.14 refuse; the pid is asked instead
        let flag = ForkFlag { page: advised.is_ok().then_some(page), pid };
        if let Some(word) = flag.word() {
            word.store(1, Ordering::Relaxed);
        }
        Ok(flag)
    }

    /// The word on the page, 0 in a child; mapped as long as the flag lives.
    #[inline]
    pub fn word(&self) -> Option<&AtomicU64> {
        // SAFETY: the page is mapped as long as `self` lives, aligned, and touched as an atomic only.
        self.page.as_ref().map(|page| unsafe { AtomicU64::from_ptr(page.as_mut_ptr().cast()) })
    }

    /// Returns whether this process is a forked child. One load.
    #[inline]
    pub fn is_child(&self) -> bool {
        match self.word() {
            Some(word) => word.load(Ordering::Relaxed) == 0,
            None => std::process::id() != self.pid,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_this_process_are_its_own() {
        let file = rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(try_take(&file, 7), Ok(true));
        assert_eq!(try_take(&file, 7), Ok(true));
        // the query is about others only
        assert_eq!(holder(&file, 0, 1023).unwrap(), None);
    }

    #[test]
    fn the_process_that_made_the_flag_is_no_child() {
        let flag = ForkFlag::new().unwrap();
        assert!(!flag.is_child());
        assert!(ForkFlag { page: None, pid: flag.pid + 1 }.is_child());
    }
}
