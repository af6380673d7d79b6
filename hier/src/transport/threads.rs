//! Ranks as threads of one process: a bounded channel per ordered pair, and one that brings empty packets back.

use crate::exec::{Failure, PacketDecision, PacketHeader, Transport};
use crossbeam::channel::{Receiver, Sender, TryRecvError, TrySendError, bounded};
use crossbeam::sync::{Parker, Unparker};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Sizes of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ThreadsOptions {
    /// Bytes of the largest packet.
    pub packet_bytes: usize,
    /// Packets under way between two ranks, at least 1.
    pub depth: usize,
}

impl Default for ThreadsOptions {
    fn default() -> Self {
        ThreadsOptions { packet_bytes: 64 << 10, depth: 8 }
    }
}

type Packet = (PacketHeader, Vec<u8>);

#[derive(Debug)]
struct Outgoing {
    full: Sender<Packet>,
    empty: Receiver<Vec<u8>>,
}

#[derive(Debug)]
struct Incoming {
    full: Receiver<Packet>,
    empty: Sender<Vec<u8>>,
    /// A packet that was shown and left.
    next: Option<Packet>,
}

/// One rank of a group of threads. Dropping it leaves the group: ranks that still need it get [`Failure::PeerDied`].
#[derive(Debug)]
pub struct Threads {
    rank: usize,
    packet_bytes: usize,
    /// The channel to each rank; `None` for the rank itself.
    outgoing: Vec<Option<Outgoing>>,
    incoming: Vec<Option<Incoming>>,
    failure: Arc<OnceLock<Failure>>,
    parker: Parker,
    others: Vec<Unparker>,
}

impl Threads {
    /// The ranks of a group, in order. Memory: `depth` packets per ordered pair that is used.
    pub fn group(size: usize, options: ThreadsOptions) -> Vec<Threads> {
        let depth = options.depth.max(1);
        let failure = Arc::new(OnceLock::new());
        let parkers: Vec<Parker> = (0..size).map(|_| Parker::new()).collect();
        let others: Vec<Unparker> = parkers.iter().map(|parker| parker.unparker().clone()).collect();
        let mut ranks: Vec<Threads> = parkers
            .into_iter()
            .enumerate()
            .map(|(rank, parker)| Threads {
                rank,
                packet_bytes: options.packet_bytes,
                outgoing: (0..size).map(|_| None).collect(),
                incoming: (0..size).map(|_| None).collect(),
                failure: failure.clone(),
                parker,
                others: others.clone(),
            })
            .collect();
        for from in 0..size {
            for to in (0..size).filter(|to| *to != from) {
                let (full, arriving) = bounded(depth);
                let (back, empty) = bounded(depth);
                for _ in 0..depth {
                    let sent = back.try_send(Vec::new());
                    debug_assert!(sent.is_ok(), "it has room for that many");
                }
                ranks[from].outgoing[to] = Some(Outgoing { full, empty });
                ranks[to].incoming[from] = Some(Incoming { full: arriving, empty: back, next: None });
            }
        }
        ranks
    }
}

impl Transport for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.others.len()
    }

    fn packet_bytes(&self) -> usize {
        self.packet_bytes
    }

    fn post_send(
        &mut self,
        to: usize,
        head: PacketHeader,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Failure> {
        let channel = self.outgoing[to].as_ref().ok_or_else(|| no_channel(to))?;
        let mut packet = match channel.empty.try_recv() {
            Ok(packet) => packet,
            Err(TryRecvError::Empty) => return Ok(false),
            Err(TryRecvError::Disconnected) => return Err(Failure::PeerDied { rank: to }),
        };
        packet.resize(bytes, 0);
        write(&mut packet);
        match channel.full.try_send((head, packet)) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => unreachable!("there are as many packets as places for them"),
            Err(TrySendError::Disconnected(_)) => return Err(Failure::PeerDied { rank: to }),
        }
        self.others[to].unpark();
        Ok(true)
    }

    fn receive(
        &mut self,
        from: usize,
        take: impl FnOnce(PacketHeader, &[u8]) -> PacketDecision,
    ) -> Result<bool, Failure> {
        let channel = self.incoming[from].as_mut().ok_or_else(|| no_channel(from))?;
        let (head, bytes) = match channel.next.take().map_or_else(|| channel.full.try_recv(), Ok) {
            Ok(packet) => packet,
            Err(TryRecvError::Empty) => return Ok(false),
            Err(TryRecvError::Disconnected) => return Err(Failure::PeerDied { rank: from }),
        };
        match take(head, &bytes) {
            PacketDecision::Leave => {
                channel.next = Some((head, bytes));
                Ok(false)
            }
            PacketDecision::Consume => {
                // Refused only if the sender is gone and needs no packets any more.
                let _ = channel.empty.try_send(bytes);
                self.others[from].unpark();
                Ok(true)
            }
        }
    }

    fn progress(&mut self) -> Result<(), Failure> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Yields, then sleeps until a packet comes, room comes, or the group fails.
    fn idle(&mut self, passes: u32) -> Result<(), Failure> {
        match passes {
            0..8 => std::thread::yield_now(),
            // Every change unparks; the limit is for callers with a deadline of their own.
            _ => self.parker.park_timeout(Duration::from_millis(20)),
        }
        self.progress()
    }

    fn raise(&mut self, failure: Failure) -> Failure {
        let first = self.failure.get_or_init(|| failure).clone();
        self.others.iter().for_each(Unparker::unpark);
        first
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Close the channels first, so that ranks that wake find them closed.
        self.outgoing.clear();
        self.incoming.clear();
        self.others.iter().for_each(Unparker::unpark);
    }
}

fn no_channel(rank: usize) -> Failure {
    Failure::Transport(format!("rank {rank} cannot send to itself"))
}
