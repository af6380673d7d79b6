//! The mapping of the control segment, which has a name until everybody has attached.
//!
//! Every length is checked here before it becomes a pointer.
#![allow(unsafe_code)]

use std::ops::Deref;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use shared_memory::{Shmem, ShmemConf, ShmemError};

use super::arena::check_file_limit;
use super::control::{CONTROL_BYTES, Control};
use crate::Error;

/// What to do when /dev/shm is full.
const SHM_HINT: &str = "free space in /dev/shm (df /dev/shm, ls /dev/shm) or enlarge it (mount -o remount,size=64M /dev/shm; docker run --shm-size)";

/// The mapped control segment.
pub(crate) struct ControlMap {
    shmem: Shmem,
}

// SAFETY: the mapping is shared by processes anyway, so every word in it is an atomic; `Shmem` itself is only read
// (its address) until it is dropped, and dropping it from another thread unmaps and closes, which any thread may do.
unsafe impl Send for ControlMap {}
// SAFETY: as above: `&ControlMap` gives access to atomics only.
unsafe impl Sync for ControlMap {}

impl ControlMap {
    /// Creates the named segment, zeroed and with its memory reserved. Fails when the name is taken.
    pub fn create(name: &str) -> Result<ControlMap, Error> {
        check_file_limit(CONTROL_BYTES)?;
        let mut shmem = ShmemConf::new().os_id(name).size(CONTROL_BYTES).create().map_err(|e| refused(name, e))?;
        // its drop would unlink the name, which here is the meeting's business: a name may outlive its creator
        shmem.set_owner(false);
        let reserved = rustix::shm::open(name, rustix::shm::OFlags::RDWR, rustix::fs::Mode::empty())
            .map_err(|e| Error::system(format!("reopening the control segment {name}"), e))
            .and_then(|file| reserve_control(&file));
        match reserved {
            Ok(()) if shmem.len() >= CONTROL_BYTES => Ok(ControlMap { shmem }),
            Ok(()) => Err(Error::system("mapping the control segment", "the mapping is too short")),
            Err(error) => {
                let _ = rustix::shm::unlink(name);
                Err(error)
            }
        }
    }

    /// Opens the segment of another rank; `None` when there is none of that name.
    pub fn open(name: &str) -> Result<Option<ControlMap>, Error> {
        let context = || format!("opening the control segment /dev/shm{name}");
        let file = match rustix::shm::open(name, rustix::shm::OFlags::RDWR, rustix::fs::Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(e) => return Err(Error::system(context(), e)),
        };
        let meta = rustix::fs::fstat(&file).map_err(|e| Error::system(context(), e))?;
        let own = rustix::process::geteuid().as_raw();
        if meta.st_uid != own {
            return Err(Error::usage(format!(
                "the control segment /dev/shm{name} belongs to user {} and not to {own}; remove it or ask its owner to",
                meta.st_uid
            )));
        }
        if meta.st_size != CONTROL_BYTES as i64 {
            return Err(Error::usage(format!(
                "the control segment /dev/shm{name} has {} bytes where {CONTROL_BYTES} are expected; all ranks must run \
                 the same build of earlybird",
                meta.st_size
            )));
        }
        let shmem = ShmemConf::new().os_id(name).open().map_err(|e| refused(name, e))?;
        if shmem.len() < CONTROL_BYTES {
            return Err(Error::system(context(), "it shrank while it was opened"));
        }
        Ok(Some(ControlMap { shmem }))
    }
}

impl Deref for ControlMap {
    type Target = Control;
    fn deref(&self) -> &Control {
        // SAFETY: the mapping is at least CONTROL_BYTES long (checked at create and open), page-aligned, which is more
        // than Control's 128, stays mapped while `self` lives, and holds atomics only, for which every bit pattern is
        // a value and which other processes may change meanwhile.
        unsafe { &*self.shmem.as_ptr().cast::<Control>() }
    }
}

fn reserve_control(file: &OwnedFd) -> Result<(), Error> {
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, CONTROL_BYTES as u64)) {
        Ok(()) => Ok(()),
        Err(Errno::NOSPC | Errno::DQUOT) => Err(no_space(file, CONTROL_BYTES as u64, SHM_HINT)),
        Err(e) => Err(Error::system("reserving the control segment in /dev/shm", e)),
    }
}

fn refused(name: &str, error: ShmemError) -> Error {
    if let ShmemError::MapCreateFailed(code) | ShmemError::MapOpenFailed(code) | ShmemError::UnknownOsError(code) =
        error
    {
        let errno = Errno::from_raw_os_error(code as i32);
        if matches!(errno, Errno::NOSPC | Errno::DQUOT) {
            return Error::NoSpace { needed: CONTROL_BYTES as u64, free: 0, hint: SHM_HINT.into() };
        }
        return Error::system(format!("mapping the control segment /dev/shm{name}"), errno);
    }
    Error::system(format!("mapping the control segment /dev/shm{name}"), error)
}

/// A [`Error::NoSpace`] with the free bytes of the file system that `file` is on.
pub(crate) fn no_space(file: &impl AsFd, needed: u64, hint: &str) -> Error {
    let free = rustix::fs::fstatvfs(file).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    Error::NoSpace { needed, free, hint: hint.into() }
}
