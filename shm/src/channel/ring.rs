//! The ring itself: one producer, one consumer, no lock, no read-modify-write.
//!
//! Packet n lies in slot n % slots. The producer fills a slot that the consumer has acknowledged and stores the slot's
//! sequence number; the consumer waits for exactly the number of its next packet, so a full slot of the previous round reads
//! as empty. A small packet is one cache line: sequence, header and payload together.

use super::lines::{BellLine, SlotLine};
use crate::sync::{AtomicU64, Ordering, SyncPoint, futex};
use core::time::Duration;

/// An ordered pair of ranks: producer and consumer of one ring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RankPair {
    /// Producer.
    pub from: usize,
    /// Consumer.
    pub to: usize,
}

/// Location of a packet's payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadLocation {
    /// The ring.
    pub pair: RankPair,
    /// The slot in it.
    pub slot: usize,
    /// True if it is in the slot's own line.
    pub inline: bool,
}

/// The shared state of the rings as one rank sees it.
pub trait RingBoard {
    /// Slots per ring.
    fn slots(&self) -> u64;
    /// A slot of a ring.
    fn slot(&self, pair: RankPair, slot: usize) -> &SlotLine;
    /// Number of packets of a ring that its consumer has acknowledged.
    fn acknowledged(&self, pair: RankPair) -> &AtomicU64;
    /// Line on which `rank` sleeps.
    fn bell(&self, rank: usize) -> &BellLine;
    /// Reads payload: the ring has ordered it after its writer.
    fn read<R>(&self, at: PayloadLocation, f: impl FnOnce(*const u8) -> R) -> R;
    /// Writes payload: the ring has made this rank its only user.
    fn write<R>(&self, at: PayloadLocation, f: impl FnOnce(*mut u8) -> R) -> R;
    /// The longest sleep of a rank that waits.
    fn most_sleep(&self) -> Duration;
}

/// The producer's private end of a ring.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outgoing {
    next: u64,
    /// Packets acknowledged when last read.
    acknowledged: u64,
}

impl Outgoing {
    /// Returns whether there is a free slot.
    pub fn has_room<B: RingBoard>(&mut self, board: &B, pair: RankPair) -> bool {
        if self.next - self.acknowledged < board.slots() {
            return true;
        }
        // A consumer cannot acknowledge a packet that was not sent: a damaged word reads as "nothing new".
        let acknowledged = board.acknowledged(pair).load(SyncPoint::RoomAcquire.order());
        self.acknowledged =
            if acknowledged <= self.next { acknowledged.max(self.acknowledged) } else { self.acknowledged };
        self.next - self.acknowledged < board.slots()
    }

    /// Sends a packet with `header` that `write` fills. There must be [room](Outgoing::has_room).
    pub fn send<B: RingBoard>(
        &mut self,
        board: &B,
        pair: RankPair,
        header: [u64; 3],
        inline: bool,
        write: impl FnOnce(*mut u8),
    ) {
        assert!(self.next - self.acknowledged < board.slots(), "a packet for a ring without room");
        let slot = (self.next % board.slots()) as usize;
        let line = board.slot(pair, slot);
        board.write(PayloadLocation { pair, slot, inline }, write);
        for (word, value) in line.header.iter().zip(header) {
            word.store(value, Ordering::Relaxed);
        }
        self.next += 1;
        line.sequence.store(self.next, SyncPoint::PacketRelease.order());
    }
}

/// The consumer's private end of a ring.
#[derive(Debug, Clone, Copy, Default)]
pub struct Incoming {
    next: u64,
}

impl Incoming {
    /// Returns whether a packet is there. One load.
    #[inline]
    pub fn has_packet<B: RingBoard>(&self, board: &B, pair: RankPair) -> bool {
        let slot = (self.next % board.slots()) as usize;
        board.slot(pair, slot).sequence.load(SyncPoint::PacketAcquire.order()) == self.next + 1
    }

    /// Header of the packet that [is there](Incoming::has_packet).
    pub fn header<B: RingBoard>(&self, board: &B, pair: RankPair) -> [u64; 3] {
        let slot = (self.next % board.slots()) as usize;
        let line = board.slot(pair, slot);
        std::array::from_fn(|i| line.header[i].load(Ordering::Relaxed))
    }

    /// Shows the payload of the packet that is there, and acknowledges it if `take` returns true.
    pub fn take<B: RingBoard>(
        &mut self,
        board: &B,
        pair: RankPair,
        inline: bool,
        take: impl FnOnce(*const u8) -> bool,
    ) -> bool {
        let slot = (self.next % board.slots()) as usize;
        let acknowledged = board.read(PayloadLocation { pair, slot, inline }, take);
        if acknowledged {
            self.next += 1;
            board.acknowledged(pair).store(self.next, SyncPoint::RoomRelease.order());
        }
        acknowledged
    }
}

/// Wakes `rank` if it sleeps; called after what it may wait for was stored.
#[inline]
pub fn announce<B: RingBoard>(board: &B, rank: usize) {
    SyncPoint::PublisherFence.fence();
    let bell = board.bell(rank);
    if bell.sleepers.load(Ordering::Relaxed) > 0 {
        bell.event.fetch_add(1, Ordering::Relaxed);
        futex::wake_all(&bell.event);
    }
}

/// Sleeps once on the own bell, unless `look` finds a change after this rank was counted as a sleeper.
pub fn sleep<B: RingBoard>(board: &B, rank: usize, look: impl FnOnce() -> bool) {
    let bell = board.bell(rank);
    let seen = bell.event.load(Ordering::Relaxed);
    // No count of its own before: another process may have overwritten that, and no wake-up would ever come.
    bell.sleepers.store(1, Ordering::Relaxed);
    // Pairs with PublisherFence: either the publisher sees this sleeper, or this look sees what it published.
    SyncPoint::SleeperFence.fence();
    if !look() {
        futex::wait(&bell.event, seen, board.most_sleep());
    }
    bell.sleepers.store(0, Ordering::Relaxed);
}
