//! The arena as a file: one sealed, sparse memfd that every rank of the node maps in parts.
//!
//! It holds a table of its regions and then the regions, all of one size. Nothing in it takes memory until it is
//! reserved, and what a region took is given back when its last user is gone.
//!
//! The program may close the descriptor, so each use checks it ([`Descriptor`]); a mapping is checked again afterwards, and is
//! never one of another file.

use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;

use super::descriptor::Descriptor;
use super::{limits, process};
use crate::Error;

/// Refuses a file size beyond `ulimit -f`, which the kernel would answer with a deadly signal.
pub(crate) fn check_file_limit(bytes: usize) -> Result<(), Error> {
    match file_limit() {
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

/// The largest file that this process may make, bytes.
pub fn file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// Name of the arena in `/proc`.
pub const ARENA_NAME: &str = "earlybird-arena";

/// The payload memory of a node: a sealed memfd.
#[derive(Debug)]
pub(crate) struct Arena {
    file: Descriptor,
    bytes: usize,
}

/// Bytes of free memory that a reservation leaves to other programs at least.
const LEFT_BYTES: u64 = 1 << 20;

/// Seals of the memory files: no process can shrink or grow them, or change the seals.
pub(super) const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Arena {
    /// A new arena of `bytes` (a multiple of the page) that takes no memory yet.
    pub fn create(bytes: usize) -> Result<Arena, Error> {
        check_file_limit(bytes)?;
        let base = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = match rustix::fs::memfd_create(ARENA_NAME, base | MemfdFlags::NOEXEC_SEAL) {
            // kernels before 6.3 do not know the flag
            Err(Errno::INVAL) => rustix::fs::memfd_create(ARENA_NAME, base),
            other => other,
        };
        let file = match file {
            Ok(file) => Descriptor::from(file),
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
        set_size(&file, bytes).map_err(|e| Error::system(format!("giving the arena its size of {bytes} bytes"), e))?;
        file.checked()
            .and_then(|file| rustix::fs::fcntl_add_seals(file, SEALS))
            .map_err(|e| Error::system("sealing the arena", e))?;
        Ok(Arena { file, bytes })
    }

    /// Adopts the arena that another rank created, after checking its seals: no process can shorten it under a mapping.
    pub fn adopt(file: Descriptor, bytes: usize) -> Result<Arena, Error> {
        let size = rustix::fs::fstat(&file).map_err(|e| Error::system("looking at the arena", e))?.st_size;
        if size != bytes as i64 {
            return Err(Error::usage(format!("the arena received has {size} bytes where {bytes} were announced")));
        }
        match rustix::fs::fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(SEALS) => Ok(Arena { file, bytes }),
            _ => Err(Error::usage("the arena received is not a memfd sealed against shrinking and growing")),
        }
    }

    /// The descriptor, unchecked: see [`Arena::checked_fd`] where the program may have closed it.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The descriptor, if it is still the arena's. One system call.
    ///
    /// # Errors
    /// [`Error::System`] when this program has closed it, even if another file has its number now.
    pub fn checked_fd(&self) -> Result<BorrowedFd<'_>, Error> {
        self.file.checked().map_err(|errno| {
            let now = if errno == Errno::STALE { "is another file now" } else { "is not open any more" };
            Error::system(
                "using the arena's descriptor",
                format!(
                    "it was closed by this program (close_range, closefrom?): descriptor {} {now}; keep the descriptors \
                     that the program did not open itself",
                    self.fd().as_raw_fd()
                ),
            )
        })
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Returns whether process `pid` has a part of the arena mapped; `None` without permission to look.
    pub fn is_mapped_by(&self, pid: u32) -> Option<bool> {
        process::maps(pid, ARENA_NAME, self.file.inode())
    }

    /// Bytes of memory in use by the arena; 0 when this process has lost its descriptor.
    pub fn taken_bytes(&self) -> u64 {
        let meta = self.file.checked().and_then(rustix::fs::fstat);
        meta.map_or(0, |meta| meta.st_blocks as u64 * 512)
    }

    /// Takes memory for a page range, so that no access to it can fail later, on kernels that cannot do so by a mapping
    /// ([`super::region::populate`]).
    ///
    /// # Errors
    /// [`Error::NoSpace`]; the errors of [`Arena::checked_fd`].
    pub fn reserve(&self, range: Range<usize>) -> Result<(), Error> {
        // a signal makes the kernel undo and repeat a call: in steps, a profiler's timer cannot starve it
        const STEP: usize = 64 << 20;
        for start in range.clone().step_by(STEP) {
            let bytes = STEP.min(range.end - start);
            let file = self.checked_fd()?;
            let step = || rustix::fs::fallocate(file, FallocateFlags::empty(), start as u64, bytes as u64);
            match rustix::io::retry_on_intr(step) {
                Ok(()) => {}
                Err(Errno::NOSPC | Errno::NOMEM) => return Err(arena_full(bytes as u64)),
                Err(e) => return Err(Error::system(format!("reserving {bytes} bytes of the arena"), e)),
            }
        }
        Ok(())
    }

    /// Refuses a reservation that the node or its control groups could answer only with the out-of-memory killer.
    pub fn check_room(&self, gaps: &[Range<usize>]) -> Result<(), Error> {
        let wanted: u64 = gaps.iter().map(Range::len).sum::<usize>() as u64;
        if limits::is_covered(wanted) {
            return Ok(());
        }
        let Some(free) = limits::read_memory_available() else { return Ok(()) };
        // keep a little, so that the last byte is not taken from other programs, or from our own private memory
        let usable = free.saturating_sub((free / 32).max(LEFT_BYTES));
        if wanted <= usable {
            return Ok(());
        }
        // another rank may have filled part of it already; the walk over the file is worth it only now
        let needed: u64 = gaps.iter().map(|gap| gap.len() as u64 - self.filled(gap)).sum();
        if needed <= usable { Ok(()) } else { Err(arena_full_with(needed, usable)) }
    }

    /// Bytes of a range that hold data already. Moves the file offset, which nothing else uses.
    pub fn filled(&self, range: &Range<usize>) -> u64 {
        let (mut at, end, mut filled) = (range.start as u64, range.end as u64, 0);
        let Ok(file) = self.checked_fd() else { return 0 };
        while at < end {
            let Ok(data) = rustix::fs::seek(file, SeekFrom::Data(at)) else { break };
            if data >= end {
                break;
            }
            let Ok(hole) = rustix::fs::seek(file, SeekFrom::Hole(data)) else { break };
            filled += hole.min(end).saturating_sub(data);
            at = hole.max(data + 1);
        }
        filled
    }
}

/// Gives a new memory file its size.
pub(super) fn set_size(file: &Descriptor, bytes: usize) -> Result<(), Errno> {
    check_new(file)?;
    rustix::fs::ftruncate(file.checked()?, bytes as u64)
}

/// Refuses what is no new memory file: a file of the program's may have taken the number before the descriptor knew what it was. Only
/// memory files have seals, and those of a tmpfs are sealed against more of them.
fn check_new(file: &Descriptor) -> Result<(), Errno> {
    match rustix::fs::fcntl_get_seals(file.checked()?)?.contains(SealFlags::SEAL) {
        true => Err(Errno::STALE),
        false => Ok(()),
    }
}

pub(super) fn arena_full(needed: u64) -> Error {
    arena_full_with(needed, limits::memory_available_bytes(Path::new("/")).unwrap_or(0))
}

fn arena_full_with(needed: u64, free: u64) -> Error {
    Error::NoSpace {
        needed,
        free,
        hint: "set EARLYBIRD_ARENA_MAX lower, send smaller messages, or raise the memory limit of the job".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_the_programs_is_no_new_memory_file() {
        let new = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        assert_eq!(check_new(&new.into()), Ok(()));
        for directory in [Path::new("/dev/shm"), &std::env::temp_dir(), Path::new(env!("CARGO_MANIFEST_DIR"))] {
            let path = directory.join(format!("earlybird-program-{}", std::process::id()));
            let file = std::fs::File::create_new(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            assert!(check_new(&Descriptor::from(std::os::fd::OwnedFd::from(file))).is_err(), "{directory:?}");
        }
    }

    #[test]
    fn an_arena_that_could_shrink_is_refused() {
        let file = rustix::fs::memfd_create("t", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        assert_eq!(Arena::adopt(file.into(), 4096).err().map(|e| e.code()), Some("EB_USAGE"));
        let arena = Arena::create(8192).unwrap();
        let copy = arena.fd().try_clone_to_owned().unwrap();
        assert_eq!(Arena::adopt(copy.into(), 4096).err().map(|e| e.code()), Some("EB_USAGE"));
        assert!(rustix::fs::ftruncate(arena.fd(), 4096).is_err());
        assert!(rustix::fs::ftruncate(arena.fd(), 16384).is_err());
    }

    /// A program that closes descriptors it did not open, and then opens a file of its own.
    #[test]
    fn another_file_under_the_arenas_number_is_left_alone() {
        let arena = Arena::create(1 << 20).unwrap();
        arena.reserve(0..8192).unwrap();
        let other = rustix::fs::memfd_create("data", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::pwrite(&other, &[7; 4096], 0).unwrap();
        let (keep, number) = (arena.fd().try_clone_to_owned().unwrap(), arena.fd().as_raw_fd());
        let mut place = arena;
        place.file.lose_to(&other);

        let lost = place.reserve(0..65536).unwrap_err().to_string();
        assert!(lost.contains(&format!("descriptor {number} is another file now")), "{lost}");
        assert!(lost.contains("closed by this program (close_range, closefrom?)"), "{lost}");
        assert_eq!((place.taken_bytes(), place.filled(&(0..8192))), (0, 0));
        drop(place);
        let mut bytes = [0; 8192];
        assert_eq!(rustix::io::pread(&other, &mut bytes, 0).unwrap(), 4096);
        assert!(bytes[..4096].iter().all(|byte| *byte == 7), "the other file has lost nothing");
        assert_eq!(rustix::fs::fstat(&keep).unwrap().st_blocks, 16, "nor has the arena");
        // It is not closed either, since it is not the arena's.
        assert!(std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap().to_string_lossy().contains("data"));
    }
}
