//! A file of this process alone, mapped as words: its contents survive the process, however that ends.
//!
//! The kernel keeps the pages of a shared mapping after a crash or SIGKILL and writes them to the file. All of the file's
//! space is taken when it is created, so that a full disk is an error there and no SIGBUS at a later store.
#![allow(unsafe_code)]

use crate::Error;
use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, Mode, OFlags};
use rustix::io::Errno;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::AtomicU64;

/// The words of a file.
#[derive(Debug)]
pub struct MappedFile {
    map: MmapRaw,
    words: usize,
}

impl MappedFile {
    /// Creates a file of `words` zeros that only this user reads. A file that has the name loses it and is otherwise left
    /// alone: another process may still have it mapped.
    ///
    /// # Errors
    /// [`Error::NoSpace`] where the file system has no room; [`Error::System`] for a path that cannot be written.
    pub fn create(path: &Path, words: usize) -> Result<MappedFile, Error> {
        let refused = |error: Errno| Error::system(format!("creating {}", path.display()), error);
        match rustix::fs::unlink(path) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(refused(error)),
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map_err(refused)?;
        let bytes = words * size_of::<u64>();
        reserve(&file, bytes as u64).map_err(|error| match error {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => {
                let free = rustix::fs::fstatvfs(&file).map_or(0, |fs| fs.f_bavail * fs.f_frsize);
                let hint = format!("the file is {}: choose another directory or a smaller size", path.display());
                let _ = rustix::fs::unlink(path);
                Error::NoSpace { needed: bytes as u64, free, hint }
            }
            error => refused(error),
        })?;
        let map = MmapOptions::new().len(bytes).map_raw(&file.as_fd());
        let map = map.map_err(|error| Error::system(format!("mapping {}", path.display()), error))?;
        // Optional: without it the first store to each page causes a page fault.
        let _ = map.advise(Advice::PopulateWrite);
        Ok(MappedFile { map, words })
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: W: the mapping has `words` words, page-aligned, and lives as long as `self`; they are touched as atomics
        // only, for which every bit pattern is valid.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().cast::<AtomicU64>(), self.words) }
    }
}

/// Takes the space of a file; writes it where the file system cannot reserve.
fn reserve(file: &OwnedFd, bytes: u64) -> Result<(), Errno> {
    match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes)) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
            let zeros = [0; 1 << 16];
            let mut at = 0;
            while at < bytes {
                let part = &zeros[..zeros.len().min((bytes - at) as usize)];
                at += rustix::io::retry_on_intr(|| rustix::io::pwrite(file, part, at))? as u64;
            }
            Ok(())
        }
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn words_are_in_the_file_and_an_older_file_keeps_its_own() {
        let path = std::env::temp_dir().join(format!("earlybird-mapped-{}", std::process::id()));
        let old = MappedFile::create(&path, 1000).unwrap();
        let file = MappedFile::create(&path, 3).unwrap();
        old.words()[0].store(1, Relaxed);
        file.words()[2].store(7, Relaxed);
        let read = std::fs::read(&path).unwrap();
        assert_eq!((read.len(), &read[16..], read[0]), (24, &7u64.to_ne_bytes()[..], 0));
        let reserved = Errno::from_io_error(&reserve_too_much(&path)).unwrap();
        assert!(matches!(reserved, Errno::NOSPC | Errno::FBIG | Errno::INVAL), "{reserved}");
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(MappedFile::create(&path.join("below"), 1), Err(Error::System { .. })));
    }

    fn reserve_too_much(path: &Path) -> std::io::Error {
        let file = OwnedFd::from(std::fs::File::options().write(true).open(path).unwrap());
        reserve(&file, 1 << 60).unwrap_err().into()
    }
}
