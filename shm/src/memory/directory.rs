//! A directory in which ranks meet that share no network namespace, and the names of sockets in it.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;

use super::control::Identity;
use super::descriptor::{Descriptor, read_names};
use super::sockets::connect_to;
use super::{process, record_lock};
use crate::Error;

/// First part of the name of a socket in a directory.
pub(super) const PREFIX: &str = "meet-";
/// Longest path that fits a socket address, without its final zero.
const SOCKET_PATH_MAX: usize = 107;

/// A rendezvous directory, known to belong to this user alone.
pub(super) struct Directory {
    fd: Descriptor,
    pub path: PathBuf,
}

impl Drop for Directory {
    /// Releases the lock explicitly: closing the descriptor would leave the lock to a child forked meanwhile.
    fn drop(&mut self) {
        let _ = self.fd.checked().and_then(|fd| rustix::fs::flock(fd, FlockOperation::Unlock));
    }
}

impl Directory {
    pub fn open(path: &Path, create: bool) -> Result<Directory, Error> {
        let own = rustix::process::geteuid().as_raw();
        let shown = path.display();
        match DirBuilder::new().mode(0o700).create(path) {
            _ if !create => {}
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => {
                return Err(Error::system(format!("creating the rendezvous directory {shown} (EARLYBIRD_DIR)"), e));
            }
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let refuse = |why: String| {
            Error::usage(format!(
                "the rendezvous directory {shown} {why}; set EARLYBIRD_DIR to a directory of mode 0700 that belongs to you, \
                 or to a name that does not exist yet"
            ))
        };
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Descriptor::from(fd),
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(refuse("is a symbolic link or not a directory".into())),
            Err(e) => {
                return Err(Error::system(format!("opening the rendezvous directory {shown} (EARLYBIRD_DIR)"), e));
            }
        };
        let meta = rustix::fs::fstat(&fd).map_err(|e| Error::system(format!("looking at {shown}"), e))?;
        if meta.st_uid != own {
            return Err(refuse(format!("belongs to user {} and not to {own}", meta.st_uid)));
        }
        if meta.st_mode & 0o077 != 0 {
            return Err(refuse(format!("has mode {:04o} and is open to others", meta.st_mode & 0o7777)));
        }
        Ok(Directory { fd, path: path.to_path_buf() })
    }

    /// Address of the socket `name` in this directory, which may have too long a path of its own.
    pub fn address(&self, name: &str) -> Result<SocketAddrUnix, Error> {
        let direct = self.path.join(name);
        let path = match direct.as_os_str().len() <= SOCKET_PATH_MAX {
            true => direct,
            false => PathBuf::from(format!("/proc/self/fd/{}/{name}", self.fd.as_fd().as_raw_fd())),
        };
        SocketAddrUnix::new(&path).map_err(|e| Error::system(format!("naming a socket in {}", self.path.display()), e))
    }

    pub fn inode(&self, name: &str) -> Option<u64> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|meta| meta.st_ino)
    }

    /// Takes the lock that protects the names in this directory, until this value is dropped.
    pub fn try_lock(&self) -> Result<bool, Error> {
        match self.fd.checked().and_then(|fd| rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
            Err(e) => Err(Error::system(format!("locking {} (EARLYBIRD_DIR)", self.path.display()), e)),
        }
    }

    /// The names of sockets at which ranks met or meet.
    fn names(&self) -> Result<Vec<String>, Error> {
        let shown = self.path.display();
        let names = read_names(&self.path).map_err(|e| Error::system(format!("reading {shown}"), e))?;
        let ours = |name: &String| name.strip_prefix(PREFIX).is_some_and(|key| key.len() == 32);
        Ok(names.into_iter().filter_map(|name| name.into_string().ok()).filter(ours).collect())
    }

    /// Returns whether the name exists and its creator has ended; a forked child may still have the socket. `creator` is the process
    /// found by an earlier look: nobody connects again while it runs, as connections fill a queue that a dying process does not empty.
    fn is_dead(&self, name: &str, creator: &mut Option<Identity>) -> bool {
        if self.inode(name).is_none() || !creator.as_ref().is_none_or(process::has_ended) {
            return false;
        }
        match self.address(name).and_then(|address| connect_to(&address)) {
            Ok(Some(socket)) => {
                *creator = record_lock::peer_process(&socket);
                creator.as_ref().is_some_and(process::has_ended)
            }
            Ok(None) => true,
            Err(_) => false,
        }
    }

    /// Removes a name. Returns true if it did.
    pub fn remove(&self, name: &str) -> bool {
        rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()).is_ok()
    }

    /// Removes the name if it [is dead](Directory::is_dead). Returns true if it did.
    pub fn remove_dead(&self, name: &str, creator: &mut Option<Identity>) -> bool {
        let lock = || self.try_lock().unwrap_or(false);
        lock() && self.is_dead(name, creator) && self.remove(name)
    }
}

/// Removes the names that groups whose processes are all dead left in a rendezvous directory. Without a directory there are
/// none. Returns the names removed; those at which a living process listens stay.
pub fn sweep(dir: Option<&Path>) -> Result<Vec<PathBuf>, Error> {
    names_of_which(dir, |directory, name| directory.remove_dead(name, &mut None))
}

/// The names that groups whose processes are all dead left in a rendezvous directory, as [`sweep`] would remove them.
pub fn leftovers(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    names_of_which(Some(dir), |directory, name| directory.is_dead(name, &mut None))
}

fn names_of_which(dir: Option<&Path>, holds: fn(&Directory, &str) -> bool) -> Result<Vec<PathBuf>, Error> {
    let Some(dir) = dir else { return Ok(Vec::new()) };
    if std::fs::symlink_metadata(dir).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let directory = Directory::open(dir, false)?;
    let names = directory.names()?;
    Ok(names.into_iter().filter(|name| holds(&directory, name)).map(|name| dir.join(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_a_forked_child_has_too_is_released() {
        let path = std::env::temp_dir().join(format!("earlybird-locked-{}", std::process::id()));
        let open = || Directory::open(&path, true).unwrap();
        let (locked, other) = (open(), open());
        assert!(locked.try_lock().unwrap() && !other.try_lock().unwrap());
        let _of_the_child = locked.fd.try_clone().unwrap();
        drop(locked);
        assert!(other.try_lock().unwrap());
        std::fs::remove_dir(&path).unwrap();
    }
}
