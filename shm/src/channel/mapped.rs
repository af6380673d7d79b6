//! The mapped rings: lines and payload in a region of the arena.
//!
//! Invariants, relied on by every block here:
//!
//! * **M (mapping)**: the region is mapped for as long as this board lives, which owns it; its length was compared with
//!   [`RingLayout::bytes`].
//! * **L (layout)**: [`RingLayout`] puts every line inside the region, aligned to 128 bytes and apart from all others
//!   (tested); ranks and slots are checked here before use.
//! * **A (atomics)**: lines consist of atomics only, for which every bit pattern is valid, so another process can
//!   spoil values but not memory safety.
//! * **R (ring)**: the payload of a slot has one user at a time: the ring's sequence numbers hand it over (`ring.rs`, shown by the
//!   loom models). A process that breaks the ring spoils the bytes, which have no invalid values.
#![allow(unsafe_code)]

use super::layout::{RingLayout, SLOTS};
use super::lines::{AcknowledgedLine, BellLine, INLINE_BYTES, RingPoisonLine, SlotLine, StateLine};
use super::ring::{Incoming, Outgoing, PayloadLocation, RankPair, RingBoard};
use crate::Error;
use crate::memory::{Region, Segment};
use crate::progress::Driver;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// A sleeper looks up at least this often, so that deaths and stops are noticed.
const SLEEP_NS: u64 = 50_000_000;

/// One rank's view of the mapped rings.
#[derive(Debug)]
pub struct MappedRings {
    base: *mut u8,
    layout: RingLayout,
    region: Region,
    /// Progress functions that run while this rank waits.
    pub(super) driver: Driver,
    // After the region: what holds the memory goes last.
    segment: Arc<Segment>,
}

// SAFETY: M: `base` is a plain address that no other handle of this process uses to create references other than to
// atomics; moving the board between threads moves nothing in memory.
unsafe impl Send for MappedRings {}

impl MappedRings {
    /// Reserves the lines before the rings and maps them.
    ///
    /// # Errors
    /// [`Error::NoSpace`] before anything is touched; whatever the system refuses.
    pub fn new(segment: Arc<Segment>, region: Region) -> Result<Self, Error> {
        let layout = RingLayout::new(segment.size());
        if region.len() < layout.bytes() {
            let (has, needs) = (region.len(), layout.bytes());
            return Err(Error::usage(format!(
                "the region of the rings has {has} bytes and {needs} are needed; all ranks must run one version"
            )));
        }
        region.reserve(0..layout.control_bytes())?;
        Ok(MappedRings { base: region.as_ptr(), layout, region, driver: Driver::default(), segment })
    }

    /// Reserves a ring, if this is its first use here.
    ///
    /// # Errors
    /// [`Error::NoSpace`]; whatever the system refuses.
    pub fn open(&self, pair: RankPair) -> Result<(), Error> {
        let at = self.layout.ring(pair);
        self.region.reserve(at..at + self.layout.ring_bytes())
    }

    /// The segment behind the board.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    /// A share of it.
    pub fn shared_segment(&self) -> Arc<Segment> {
        self.segment.clone()
    }

    /// Bytes of the largest packet.
    pub fn packet_bytes(&self) -> usize {
        self.layout.packet_bytes()
    }

    /// The group's one error.
    pub fn poison(&self) -> &AtomicU64 {
        &self.at::<RingPoisonLine>(self.layout.poison()).0
    }

    /// State line of `rank`.
    pub fn state(&self, rank: usize) -> &StateLine {
        assert!(rank < self.segment.size());
        self.at(self.layout.state(rank))
    }

    #[inline(always)]
    fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: M, L, A: callers pass an offset of `RingLayout` for a line of type T.
        unsafe { &*self.base.add(offset).cast::<T>() }
    }

    fn check(&self, pair: RankPair) {
        assert!(pair.from < self.segment.size() && pair.to < self.segment.size(), "{pair:?}");
    }

    #[inline]
    fn place(&self, at: PayloadLocation) -> *mut u8 {
        if at.inline {
            return self.slot(at.pair, at.slot).payload.as_ptr().cast_mut().cast();
        }
        self.check(at.pair);
        // SAFETY: M, L: the slot is one of the ring's.
        unsafe { self.base.add(self.layout.payload(at.pair, at.slot % SLOTS)) }
    }

    /// Sends a packet of `bytes` bytes, described by `words`, that `write` fills. There must be room.
    #[inline]
    pub fn send(
        &self,
        end: &mut Outgoing,
        pair: RankPair,
        words: [u64; 3],
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) {
        assert!(bytes <= self.layout.packet_bytes(), "{bytes} bytes for {pair:?}");
        end.send(self, pair, words, bytes <= INLINE_BYTES, |start| {
            // SAFETY: M, L, R: `start` is a spot of this ring with room for these bytes (checked above, or inline), and
            // until the slot is marked no other rank uses it.
            write(unsafe { core::slice::from_raw_parts_mut(start, bytes) });
        });
    }

    /// Shows the payload, `bytes` bytes, of the packet that is there.
    #[inline]
    pub fn take(&self, end: &mut Incoming, pair: RankPair, bytes: usize, show: impl FnOnce(&[u8]) -> bool) -> bool {
        assert!(bytes <= self.layout.packet_bytes(), "{bytes} bytes from {pair:?}");
        end.take(self, pair, bytes <= INLINE_BYTES, |start| {
            // SAFETY: M, L, R: as in `send`; the slot is this rank's until it is given back, which comes after.
            show(unsafe { core::slice::from_raw_parts(start, bytes) })
        })
    }
}

impl RingBoard for MappedRings {
    fn slots(&self) -> u64 {
        SLOTS as u64
    }
    #[inline]
    fn slot(&self, pair: RankPair, slot: usize) -> &SlotLine {
        self.check(pair);
        self.at(self.layout.slot(pair, slot % SLOTS))
    }
    fn acknowledged(&self, pair: RankPair) -> &AtomicU64 {
        self.check(pair);
        &self.at::<AcknowledgedLine>(self.layout.ring(pair)).0
    }
    fn bell(&self, rank: usize) -> &BellLine {
        assert!(rank < self.segment.size());
        self.at(self.layout.bell(rank))
    }
    #[inline]
    fn read<R>(&self, at: PayloadLocation, f: impl FnOnce(*const u8) -> R) -> R {
        f(self.place(at))
    }
    #[inline]
    fn write<R>(&self, at: PayloadLocation, f: impl FnOnce(*mut u8) -> R) -> R {
        f(self.place(at))
    }
    fn most_sleep(&self) -> Duration {
        Duration::from_nanos(self.driver.sleep_ns(SLEEP_NS))
    }
}
