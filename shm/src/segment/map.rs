//! The mappings: the control segment by name and the arena as a sealed memfd.
//!
//! Every raw pointer of the segment comes from here, and every length is checked here before it becomes a pointer.
#![allow(unsafe_code)]

use std::ops::{Deref, Range};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, PoisonError};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;
use shared_memory::{Shmem, ShmemConf, ShmemError};

use super::control::{CONTROL_BYTES, Control};
use super::limits;
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

/// Giving a file a size beyond `ulimit -f` is answered by a deadly signal, so it is asked before.
fn check_file_limit(bytes: usize) -> Result<(), Error> {
    match rustix::process::getrlimit(rustix::process::Resource::Fsize).current {
        Some(limit) if limit < bytes as u64 => Err(Error::NoSpace {
            needed: bytes as u64,
            free: limit,
            hint:
                "the file size limit of this process is too low (ulimit -f); raise it or set EARLYBIRD_ARENA_MAX lower"
                    .into(),
        }),
        _ => Ok(()),
    }
}

/// A [`Error::NoSpace`] with the free bytes of the file system that `file` is on.
pub(crate) fn no_space(file: &impl AsFd, needed: u64, hint: &str) -> Error {
    let free = rustix::fs::fstatvfs(file).map_or(0, |fs| fs.f_bavail.saturating_mul(fs.f_frsize));
    Error::NoSpace { needed, free, hint: hint.into() }
}

/// The payload memory: one sealed memfd, mapped once over its whole, mostly unreserved, range.
pub(crate) struct Arena {
    file: OwnedFd,
    map: MmapRaw,
    /// Page ranges that this process knows to be reserved, ascending and disjoint.
    reserved: Mutex<Vec<Range<usize>>>,
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Arena {
    /// A new arena of `bytes` (a multiple of the page) that takes no memory yet.
    pub fn create(bytes: usize) -> Result<Arena, Error> {
        check_file_limit(bytes)?;
        let base = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match rustix::fs::memfd_create("earlybird-arena", base | MemfdFlags::NOEXEC_SEAL) {
            // kernels before 6.3 do not know the flag
            Err(Errno::INVAL) => rustix::fs::memfd_create("earlybird-arena", base),
            other => other,
        };
        let file = match file {
            Ok(file) => file,
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS) => {
                return Err(Error::Unsupported {
                    what: "memfd_create in this process".into(),
                    hint:
                        "allow it in the container's system call filter; earlybird keeps its payload in a sealed memfd"
                            .into(),
                });
            }
            Err(e) => return Err(Error::system("creating the arena (memfd_create)", e)),
        };
        rustix::fs::ftruncate(&file, bytes as u64)
            .map_err(|e| Error::system(format!("giving the arena its size of {bytes} bytes"), e))?;
        rustix::fs::fcntl_add_seals(&file, SEALS).map_err(|e| Error::system("sealing the arena", e))?;
        Arena::map(file, bytes)
    }

    /// The arena another rank created, after checking that it is one: nobody can shorten it under our mapping.
    pub fn adopt(file: OwnedFd, bytes: usize) -> Result<Arena, Error> {
        let size = rustix::fs::fstat(&file).map_err(|e| Error::system("looking at the arena", e))?.st_size;
        if size != bytes as i64 {
            return Err(Error::usage(format!("the arena received has {size} bytes where {bytes} were announced")));
        }
        match rustix::fs::fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(SEALS) => Arena::map(file, bytes),
            _ => Err(Error::usage("the arena received is not a memfd sealed against shrinking and growing")),
        }
    }

    fn map(file: OwnedFd, bytes: usize) -> Result<Arena, Error> {
        let map = MmapOptions::new().len(bytes).no_reserve_swap().map_raw(&file).map_err(|e| {
            Error::system(
                format!(
                    "mapping {bytes} bytes of address space for the arena (see ulimit -v; EARLYBIRD_ARENA_MAX sets it)"
                ),
                e,
            )
        })?;
        Ok(Arena { file, map, reserved: Mutex::new(Vec::new()) })
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// `range` widened to whole pages, or an error when it is not inside the arena.
    fn pages(&self, range: &Range<usize>) -> Result<Range<usize>, Error> {
        if range.start > range.end || range.end > self.len() {
            return Err(Error::usage(format!(
                "the byte range {}..{} is not inside the arena of {} bytes",
                range.start,
                range.end,
                self.len()
            )));
        }
        let page = rustix::param::page_size();
        Ok(range.start / page * page..range.end.next_multiple_of(page).min(self.len()))
    }

    /// Reserves memory for a range, so that no access to it can fail later.
    pub fn reserve(&self, range: Range<usize>) -> Result<(), Error> {
        // a signal makes the kernel undo and repeat a call: in steps, a profiler's timer cannot starve it
        const STEP: usize = 64 << 20;
        let range = self.pages(&range)?;
        let mut reserved = self.reserved.lock().unwrap_or_else(PoisonError::into_inner);
        let gaps = missing(&reserved, &range);
        if gaps.is_empty() {
            return Ok(());
        }
        self.check_room(&gaps)?;
        for gap in gaps {
            for start in gap.clone().step_by(STEP) {
                let bytes = STEP.min(gap.end - start);
                let step = || rustix::fs::fallocate(&self.file, FallocateFlags::empty(), start as u64, bytes as u64);
                match rustix::io::retry_on_intr(step) {
                    Ok(()) => {}
                    Err(Errno::NOSPC | Errno::NOMEM) => return Err(arena_full(bytes as u64)),
                    Err(e) => return Err(Error::system(format!("reserving {bytes} bytes of the arena"), e)),
                }
            }
            insert(&mut reserved, gap);
        }
        Ok(())
    }

    /// Refuses what the node or its control groups could answer only with the out-of-memory killer.
    fn check_room(&self, gaps: &[Range<usize>]) -> Result<(), Error> {
        let Some(free) = limits::memory_available_bytes(Path::new("/")) else { return Ok(()) };
        // keep a little, so that the last byte is not taken from whoever else runs here
        let usable = free - free / 32;
        let wanted: u64 = gaps.iter().map(Range::len).sum::<usize>() as u64;
        if wanted <= usable {
            return Ok(());
        }
        // another rank may have filled part of it already; the walk over the file is worth it only now
        let needed: u64 = gaps.iter().map(|gap| gap.len() as u64 - self.filled(gap)).sum();
        if needed <= usable { Ok(()) } else { Err(arena_full(needed)) }
    }

    /// Bytes of a range that hold data already. The file offset this moves is used by nobody.
    fn filled(&self, range: &Range<usize>) -> u64 {
        let (mut at, end, mut filled) = (range.start as u64, range.end as u64, 0);
        while at < end {
            let Ok(data) = rustix::fs::seek(&self.file, SeekFrom::Data(at)) else { break };
            if data >= end {
                break;
            }
            let Ok(hole) = rustix::fs::seek(&self.file, SeekFrom::Hole(data)) else { break };
            filled += hole.min(end).saturating_sub(data);
            at = hole.max(data + 1);
        }
        filled
    }

    /// Makes the pages of a range present for writing, or only for reading, in this process.
    pub fn populate(&self, range: Range<usize>, write: bool) -> Result<(), Error> {
        let range = self.pages(&range)?;
        if range.is_empty() {
            return Ok(());
        }
        let advice = if write { Advice::PopulateWrite } else { Advice::PopulateRead };
        loop {
            let Err(error) = self.map.advise_range(advice, range.start, range.len()) else { return Ok(()) };
            match Errno::from_io_error(&error) {
                Some(Errno::INTR | Errno::AGAIN) => {}
                // kernels before 5.14 do not know the advice
                Some(Errno::INVAL) => break,
                Some(Errno::NOMEM | Errno::FAULT) => return Err(arena_full(range.len() as u64)),
                _ => return Err(Error::system(format!("populating {} bytes of the arena", range.len()), error)),
            }
        }
        self.touch(range, write);
        Ok(())
    }

    fn touch(&self, range: Range<usize>, write: bool) {
        for offset in range.step_by(rustix::param::page_size()) {
            // SAFETY: `offset` is inside the mapping (the range came from `pages`), which cannot shrink (sealed), and
            // bytes shared with other processes are only ever touched as atomics here.
            let byte = unsafe { AtomicU8::from_ptr(self.map.as_mut_ptr().add(offset)) };
            if write {
                byte.fetch_or(0, Ordering::Relaxed);
            } else {
                std::hint::black_box(byte.load(Ordering::Relaxed));
            }
        }
    }
}

fn arena_full(needed: u64) -> Error {
    Error::NoSpace {
        needed,
        free: limits::memory_available_bytes(Path::new("/")).unwrap_or(0),
        hint: "set EARLYBIRD_ARENA_MAX lower, send smaller messages, or raise the memory limit of the job".into(),
    }
}

/// The parts of `range` that no element of `known` (ascending, disjoint) covers.
fn missing(known: &[Range<usize>], range: &Range<usize>) -> Vec<Range<usize>> {
    let mut gaps = Vec::new();
    let mut at = range.start;
    for part in known.iter().filter(|part| part.end > range.start && part.start < range.end) {
        if part.start > at {
            gaps.push(at..part.start);
        }
        at = at.max(part.end);
    }
    if at < range.end {
        gaps.push(at..range.end);
    }
    gaps
}

/// Adds a range to an ascending, disjoint list, joining neighbours.
fn insert(known: &mut Vec<Range<usize>>, range: Range<usize>) {
    known.push(range);
    known.sort_by_key(|part| part.start);
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(known.len());
    for part in known.drain(..) {
        match joined.last_mut() {
            Some(last) if part.start <= last.end => last.end = last.end.max(part.end),
            _ => joined.push(part),
        }
    }
    *known = joined;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_ranges_join_and_leave_gaps() {
        let mut known = Vec::new();
        assert_eq!(missing(&known, &(0..10)), vec![0..10]);
        insert(&mut known, 4..6);
        insert(&mut known, 8..9);
        assert_eq!(missing(&known, &(0..10)), vec![0..4, 6..8, 9..10]);
        assert!(missing(&known, &(4..6)).is_empty());
        assert_eq!(missing(&known, &(5..9)), vec![6..8]);
        insert(&mut known, 6..8);
        assert_eq!(known, vec![4..9]);
    }

    #[test]
    fn an_arena_that_could_shrink_is_refused() {
        let file = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert_eq!(Arena::adopt(file, 4096).err().map(|e| e.code()), Some("EB_USAGE"));
        let arena = Arena::create(8192).unwrap();
        let copy = arena.fd().try_clone_to_owned().unwrap();
        assert_eq!(Arena::adopt(copy, 4096).err().map(|e| e.code()), Some("EB_USAGE"));
        assert!(rustix::fs::ftruncate(arena.fd(), 4096).is_err());
        assert!(rustix::fs::ftruncate(arena.fd(), 16384).is_err());
    }

    #[test]
    fn reserving_takes_memory_and_touching_keeps_contents() {
        let arena = Arena::create(1 << 20).unwrap();
        let blocks = || rustix::fs::fstat(arena.fd()).unwrap().st_blocks * 512;
        assert_eq!(blocks(), 0);
        arena.reserve(5000..9000).unwrap();
        assert_eq!(blocks(), 8192);
        arena.reserve(4096..12288).unwrap();
        assert_eq!(blocks(), 8192);
        arena.populate(0..20000, true).unwrap();
        assert_eq!(arena.filled(&(0..1 << 20)), 20480);
        // SAFETY: inside the mapping, no other thread or process has it.
        unsafe { arena.as_ptr().add(4096).write(7) };
        arena.touch(0..20480, true);
        arena.touch(0..20480, false);
        // SAFETY: as above.
        assert_eq!(unsafe { arena.as_ptr().add(4096).read() }, 7);
        assert_eq!(arena.reserve(0..(1 << 20) + 1).unwrap_err().code(), "EB_USAGE");
        assert_eq!(arena.populate(0..(1 << 20) + 1, true).unwrap_err().code(), "EB_USAGE");
    }

    #[test]
    fn an_absurd_wish_is_refused_and_takes_nothing() {
        let arena = Arena::create(1 << 45).unwrap();
        match arena.reserve(0..1 << 45).unwrap_err() {
            Error::NoSpace { needed, free, hint } => {
                assert_eq!(needed, 1 << 45);
                assert!(free > 0 && free < needed);
                assert!(hint.contains("EARLYBIRD_ARENA_MAX"));
            }
            other => panic!("{other}"),
        }
        assert_eq!(rustix::fs::fstat(arena.fd()).unwrap().st_blocks, 0);
    }
}
