//! Alltoallv: every rank sends a part of any length to every other rank. No plan describes it, as plans cut one vector
//! into equal blocks.
//!
//! Every rank sends each part directly to its receiver, all at once, in packets as large as the transport takes. Cost:
//! the bytes of a rank's parts, once, and a message per partner: good for long parts, costly for many short ones.

use super::endpoint::Endpoint;
use super::packets::{ExpectedPacket, PacketCursor, WINDOW};
use super::running::{RunError, Running};
use super::slice_list::SliceList;
use super::transport::{Failure, PacketDecision, PacketHeader, Transport};

/// The data of a rank for one other rank, and the room for what that one sends; of one exchange, which reads and writes them. Both
/// ends agree on the bytes, not on the slices; empty parts are neither sent nor awaited.
#[derive(Debug, Default)]
pub struct Parts<'a> {
    /// Data for the other rank.
    pub send: SliceList<&'a [u8]>,
    /// Room for the data of the other rank.
    pub receive: SliceList<&'a mut [u8]>,
}

impl<'a> Parts<'a> {
    /// Parts of one slice each.
    pub fn new(send: &'a [u8], receive: &'a mut [u8]) -> Self {
        Parts { send: send.into(), receive: receive.into() }
    }
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
            let (to_send, to_receive) = (part.send.bytes(), part.receive.bytes());
            let packets = to_receive.div_ceil(most);
            while cursor.posted < packets.min(cursor.received + WINDOW) {
                transport.post_receive(peer, most.min(to_receive - cursor.posted * most))?;
                cursor.posted += 1;
            }
            while cursor.received < packets && take_one(transport, peer, self.head, &mut part.receive, cursor.received)?
            {
                cursor.received += 1;
                moved = true;
            }
            while cursor.sent * most < to_send {
                let bytes = most.min(to_send - cursor.sent * most);
                let head = PacketHeader { packet: cursor.sent as u32, ..self.head };
                if !transport.post_send(peer, head, bytes, |room| part.send.read(room))? {
                    break;
                }
                cursor.sent += 1;
                moved = true;
            }
            if cursor.received < packets || cursor.sent * most < to_send {
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
    room: &mut SliceList<&mut [u8]>,
    due: usize,
) -> Result<bool, Failure> {
    let (me, most) = (transport.rank(), transport.packet_bytes());
    let expected = most.min(room.bytes() - due * most);
    let mut wrong = None;
    let next = ExpectedPacket { from: peer, to: me, head: PacketHeader { packet: due as u32, ..head } };
    let taken = transport.receive(peer, |found, payload| {
        wrong = next.differs(found, payload.len() == expected);
        if wrong.is_none() {
            room.write(payload);
        }
        PacketDecision::Consume
    })?;
    wrong.map_or(Ok(taken), Err)
}
