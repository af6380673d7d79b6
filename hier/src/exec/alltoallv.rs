//! Alltoallv: every rank sends a part of any length to every other rank. No plan describes it, as plans cut one vector
//! into equal blocks.
//!
//! Every rank sends each part directly to its receiver, all at once, in packets as large as the transport takes. Cost:
//! the bytes of a rank's parts, once, and a message per partner: good for long parts, costly for many short ones.

use super::endpoint::Endpoint;
use super::packets::{ExpectedPacket, PacketCursor, WINDOW};
use super::running::{RunError, Running};
use super::transport::{Failure, PacketDecision, PacketHeader, Transport};

/// The send and the receive buffer of a rank for one other rank. Both ends agree on the lengths; empty parts are neither
/// sent nor awaited.
#[derive(Debug, Default)]
pub struct Parts<'a> {
    /// Data for the other rank.
    pub send: &'a [u8],
    /// Room for the data of the other rank.
    pub receive: &'a mut [u8],
}

/// An alltoallv under way, with one part per rank; the rank's own part is ignored. No other operation of the endpoint may
/// run meanwhile, and every call gets the same parts.
#[derive(Debug)]
pub struct Alltoallv {
    head: PacketHeader,
    cursors: Vec<PacketCursor>,
    /// A rank that packets are missing from or that has no room for packets.
    left: Option<usize>,
    ended: bool,
}

impl Alltoallv {
    /// Starts an alltoallv; the first poll sends. `call` must be equal on all ranks, otherwise the group fails with
    /// [`Failure::Mismatch`].
    ///
    /// # Errors
    /// The endpoint's failure.
    pub fn start<T: Transport>(endpoint: &mut Endpoint<T>, call: u64) -> Result<Self, RunError> {
        if let Some(failure) = endpoint.failure() {
            return Err(failure.clone().into());
        }
        let operation = endpoint.running.start();
        let cursors = vec![PacketCursor::default(); endpoint.transport.size()];
        Ok(Alltoallv { head: PacketHeader { operation, packet: 0, call }, cursors, left: None, ended: false })
    }
}

impl<'p> Running<[Parts<'p>]> for Alltoallv {
    fn number(&self) -> Option<u32> {
        (!self.ended).then_some(self.head.operation)
    }

    fn awaited(&self) -> Option<usize> {
        self.left
    }

    fn check(&self, parts: &[Parts<'p>]) -> Result<(), RunError> {
        let (given, expected) = (parts.len(), self.cursors.len());
        if given == expected { Ok(()) } else { Err(RunError::Length { given, expected }) }
    }

    fn is_complete(&self) -> bool {
        self.left.is_none()
    }

    fn end(&mut self) {
        self.ended = true;
    }

    fn pass<T: Transport>(&mut self, endpoint: &mut Endpoint<T>, parts: &mut [Parts<'p>]) -> Result<bool, Failure> {
        let transport = &mut endpoint.transport;
        let (me, size, most) = (transport.rank(), parts.len(), transport.packet_bytes());
        let mut moved = false;
        self.left = None;
        // Every rank begins with another partner, so that not all send to the same one first.
        for peer in (1..size).map(|d| (me + d) % size) {
            let (part, cursor) = (&mut parts[peer], &mut self.cursors[peer]);
            let packets = part.receive.len().div_ceil(most);
            while cursor.posted < packets.min(cursor.received + WINDOW) {
                transport.post_receive(peer, most.min(part.receive.len() - cursor.posted * most))?;
                cursor.posted += 1;
            }
            while cursor.received < packets && take_one(transport, peer, self.head, part.receive, cursor.received)? {
                cursor.received += 1;
                moved = true;
            }
            while cursor.sent * most < part.send.len() {
                let first = cursor.sent * most;
                let bytes = &part.send[first..part.send.len().min(first + most)];
                let head = PacketHeader { packet: cursor.sent as u32, ..self.head };
                if !transport.post_send(peer, head, bytes.len(), |room| room.copy_from_slice(bytes))? {
                    break;
                }
                cursor.sent += 1;
                moved = true;
            }
            if cursor.received < packets || cursor.sent * most < part.send.len() {
                self.left = self.left.or(Some(peer));
            }
        }
        Ok(moved)
    }
}

/// Takes packet `due` from `peer` if it has arrived.
fn take_one<T: Transport>(
    transport: &mut T,
    peer: usize,
    head: PacketHeader,
    room: &mut [u8],
    due: usize,
) -> Result<bool, Failure> {
    let (me, most) = (transport.rank(), transport.packet_bytes());
    let room = &mut room[due * most..];
    let expected = room.len().min(most);
    let mut wrong = None;
    let next = ExpectedPacket { from: peer, to: me, head: PacketHeader { packet: due as u32, ..head } };
    let taken = transport.receive(peer, |found, payload| {
        wrong = next.differs(found, payload.len() == expected);
        if wrong.is_none() {
            room[..expected].copy_from_slice(payload);
        }
        PacketDecision::Consume
    })?;
    wrong.map_or(Ok(taken), Err)
}
