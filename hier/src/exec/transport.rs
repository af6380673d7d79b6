//! The transport trait: ordered packets between two ranks, and one failure for the group.
//!
//! The transport owns the memory of packets: a sender writes into it, a receiver reads or folds straight out of it. So
//! a message is copied once on its way into the transport, a reduction needs no receive buffer, and nothing is borrowed
//! beyond a call.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The header of a packet: its operation and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    /// Number of the operation in its endpoint, from 1; all ranks start operations in the same order.
    pub operation: u32,
    /// Number of the packet among those of this operation from this sender to this receiver, from 0.
    pub packet: u32,
    /// Digest of plan, geometry and operator, on which both ends must agree.
    pub call: u64,
}

/// The receiver's decision about a packet that it was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PacketDecision {
    /// The packet is done with; its memory may be reused.
    Consume,
    /// The packet stays the next one from its sender.
    Leave,
}

/// The failure of a group of ranks. The first one raised is reported on every rank.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Failure {
    /// A rank died or left while others still needed it.
    #[error("rank {rank} died or left while others still needed it; start the group again")]
    PeerDied {
        /// The rank that is gone.
        rank: usize,
    },
    /// A deadline passed.
    #[error("after {after:?} nothing had come from rank {missing}; raise the deadline or see what delays it")]
    Timeout {
        /// A rank that was waited for.
        missing: usize,
        /// The deadline in force.
        after: Duration,
    },
    /// A packet is missing in a sequence.
    #[error("rank {to} got packet {found} of rank {from} where packet {expected} was due: the transport lost one")]
    Lost {
        /// Sender.
        from: usize,
        /// Receiver.
        to: usize,
        /// Number of the packet that was due.
        expected: u32,
        /// Number of the packet that came.
        found: u32,
    },
    /// Two ranks run different things.
    #[error("ranks {rank_a} and {rank_b} run different plans, sizes or operators; all ranks must make the same calls")]
    Mismatch {
        /// A rank.
        rank_a: usize,
        /// A rank that made another call.
        rank_b: usize,
    },
    /// A failure of the layer above, encoded by that layer.
    #[error("the layer above has failed the group")]
    Reported {
        /// The encoded failure.
        words: [u64; 13],
    },
    /// A failure of the transport itself.
    #[error("{0}")]
    Transport(String),
}

/// One rank's end of a network. Only [`Transport::idle`] blocks, and for a bounded time.
///
/// Between two ranks packets arrive complete, once and in the order sent; between others nothing is ordered. The same
/// suite holds every transport to this: `hier/tests/common/conformance.rs`.
pub trait Transport {
    /// This rank.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Bytes of the largest packet.
    fn packet_bytes(&self) -> usize;

    /// Sends a packet of `bytes` bytes, which `write` fills, if there is room for it: `false` otherwise, with `write`
    /// not called. Rank and size must fit.
    ///
    /// # Errors
    /// The group's failure.
    fn post_send(
        &mut self,
        to: usize,
        head: PacketHeader,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Failure>;

    /// Announces that one more packet of at most `bytes` bytes is awaited from `from`, so that the transport can provide
    /// memory for it, where that is not there already. Every packet is announced before it is received.
    ///
    /// # Errors
    /// The group's failure.
    fn post_receive(&mut self, _from: usize, _bytes: usize) -> Result<(), Failure> {
        Ok(())
    }

    /// Shows the next packet from `from` to `take`, if one has arrived. The death of a sender is reported only after all
    /// its packets were received.
    ///
    /// # Errors
    /// The group's failure.
    fn receive(
        &mut self,
        from: usize,
        take: impl FnOnce(PacketHeader, &[u8]) -> PacketDecision,
    ) -> Result<bool, Failure>;

    /// True if all sent packets reach their receivers without further progress by this rank. An operation ends only then,
    /// because its caller may compute for a long time before the next call.
    ///
    /// # Errors
    /// The group's failure.
    fn is_flushed(&mut self) -> Result<bool, Failure> {
        Ok(true)
    }

    /// Makes progress and reports the group's failure. Called whenever there was no other progress.
    ///
    /// # Errors
    /// The group's failure.
    fn progress(&mut self) -> Result<(), Failure>;

    /// Spins, yields or sleeps for a bounded time until something may have changed. Called after `passes` passes without
    /// progress, this one included.
    ///
    /// # Errors
    /// The group's failure, which [`Transport::progress`] reports from then on; a death is noticed here within a second.
    fn idle(&mut self, passes: u32) -> Result<(), Failure>;

    /// Fails the group for all ranks and returns the failure; if the group has already failed, the earlier one.
    fn raise(&mut self, failure: Failure) -> Failure;
}
