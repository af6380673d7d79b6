//! Where ranks that know nothing but a key find each other: a directory of their user and one locked file per key.
//!
//! The file holds the random name of the group's control segment. Whoever holds its lock (a record lock on one byte)
//! may create, join, finish or clean; the claimed ranks hold a lock on the byte of their number, so that a file whose
//! owners are all dead is recognised without asking about process ids. A file is never reused: it is unlinked, last of
//! all that it names, and later arrivals make a new one.

use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::control::MAX_RANKS;
use super::control_map::no_space;
use super::patience::Patience;
use super::roll;
use crate::Error;

/// The byte of a rendezvous file that is locked by whoever changes what the file stands for.
const LOCK_BYTE: usize = 4096;
const PREFIX: &str = "meet-";
/// `earlybird 1 ` + 32 hexadecimal digits + ` open\n` (or `done`).
const NOTE_BYTES: usize = 12 + 32 + 6;

/// The rendezvous files that this process has open: opening one twice would lose its locks when either is closed.
static OPEN: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

/// Process, device and inode of the directory (which may have several paths), name of the file.
type Entry = (u32, u64, u64, String);

struct Entered(Entry);

impl Entered {
    fn new(directory: &Directory, name: &str) -> Option<Entered> {
        let me = (std::process::id(), directory.device, directory.inode, name.to_owned());
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        if open.contains(&me) {
            return None;
        }
        open.push(me.clone());
        Some(Entered(me))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|entry| *entry != self.0);
    }
}

/// The random 128-bit name of one group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Token(u128);

impl Token {
    fn random() -> Result<Token, Error> {
        let mut bytes = [0u8; 16];
        rustix::io::retry_on_intr(|| rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()))
            .map_err(|e| Error::system("drawing a random name", e))?;
        Ok(Token(u128::from_ne_bytes(bytes)))
    }

    /// Name of the control segment, as shm_open wants it.
    pub fn control_name(self) -> String {
        format!("/earlybird-{:032x}", self.0)
    }

    /// Name of the socket in the meeting directory; short, since socket addresses are.
    pub fn door_name(self) -> String {
        format!("door-{:016x}", self.0 as u64)
    }
}

/// What a rendezvous file stands for, as found under its lock.
pub(crate) enum Found {
    /// Nothing yet: the finder creates the group.
    Fresh,
    /// A group with at least one living process.
    Live(Token),
    /// Left behind by the dead, or by a group that has finished meeting.
    Stale(Option<Token>),
}

/// A meeting directory, known to be ours alone.
struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    device: u64,
    inode: u64,
    /// Ours to remove when empty: the default one is, one that the user named is not.
    removable: bool,
}

impl Directory {
    fn open(dir: Option<&Path>) -> Result<Directory, Error> {
        let own = rustix::process::geteuid().as_raw();
        let removable = dir.is_none();
        let path = dir.map_or_else(|| PathBuf::from(format!("/dev/shm/earlybird-{own}")), Path::to_path_buf);
        let shown = path.display();
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
            Err(e) => return Err(Error::system(format!("creating the meeting directory {shown} (EARLYBIRD_DIR)"), e)),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let refuse = |why: String| {
            Error::usage(format!(
                "the meeting directory {shown} {why}; set EARLYBIRD_DIR to a directory of mode 0700 that belongs to you, \
                 or to a name that does not exist yet"
            ))
        };
        let fd = match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::LOOP | Errno::NOTDIR) => return Err(refuse("is a symbolic link or not a directory".into())),
            // removed between the two calls by a group that has just met
            Err(Errno::NOENT) => return Directory::open(dir),
            Err(e) => return Err(Error::system(format!("opening the meeting directory {shown} (EARLYBIRD_DIR)"), e)),
        };
        let meta = rustix::fs::fstat(&fd).map_err(|e| Error::system(format!("looking at {shown}"), e))?;
        if meta.st_uid != own {
            return Err(refuse(format!("belongs to user {} and not to {own}", meta.st_uid)));
        }
        if meta.st_mode & 0o077 != 0 {
            return Err(refuse(format!("has mode {:04o} and is open to others", meta.st_mode & 0o7777)));
        }
        Ok(Directory { fd, path, device: meta.st_dev, inode: meta.st_ino, removable })
    }

    fn remove_if_empty(&self) {
        if self.removable {
            // not empty, or gone already: somebody else's matter
            let _ = rustix::fs::rmdir(&self.path);
        }
    }
}

/// An open rendezvous file. Its record locks live as long as this does.
pub(crate) struct Meeting {
    dir: Directory,
    name: String,
    // dropped, and with it closed, before the registry forgets that it is open
    file: OwnedFd,
    _entered: Entered,
}

impl Meeting {
    /// Opens or makes the file of `key` and locks it.
    pub fn enter(dir: Option<&Path>, key: &str, patience: &mut Patience) -> Result<Meeting, Error> {
        let name = format!("{PREFIX}{:032x}", fnv1a_128(key.as_bytes()));
        loop {
            let directory = Directory::open(dir)?;
            let path = directory.path.join(&name);
            let Some(entered) = Entered::new(&directory, &name) else {
                return Err(Error::usage(format!(
                    "another thread of process {} is joining the group {key:?} right now; one process is one rank, join once",
                    std::process::id()
                )));
            };
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = match rustix::fs::openat(&directory.fd, &name, flags, Mode::RUSR | Mode::WUSR) {
                Ok(file) => file,
                // the directory was removed, as it was empty, by a group that has just met
                Err(Errno::NOENT) => continue,
                Err(Errno::NOSPC | Errno::DQUOT) => return Err(full(&directory.fd)),
                Err(e) => return Err(Error::system(format!("opening the rendezvous file {}", path.display()), e)),
            };
            let meeting = Meeting { dir: directory, name: name.clone(), file, _entered: entered };
            meeting.lock(patience)?;
            if meeting.is_linked()? {
                return Ok(meeting);
            }
        }
    }

    pub fn file(&self) -> &OwnedFd {
        &self.file
    }

    pub fn dir(&self) -> (&OwnedFd, &Path) {
        (&self.dir.fd, &self.dir.path)
    }

    pub fn path(&self) -> PathBuf {
        self.dir.path.join(&self.name)
    }

    fn is_linked(&self) -> Result<bool, Error> {
        let meta = rustix::fs::fstat(&self.file).map_err(|e| Error::system("looking at the rendezvous file", e))?;
        Ok(meta.st_nlink > 0)
    }

    fn lock(&self, patience: &mut Patience) -> Result<(), Error> {
        let mut pause = std::time::Duration::from_micros(50);
        while !roll::try_take(&self.file, LOCK_BYTE)? {
            let holder = || match roll::holder(&self.file, LOCK_BYTE, 1) {
                Ok(Some(pid)) if pid > 0 => {
                    format!("attach: process {pid} holds the lock of {}", self.path().display())
                }
                _ => format!("attach: the lock of {}", self.path().display()),
            };
            patience.check(holder, Vec::new, || true)?;
            std::thread::sleep(pause);
            pause = (pause * 2).min(std::time::Duration::from_millis(1));
        }
        Ok(())
    }

    pub fn unlock(&self) {
        roll::give_back(&self.file, LOCK_BYTE);
    }

    /// What the locked file stands for.
    pub fn look(&self) -> Result<Found, Error> {
        let mut text = [0u8; NOTE_BYTES + 1];
        let read = rustix::io::retry_on_intr(|| rustix::io::pread(&self.file, &mut text, 0))
            .map_err(|e| Error::system(format!("reading the rendezvous file {}", self.path().display()), e))?;
        let note = parse_note(&text[..read]);
        let alive = roll::holder(&self.file, 0, MAX_RANKS).unwrap_or(None);
        match (note, alive) {
            (_, None) if read == 0 => Ok(Found::Fresh),
            (Some((token, true)), Some(_)) => Ok(Found::Live(token)),
            (Some((token, _)), _) => Ok(Found::Stale(Some(token))),
            (None, None) => Ok(Found::Stale(None)),
            (None, Some(pid)) => Err(Error::usage(format!(
                "{} is not a rendezvous file of this version, and process {pid} uses it; stop that process, remove the \
                 file, or set EARLYBIRD_DIR to another directory",
                self.path().display()
            ))),
        }
    }

    /// Draws the group's name and writes it down, before anything of that name exists.
    pub fn found_group(&self) -> Result<Token, Error> {
        let token = Token::random()?;
        let text = format!("earlybird 1 {:032x} open\n", token.0);
        match rustix::io::retry_on_intr(|| rustix::io::pwrite(&self.file, text.as_bytes(), 0)) {
            Ok(written) if written == text.len() => Ok(token),
            Ok(_) | Err(Errno::NOSPC | Errno::DQUOT) => Err(full(&self.file)),
            Err(e) => Err(Error::system(format!("writing the rendezvous file {}", self.path().display()), e)),
        }
    }

    /// Removes all that a locked file names, then the file. Killed half-way, the rest can still be found by its name.
    pub fn remove(&self, token: Option<Token>) {
        if let Some(token) = token {
            // who comes while this is half done must not look for a segment that is gone
            let _ = rustix::io::pwrite(&self.file, b"done", NOTE_BYTES as u64 - 5);
            let _ = rustix::shm::unlink(token.control_name());
            let _ = rustix::fs::unlinkat(&self.dir.fd, token.door_name(), AtFlags::empty());
        }
        let _ = rustix::fs::unlinkat(&self.dir.fd, &self.name, AtFlags::empty());
        self.unlock();
        self.dir.remove_if_empty();
    }

    /// After everybody attached: whoever sees it first removes the traces. Nobody returns from attach before that.
    pub fn finish(&self, token: Token, patience: &mut Patience) -> Result<(), Error> {
        while self.is_linked()? {
            self.lock(patience)?;
            if self.is_linked()? {
                self.remove(Some(token));
            } else {
                self.unlock();
            }
        }
        Ok(())
    }

    /// After a failure: the last one out removes the traces. `rank` is the claim to give up, if one was made.
    pub fn abandon(&self, rank: usize, claimed: bool, patience: &mut Patience) {
        if claimed {
            roll::give_back(&self.file, rank);
        }
        if self.lock(patience).is_err() || !self.is_linked().unwrap_or(false) {
            return;
        }
        if let Ok(Found::Stale(token)) = self.look() {
            self.remove(token);
        } else if let Ok(Found::Fresh) = self.look() {
            self.remove(None);
        } else {
            self.unlock();
        }
    }
}

fn full(file: &OwnedFd) -> Error {
    no_space(file, 4096, "free space in /dev/shm, or set EARLYBIRD_DIR to a directory with free space")
}

fn parse_note(text: &[u8]) -> Option<(Token, bool)> {
    let text = std::str::from_utf8(text).ok()?;
    let (digits, state) = text.strip_prefix("earlybird 1 ")?.split_once(' ')?;
    if digits.len() != 32 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let token = Token(u128::from_str_radix(digits, 16).ok()?);
    match state {
        "open\n" => Some((token, true)),
        "done\n" => Some((token, false)),
        _ => None,
    }
}

/// FNV-1a with 128 bits: the same in every build of every rank, which the standard library's hasher does not promise.
fn fnv1a_128(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, |hash: u128, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
    })
}

/// Removes what groups whose processes are all dead left in a meeting directory (`None`: the default one), and the
/// segments it names. Returns the rendezvous files removed. Files that a living process uses or has locked stay.
pub fn sweep(dir: Option<&Path>) -> Result<Vec<PathBuf>, Error> {
    let own = rustix::process::geteuid().as_raw();
    let path = dir.map_or_else(|| PathBuf::from(format!("/dev/shm/earlybird-{own}")), Path::to_path_buf);
    if std::fs::symlink_metadata(&path).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        return Ok(Vec::new());
    }
    let checked = Directory::open(dir)?;
    let names: Vec<String> = std::fs::read_dir(&path)
        .map_err(|e| Error::system(format!("reading {}", path.display()), e))?
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.strip_prefix(PREFIX).is_some_and(|key| key.len() == 32))
        .collect();
    let mut removed = Vec::new();
    for name in names {
        let directory = Directory::open(dir)?;
        let Some(entered) = Entered::new(&directory, &name) else { continue };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Ok(file) = rustix::fs::openat(&directory.fd, &name, flags, Mode::empty()) else { continue };
        let meeting = Meeting { dir: directory, name, file, _entered: entered };
        if !roll::try_take(&meeting.file, LOCK_BYTE)? || !meeting.is_linked()? {
            continue;
        }
        match meeting.look() {
            Ok(Found::Stale(token)) => meeting.remove(token),
            Ok(Found::Fresh) => meeting.remove(None),
            Ok(Found::Live(_)) | Err(_) => continue,
        }
        removed.push(meeting.path());
    }
    checked.remove_if_empty();
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_strictly() {
        let good = b"earlybird 1 000102030405060708090a0b0c0d0e0f open\n";
        assert_eq!(good.len(), NOTE_BYTES);
        let token = Token(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
        assert_eq!(parse_note(good), Some((token, true)));
        let mut done = *good;
        done[NOTE_BYTES - 5..NOTE_BYTES - 1].copy_from_slice(b"done");
        assert_eq!(parse_note(&done), Some((token, false)));
        assert_eq!(parse_note(&good[..NOTE_BYTES - 1]), None);
        assert_eq!(parse_note(b"earlybird 2 000102030405060708090a0b0c0d0e0f open\n"), None);
        assert_eq!(parse_note(b"earlybird 1 +00102030405060708090a0b0c0d0e0f open\n"), None);
        assert_eq!(parse_note(b"earlybird 1 ../../../../../../../../../../../etc open\n"), None);
        assert_eq!(parse_note(&[0xff; NOTE_BYTES]), None);
    }

    #[test]
    fn the_hash_is_the_published_one() {
        // test vectors of the FNV reference: the empty string and "foobar"
        assert_eq!(fnv1a_128(b""), 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d);
        assert_eq!(fnv1a_128(b"foobar"), 0x343e_1662_793c_64bf_6f0d_3597_ba44_6f18);
    }
}
