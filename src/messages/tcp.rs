//! Messages over TCP, for ranks on several nodes that no MPI connects: each is started with the addresses of all.
//!
//! Two connections join a pair of ranks, one for each direction, opened by its sender. A rank that leaves closes its own: what it has
//! sent arrives all the same, since nothing ever comes back on that connection, and the end of it tells the others that the rank is
//! gone. A host that vanishes is noticed by the probes of the kernel.

use super::handshake::{TOKEN_BYTES, accept, hello, open};
use super::{Failure, Message, Messages};
use crate::Error;
use bytemuck::bytes_of;
use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Bytes before each message: group, tag, length.
const HEAD_BYTES: usize = 12;
/// Bytes of the longest message.
const MOST_BYTES: usize = 1 << 20;
/// The tag of the messages that form a group; every other tag is the caller's and not negative.
const SPLIT_TAG: i32 = -1;

/// Time that a leaving rank waits for the kernel to take what is left to send.
const FLUSH_WITHIN: Duration = Duration::from_secs(1);

/// Messages between ranks that TCP connects, or some of them.
#[derive(Debug)]
pub struct TcpMessages {
    mesh: Arc<Mutex<TcpMesh>>,
    /// The number in the mesh, by rank.
    ranks: Arc<[usize]>,
    rank: usize,
    group: u32,
}

impl TcpMessages {
    /// Connects this rank with all others. `addresses` are those of the ranks' listeners, in order, and `token` is a secret of the
    /// job: connections that do not know it are closed. Every rank calls it.
    ///
    /// # Errors
    /// [`Error::System`] when a rank cannot be reached or has not connected `within` that time; [`Error::Usage`] for a rank without
    /// an address.
    pub fn connect(
        rank: usize,
        listener: &TcpListener,
        addresses: &[SocketAddr],
        token: [u8; TOKEN_BYTES],
        within: Option<Duration>,
    ) -> Result<TcpMessages, Error> {
        let size = addresses.len();
        if rank >= size {
            return Err(Error::usage(format!("rank {rank} has no address among {size}; give one for every rank")));
        }
        let failed = |what: String| move |error: io::Error| Error::system(what, error);
        listener.set_nonblocking(true).map_err(failed("preparing to be connected to".into()))?;
        let end = within.map(|within| Instant::now() + within);
        let mut incoming: Vec<Option<TcpStream>> = (0..size).map(|_| None).collect();
        let mut outgoing: Vec<Option<TcpStream>> = (0..size).map(|_| None).collect();
        // Every rank begins with another one and accepts between its connections, so that no listener's queue overflows.
        for to in (1..size).map(|step| (rank + step) % size) {
            let address = addresses[to];
            let stream = open(address, hello(token, rank), end).map_err(failed(format!(
                "connecting rank {rank} to rank {to} at {address}; see that the hosts reach each other there"
            )))?;
            outgoing[to] = Some(stream);
            accept(listener, token, &mut incoming).map_err(failed("being connected to".into()))?;
        }
        while let Some(missing) = (0..size).find(|from| *from != rank && incoming[*from].is_none()) {
            if !accept(listener, token, &mut incoming).map_err(failed("being connected to".into()))? {
                if end.is_some_and(|end| Instant::now() > end) {
                    let late =
                        format!("rank {missing} has not connected in time; see whether it runs and reaches this host");
                    return Err(Error::system(format!("connecting rank {rank}"), late));
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        let inbound = |stream| InboundStream { stream, ..InboundStream::default() };
        let outbound = |stream| OutboundStream { stream, ..OutboundStream::default() };
        let (incoming, outgoing) =
            (incoming.into_iter().map(inbound).collect(), outgoing.into_iter().map(outbound).collect());
        let mesh = Arc::new(Mutex::new(TcpMesh { incoming, outgoing, groups: 0 }));
        Ok(TcpMessages { mesh, ranks: (0..size).collect(), rank, group: 0 })
    }

    fn mesh(&self) -> MutexGuard<'_, TcpMesh> {
        enter(&self.mesh)
    }

    /// Gathers the words of every rank on every rank.
    fn all_gather_words(&self, words: [u64; 3]) -> Result<Vec<[u64; 3]>, Failure> {
        let own = bytes_of(&words.map(u64::to_le)).to_vec();
        let mut pending = Vec::new();
        for to in (0..self.ranks.len()).filter(|to| *to != self.rank) {
            pending.push((None, self.send(to, SPLIT_TAG, own.clone())?));
            pending.push((Some(to), self.receive(Some(to), SPLIT_TAG, vec![0; own.len()])?));
        }
        let mut all = vec![words; self.ranks.len()];
        while !pending.is_empty() {
            let mut at = 0;
            while let Some((from, message)) = pending.get_mut(at) {
                let Some(bytes) = message.test()? else {
                    at += 1;
                    continue;
                };
                if let Some(from) = *from {
                    let words: Result<[u64; 3], _> = bytemuck::try_pod_read_unaligned(&message.contents()[..bytes]);
                    let damaged = |_| Failure::Transport(format!("rank {from} sent {bytes} bytes to form a group"));
                    all[from] = words.map_err(damaged)?.map(u64::from_le);
                }
                pending.swap_remove(at);
            }
            std::thread::yield_now();
        }
        Ok(all)
    }
}

impl Messages for TcpMessages {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.ranks.len()
    }

    fn may_call(&self) -> Result<(), Failure> {
        Ok(())
    }

    fn is_concurrent(&self) -> bool {
        true
    }

    fn send(&self, to: usize, tag: i32, buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure> {
        if buffer.len() > MOST_BYTES {
            return Err(Failure::Transport(format!("a message of {} bytes; the most is {MOST_BYTES}", buffer.len())));
        }
        let to = self.ranks[to];
        let number = self.mesh().outgoing[to].push(self.group, tag, buffer);
        Ok(Box::new(SentMessage { mesh: self.mesh.clone(), to, number }))
    }

    fn receive(&self, from: Option<usize>, tag: i32, buffer: Vec<u8>) -> Result<Box<dyn Message>, Failure> {
        let (mesh, ranks, channel) = (self.mesh.clone(), self.ranks.clone(), (self.group, tag));
        Ok(Box::new(AwaitedMessage { mesh, ranks, channel, from, next: self.rank, buffer, complete: None }))
    }

    fn split(&self, color_and_key: Option<(usize, usize)>) -> Result<Option<Box<dyn Messages>>, Failure> {
        let groups = u64::from(self.mesh().groups);
        let (color, key) = color_and_key.map_or((0, 0), |(color, key)| (color as u64 + 1, key as u64));
        let all = self.all_gather_words([color, key, groups])?;
        // A number that no rank here has used; groups of one split share it, since they share no rank.
        let group = all.iter().map(|[.., groups]| *groups).max().unwrap_or(0) as u32 + 1;
        self.mesh().groups = group;
        if color == 0 {
            return Ok(None);
        }
        let mut members: Vec<usize> = (0..all.len()).filter(|rank| all[*rank][0] == color).collect();
        members.sort_by_key(|rank| (all[*rank][1], *rank));
        let rank = members.iter().position(|member| *member == self.rank).unwrap_or(0);
        let ranks = members.iter().map(|member| self.ranks[*member]).collect();
        Ok(Some(Box::new(TcpMessages { mesh: self.mesh.clone(), ranks, rank, group })))
    }

    /// Groups are never given back.
    fn abandon(&mut self) {}
}

/// The connections of a process, shared by its groups. This rank has none with itself.
#[derive(Debug)]
struct TcpMesh {
    incoming: Vec<InboundStream>,
    outgoing: Vec<OutboundStream>,
    /// The last group that was formed.
    groups: u32,
}

fn enter(mesh: &Mutex<TcpMesh>) -> MutexGuard<'_, TcpMesh> {
    mesh.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for TcpMesh {
    fn drop(&mut self) {
        let end = Instant::now() + FLUSH_WITHIN;
        for peer in &mut self.outgoing {
            while peer.write() && Instant::now() < end {
                std::thread::yield_now();
            }
        }
    }
}

/// Group and tag of a message.
type MessageChannel = (u32, i32);

/// The messages that come from one rank.
#[derive(Debug, Default)]
struct InboundStream {
    /// `None` once the rank is gone.
    stream: Option<TcpStream>,
    head: [u8; HEAD_BYTES],
    body: Vec<u8>,
    /// Bytes of head and body that have come.
    filled: usize,
    complete: VecDeque<(MessageChannel, Vec<u8>)>,
}

impl InboundStream {
    /// Reads what has arrived.
    fn read(&mut self) {
        while let Some(stream) = &mut self.stream {
            let room = match self.filled.checked_sub(HEAD_BYTES) {
                None => &mut self.head[self.filled..],
                Some(filled) => &mut self.body[filled..],
            };
            match stream.read(room) {
                Ok(bytes @ 1..) => self.filled += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Ok(0) | Err(_) => self.stream = None,
            }
            self.complete_one();
        }
    }

    fn complete_one(&mut self) {
        let [group, tag, length] = bytemuck::cast::<_, [u32; 3]>(self.head).map(u32::from_le);
        let bytes = length as usize;
        if self.filled == HEAD_BYTES {
            if bytes > MOST_BYTES {
                // No rank sends that.
                self.stream = None;
                return;
            }
            self.body = vec![0; bytes];
        }
        if self.filled >= HEAD_BYTES && self.filled == HEAD_BYTES + self.body.len() {
            self.complete.push_back(((group, tag as i32), std::mem::take(&mut self.body)));
            self.filled = 0;
        }
    }

    fn take(&mut self, channel: MessageChannel) -> Option<Vec<u8>> {
        let at = self.complete.iter().position(|(of, _)| *of == channel)?;
        self.complete.remove(at).map(|(_, body)| body)
    }
}

/// The messages to one rank. Those to a rank that is gone count as sent: a receive from it fails.
#[derive(Debug, Default)]
struct OutboundStream {
    stream: Option<TcpStream>,
    /// Head, body, and bytes that the kernel has taken.
    queue: VecDeque<([u8; HEAD_BYTES], Vec<u8>, usize)>,
    pushed: u64,
}

impl OutboundStream {
    /// Starts sending a message. Returns its number.
    fn push(&mut self, group: u32, tag: i32, body: Vec<u8>) -> u64 {
        let head = bytemuck::cast([group, tag as u32, body.len() as u32].map(u32::to_le));
        self.queue.push_back((head, body, 0));
        self.pushed += 1;
        self.write();
        self.pushed
    }

    /// Sends what the kernel takes now. Returns whether anything is left to send.
    fn write(&mut self) -> bool {
        while let Some((head, body, taken)) = self.queue.front_mut() {
            let Some(stream) = &mut self.stream else {
                self.queue.clear();
                break;
            };
            let (of_head, of_body) = ((*taken).min(HEAD_BYTES), taken.saturating_sub(HEAD_BYTES));
            match stream.write_vectored(&[IoSlice::new(&head[of_head..]), IoSlice::new(&body[of_body..])]) {
                Ok(bytes) => *taken += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => self.stream = None,
            }
            if *taken == HEAD_BYTES + body.len() {
                self.queue.pop_front();
            }
        }
        !self.queue.is_empty()
    }

    fn has_sent(&self, number: u64) -> bool {
        number <= self.pushed - self.queue.len() as u64
    }
}

/// A message that was sent: the connection has its buffer.
#[derive(Debug)]
struct SentMessage {
    mesh: Arc<Mutex<TcpMesh>>,
    to: usize,
    number: u64,
}

impl Message for SentMessage {
    fn test(&mut self) -> Result<Option<usize>, Failure> {
        let peer = &mut enter(&self.mesh).outgoing[self.to];
        peer.write();
        Ok(peer.has_sent(self.number).then_some(0))
    }

    fn contents(&self) -> &[u8] {
        &[]
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        Vec::new()
    }
}

/// A receive. Of several on one channel, the first that is tested receives the first message.
#[derive(Debug)]
struct AwaitedMessage {
    mesh: Arc<Mutex<TcpMesh>>,
    ranks: Arc<[usize]>,
    channel: MessageChannel,
    from: Option<usize>,
    /// The rank whose connection the next test looks at, for a receive from any rank.
    next: usize,
    buffer: Vec<u8>,
    complete: Option<usize>,
}

impl Message for AwaitedMessage {
    fn test(&mut self) -> Result<Option<usize>, Failure> {
        if self.complete.is_some() {
            return Ok(self.complete);
        }
        self.next = (self.next + 1) % self.ranks.len();
        let from = self.from.unwrap_or(self.next);
        let peer = &mut enter(&self.mesh).incoming[self.ranks[from]];
        peer.read();
        match peer.take(self.channel) {
            Some(body) if body.len() <= self.buffer.len() => {
                self.buffer[..body.len()].copy_from_slice(&body);
                self.complete = Some(body.len());
                Ok(self.complete)
            }
            Some(body) => {
                let (came, room) = (body.len(), self.buffer.len());
                Err(Failure::Transport(format!("rank {from} sent {came} bytes where at most {room} were awaited")))
            }
            None if peer.stream.is_none() && self.from.is_some() => Err(Failure::PeerDied { rank: from }),
            None => Ok(None),
        }
    }

    fn contents(&self) -> &[u8] {
        &self.buffer
    }

    fn into_buffer(self: Box<Self>) -> Vec<u8> {
        self.buffer
    }
}
