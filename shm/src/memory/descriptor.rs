//! Descriptors of the library's files and sockets, which the program may close without asking.
//!
//! A program may close descriptors that it did not open (`close_range`, `closefrom`), and its next file gets the number. So a
//! [`Descriptor`] remembers device and inode, which are compared before each use and before it is closed. Dropping it closes no
//! file of the program's, and does not end a program that was built with debug assertions, in which the standard library aborts
//! where it would close what is not open. Between the comparison and the use lie some nanoseconds in which another thread
//! can still do both.
#![cfg_attr(test, allow(unsafe_code))]

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{Mode, OFlags, RawDir};
use rustix::io::Errno;

/// An owned descriptor that is used and closed only while it is what it was when it was made.
#[derive(Debug)]
pub(crate) struct Descriptor {
    /// Taken by the drop only.
    owned: Option<OwnedFd>,
    /// Device and inode; `None` if the descriptor was closed before they could be read.
    identity: Option<(u64, u64)>,
}

impl From<OwnedFd> for Descriptor {
    fn from(owned: OwnedFd) -> Descriptor {
        let identity = identity(owned.as_fd()).ok();
        Descriptor { owned: Some(owned), identity }
    }
}

impl Descriptor {
    /// The descriptor, if it is still the same. One system call.
    ///
    /// # Errors
    /// [`Errno::BADF`] if the program has closed it, [`Errno::STALE`] if another file has its number now.
    pub fn checked(&self) -> Result<BorrowedFd<'_>, Errno> {
        match identity(self.as_fd())? {
            found if Some(found) == self.identity => Ok(self.as_fd()),
            _ => Err(Errno::STALE),
        }
    }

    /// The inode; 0 if it is not known.
    pub fn inode(&self) -> u64 {
        self.identity.map_or(0, |(_, inode)| inode)
    }

    /// Lets another file take the number, as after `close_range`.
    #[cfg(test)]
    pub fn lose_to(&mut self, other: &OwnedFd) {
        rustix::io::dup2(other, self.owned.as_mut().expect("taken by the drop only")).unwrap();
    }

    /// Another descriptor of the same file or socket.
    pub fn try_clone(&self) -> Result<Descriptor, Errno> {
        rustix::io::fcntl_dupfd_cloexec(self.checked()?, 0).map(Descriptor::from)
    }
}

/// Reads a text, such as a file of `/proc`, as [`std::fs::read_to_string`] does.
pub(crate) fn read_text(path: impl AsRef<Path>) -> io::Result<String> {
    let file = rustix::fs::open(path.as_ref(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let (file, mut text, mut part) = (Descriptor::from(file), Vec::new(), [0; 4096]);
    loop {
        match rustix::io::retry_on_intr(|| rustix::io::read(file.checked()?, &mut part))? {
            0 => return String::from_utf8(text).map_err(io::Error::other),
            bytes => text.extend_from_slice(&part[..bytes]),
        }
    }
}

/// The names in a directory, such as one of `/proc`, but for `.` and `..`. [`std::fs::read_dir`] panics where another thread closes
/// its descriptor.
pub(crate) fn read_names(path: impl AsRef<Path>) -> Result<Vec<OsString>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = Descriptor::from(rustix::fs::open(path.as_ref(), flags, Mode::empty())?);
    let mut buffer = Vec::with_capacity(8192);
    let (mut entries, mut names) = (RawDir::new(directory.checked()?, buffer.spare_capacity_mut()), Vec::new());
    while let Some(entry) = entries.next() {
        let name = OsStr::from_bytes(entry?.file_name().to_bytes()).to_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
    }
    Ok(names)
}

/// Device and inode of what is open under a number.
fn identity(descriptor: BorrowedFd<'_>) -> Result<(u64, u64), Errno> {
    rustix::fs::fstat(descriptor).map(|meta| (meta.st_dev, meta.st_ino))
}

impl AsFd for Descriptor {
    /// The descriptor, unchecked: see [`Descriptor::checked`] where the program may have closed it.
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.owned {
            Some(owned) => owned.as_fd(),
            None => unreachable!("taken by the drop only"),
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        let is_ours = self.checked().is_ok();
        if let Some(owned) = self.owned.take().filter(|_| !is_ours) {
            let _ = owned.into_raw_fd();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, FromRawFd};

    /// A file under a number from `first` on: tests of one process run at the same time, so each has numbers of its own.
    fn file(name: &str, first: i32) -> OwnedFd {
        let file = rustix::fs::memfd_create(name, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::fcntl_dupfd_cloexec(file, first).unwrap()
    }

    #[test]
    fn the_file_that_has_the_number_now_stays_open() {
        let (mut ours, users) = (Descriptor::from(file("ours", 700)), file("users", 700));
        assert!(ours.checked().is_ok());
        ours.lose_to(&users);
        let number = ours.as_fd().as_raw_fd();
        assert_eq!((ours.checked().err(), ours.try_clone().err()), (Some(Errno::STALE), Some(Errno::STALE)));
        drop(ours);
        assert!(std::fs::read_link(format!("/proc/self/fd/{number}")).unwrap().to_string_lossy().contains("users"));
    }

    #[test]
    fn a_directory_is_read_as_the_standard_library_does() {
        let directory = std::env::temp_dir().join(format!("earlybird-names-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        // More than fit the buffer.
        (0..600).for_each(|i| std::fs::write(directory.join(format!("a-name-{i}")), "").unwrap());
        let sorted = |mut names: Vec<OsString>| (names.sort(), names).1;
        let listed = std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        let read = read_names(&directory).unwrap();
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!((read.len(), sorted(read) == sorted(listed)), (600, true));
        assert_eq!(read_names(&directory), Err(Errno::NOENT));
    }

    /// In builds with debug assertions the standard library ends a program that closes what is not open.
    #[test]
    fn a_number_that_is_not_open_is_not_closed() {
        let ours = Descriptor::from(file("ours", 800));
        // SAFETY: the number is closed behind its owner's back, as `close_range` does; no memory is touched.
        drop(unsafe { OwnedFd::from_raw_fd(ours.as_fd().as_raw_fd()) });
        assert_eq!(ours.checked().err(), Some(Errno::BADF));
        drop(ours);
    }
}
