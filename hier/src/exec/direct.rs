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

/// Exchanges `parts`, one per rank, the own one ignored. An operation like any other of the endpoint, but nothing else
/// may be under way. `call` must be equal on all ranks: a rank that comes with another one is a [`Failure::Mismatch`].
///
/// # Errors
/// The group's failure; [`Failure::Timeout`] once nothing has moved for `timeout`, on every rank.
///
/// # Panics
/// Unless there is a part for every rank.
pub fn exchange<T: Transport>(
    endpoint: &mut Endpoint<T>,
    call: u64,
    parts: &mut [Parts<'_>],
    timeout: Option<Duration>,
) -> Result<(), RunError> {
    assert_eq!(parts.len(), endpoint.transport.size(), "a part for every rank");
    if let Some(failure) = endpoint.failure() {
        return Err(failure.clone().into());
    }
    let operation = endpoint.running.start();
    let result = carry(endpoint, Head { operation, packet: 0, call }, parts, timeout);
    endpoint.running.end(operation);
    result.map_err(|failure| endpoint.fail(failure).into())
}

fn carry<T: Transport>(
    endpoint: &mut Endpoint<T>,
    head: Head,
    parts: &mut [Parts<'_>],
    timeout: Option<Duration>,
) -> Result<(), Failure> {
    let transport = &mut endpoint.transport;
    let (me, size, most) = (transport.rank(), parts.len(), transport.packet_bytes());
    let mut cursors = vec![Cursor::default(); size];
    let (mut idle, mut since) = (0, None);
    loop {
        let (mut moved, mut left) = (false, None);
        // Partners in an order of each rank's own, so that not all send to the same one first.
        for peer in (1..size).map(|d| (me + d) % size) {
            let (part, cursor) = (&mut parts[peer], &mut cursors[peer]);
            let packets = part.receive.len().div_ceil(most);
            while cursor.posted < packets.min(cursor.received + WINDOW) {
                transport.post_receive(peer, most.min(part.receive.len() - cursor.posted * most))?;
                cursor.posted += 1;
            }
            while cursor.received < packets && take_one(transport, peer, head, part.receive, cursor.received)? {
                cursor.received += 1;
                moved = true;
            }
            while cursor.sent * most < part.send.len() {
                let first = cursor.sent * most;
                let bytes = &part.send[first..part.send.len().min(first + most)];
                let head = Head { packet: cursor.sent as u32, ..head };
                if !transport.post_send(peer, head, bytes.len(), |room| room.copy_from_slice(bytes))? {
                    break;
                }
                cursor.sent += 1;
                moved = true;
            }
            if cursor.received < packets || cursor.sent * most < part.send.len() {
                left = left.or(Some(peer));
            }
        }
        if left.is_none() && transport.is_flushed()? {
            return Ok(());
        }
        if moved {
            (idle, since) = (0, None);
            continue;
        }
        transport.progress()?;
        idle += 1;
        // What has come by now may be the last that is needed; if not, the next pass reports the failure.
        let _ = transport.idle(idle);
        if let Some(after) = timeout
            && since.get_or_insert_with(Instant::now).elapsed() > after
        {
            return Err(Failure::Timeout { missing: left.unwrap_or(me), after });
        }
    }
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
