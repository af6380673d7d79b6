//! The ring itself: one producer, one consumer, no lock, no read-modify-write.
//!
//! Packet n lies in slot n % slots. The producer fills a slot that the consumer has given back (`taken`) and stores its
//! mark; the consumer looks for exactly the mark it is due, so a full slot of the round before means "nothing yet".
//! A small packet is one cache line: mark, description and payload together.

use super::lines::{About, BellLine, SlotLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, SyncPoint};

/// An ordered pair of ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Producer.
    pub from: usize,
    /// Consumer.
    pub to: usize,
}

/// Where the payload of a packet lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spot {
    /// The ring.
    pub lane: Lane,
    /// The slot in it.
    pub slot: usize,
    /// Whether it is in the slot's own line.
    pub inline: bool,
}

/// The shared state of the rings as one rank sees it.
pub trait RingBoard {
    /// Slots per ring.
    fn slots(&self) -> u64;
    /// A slot of a ring.
    fn slot(&self, lane: Lane, slot: usize) -> &SlotLine;
    /// Packets of a ring that its consumer is done with.
    fn taken(&self, lane: Lane) -> &AtomicU64;
    /// Where `rank` sleeps.
    fn bell(&self, rank: usize) -> &BellLine;
    /// Reads payload: the ring has ordered it after its writer.
    fn read<R>(&self, at: Spot, f: impl FnOnce(*const u8) -> R) -> R;
    /// Writes payload: the ring has made this rank its only user.
    fn write<R>(&self, at: Spot, f: impl FnOnce(*mut u8) -> R) -> R;
    /// Sleeps until woken, while `word` holds `expected`, or for a bounded time.
    fn futex_wait(&self, word: &AtomicU32, expected: u32);
    /// Wakes every sleeper on `word`.
    fn futex_wake(&self, word: &AtomicU32);
}

/// The producer's private end of a ring.
#[derive(Debug, Clone, Copy, Default)]
pub struct Outgoing {
    next: u64,
    /// `taken` when it was last read.
    taken: u64,
}

impl Outgoing {
    /// Whether there is a free slot.
    pub fn has_room<B: RingBoard>(&mut self, board: &B, lane: Lane) -> bool {
        if self.next - self.taken < board.slots() {
            return true;
        }
        // A consumer cannot have taken what was not sent: a damaged word is read as "nothing taken".
        let taken = board.taken(lane).load(SyncPoint::RoomAcquire.order());
        self.taken = if taken <= self.next { taken.max(self.taken) } else { self.taken };
        self.next - self.taken < board.slots()
    }

    /// Sends a packet described by `about` that `write` fills. There must be [room](Outgoing::has_room).
    pub fn send<B: RingBoard>(
        &mut self,
        board: &B,
        lane: Lane,
        about: [u64; 3],
        inline: bool,
        write: impl FnOnce(*mut u8),
    ) {
        assert!(self.next - self.taken < board.slots(), "a packet for a ring without room");
        let slot = (self.next % board.slots()) as usize;
        let line = board.slot(lane, slot);
        board.write(Spot { lane, slot, inline }, write);
        for (word, value) in line.about.iter().zip(about) {
            word.store(value, Ordering::Relaxed);
        }
        self.next += 1;
        line.mark.store(self.next, SyncPoint::PacketRelease.order());
    }
}

/// The consumer's private end of a ring.
#[derive(Debug, Clone, Copy, Default)]
pub struct Incoming {
    next: u64,
}

impl Incoming {
    /// Whether a packet is there. One load.
    #[inline]
    pub fn has_packet<B: RingBoard>(&self, board: &B, lane: Lane) -> bool {
        let slot = (self.next % board.slots()) as usize;
        board.slot(lane, slot).mark.load(SyncPoint::PacketAcquire.order()) == self.next + 1
    }

    /// What is said of the packet that [is there](Incoming::has_packet).
    pub fn about<B: RingBoard>(&self, board: &B, lane: Lane) -> [u64; 3] {
        let slot = (self.next % board.slots()) as usize;
        let line = board.slot(lane, slot);
        std::array::from_fn(|i| line.about[i].load(Ordering::Relaxed))
    }

    /// Shows the payload of the packet that is there; gives its slot back if `take` says it is done with.
    pub fn take<B: RingBoard>(
        &mut self,
        board: &B,
        lane: Lane,
        inline: bool,
        take: impl FnOnce(*const u8) -> bool,
    ) -> bool {
        let slot = (self.next % board.slots()) as usize;
        let taken = board.read(Spot { lane, slot, inline }, take);
        if taken {
            self.next += 1;
            board.taken(lane).store(self.next, SyncPoint::RoomRelease.order());
        }
        taken
    }
}

/// Wakes `rank` if it sleeps; called after what it may wait for was stored.
#[inline]
pub fn announce<B: RingBoard>(board: &B, rank: usize) {
    SyncPoint::PublisherFence.fence();
    let bell = board.bell(rank);
    if bell.sleepers.load(Ordering::Relaxed) > 0 {
        bell.event.fetch_add(1, Ordering::Relaxed);
        board.futex_wake(&bell.event);
    }
}

/// Sleeps once on the own bell, unless `look` finds a change after this rank was counted as a sleeper.
pub fn sleep<B: RingBoard>(board: &B, rank: usize, look: impl FnOnce() -> bool) {
    let bell = board.bell(rank);
    let seen = bell.event.load(Ordering::Relaxed);
    bell.sleepers.fetch_add(1, Ordering::Relaxed);
    // Pairs with PublisherFence: either the publisher sees this sleeper, or this look sees what it published.
    SyncPoint::SleeperFence.fence();
    if !look() {
        board.futex_wait(&bell.event, seen);
    }
    bell.sleepers.fetch_sub(1, Ordering::Relaxed);
}

/// Packs a description: three words, of which the last carries the bytes of the payload in its low half.
pub fn pack(about: About) -> [u64; 3] {
    [about[0], about[1], about[2] << 32 | about[3] & 0xffff_ffff]
}

/// The description that was packed.
pub fn unpack(words: [u64; 3]) -> About {
    [words[0], words[1], words[2] >> 32, words[2] & 0xffff_ffff]
}
