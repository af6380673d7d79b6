//! Handing the arena's descriptor to the other ranks: over a unix socket, or through /proc where sockets do not work.
//!
//! The socket comes first because it needs neither a common pid namespace nor permission to look into another process.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
};

use super::roll;

/// Longest path that fits a unix socket address, without its final zero.
const SOCKET_PATH_MAX: usize = 107;

/// Address of the socket `name` in the open directory `dir`, which may have too long a path of its own.
fn address(dir: &OwnedFd, dir_path: &Path, name: &str) -> PathBuf {
    let direct = dir_path.join(name);
    if direct.as_os_str().len() <= SOCKET_PATH_MAX {
        direct
    } else {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd()))
    }
}

fn is_own_user(socket: &impl AsFd) -> bool {
    roll::peer_uid(socket).is_ok_and(|uid| uid == rustix::process::geteuid().as_raw())
}

/// The creator's side: gives the arena to everybody of the same user who knocks.
pub(crate) struct Door {
    listener: UnixListener,
    /// Those who have been served; a rank closes its end when it has attached, which ends the creator's wait.
    guests: Vec<UnixStream>,
}

impl Door {
    pub fn open(dir: &OwnedFd, dir_path: &Path, name: &str) -> std::io::Result<Door> {
        let listener = UnixListener::bind(address(dir, dir_path, name))?;
        listener.set_nonblocking(true)?;
        Ok(Door { listener, guests: Vec::new() })
    }

    /// Serves whoever knocks until something happens or `wait` is over.
    pub fn serve(&mut self, arena: &impl AsFd, wait: Duration) {
        let mut watched: Vec<PollFd<'_>> = vec![PollFd::new(&self.listener, PollFlags::IN)];
        watched.extend(self.guests.iter().map(|guest| PollFd::new(guest, PollFlags::IN)));
        let wait = rustix::event::Timespec::try_from(wait).ok();
        let happened = rustix::event::poll(&mut watched, wait.as_ref()).unwrap_or(0);
        let gone: Vec<bool> = watched[1..].iter().map(|guest| !guest.revents().is_empty()).collect();
        drop(watched);
        if happened == 0 {
            return;
        }
        let mut gone = gone.into_iter();
        self.guests.retain(|_| !gone.next().unwrap_or(false));
        while let Ok((guest, _)) = self.listener.accept() {
            // a guest that cannot be served closes or falls back to /proc: nothing to report here
            if is_own_user(&guest) && give(&guest, arena).is_ok() {
                self.guests.push(guest);
            }
        }
    }
}

fn give(guest: &UnixStream, arena: &impl AsFd) -> rustix::io::Result<()> {
    let descriptors = [arena.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(guest, &[IoSlice::new(b"A")], &mut ancillary, flags)).map(drop)
}

/// A rank's side of the socket; to be dropped only after the rank has attached.
pub(crate) struct Guest {
    socket: UnixStream,
}

impl Guest {
    pub fn knock(dir: &OwnedFd, dir_path: &Path, name: &str) -> std::io::Result<Guest> {
        let socket = UnixStream::connect(address(dir, dir_path, name))?;
        if !is_own_user(&socket) {
            return Err(std::io::Error::other("the other end of the socket belongs to another user"));
        }
        Ok(Guest { socket })
    }

    /// The arena; `Ok(None)` while it has not come within `wait`.
    pub fn receive(&self, wait: Duration) -> std::io::Result<Option<OwnedFd>> {
        let timeout = rustix::event::Timespec::try_from(wait).ok();
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        match rustix::event::poll(&mut watched, timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(None),
            Ok(_) => {}
            Err(e) => return Err(e.into()),
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        let flags = RecvFlags::CMSG_CLOEXEC;
        rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, flags)?;
        let mut descriptors = ancillary.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        descriptors.next().map(Some).ok_or_else(|| std::io::Error::other("the socket closed without a descriptor"))
    }
}

/// The arena through /proc: the same user, the same pid namespace, and a creator that may be looked into.
pub(crate) fn through_proc(pid: u32, descriptor: u64) -> std::io::Result<OwnedFd> {
    let path = format!("/proc/{pid}/fd/{descriptor}");
    Ok(std::fs::OpenOptions::new().read(true).write(true).open(path)?.into())
}
