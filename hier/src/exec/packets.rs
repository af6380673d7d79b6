//! The sequence of packets between this rank and one other.

use super::transport::{Failure, PacketHeader};

/// Packets per sender that are announced ahead.
pub(super) const WINDOW: usize = 4;

/// The number of packets sent to one other rank, received from it, and announced to the transport.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct PacketCursor {
    pub(super) sent: usize,
    pub(super) received: usize,
    pub(super) posted: usize,
}

/// The packet that is due next from one rank to another.
pub(super) struct ExpectedPacket {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) head: PacketHeader,
}

impl ExpectedPacket {
    /// The failure if the packet that came is not the one that is due.
    pub(super) fn differs(&self, came: PacketHeader, fits: bool) -> Option<Failure> {
        let ExpectedPacket { from, to, head: due } = *self;
        if came.operation == due.operation && came.call != due.call {
            return Some(Failure::Mismatch { rank_a: from.min(to), rank_b: from.max(to) });
        }
        let is_due = came == due && fits;
        (!is_due).then_some(Failure::Lost { from, to, expected: due.packet, found: came.packet })
    }
}
