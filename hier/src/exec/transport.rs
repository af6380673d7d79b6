//! What the executor asks of a network: packets in order between two ranks, and the group's one failure.
//!
//! The transport owns the memory of packets: a sender writes into it, a receiver reads or folds straight out of it. So
//! a message is copied once on its way into the transport, a reduction needs no receive buffer, and nothing is borrowed
//! beyond a call.

use std::time::Duration;

/// What a packet is: which run it belongs to and its number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// Number of the operation in its endpoint, from 1; all ranks start operations in the same order.
    pub operation: u32,
    /// Number of the packet among those of this operation from this sender to this receiver, from 0.
    pub packet: u32,
    /// Digest of plan, geometry and operator: what both ends must agree on.
    pub call: u64,
}

/// Whether a packet that was shown is done with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// Its memory may be reused.
    Taken,
    /// It stays the next one from its sender.
    Left,
}

/// Why a group of ranks cannot go on. The first one raised is every rank's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
    /// What the layer above reported, in words that it reads.
    #[error("the layer above has failed the group")]
    Told {
        /// Its words.
        words: [u64; 13],
    },
    /// What the transport itself reports.
    #[error("{0}")]
    Transport(String),
}

/// Endpoint of one rank. No method blocks but [`Transport::idle`], and that one not for ever.
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
        head: Head,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Failure>;

    /// Says that one more packet of at most `bytes` bytes is awaited from `from`: a transport that needs memory in
    /// place before data comes puts it there. Every packet is announced before it is asked for.
    ///
    /// # Errors
    /// The group's failure.
    fn post_receive(&mut self, from: usize, bytes: usize) -> Result<(), Failure>;

    /// Shows the next packet from `from` to `take`, if one is there. Nothing is said of a dead sender as long as
    /// something it sent is left.
    ///
    /// # Errors
    /// The group's failure.
    fn receive(&mut self, from: usize, take: impl FnOnce(Head, &[u8]) -> Take) -> Result<bool, Failure>;

    /// Whether everything that was sent can reach its receivers without this rank doing more for it. An operation ends
    /// only then: its caller may compute for a long time before it comes back.
    ///
    /// # Errors
    /// The group's failure.
    fn is_flushed(&mut self) -> Result<bool, Failure> {
        Ok(true)
    }

    /// Drives what is under way and reports the group's failure. Called whenever nothing else moved.
    ///
    /// # Errors
    /// The group's failure.
    fn progress(&mut self) -> Result<(), Failure>;

    /// Called when nothing moved in `idle` passes, this one included: spins, yields or sleeps, a bounded time, until
    /// something may have changed.
    ///
    /// # Errors
    /// The group's failure, which [`Transport::progress`] reports from then on; a death is noticed here within a second.
    fn idle(&mut self, passes: u32) -> Result<(), Failure>;

    /// Fails the group for all ranks, unless it has failed already; the failure that stands.
    fn raise(&mut self, failure: Failure) -> Failure;
}
