//! Messages between two ranks: from all to all, and from any rank.

use crate::common::messages::{end, receive};
use crate::common::mix;
use crate::draw::Rng;
use crate::forms::{Checked, Failure, Way, delay};
use earlybird::{Communicator, Delivery, Error, PointToPoint, Transfer};

/// The message of a length that `from` sends to `to` under this tag, in the call `seed`.
fn text(seed: u64, from: usize, to: usize, tag: u32, length: usize) -> Vec<u8> {
    let key = mix(seed ^ (from << 40 | to << 32 | tag as usize) as u64);
    (0..length as u64).map(|at| mix(key ^ (at % 997)) as u8).collect()
}

/// Waits for a transfer, by `wait` or by `test`.
fn complete(messages: &PointToPoint, transfer: &Transfer, rng: &mut Rng) -> Result<Delivery, Error> {
    if rng.flip() {
        return end(messages, transfer);
    }
    loop {
        if let Some(delivery) = messages.test(transfer)? {
            return Ok(delivery);
        }
        std::thread::yield_now();
    }
}

fn check(got: &[u8], want: &[u8], from: usize, what: &str) -> Checked {
    match got == want {
        true => Ok(()),
        false => Err(Failure::Wrong(format!("{what} of {} bytes from rank {from}: {} came", want.len(), got.len()))),
    }
}

/// One to three messages from each rank to each other one, completed in an order of each rank's own, with a barrier between or not.
pub fn messages_to_all(comm: &Communicator, rng: &mut Rng, _: Way) -> Checked {
    let messages = comm.point_to_point()?;
    let (me, size, seed) = (comm.rank(), comm.size(), rng.next());
    let lengths: Vec<usize> = (0..1 + rng.below(3)).map(|_| rng.count(1, size)).collect();
    let (beside, mut own) = (rng.below(4) == 0, rng.of_rank(me));
    delay(comm, rng);
    let pairs =
        || (0..size).filter(|other| *other != me).flat_map(|other| (0..lengths.len()).map(move |tag| (other, tag)));
    let (mut sent, mut received) = (Vec::new(), Vec::new());
    for (other, tag) in pairs() {
        let length = lengths[tag];
        sent.push(messages.send(other, tag as u32, text(seed, me, other, tag as u32, length))?);
        received.push((receive(&messages, Some(other), tag as u32, length)?, other, tag));
    }
    if beside {
        comm.barrier()?;
    }
    while !received.is_empty() {
        let ((transfer, memory), from, tag) = received.swap_remove(own.below(received.len()));
        complete(&messages, &transfer, &mut own)?;
        check(&memory.bytes(), &text(seed, from, me, tag as u32, lengths[tag]), from, "a message")?;
    }
    while !sent.is_empty() {
        complete(&messages, &sent.swap_remove(own.below(sent.len())), &mut own)?;
    }
    Ok(())
}

/// One message from each rank to one, which takes them as they come where the ranks share a node.
pub fn messages_from_any(comm: &Communicator, rng: &mut Rng, _: Way) -> Checked {
    let messages = comm.point_to_point()?;
    let (me, size, seed) = (comm.rank(), comm.size(), rng.next());
    let (root, length, mut own) = (rng.below(size), rng.count(1, size), rng.of_rank(me));
    // A rank may be a call ahead of others: its next message must not be taken for this one.
    let tag = 3 + (seed >> 40) as u32;
    delay(comm, rng);
    if me != root {
        let sent = messages.send(root, tag, text(seed, me, root, tag, length))?;
        complete(&messages, &sent, &mut own)?;
        return Ok(());
    }
    let mut missing: Vec<usize> = (0..size).filter(|rank| *rank != root).collect();
    while let Some(last) = missing.last() {
        let from = (comm.nodes() > 1).then_some(*last);
        let (transfer, memory) = receive(&messages, from, tag, length)?;
        let peer = complete(&messages, &transfer, &mut own)?.peer;
        let Some(at) = missing.iter().position(|rank| *rank == peer) else {
            return Err(Failure::Wrong(format!("a second message from rank {peer}")));
        };
        missing.swap_remove(at);
        check(&memory.bytes(), &text(seed, peer, root, tag, length), peer, "a message to any")?;
    }
    Ok(())
}
