//! Rendezvous of ranks that know only a key: a socket whose address follows from user and key.
//!
//! The address is abstract: a name that the kernel keeps per network namespace, that exists in no file system, that two
//! processes cannot both have, and that disappears with its process. So no election, lock or cleaning is needed. Ranks that
//! share no network namespace use a socket of the same name in a directory instead (`EARLYBIRD_DIR`).

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType};

use super::deadline::Deadline;
use super::{process, record_lock};
use crate::Error;

/// First part of the name of a socket in a directory.
const PREFIX: &str = "meet-";
/// Longest path that fits a socket address, without its final zero.
const SOCKET_PATH_MAX: usize = 107;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Time that a client waits for room in the queue of connections.
const FULL: Duration = Duration::from_secs(1);
/// Time that the files of a process may stay open after it is known to be dead.
const DYING: Duration = Duration::from_millis(500);
/// Pause before another look at a socket that is being made or closed.
const PAUSE: Duration = Duration::from_micros(200);

/// Role of a process at the rendezvous.
pub(crate) enum Role {
    /// The first one: it brings the ranks together.
    Server(Rendezvous),
    /// A later one: connected to the first.
    Client(OwnedFd),
}

/// The address of the rendezvous of one key.
#[derive(Clone)]
pub(crate) struct RendezvousAddress {
    /// Name of the abstract socket.
    name: String,
    dir: Option<PathBuf>,
    key: String,
}

/// The sockets at which ranks arrive.
pub(crate) struct Rendezvous {
    address: RendezvousAddress,
    abstract_socket: Option<OwnedFd>,
    in_directory: Option<DirectorySocket>,
}

/// A socket in a directory.
struct DirectorySocket {
    socket: OwnedFd,
    inode: u64,
}

impl RendezvousAddress {
    pub fn new(dir: Option<&Path>, key: &str) -> RendezvousAddress {
        let name = format!("earlybird-{}-{:032x}", rustix::process::geteuid().as_raw(), fnv1a_128(key.as_bytes()));
        RendezvousAddress { name, dir: dir.map(Path::to_path_buf), key: key.to_owned() }
    }

    fn abstract_address(&self) -> Result<SocketAddrUnix, Error> {
        SocketAddrUnix::new_abstract_name(self.name.as_bytes()).map_err(|e| Error::system("naming a socket", e))
    }

    fn file_name(&self) -> String {
        format!("{PREFIX}{:032x}", fnv1a_128(self.key.as_bytes()))
    }

    /// Enters the rendezvous: connects to the fd server, or becomes the fd server.
    pub fn enter(&self, deadline: &mut Deadline) -> Result<Role, Error> {
        loop {
            if let Some(socket) = self.connect()? {
                return Ok(Role::Client(socket));
            }
            let directory = self.dir.as_deref().map(|dir| Directory::open(dir, true)).transpose()?;
            if let Some(directory) = &directory {
                self.lock(directory, deadline)?;
                if let Some(socket) = self.connect()? {
                    return Ok(Role::Client(socket));
                }
            }
            if let Some(abstract_socket) = self.listen_abstract()? {
                let mut point = Rendezvous { address: self.clone(), abstract_socket, in_directory: None };
                if let Some(directory) = &directory {
                    point.in_directory = Some(self.listen_in(directory)?);
                }
                return Ok(Role::Server(point));
            }
            self.check(deadline, "another process is taking or leaving the rendezvous")?;
            std::thread::sleep(PAUSE);
        }
    }

    /// Connects to the fd server at the rendezvous, if there is one.
    pub fn connect(&self) -> Result<Option<OwnedFd>, Error> {
        if let Some(socket) = connect_to(&self.abstract_address()?)? {
            match record_lock::peer_uid(&socket) {
                Ok(uid) if is_own(uid) => return Ok(Some(socket)),
                Ok(uid) if self.dir.is_none() => {
                    return Err(Error::usage(format!(
                        "the rendezvous of the group {:?} is taken by user {uid}; give the job another name \
                         (EARLYBIRD_JOB), or all its ranks a directory of mode 0700 that belongs to you (EARLYBIRD_DIR)",
                        self.key
                    )));
                }
                _ => {}
            }
        }
        let Some(dir) = &self.dir else { return Ok(None) };
        match Directory::open(dir, false) {
            Ok(directory) => connect_to(&directory.address(&self.file_name())?),
            Err(_) if !dir.exists() => Ok(None), // before the first rank has come
            Err(error) => Err(error),
        }
    }

    /// Listens at the abstract socket; the inner `None` if another user has it, the outer one while it is being made or closed.
    fn listen_abstract(&self) -> Result<Option<Option<OwnedFd>>, Error> {
        match listen_at(&self.abstract_address()?) {
            Ok(socket) => Ok(Some(Some(socket))),
            Err(Errno::ADDRINUSE) => match connect_to(&self.abstract_address()?)? {
                // another rank's socket, which has just been made: ranks that were given different directories hold different locks
                Some(socket) if record_lock::peer_uid(&socket).is_ok_and(is_own) => Ok(None),
                Some(_) if self.dir.is_some() => Ok(Some(None)),
                _ => Ok(None),
            },
            Err(error) => Err(Error::system("making the socket at which ranks meet", error)),
        }
    }

    /// Listens at the socket in a locked directory, replacing the name that an ended process left there.
    fn listen_in(&self, directory: &Directory) -> Result<DirectorySocket, Error> {
        let name = self.file_name();
        let _ = rustix::fs::unlinkat(&directory.fd, &name, AtFlags::empty());
        let refused = |error| {
            Error::system(format!("making the socket {name} in {} (EARLYBIRD_DIR)", directory.path.display()), error)
        };
        let socket = listen_at(&directory.address(&name)?).map_err(refused)?;
        let inode = directory.inode(&name).ok_or_else(|| refused(Errno::NOENT))?;
        Ok(DirectorySocket { socket, inode })
    }

    fn lock(&self, directory: &Directory, deadline: &mut Deadline) -> Result<(), Error> {
        while !directory.try_lock()? {
            self.check(deadline, &format!("the lock of {} is held", directory.path.display()))?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn check(&self, deadline: &mut Deadline, why: &str) -> Result<(), Error> {
        deadline.check(|| format!("attach: {why} ({})", self.name), Vec::new, || true)
    }

    /// Removes the socket in the directory if no process listens on it any more. A dead process may still hold the socket or the
    /// lock for a moment, because it is known to be dead before its files are closed. So after a death this tries again until
    /// the name is gone, at most for [`DYING`].
    pub fn remove_leftover(&self, after_death: bool) {
        let Some(dir) = &self.dir else { return };
        let (name, since) = (self.file_name(), Instant::now());
        // The lock is released between two looks.
        let stays = |at: Directory| at.inode(&name).is_some() && !at.remove_dead(&name);
        while Directory::open(dir, false).is_ok_and(stays) && after_death && since.elapsed() < DYING {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Rendezvous {
    pub fn sockets(&self) -> impl Iterator<Item = &OwnedFd> {
        self.abstract_socket.iter().chain(self.in_directory.iter().map(|named| &named.socket))
    }

    /// Puts the socket in the directory back after another program has removed it, so that late ranks still find the others.
    pub fn restore(&mut self) -> Result<(), Error> {
        let (Some(named), Some(dir)) = (&self.in_directory, &self.address.dir) else { return Ok(()) };
        let file_name = self.address.file_name();
        if Directory::open(dir, false).is_ok_and(|directory| directory.inode(&file_name) == Some(named.inode)) {
            return Ok(());
        }
        let directory = Directory::open(dir, true)?;
        // the holder of the lock may be doing the same: the next check tells
        if directory.try_lock()? {
            if connect_to(&directory.address(&file_name)?)?.is_some() {
                return Err(Error::usage(format!(
                    "{} was removed while ranks were meeting there, and others have begun anew; exclude it from cleaning, \
                     or choose another directory (EARLYBIRD_DIR)",
                    dir.display()
                )));
            }
            self.in_directory = Some(self.address.listen_in(&directory)?);
        }
        Ok(())
    }

    /// Refuses further connections and removes the name. Waiting connections can still be accepted.
    pub fn close(&mut self) {
        for socket in self.sockets() {
            let _ = rustix::net::shutdown(socket, Shutdown::Read);
        }
        let (Some(named), Some(dir)) = (&self.in_directory, &self.address.dir) else { return };
        // By its path: a process that has no descriptor left removes its name too.
        let path = dir.join(self.address.file_name());
        // no rank replaces a name whose socket answers, and ours does until it is dropped
        if std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.ino() == named.inode) {
            let _ = std::fs::remove_file(&path);
        }
    }
}

pub(super) fn is_own(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw()
}

fn new_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn listen_at(address: &SocketAddrUnix) -> rustix::io::Result<OwnedFd> {
    let socket = new_socket()?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to an address, if a process listens there.
fn connect_to(address: &SocketAddrUnix) -> Result<Option<OwnedFd>, Error> {
    let socket = new_socket().map_err(|e| Error::system("making a socket", e))?;
    let since = Instant::now();
    loop {
        match rustix::net::connect(&socket, address) {
            Ok(()) => return Ok(Some(socket)),
            // PROTOTYPE: something of another program
            Err(Errno::CONNREFUSED | Errno::NOENT | Errno::NOTDIR | Errno::PROTOTYPE) => return Ok(None),
            // the queue is full, which ranks alone cannot cause
            Err(Errno::AGAIN) if since.elapsed() < FULL => std::thread::sleep(PAUSE),
            Err(Errno::INTR) => {}
            Err(error) => return Err(Error::system("connecting to the ranks that are already here", error)),
        }
    }
}

/// A rendezvous directory, known to belong to this user alone.
struct Directory {
    fd: OwnedFd,
    path: PathBuf,
}

impl Drop for Directory {
    /// Releases the lock explicitly: closing the descriptor would leave the lock to a child forked meanwhile.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

impl Directory {
    fn open(path: &Path, create: bool) -> Result<Directory, Error> {
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
            Ok(fd) => fd,
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
    fn address(&self, name: &str) -> Result<SocketAddrUnix, Error> {
        let direct = self.path.join(name);
        let path = match direct.as_os_str().len() <= SOCKET_PATH_MAX {
            true => direct,
            false => PathBuf::from(format!("/proc/self/fd/{}/{name}", self.fd.as_raw_fd())),
        };
        SocketAddrUnix::new(&path).map_err(|e| Error::system(format!("naming a socket in {}", self.path.display()), e))
    }

    fn inode(&self, name: &str) -> Option<u64> {
        rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok().map(|meta| meta.st_ino)
    }

    /// Takes the lock that protects the names in this directory, until this value is dropped.
    fn try_lock(&self) -> Result<bool, Error> {
        match rustix::fs::flock(&self.fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
            Err(e) => Err(Error::system(format!("locking {} (EARLYBIRD_DIR)", self.path.display()), e)),
        }
    }

    /// The names of sockets at which ranks met or meet.
    fn names(&self) -> Result<Vec<String>, Error> {
        let shown = self.path.display();
        let names = std::fs::read_dir(&self.path).map_err(|e| Error::system(format!("reading {shown}"), e))?;
        let ours = |name: &String| name.strip_prefix(PREFIX).is_some_and(|key| key.len() == 32);
        Ok(names.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).filter(ours).collect())
    }

    /// Returns whether the name exists and its creator has ended; a forked child may still have the socket.
    fn is_dead(&self, name: &str) -> bool {
        let is_orphan =
            |socket| record_lock::peer_process(&socket).is_some_and(|creator| process::runs(&creator) == Some(false));
        let found = || self.address(name).and_then(|address| connect_to(&address));
        self.inode(name).is_some() && found().is_ok_and(|socket| socket.is_none_or(is_orphan))
    }

    /// Removes the name if it [is dead](Directory::is_dead). Returns true if it did.
    fn remove_dead(&self, name: &str) -> bool {
        let lock = || self.try_lock().unwrap_or(false);
        lock() && self.is_dead(name) && rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()).is_ok()
    }
}

/// Removes the names that groups whose processes are all dead left in a rendezvous directory. Without a directory there are
/// none. Returns the names removed; those at which a living process listens stay.
pub fn sweep(dir: Option<&Path>) -> Result<Vec<PathBuf>, Error> {
    names_of_which(dir, Directory::remove_dead)
}

/// The names that groups whose processes are all dead left in a rendezvous directory, as [`sweep`] would remove them.
pub fn leftovers(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    names_of_which(Some(dir), Directory::is_dead)
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

/// Opens and closes a rendezvous as the first rank of a job would.
///
/// # Errors
/// The errors of joining that sockets or the directory cause.
pub fn try_out(dir: Option<&Path>) -> Result<(), Error> {
    let key = format!("try-{}", std::process::id());
    match RendezvousAddress::new(dir, &key).enter(&mut Deadline::new(Some(FULL)))? {
        Role::Server(mut rendezvous) => {
            rendezvous.close();
            Ok(())
        }
        Role::Client(_) => Err(Error::system("meeting", "another process of this user has the name of this one")),
    }
}

/// FNV-1a with 128 bits: the same in every build of every rank, which the standard library's hasher does not promise.
pub(crate) fn fnv1a_128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_the_published_one() {
        // test vectors of the FNV reference: the empty string and "foobar"
        assert_eq!(fnv1a_128(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a_128(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }

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

    #[test]
    fn what_a_dying_process_still_holds_is_removed_when_it_is_gone() {
        let dir = std::env::temp_dir().join(format!("earlybird-dying-{}", std::process::id()));
        let address = RendezvousAddress::new(Some(&dir), &format!("dying-{}", std::process::id()));
        let directory = Directory::open(&dir, true).unwrap();
        let name = address.file_name();
        drop(listen_at(&directory.address(&name).unwrap()).unwrap());
        assert!(directory.try_lock().unwrap());
        address.remove_leftover(false);
        assert!(directory.inode(&name).is_some(), "the lock is held, and nobody died");
        let dying = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            drop(directory);
        });
        address.remove_leftover(true);
        dying.join().unwrap();
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 0);
        std::fs::remove_dir(&dir).unwrap();
    }

    #[test]
    fn the_second_one_connects_to_the_first_until_that_closes() {
        let address = RendezvousAddress::new(None, &format!("test-{}", std::process::id()));
        let mut deadline = Deadline::new(None);
        let Ok(Role::Server(mut point)) = address.enter(&mut deadline) else { panic!("the rendezvous was free") };
        assert!(matches!(address.enter(&mut deadline), Ok(Role::Client(_))));
        // a rank that was given another directory saw nobody before the first one listened: it looks again, and serves nobody
        let dir = std::env::temp_dir();
        let elsewhere = RendezvousAddress { dir: Some(dir), ..address.clone() };
        assert!(elsewhere.listen_abstract().unwrap().is_none());
        point.close();
        assert!(address.connect().unwrap().is_none());
        drop(point);
        assert!(matches!(address.enter(&mut deadline), Ok(Role::Server(_))));
    }
}
