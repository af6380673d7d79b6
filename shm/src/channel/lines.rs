//! The cache lines of the rings, with the writer of each. They are 128 bytes apart, so that no two writers share one.

use crate::sync::{AtomicU32, AtomicU64};

/// Payload bytes that travel in a slot's own line.
pub const INLINE_BYTES: usize = 96;

/// Words of an error's details.
pub const DETAILS: usize = 12;

/// One slot of a ring. Writer: the ring's producer, while the slot is free.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct SlotLine {
    /// One more than the number of the packet in it, counted from 0 over the life of the ring. Stored last.
    pub sequence: AtomicU64,
    /// Header of the packet, ordered by `sequence`: two words that the ring does not interpret, and the bytes of the payload.
    pub header: [AtomicU64; 3],
    /// Payload of up to [`INLINE_BYTES`] bytes, ordered by `sequence`; longer ones lie in the slot's part of the arena.
    #[cfg(not(earlybird_loom))]
    pub payload: [AtomicU64; INLINE_BYTES / 8],
}

/// Number of packets that the consumer of a ring has acknowledged. Writer: the consumer.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct AcknowledgedLine(pub AtomicU64);

/// Event count on which a rank sleeps until one of its rings changes.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct BellLine {
    /// Changes at every wake-up; the futex word. Writers: all ranks, by read-modify-write only.
    pub event: AtomicU32,
    /// 1 while its rank sleeps or is about to. Writer: that rank.
    pub sleepers: AtomicU32,
}

/// Words of the description of a call.
pub const DESCRIPTION_WORDS: usize = 5;

/// State that a rank publishes. Writer: that rank.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct StateLine {
    /// Every exchange up to this number is complete on this rank.
    pub completed: AtomicU64,
    /// Calls of the communicator that it has begun, exchanges or not, in the high half, and how many of them were
    /// exchanges in the low half: one word, so that both are of one instant.
    pub begun: AtomicU64,
    /// The last call of a communicator that is complete on this rank, of those that were named.
    pub ended: AtomicU64,
    /// The group made from this one that it gave up joining last; 0 for none.
    pub gave_up: AtomicU64,
    /// The wait of an exchange that it is in, and its looks in that wait: see `protocol/stuck.rs`.
    pub waits: AtomicU64,
    /// Number of its calls and their history hash, when it has closed the communicator; 0 before.
    pub closed: AtomicU64,
    /// Number of the call that it has described last, and the description.
    pub called: AtomicU64,
    /// See `called`.
    pub description: [AtomicU64; DESCRIPTION_WORDS],
    /// Details of an error that it reported, stored before the poison.
    pub details: [AtomicU64; DETAILS],
}

/// The group's one error, 0 while healthy: written once, by compare-and-swap.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct RingPoisonLine(pub AtomicU64);

#[cfg(not(earlybird_loom))]
const _: () = {
    assert!(size_of::<SlotLine>() == 128);
    assert!(core::mem::offset_of!(SlotLine, payload) == 32);
    assert!(size_of::<AcknowledgedLine>() == 128);
    assert!(size_of::<BellLine>() == 128);
    assert!(size_of::<StateLine>() == 256);
    assert!(size_of::<RingPoisonLine>() == 128);
};

#[cfg(earlybird_loom)]
mod modelled {
    use super::*;

    impl Default for SlotLine {
        fn default() -> Self {
            SlotLine { sequence: AtomicU64::new(0), header: std::array::from_fn(|_| AtomicU64::promised(0)) }
        }
    }
    impl Default for AcknowledgedLine {
        fn default() -> Self {
            AcknowledgedLine(AtomicU64::new(0))
        }
    }
    impl Default for BellLine {
        fn default() -> Self {
            BellLine { event: AtomicU32::new(0), sleepers: AtomicU32::new(0) }
        }
    }
}
