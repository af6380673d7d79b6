//! Alltoallv: every rank sends a part of any length to every other rank. No plan describes it, as plans cut one vector
//! into equal blocks.
//!
//! Every rank sends each part directly to its receiver, all at once, in packets as large as the transport takes. Cost:
//! the bytes of a rank's parts, once, and a message per partner: good for long parts, costly for many short ones.

use super::endpoint::Endpoint;
use super::packets::{ExpectedPacket, PacketCursor, WINDOW};
use super::run::RunError;
use super::transport::{Failure, PacketDecision, PacketHeader, Transport};
use std::time::{Duration, Instant};

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

    /// Makes progress without waiting; `true` when all parts have been sent and received.
    ///
    /// # Errors
    /// The group's failure, which ends the operation.
    ///
    /// # Panics
    /// Unless there is a part for every rank.
    pub fn poll<T: Transport>(
        &mut self,
        endpoint: &mut Endpoint<T>,
        parts: &mut [Parts<'_>],
    ) -> Result<bool, RunError> {
        let mut looked_again = false;
        let result = match endpoint.failure() {
            Some(failure) => Err(failure.clone()),
            None => loop {
                match self.pass(&mut endpoint.transport, parts) {
                    Ok(true) if self.left.is_some() => {}
                    Ok(_) => {
                        let transport = &mut endpoint.transport;
                        break match self.left.is_none().then(|| transport.is_flushed()).transpose() {
                            Ok(Some(true)) => Ok(true),
                            Ok(_) => match transport.progress() {
                                // Packets that came before the failure count.
                                Err(_) if !looked_again => {
                                    looked_again = true;
                                    continue;
                                }
                                driven => driven.map(|()| false),
                            },
                            Err(failure) => Err(failure),
                        };
                    }
                    Err(failure) => break Err(failure),
                }
            },
        };
        if matches!(result, Ok(true) | Err(_)) && !std::mem::replace(&mut self.ended, true) {
            endpoint.running.end(self.head.operation);
        }
        result.map_err(|failure| endpoint.fail(failure).into())
    }

    /// Waits until all parts have been sent and received.
    ///
    /// # Errors
    /// The group's failure; [`Failure::Timeout`] on every rank after `timeout` without progress.
    ///
    /// # Panics
    /// Unless there is a part for every rank.
    pub fn wait<T: Transport>(
        &mut self,
        endpoint: &mut Endpoint<T>,
        parts: &mut [Parts<'_>],
        timeout: Option<Duration>,
    ) -> Result<(), RunError> {
        let (mut idle, mut since, mut done) = (0, None, 0);
        while !self.poll(endpoint, parts)? {
            let now_done = self.cursors.iter().map(|cursor| cursor.sent + cursor.received).sum();
            if now_done > std::mem::replace(&mut done, now_done) {
                (idle, since) = (0, None);
                continue;
            }
            idle += 1;
            // Packets that have come by now may be the last ones needed; if not, the next pass reports the failure.
            let _ = endpoint.transport.idle(idle);
            if let Some(after) = timeout
                && since.get_or_insert_with(Instant::now).elapsed() > after
            {
                let missing = self.left.unwrap_or(endpoint.transport.rank());
                endpoint.fail(Failure::Timeout { missing, after });
            }
        }
        Ok(())
    }

    /// A rank that the operation waits for.
    pub fn awaited(&self) -> Option<usize> {
        self.left
    }

    /// Tries to send to and receive from every partner once; `true` if there was progress.
    fn pass<T: Transport>(&mut self, transport: &mut T, parts: &mut [Parts<'_>]) -> Result<bool, Failure> {
        let (me, size, most) = (transport.rank(), parts.len(), transport.packet_bytes());
        assert_eq!(size, self.cursors.len(), "a part for every rank");
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

/// Starts an [`Alltoallv`] and waits for its end.
///
/// # Errors
/// The errors of [`Alltoallv::wait`].
///
/// # Panics
/// Unless there is a part for every rank.
pub fn alltoallv<T: Transport>(
    endpoint: &mut Endpoint<T>,
    call: u64,
    parts: &mut [Parts<'_>],
    timeout: Option<Duration>,
) -> Result<(), RunError> {
    Alltoallv::start(endpoint, call)?.wait(endpoint, parts, timeout)
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
