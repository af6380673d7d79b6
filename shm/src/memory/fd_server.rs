//! The fd server: the first rank at the rendezvous passes the descriptors of control segment and arena to the others.
//!
//! It serves a limited number of connections at a time, so neither descriptors nor the cost of a poll grow with the number of
//! ranks. A rank keeps its connection until it has attached: one that closes earlier has died.

use std::collections::HashSet;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    SocketFlags,
};

use super::attach_errors::connection_lost;
use super::control::Identity;
use super::descriptor::Descriptor;
use super::headroom::Headroom;
use super::messages::{self, Answer, Message, Statement};
use super::rendezvous::Rendezvous;
use super::sockets;
use super::{process, record_lock};
use crate::Error;

/// Connections that are served at a time; the others wait in the kernel.
const MOST_CONNECTIONS: usize = 32;
/// Bytes of the largest message.
const MESSAGE_BYTES: usize = 12 << 10;
/// Time that a closed server waits for messages of connected processes.
const DRAIN: Duration = Duration::from_secs(1);
/// Interval at which a wait for a message asks whether the process at the other end has ended.
const ASK_EVERY: Duration = Duration::from_millis(10);

/// The group behind an fd server: it answers messages and owns the descriptors.
pub(crate) trait FdServerHandler {
    /// Answers a message; `None` where none is expected.
    fn answer(&mut self, message: Message) -> Option<Answer>;
    /// Handles the closed connection of a rank that was welcomed.
    fn closed(&mut self, rank: &Statement);
    /// Control segment and arena.
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;
}

struct Connection {
    socket: Descriptor,
    /// The rank at the other end, once it was welcomed.
    rank: Option<Statement>,
}

/// The sockets at which ranks arrive, and those being served.
pub(crate) struct FdServer {
    point: Rendezvous,
    connections: Vec<Connection>,
    /// A spare descriptor: closed when the process has no more, so that all ranks can be answered even then.
    spare: Option<Descriptor>,
}

impl FdServer {
    pub fn new(point: Rendezvous) -> FdServer {
        let spare = point.sockets().next().and_then(|socket| socket.try_clone().ok());
        FdServer { point, connections: Vec::new(), spare }
    }

    /// Serves connections until something happens or `wait` is over.
    pub fn serve(&mut self, host: &mut impl FdServerHandler, wait: Duration) -> Result<(), Error> {
        let sockets = self.point.sockets().filter(|_| self.connections.len() < MOST_CONNECTIONS);
        let mut watched: Vec<PollFd<'_>> =
            self.connections.iter().map(|c| PollFd::new(&c.socket, PollFlags::IN)).collect();
        watched.extend(sockets.map(|socket| PollFd::new(socket, PollFlags::IN)));
        let timeout = Timespec::try_from(wait).ok();
        let ready = match rustix::event::poll(&mut watched, timeout.as_ref()) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => watched.iter().map(|fd| !fd.revents().is_empty()).collect::<Vec<_>>(),
            Err(error) => return Err(Error::system("waiting for the other ranks (poll)", error)),
        };
        let mut ready = ready.into_iter();
        let mut kept = Vec::new();
        for connection in std::mem::take(&mut self.connections) {
            match ready.next() {
                Some(true) => kept.extend(answer_one(connection, host)?),
                _ => kept.push(connection),
            }
        }
        self.connections = kept;
        if ready.any(|socket| socket) { self.accept() } else { Ok(()) }
    }

    fn accept(&mut self) -> Result<(), Error> {
        for socket in self.point.sockets() {
            while self.connections.len() < MOST_CONNECTIONS {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let accepted = socket.checked().and_then(|socket| rustix::net::accept_with(socket, flags));
                match accepted.map(Descriptor::from) {
                    Ok(socket) if record_lock::peer_uid(&socket).is_ok_and(sockets::is_own) => {
                        self.connections.push(Connection { socket, rank: None });
                    }
                    Ok(_stranger) => {}
                    Err(Errno::AGAIN) => break,
                    Err(Errno::INTR | Errno::CONNABORTED) => {}
                    Err(error) => {
                        return Err(Error::system("accepting the connection of another rank", error));
                    }
                }
            }
        }
        Ok(())
    }

    /// Restores the rendezvous if late ranks cannot find it any more.
    pub fn restore(&mut self) -> Result<(), Error> {
        self.point.restore()
    }

    /// Ends the rendezvous: no name is left, and every process that is already connected gets `answer`.
    pub fn end(mut self, answer: &Answer) {
        self.point.close();
        self.spare = None;
        let until = Instant::now() + DRAIN;
        let mut last = LastAnswer { answer, answered: HashSet::new() };
        // welcomed ranks read the control segment
        self.connections.retain(|connection| connection.rank.is_none());
        let _ = self.accept();
        while let Some(connection) = self.connections.pop() {
            wait_for_message(&connection.socket, until);
            let _ = answer_one(connection, &mut last);
            let _ = self.accept();
        }
    }

    /// Answers all ranks with the error for which none can join: for `time`, or until `ranks` processes have been answered.
    /// `answered` are those that were before; a process that connects again counts once.
    pub fn refuse(mut self, error: &Error, ranks: usize, answered: HashSet<Identity>, time: Duration) {
        let _room = Headroom::take();
        let (until, answer) = (Instant::now() + time, Answer::Failed(error.clone()));
        let mut last = LastAnswer { answer: &answer, answered };
        while last.answered.len() < ranks {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.serve(&mut last, left).is_err() {
                break;
            }
        }
        self.end(&answer);
    }
}

/// One answer for all clients.
struct LastAnswer<'a> {
    answer: &'a Answer,
    /// The processes that have had it.
    answered: HashSet<Identity>,
}

impl FdServerHandler for LastAnswer<'_> {
    fn answer(&mut self, message: Message) -> Option<Answer> {
        self.answered.extend(message.sender());
        match self.answer {
            Answer::Failed(error) => Some(Answer::Failed(error.clone())),
            _ => Some(Answer::Over),
        }
    }
    fn closed(&mut self, _: &Statement) {}
    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }
}

/// Reads the message on a connection and answers it. Returns the connection if it stays open.
fn answer_one(mut connection: Connection, host: &mut impl FdServerHandler) -> Result<Option<Connection>, Error> {
    let bytes = match receive(&connection.socket) {
        Ok(Some((bytes, _))) => bytes,
        Ok(None) => return Ok(Some(connection)),
        Err(error) if is_hangup(error) => Vec::new(),
        Err(error) => return Err(connection_lost(error)),
    };
    let message = messages::decode(&bytes);
    let statement = if let Some(Message::Join(statement)) = &message { Some(statement.clone()) } else { None };
    match message.and_then(|message| host.answer(message)) {
        Some(Answer::Welcome) => {
            match send(&connection.socket, &messages::encode(&Answer::Welcome), &host.descriptors()) {
                Ok(()) => {
                    connection.rank = statement;
                    return Ok(Some(connection));
                }
                Err(error) if is_hangup(error) => connection.rank = statement,
                Err(error) => return Err(Error::system("sending the arena to another rank", error)),
            }
        }
        // a process that does not receive the answer has ended
        Some(answer) => drop(send(&connection.socket, &messages::encode(&answer), &[])),
        None => {}
    }
    connection.rank.iter().for_each(|rank| host.closed(rank));
    Ok(None)
}

/// Sends one message.
pub(crate) fn send(socket: &Descriptor, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() {
        ancillary.push(SendAncillaryMessage::ScmRights(descriptors));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let socket = socket.checked()?;
    let call = || rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags);
    rustix::io::retry_on_intr(call).map(drop)
}

/// Receives the next message with its descriptors; `None` while there is none, no bytes when the other end has closed.
pub(crate) fn receive(socket: &Descriptor) -> rustix::io::Result<Option<(Vec<u8>, Vec<Descriptor>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; MESSAGE_BYTES];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received =
        match rustix::net::recvmsg(socket.checked()?, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Ok(message) => message.bytes,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error),
        };
    let descriptors = ancillary.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(rights) => rights.map(Descriptor::from).collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let descriptors = descriptors.collect();
    Ok(Some((bytes[..received].to_vec(), descriptors)))
}

/// Returns whether a failed call means that the other end has closed the connection, and not that this end is broken.
pub(crate) fn is_hangup(error: Errno) -> bool {
    matches!(error, Errno::PIPE | Errno::CONNRESET)
}

/// Waits until a message has come, at most `wait`. Returns whether there is something to receive, if only the end of the connection.
pub(crate) fn wait_for(socket: &Descriptor, wait: Duration) -> bool {
    let timeout = Timespec::try_from(wait).ok();
    rustix::event::poll(&mut [PollFd::new(socket, PollFlags::IN)], timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Waits until a message has come. Returns false if none has come by `until`, or none will: the process at the other end has
/// ended, and a child that it forked keeps the connection open.
pub(crate) fn wait_for_message(socket: &Descriptor, until: Instant) -> bool {
    let sender = record_lock::peer_process(socket);
    loop {
        // Before the look at the socket, so that a message sent before the end is found.
        let has_ended = sender.as_ref().is_some_and(process::has_ended);
        let left = until.saturating_duration_since(Instant::now());
        if wait_for(socket, if has_ended { Duration::ZERO } else { left.min(ASK_EVERY) }) {
            return true;
        }
        if has_ended || left.is_zero() {
            return false;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::process::{Command, Stdio};

    use super::super::deadline::Deadline;
    use super::super::rendezvous::{RendezvousAddress, Role};
    use super::*;

    /// A handler that admits no rank.
    struct NoMessages;

    impl FdServerHandler for NoMessages {
        fn answer(&mut self, _: Message) -> Option<Answer> {
            Some(Answer::Over)
        }
        fn closed(&mut self, _: &Statement) {}
        fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
            Vec::new()
        }
    }

    fn server(key: &str) -> (RendezvousAddress, FdServer) {
        let address = RendezvousAddress::new(None, &format!("{key}-{}", std::process::id()));
        let Ok(Role::Server(point)) = address.enter(&mut Deadline::new(None), &|| None) else {
            panic!("the rendezvous was free")
        };
        (address, FdServer::new(point))
    }

    /// The answer to a message sent on an own connection.
    fn receive_answer(socket: &Descriptor) -> Option<Answer> {
        wait_for(socket, Duration::from_secs(10));
        messages::decode(&receive(socket).unwrap()?.0)
    }

    #[test]
    fn every_client_connected_at_the_end_gets_the_last_answer() {
        let (address, server) = server("end");
        let waiting: Vec<Descriptor> = (0..3 * MOST_CONNECTIONS).map(|_| address.connect().unwrap().unwrap()).collect();
        waiting.iter().for_each(|socket| send(socket, &messages::encode(&Message::Ended(vec![1])), &[]).unwrap());
        let last = Answer::Failed(Error::usage("the end"));
        server.end(&last);
        for socket in &waiting {
            assert_eq!(receive_answer(socket).as_ref(), Some(&last));
        }
        assert!(address.connect().unwrap().is_none());
    }

    /// A rank that has joined reports its failure on a second connection: that is not another rank.
    #[test]
    fn a_process_that_comes_twice_takes_nobodys_answer() {
        let (address, server) = server("twice");
        let error = Error::usage("the reason");
        let expected = Answer::Failed(error.clone());
        let refusing = std::thread::spawn(move || server.refuse(&error, 2, HashSet::new(), Duration::from_secs(20)));
        for pid in [1, 1, 2] {
            let process = Identity { pid, ..Identity::own() };
            let socket = address.connect().unwrap().expect("the server has ended before all were answered");
            send(&socket, &messages::encode(&Message::Failed(process, Error::Forked)), &[]).unwrap();
            assert_eq!(receive_answer(&socket).as_ref(), Some(&expected));
        }
        refusing.join().unwrap();
    }

    /// The creator's program has closed the connection, and a file has its number: no rank has died.
    #[test]
    fn a_connection_that_this_process_has_lost_is_its_own_error() {
        let (address, mut server) = server("lost");
        let _rank = address.connect().unwrap().unwrap();
        server.serve(&mut NoMessages, Duration::from_secs(1)).unwrap();
        let file = rustix::fs::memfd_create("users", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        server.connections[0].socket.lose_to(&file);
        let error = server.serve(&mut NoMessages, Duration::from_secs(1)).unwrap_err().to_string();
        assert!(error.contains("something else in this process has closed"), "{error}");
    }

    #[test]
    #[ignore = "the process of the next test, which connects, leaves the connection to a child, and ends"]
    #[allow(clippy::zombie_processes)] // the child is to outlive this process
    fn orphan() {
        let Ok(key) = std::env::var("EARLYBIRD_TEST_KEY") else { return };
        let socket = RendezvousAddress::new(None, &key).connect().unwrap().unwrap();
        let kept = socket.as_fd().try_clone_to_owned().unwrap();
        // The child reads until the server closes the connection.
        rustix::fs::fcntl_setfl(&kept, rustix::fs::OFlags::empty()).unwrap();
        Command::new("cat").stdin(Stdio::from(kept)).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    }

    #[test]
    fn a_connection_that_only_a_child_of_its_process_keeps_is_not_waited_for() {
        let (_, mut server) = server("orphan");
        let mut process = Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "memory::fd_server::tests::orphan", "--ignored"]).stdout(Stdio::null());
        assert!(
            process.env("EARLYBIRD_TEST_KEY", format!("orphan-{}", std::process::id())).status().unwrap().success()
        );
        server.serve(&mut NoMessages, Duration::from_secs(60)).unwrap();
        let began = Instant::now();
        assert!(!wait_for_message(&server.connections[0].socket, began + Duration::from_secs(60)));
        assert!(began.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn what_is_no_message_gets_no_answer() {
        let (address, mut server) = server("noise");
        for noise in [&b"x"[..], b"{\"Join\":{}}", &[0xff; 4000]] {
            let socket = address.connect().unwrap().unwrap();
            send(&socket, noise, &[]).unwrap();
            for _ in 0..2 {
                server.serve(&mut NoMessages, Duration::from_secs(1)).unwrap();
            }
            assert_eq!(receive_answer(&socket), None);
        }
    }
}
