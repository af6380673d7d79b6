//! The arena as a file: one sealed, sparse memfd that every rank of the node maps in parts.
//!
//! It holds a table of its regions and then the regions, all of one size. Nothing in it takes memory until it is
//! reserved, and what a region took is given back when its last user is gone.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags, SeekFrom};
use rustix::io::Errno;

use super::{limits, process};
use crate::Error;

/// Giving a file a size beyond `ulimit -f` is answered by a deadly signal, so it is asked before.
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
pub(crate) fn file_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Fsize).current
}

/// How the arena is called in `/proc`.
const ARENA_NAME: &str = "earlybird-arena";

/// The payload memory of a node: a sealed memfd.
#[derive(Debug)]
pub(crate) struct Arena {
    file: OwnedFd,
    bytes: usize,
}

/// What is left to others at least, where memory is short.
const LEFT_BYTES: u64 = 1 << 20;

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

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
        Ok(Arena { file, bytes })
    }

    /// The arena another rank created, after checking that it is one: nobody can shorten it under our mappings.
    pub fn adopt(file: OwnedFd, bytes: usize) -> Result<Arena, Error> {
        let size = rustix::fs::fstat(&file).map_err(|e| Error::system("looking at the arena", e))?.st_size;
        if size != bytes as i64 {
            return Err(Error::usage(format!("the arena received has {size} bytes where {bytes} were announced")));
        }
        match rustix::fs::fcntl_get_seals(&file) {
            Ok(seals) if seals.contains(SEALS) => Ok(Arena { file, bytes }),
            _ => Err(Error::usage("the arena received is not a memfd sealed against shrinking and growing")),
        }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether process `pid` has a part of the arena mapped; `None` where that may not be looked at.
    pub fn is_mapped_by(&self, pid: u32) -> Option<bool> {
        let inode = rustix::fs::fstat(&self.file).ok()?.st_ino;
        process::maps(pid, ARENA_NAME, inode)
    }

    /// Bytes of memory that the arena takes now.
    pub fn taken_bytes(&self) -> u64 {
        rustix::fs::fstat(&self.file).map_or(0, |meta| meta.st_blocks as u64 * 512)
    }

    /// Reserves memory for these page ranges, so that no access to them can fail later.
    pub fn reserve(&self, gaps: &[Range<usize>]) -> Result<(), Error> {
        // a signal makes the kernel undo and repeat a call: in steps, a profiler's timer cannot starve it
        const STEP: usize = 64 << 20;
        self.check_room(gaps)?;
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
        }
        Ok(())
    }

    /// Gives the memory of a page range back; it reads as zero from then on.
    pub fn give_back(&self, range: Range<usize>) -> Result<(), Error> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, how, range.start as u64, range.len() as u64))
            .map_err(|e| Error::system(format!("giving back {} bytes of the arena", range.len()), e))
    }

    /// Refuses what the node or its control groups could answer only with the out-of-memory killer.
    fn check_room(&self, gaps: &[Range<usize>]) -> Result<(), Error> {
        let Some(free) = limits::memory_available_bytes(Path::new("/")) else { return Ok(()) };
        // keep a little, so that the last byte is not taken from whoever else runs here, or from our own private memory
        let usable = free.saturating_sub((free / 32).max(LEFT_BYTES));
        let wanted: u64 = gaps.iter().map(Range::len).sum::<usize>() as u64;
        if wanted <= usable {
            return Ok(());
        }
        // another rank may have filled part of it already; the walk over the file is worth it only now
        let needed: u64 = gaps.iter().map(|gap| gap.len() as u64 - self.filled(gap)).sum();
        if needed <= usable { Ok(()) } else { Err(arena_full_with(needed, usable)) }
    }

    /// Bytes of a range that hold data already. The file offset this moves is used by nobody.
    pub fn filled(&self, range: &Range<usize>) -> u64 {
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
    fn what_is_given_back_takes_no_memory_and_is_zero() {
        let arena = Arena::create(1 << 20).unwrap();
        arena.reserve(std::slice::from_ref(&(0..65536))).unwrap();
        rustix::io::pwrite(arena.fd(), b"x", 4097).unwrap();
        assert_eq!((arena.taken_bytes(), arena.filled(&(0..1 << 20))), (65536, 4096));
        arena.give_back(4096..65536).unwrap();
        assert_eq!(arena.taken_bytes(), 4096);
        let mut byte = [7];
        rustix::io::pread(arena.fd(), &mut byte, 4097).unwrap();
        assert_eq!(byte, [0]);
    }
}
