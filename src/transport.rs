//! Packets over the rings of a node, and the transport over which plans run between the processes of one node.

use crate::Error;
use earlybird_hier::exec::{Failure, PacketDecision, PacketHeader, Transport};
use earlybird_shm::Absent;
pub use earlybird_shm::channel::RingOptions;
use earlybird_shm::channel::{Fault, Rings};

/// The header of a packet as two words.
pub(crate) fn to_words(head: PacketHeader) -> [u64; 2] {
    [u64::from(head.operation) << 32 | u64::from(head.packet), head.call]
}

/// The header of a packet that was sent as these words.
pub(crate) fn header([numbers, call]: [u64; 2]) -> PacketHeader {
    PacketHeader { operation: (numbers >> 32) as u32, packet: numbers as u32, call }
}

/// Sends a packet over the rings, as [`Transport::post_send`].
pub(crate) fn send_packet(
    rings: &mut Rings,
    to: usize,
    head: PacketHeader,
    bytes: usize,
    write: impl FnOnce(&mut [u8]),
) -> Result<bool, Error> {
    rings.send(to, to_words(head), bytes, write)
}

/// Shows a packet of the rings to `take`, as [`Transport::receive`].
pub(crate) fn receive_packet(
    rings: &mut Rings,
    from: usize,
    take: impl FnOnce(PacketHeader, &[u8]) -> PacketDecision,
) -> Result<bool, Error> {
    rings.receive(from, |words, payload| take(header(words), payload) == PacketDecision::Consume)
}

/// [`Rings`] as a transport of plans, with the group's error in full.
#[derive(Debug)]
pub struct ShmTransport {
    rings: Rings,
    error: Option<Error>,
}

impl ShmTransport {
    /// Joins the group and returns when all its ranks have.
    ///
    /// # Errors
    /// As [`Rings::join`].
    pub fn join(options: &RingOptions) -> Result<Self, Error> {
        Ok(ShmTransport { rings: Rings::join(options)?, error: None })
    }

    /// The same for ranks that are members of another group already, which `absent` asks.
    pub(crate) fn join_within(options: &RingOptions, absent: Absent<'_>) -> Result<Self, Error> {
        Ok(ShmTransport { rings: Rings::join_within(options, absent)?, error: None })
    }

    pub(crate) fn rings(&mut self) -> &mut Rings {
        &mut self.rings
    }

    /// The group's error in full: the failure of a transport names no process.
    pub fn error(&self) -> Option<&Error> {
        self.error.as_ref()
    }

    fn failed(&mut self, error: Error) -> Failure {
        let failure = match &error {
            Error::PeerDied { rank, .. } => Failure::PeerDied { rank: *rank },
            Error::Timeout { missing, after, .. } => {
                Failure::Timeout { missing: missing.first().copied().unwrap_or(0), after: *after }
            }
            Error::Mismatch { rank_a, rank_b, .. } => Failure::Mismatch { rank_a: *rank_a, rank_b: *rank_b },
            other => Failure::Transport(other.to_string()),
        };
        self.error.get_or_insert(error);
        failure
    }
}

impl Transport for ShmTransport {
    fn rank(&self) -> usize {
        self.rings.rank()
    }

    fn size(&self) -> usize {
        self.rings.size()
    }

    fn packet_bytes(&self) -> usize {
        self.rings.packet_bytes()
    }

    fn post_send(
        &mut self,
        to: usize,
        head: PacketHeader,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Failure> {
        send_packet(&mut self.rings, to, head, bytes, write).map_err(|error| self.failed(error))
    }

    fn receive(
        &mut self,
        from: usize,
        take: impl FnOnce(PacketHeader, &[u8]) -> PacketDecision,
    ) -> Result<bool, Failure> {
        receive_packet(&mut self.rings, from, take).map_err(|error| self.failed(error))
    }

    fn progress(&mut self) -> Result<(), Failure> {
        self.rings.healthy().map_err(|error| self.failed(error))
    }

    fn idle(&mut self, passes: u32) -> Result<(), Failure> {
        self.rings.idle(passes).map_err(|error| self.failed(error))
    }

    fn raise(&mut self, failure: Failure) -> Failure {
        let fault = match failure {
            Failure::PeerDied { rank } => Fault::PeerDied { rank },
            Failure::Timeout { missing, after } => {
                Fault::Timeout { missing, after_ns: earlybird_shm::nanoseconds(after) }
            }
            Failure::Mismatch { rank_a, rank_b } => {
                let other = if rank_a == self.rank() { rank_b } else { rank_a };
                self.rings.mismatch([self.rank(), other])
            }
            Failure::Transport(text) => Fault::Other(text),
            Failure::Lost { .. } | Failure::Reported { .. } => Fault::Corrupt,
        };
        let stands = self.rings.raise(fault);
        self.failed(stands)
    }
}
