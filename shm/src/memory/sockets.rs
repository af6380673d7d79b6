//! Sockets at which ranks meet: how they are made, and how others connect to them.

use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::descriptor::Descriptor;
use crate::Error;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 1024;
/// Time that a client waits for room in the queue of connections.
pub(super) const FULL: Duration = Duration::from_secs(1);
/// Pause before another look at a socket that is being made or closed.
pub(super) const PAUSE: Duration = Duration::from_micros(200);

/// Returns whether a user id is that of this process.
pub(super) fn is_own(uid: u32) -> bool {
    uid == rustix::process::geteuid().as_raw()
}

fn new_socket() -> rustix::io::Result<Descriptor> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map(Descriptor::from)
}

/// Makes a socket that listens at an address.
pub(super) fn listen_at(address: &SocketAddrUnix) -> rustix::io::Result<Descriptor> {
    let socket = new_socket()?;
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connects to an address, if a process listens there.
pub(super) fn connect_to(address: &SocketAddrUnix) -> Result<Option<Descriptor>, Error> {
    let socket = new_socket().map_err(|e| Error::system("making a socket", e))?;
    let since = Instant::now();
    loop {
        match socket.checked().and_then(|socket| rustix::net::connect(socket, address)) {
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
