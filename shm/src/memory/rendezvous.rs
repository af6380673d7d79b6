//! Rendezvous of ranks that know only a key: a socket whose address follows from user and key.
//!
//! The address is abstract: a name that the kernel keeps per network namespace, that exists in no file system, that two
//! processes cannot both have, and that disappears with its process. So no election, lock or cleaning is needed. Ranks that
//! share no network namespace use a socket of the same name in a directory instead (`EARLYBIRD_DIR`).

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{Shutdown, SocketAddrUnix};

use super::attach_errors::died;
use super::deadline::Deadline;
use super::descriptor::Descriptor;
use super::directory::{Directory, PREFIX};
use super::sockets::{FULL, PAUSE, connect_to, is_own, listen_at};
use super::{Absent, record_lock};
use crate::Error;

/// Time that the files of a process may stay open after it is known to be dead.
const DYING: Duration = Duration::from_millis(500);

/// Role of a process at the rendezvous.
pub(crate) enum Role {
    /// The first one: it brings the ranks together.
    Server(Rendezvous),
    /// A later one: connected to the first.
    Client(Descriptor),
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
    abstract_socket: Option<Descriptor>,
    in_directory: Option<DirectorySocket>,
}

/// A socket in a directory.
struct DirectorySocket {
    socket: Descriptor,
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

    /// Enters the rendezvous: connects to the fd server, or becomes the fd server. Fails if a rank is absent while another process
    /// is in the way: a child of that rank may have inherited its lock.
    pub fn enter(&self, deadline: &mut Deadline, absent: Absent<'_>) -> Result<Role, Error> {
        loop {
            if let Some(socket) = self.connect()? {
                return Ok(Role::Client(socket));
            }
            let directory = self.dir.as_deref().map(|dir| Directory::open(dir, true)).transpose()?;
            if let Some(directory) = &directory {
                self.lock(directory, deadline, absent)?;
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
            self.check(deadline, absent, "another process is taking or leaving the rendezvous")?;
            std::thread::sleep(PAUSE);
        }
    }

    /// Connects to the fd server at the rendezvous, if there is one.
    pub fn connect(&self) -> Result<Option<Descriptor>, Error> {
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
    fn listen_abstract(&self) -> Result<Option<Option<Descriptor>>, Error> {
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
        directory.remove(&name);
        let refused = |error| {
            Error::system(format!("making the socket {name} in {} (EARLYBIRD_DIR)", directory.path.display()), error)
        };
        let socket = listen_at(&directory.address(&name)?).map_err(refused)?;
        let inode = directory.inode(&name).ok_or_else(|| refused(Errno::NOENT))?;
        Ok(DirectorySocket { socket, inode })
    }

    fn lock(&self, directory: &Directory, deadline: &mut Deadline, absent: Absent<'_>) -> Result<(), Error> {
        while !directory.try_lock()? {
            self.check(deadline, absent, &format!("the lock of {} is held", directory.path.display()))?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn check(&self, deadline: &mut Deadline, absent: Absent<'_>, why: &str) -> Result<(), Error> {
        deadline.check(|| format!("attach: {why} ({})", self.name), Vec::new, || true)?;
        absent().map_or(Ok(()), |rank| Err(died(rank, 0)))
    }

    /// Removes the socket in the directory if no process listens on it any more. A dead process may still hold the socket or the
    /// lock for a moment, because it is known to be dead before its files are closed. So after a death this tries again until
    /// the name is gone, at most for [`DYING`].
    pub fn remove_leftover(&self, after_death: bool) {
        let Some(dir) = &self.dir else { return };
        let (name, since, mut creator) = (self.file_name(), Instant::now(), None);
        // The lock is released between two looks.
        let mut stays = |at: Directory| at.inode(&name).is_some() && !at.remove_dead(&name, &mut creator);
        while Directory::open(dir, false).is_ok_and(&mut stays) && after_death && since.elapsed() < DYING {
            std::thread::sleep(PAUSE);
        }
    }
}

impl Rendezvous {
    pub fn sockets(&self) -> impl Iterator<Item = &Descriptor> {
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
        for socket in self.sockets().flat_map(Descriptor::checked) {
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

/// Opens and closes a rendezvous as the first rank of a job would.
///
/// # Errors
/// The errors of joining that sockets or the directory cause.
pub fn try_out(dir: Option<&Path>) -> Result<(), Error> {
    let key = format!("try-{}", std::process::id());
    match RendezvousAddress::new(dir, &key).enter(&mut Deadline::new(Some(FULL)), &|| None)? {
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
    fn a_lock_that_a_child_of_a_dead_rank_keeps_is_not_waited_for() {
        let dir = std::env::temp_dir().join(format!("earlybird-kept-{}", std::process::id()));
        let kept = Directory::open(&dir, true).unwrap();
        assert!(kept.try_lock().unwrap());
        let address = RendezvousAddress::new(Some(&dir), &format!("kept-{}", std::process::id()));
        let entered = address.enter(&mut Deadline::new(None), &|| Some(3));
        assert!(matches!(entered, Err(Error::PeerDied { rank: 3, .. })));
        std::fs::remove_dir(&dir).unwrap();
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
    fn a_creator_that_does_not_answer_is_asked_once_for_its_name() {
        let dir = std::env::temp_dir().join(format!("earlybird-asked-{}", std::process::id()));
        let address = RendezvousAddress::new(Some(&dir), &format!("asked-{}", std::process::id()));
        let directory = Directory::open(&dir, true).unwrap();
        let socket = listen_at(&directory.address(&address.file_name()).unwrap()).unwrap();
        address.remove_leftover(true);
        let accepted = (0..).take_while(|_| rustix::net::accept(&socket).is_ok()).count();
        assert_eq!(accepted, 1);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_second_one_connects_to_the_first_until_that_closes() {
        let address = RendezvousAddress::new(None, &format!("test-{}", std::process::id()));
        let mut deadline = Deadline::new(None);
        let Ok(Role::Server(mut point)) = address.enter(&mut deadline, &|| None) else {
            panic!("the rendezvous was free")
        };
        assert!(matches!(address.enter(&mut deadline, &|| None), Ok(Role::Client(_))));
        // a rank that was given another directory saw nobody before the first one listened: it looks again, and serves nobody
        let dir = std::env::temp_dir();
        let elsewhere = RendezvousAddress { dir: Some(dir), ..address.clone() };
        assert!(elsewhere.listen_abstract().unwrap().is_none());
        point.close();
        assert!(address.connect().unwrap().is_none());
        drop(point);
        assert!(matches!(address.enter(&mut deadline, &|| None), Ok(Role::Server(_))));
    }
}
