//! Ranks as threads of one process: a bounded channel per ordered pair, and one that brings empty packets back.

// every test binary compiles this file and uses only a part of it
#![allow(dead_code)]

use earlybird_hier::exec::{Failure, PacketDecision, PacketHeader, Transport};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
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
    full: SyncSender<Packet>,
    empty: Receiver<Vec<u8>>,
}

#[derive(Debug)]
struct Incoming {
    full: Receiver<Packet>,
    empty: SyncSender<Vec<u8>>,
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
}

impl Threads {
    /// The ranks of a group, in order. Memory: `depth` packets per ordered pair that is used.
    pub fn group(size: usize, options: ThreadsOptions) -> Vec<Threads> {
        let depth = options.depth.max(1);
        let failure = Arc::new(OnceLock::new());
        let mut ranks: Vec<Threads> = (0..size)
            .map(|rank| Threads {
                rank,
                packet_bytes: options.packet_bytes,
                outgoing: (0..size).map(|_| None).collect(),
                incoming: (0..size).map(|_| None).collect(),
                failure: failure.clone(),
            })
            .collect();
        for from in 0..size {
            for to in (0..size).filter(|to| *to != from) {
                let (full, arriving) = sync_channel(depth);
                let (back, empty) = sync_channel(depth);
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
        self.outgoing.len()
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
                Ok(true)
            }
        }
    }

    fn progress(&mut self) -> Result<(), Failure> {
        self.failure.get().map_or(Ok(()), |failure| Err(failure.clone()))
    }

    /// Yields, then sleeps for a while.
    fn idle(&mut self, passes: u32) -> Result<(), Failure> {
        match passes {
            0..8 => std::thread::yield_now(),
            _ => std::thread::sleep(Duration::from_micros(50)),
        }
        self.progress()
    }

    fn raise(&mut self, failure: Failure) -> Failure {
        self.failure.get_or_init(|| failure).clone()
    }
}

fn no_channel(rank: usize) -> Failure {
    Failure::Transport(format!("rank {rank} cannot send to itself"))
}
