//! Data moved as it is between every pair of ranks that has some for each other: what no plan describes, because the parts
//! have lengths of their own.
//!
//! Every rank sends each part straight to its receiver, all at once, in packets as large as the transport takes. Cost: the
//! bytes of a rank's parts, once, and a message per partner: right for long parts, dear for many short ones.

use super::endpoint::Endpoint;
use super::run::RunError;
use super::state::Due;
use super::transport::{Failure, Head, Take, Transport};
use std::time::{Duration, Instant};

/// Packets per sender that are announced ahead.
const WINDOW: usize = 4;

/// What one rank has for one other, and room for what it gets from there. Both ends agree on the lengths; empty parts are
/// neither sent nor awaited.
#[derive(Debug, Default)]
pub struct Parts<'a> {
    /// What goes there.
    pub send: &'a [u8],
    /// What comes from there.
    pub receive: &'a mut [u8],
}

#[derive(Debug, Default, Clone, Copy)]
struct Cursor {
    sent: usize,
    received: usize,
    posted: usize,
}

/// An exchange of parts under way, one per rank, the own one ignored: an operation like any other of the endpoint, but
/// nothing else may be under way. The same parts are given to every call.
#[derive(Debug)]
pub struct Exchange {
    head: Head,
    cursors: Vec<Cursor>,
    /// A rank whose packets, or room for packets, it needs.
    left: Option<usize>,
    ended: bool,
}

impl Exchange {
    /// Begins one. Nothing is sent before the first poll. `call` must be equal on all ranks: a rank that comes with another
    /// one is a [`Failure::Mismatch`].
    ///
    /// # Errors
    /// The endpoint's failure.
    pub fn start<T: Transport>(endpoint: &mut Endpoint<T>, call: u64) -> Result<Self, RunError> {
        if let Some(failure) = endpoint.failure() {
            return Err(failure.clone().into());
        }
        let operation = endpoint.running.start();
        let cursors = vec![Cursor::default(); endpoint.transport.size()];
        Ok(Exchange { head: Head { operation, packet: 0, call }, cursors, left: None, ended: false })
    }

    /// Does what can be done now; `true` when everything has come and gone. Never waits.
    ///
    /// # Errors
    /// The group's failure: the operation has ended then.
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
                                // What came before the failure counts.
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

    /// Polls until everything has come and gone, letting the transport rest in between.
    ///
    /// # Errors
    /// The group's failure; [`Failure::Timeout`] once nothing has moved for `timeout`, on every rank.
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
            // What has come by now may be the last that is needed; if not, the next pass reports the failure.
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

    /// A rank that it waits for.
    pub fn awaited(&self) -> Option<usize> {
        self.left
    }

    /// One look at every partner; whether anything moved.
    fn pass<T: Transport>(&mut self, transport: &mut T, parts: &mut [Parts<'_>]) -> Result<bool, Failure> {
        let (me, size, most) = (transport.rank(), parts.len(), transport.packet_bytes());
        assert_eq!(size, self.cursors.len(), "a part for every rank");
        let mut moved = false;
        self.left = None;
        // Partners in an order of each rank's own, so that not all send to the same one first.
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
                let head = Head { packet: cursor.sent as u32, ..self.head };
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

/// Starts an [`Exchange`] and waits for its end.
///
/// # Errors
/// As [`Exchange::wait`].
///
/// # Panics
/// Unless there is a part for every rank.
pub fn exchange<T: Transport>(
    endpoint: &mut Endpoint<T>,
    call: u64,
    parts: &mut [Parts<'_>],
    timeout: Option<Duration>,
) -> Result<(), RunError> {
    Exchange::start(endpoint, call)?.wait(endpoint, parts, timeout)
}

/// Takes packet `due` from `peer` if it is there.
fn take_one<T: Transport>(
    transport: &mut T,
    peer: usize,
    head: Head,
    room: &mut [u8],
    due: usize,
) -> Result<bool, Failure> {
    let (me, most) = (transport.rank(), transport.packet_bytes());
    let room = &mut room[due * most..];
    let expected = room.len().min(most);
    let mut wrong = None;
    let next = Due { from: peer, to: me, head: Head { packet: due as u32, ..head } };
    let taken = transport.receive(peer, |found, payload| {
        wrong = next.differs(found, payload.len() == expected);
        if wrong.is_none() {
            room[..expected].copy_from_slice(payload);
        }
        Take::Taken
    })?;
    wrong.map_or(Ok(taken), Err)
}
