//! Messages of any length between two ranks: cut into packets, put together again, and matched with receives.
//!
//! Messages from one rank under one tag are received in the order in which they were sent. A message for which
//! no receive is posted is kept in private memory.

use crate::Error;
use earlybird_hier::exec::{Failure, PacketDecision, PacketHeader, Transport};
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

/// Packets of one rank that are taken before others have their turn.
const PACKETS_AT_ONCE: usize = 64;

/// A message that has gone or come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivery {
    /// The other rank.
    pub peer: usize,
    /// Length of the message.
    pub bytes: usize,
}

/// A send or a receive that was started.
#[derive(Debug, Clone, Default)]
pub struct Transfer(Arc<OnceLock<Result<Delivery, Error>>>);

impl Transfer {
    /// The result, once the transfer has ended.
    pub fn ended(&self) -> Option<Result<Delivery, Error>> {
        self.0.get().cloned()
    }

    fn end(&self, result: Result<Delivery, Error>) {
        let is_first = self.0.set(result).is_ok();
        debug_assert!(is_first, "a transfer ends once");
    }
}

/// The memory of a message to send.
pub(super) type Source = Box<dyn AsRef<[u8]> + Send>;
/// The memory of a message to receive.
pub(super) type Target = Box<dyn AsMut<[u8]> + Send>;

struct OutgoingMessage {
    tag: u32,
    data: Source,
    sent: usize,
    packets: u32,
    transfer: Transfer,
}

struct PostedReceive {
    /// `None` for any rank.
    from: Option<usize>,
    tag: u32,
    buffer: Target,
    transfer: Transfer,
}

impl PostedReceive {
    fn accepts(&self, from: usize, tag: u32) -> bool {
        self.tag == tag && self.from.is_none_or(|rank| rank == from)
    }

    /// Takes a message of `bytes` bytes if that is what is awaited.
    fn open(mut self, from: usize, bytes: usize) -> Option<PostedReceive> {
        let room = (*self.buffer).as_mut().len();
        if room == bytes {
            return Some(self);
        }
        self.transfer.end(Err(Error::usage(format!(
            "rank {from} sent {bytes} bytes under tag {} and {room} are awaited; send and receive the same number",
            self.tag
        ))));
        None
    }

    fn deliver(mut self, from: usize, message: &[u8]) {
        (*self.buffer).as_mut().copy_from_slice(message);
        self.end(from, message.len());
    }

    fn end(self, peer: usize, bytes: usize) {
        self.transfer.end(Ok(Delivery { peer, bytes }));
    }
}

/// A message of which the first packet has come.
struct ArrivingMessage {
    tag: u32,
    bytes: usize,
    came: usize,
    /// The bytes that have come, if no receive was posted.
    kept: Option<Vec<u8>>,
    /// The receive of the message; `None` also if it was refused.
    receive: Option<PostedReceive>,
}

/// A complete message for which no receive was posted.
struct EarlyMessage {
    from: usize,
    tag: u32,
    message: Vec<u8>,
}

/// The transfers of one rank.
pub(super) struct Transfers {
    /// Messages to send, by receiver, in order.
    outgoing: Vec<VecDeque<OutgoingMessage>>,
    /// Messages that were sent but may not reach their receivers without progress of this rank.
    unflushed: Vec<(Transfer, Delivery)>,
    posted: Vec<PostedReceive>,
    /// The message of which packets arrive, by sender.
    arriving: Vec<Option<ArrivingMessage>>,
    kept: VecDeque<EarlyMessage>,
}

impl Transfers {
    pub(super) fn new(ranks: usize) -> Transfers {
        Transfers {
            outgoing: (0..ranks).map(|_| VecDeque::new()).collect(),
            unflushed: Vec::new(),
            posted: Vec::new(),
            arriving: (0..ranks).map(|_| None).collect(),
            kept: VecDeque::new(),
        }
    }

    /// Returns whether no transfer of this rank is under way.
    pub(super) fn is_empty(&self) -> bool {
        self.posted.is_empty() && self.unflushed.is_empty() && self.outgoing.iter().all(VecDeque::is_empty)
    }

    /// Queues a message to send.
    pub(super) fn send(&mut self, to: usize, tag: u32, data: Source) -> Transfer {
        let transfer = Transfer::default();
        self.outgoing[to].push_back(OutgoingMessage { tag, data, sent: 0, packets: 0, transfer: transfer.clone() });
        transfer
    }

    /// Posts a receive.
    pub(super) fn receive(&mut self, from: Option<usize>, tag: u32, buffer: Target) -> Transfer {
        let transfer = Transfer::default();
        let posted = PostedReceive { from, tag, buffer, transfer: transfer.clone() };
        if let Some(at) = self.kept.iter().position(|kept| posted.accepts(kept.from, kept.tag)) {
            let Some(EarlyMessage { from, message, .. }) = self.kept.remove(at) else { unreachable!("found above") };
            if let Some(posted) = posted.open(from, message.len()) {
                posted.deliver(from, &message);
            }
            return transfer;
        }
        let is_awaited = |from: usize, arriving: &ArrivingMessage| {
            arriving.kept.is_some() && arriving.receive.is_none() && posted.accepts(from, arriving.tag)
        };
        let found = self.arriving.iter_mut().enumerate().find_map(|(from, arriving)| {
            arriving.as_mut().filter(|arriving| is_awaited(from, arriving)).map(|arriving| (from, arriving))
        });
        match found {
            Some((from, arriving)) => match posted.open(from, arriving.bytes) {
                Some(posted) => arriving.receive = Some(posted),
                None => arriving.kept = None,
            },
            None => self.posted.push(posted),
        }
        transfer
    }

    /// The ranks that this one waits for: for packets, or for room for its own. Then those of which any will do, for a receive from any
    /// rank: all but those that have left. Where all have left, they count as waited for.
    pub(super) fn awaited(&self, me: usize, has_left: impl Fn(usize) -> bool) -> (Vec<usize>, Vec<usize>) {
        let others = || (0..self.outgoing.len()).filter(|rank| *rank != me);
        let is_needed = |rank: &usize| {
            let arrives = self.arriving[*rank].as_ref().is_some_and(|arriving| arriving.receive.is_some());
            let is_named = self.posted.iter().any(|posted| posted.from == Some(*rank));
            arrives || is_named || !self.outgoing[*rank].is_empty()
        };
        let needed: Vec<usize> = others().filter(is_needed).collect();
        let any_of: Vec<usize> = others().filter(|rank| self.awaits_any() && !has_left(*rank)).collect();
        match self.awaits_any() && needed.is_empty() && any_of.is_empty() {
            true => (others().collect(), any_of),
            false => (needed, any_of),
        }
    }

    fn awaits_any(&self) -> bool {
        self.posted.iter().any(|posted| posted.from.is_none())
    }

    /// Sends and receives without waiting. Returns whether anything moved.
    pub(super) fn pass<T: Transport>(&mut self, transport: &mut T) -> Result<bool, Failure> {
        let mut moved = false;
        for to in 0..self.outgoing.len() {
            moved |= self.send_to(transport, to)?;
        }
        if !self.unflushed.is_empty() && transport.is_flushed()? {
            moved = true;
            self.unflushed.drain(..).for_each(|(transfer, delivery)| transfer.end(Ok(delivery)));
        }
        let me = transport.rank();
        for from in (0..self.arriving.len()).filter(|from| *from != me) {
            moved |= self.receive_from(transport, from)?;
        }
        Ok(moved)
    }

    /// Returns whether to look for packets of a rank: also of one that this rank sends to, which may be sending here and wait for room.
    fn expects_packets(&self, from: usize) -> bool {
        self.arriving[from].is_some()
            || !self.outgoing[from].is_empty()
            || self.posted.iter().any(|posted| posted.from.is_none_or(|rank| rank == from))
    }

    fn send_to<T: Transport>(&mut self, transport: &mut T, to: usize) -> Result<bool, Failure> {
        let (most, mut moved) = (transport.packet_bytes(), false);
        while let Some(OutgoingMessage { tag, data, sent, packets, .. }) = self.outgoing[to].front_mut() {
            let data = (**data).as_ref();
            let part = &data[*sent..][..most.min(data.len() - *sent)];
            let head = PacketHeader { operation: *tag, packet: *packets, call: data.len() as u64 };
            if !transport.post_send(to, head, part.len(), |packet| packet.copy_from_slice(part))? {
                break;
            }
            moved = true;
            *packets = packets.wrapping_add(1);
            *sent += part.len();
            if *sent == data.len() {
                let bytes = data.len();
                let transfer = self.outgoing[to].pop_front().map(|outgoing| outgoing.transfer);
                self.unflushed.extend(transfer.map(|transfer| (transfer, Delivery { peer: to, bytes })));
            }
        }
        Ok(moved)
    }

    fn receive_from<T: Transport>(&mut self, transport: &mut T, from: usize) -> Result<bool, Failure> {
        let (mut moved, mut damaged) = (false, false);
        for _ in 0..PACKETS_AT_ONCE {
            // After the last packet the rank may have left, which is no failure.
            if !self.expects_packets(from) {
                break;
            }
            transport.post_receive(from, transport.packet_bytes())?;
            let came = transport.receive(from, |head, packet| {
                damaged |= self.take(from, head, packet).is_none();
                PacketDecision::Consume
            })?;
            if damaged {
                return Err(Failure::Transport(format!("rank {from} sent a packet that belongs to no message")));
            }
            if !came {
                break;
            }
            moved = true;
        }
        Ok(moved)
    }

    /// Copies a packet to its message; `None` for one that no correct rank sends.
    fn take(&mut self, from: usize, head: PacketHeader, packet: &[u8]) -> Option<()> {
        let mut arriving = match self.arriving[from].take() {
            Some(arriving) => arriving,
            None => self.begin(from, head)?,
        };
        let end = arriving.came.checked_add(packet.len()).filter(|end| *end <= arriving.bytes)?;
        match (&mut arriving.kept, &mut arriving.receive) {
            (Some(kept), _) => kept.extend_from_slice(packet),
            (None, Some(receive)) => {
                (*receive.buffer).as_mut().get_mut(arriving.came..end)?.copy_from_slice(packet);
            }
            (None, None) => {}
        }
        arriving.came = end;
        if arriving.came < arriving.bytes {
            self.arriving[from] = Some(arriving);
            return Some(());
        }
        match (arriving.kept, arriving.receive) {
            (Some(message), Some(receive)) => receive.deliver(from, &message),
            (Some(message), None) => self.kept.push_back(EarlyMessage { from, tag: arriving.tag, message }),
            (None, Some(receive)) => receive.end(from, arriving.bytes),
            (None, None) => {}
        }
        Some(())
    }

    fn begin(&mut self, from: usize, head: PacketHeader) -> Option<ArrivingMessage> {
        let (tag, bytes) = (head.operation, usize::try_from(head.call).ok()?);
        let at = self.posted.iter().position(|posted| posted.accepts(from, tag));
        let posted = at.map(|at| self.posted.remove(at));
        let kept = posted.is_none().then(Vec::new);
        let receive = posted.and_then(|posted| posted.open(from, bytes));
        Some(ArrivingMessage { tag, bytes, came: 0, kept, receive })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::communicator::threads::{Threads, ThreadsOptions};

    /// Two ranks in one thread, which pass in turn: packets of 10 bytes, two under way in each direction.
    struct TwoRanks([(Threads, Transfers); 2]);

    impl TwoRanks {
        fn new() -> TwoRanks {
            let mut group = Threads::group(2, ThreadsOptions { packet_bytes: 10, depth: 2 }).into_iter();
            TwoRanks([(); 2].map(|()| (group.next().unwrap(), Transfers::new(2))))
        }

        fn send(&mut self, from: usize, tag: u32, message: &[u8]) -> Transfer {
            self.0[from].1.send(1 - from, tag, Box::new(message.to_vec()))
        }

        fn receive(&mut self, to: usize, from: Option<usize>, tag: u32, bytes: usize) -> (Transfer, SharedMemory) {
            let memory = SharedMemory::default();
            memory.0.lock().unwrap().resize(bytes, 0);
            (self.0[to].1.receive(from, tag, Box::new(BorrowedMemory::new(&memory))), memory)
        }

        fn settle(&mut self) {
            while self
                .0
                .iter_mut()
                .map(|(transport, transfers)| transfers.pass(transport).unwrap())
                .fold(false, |a, b| a | b)
            {}
        }
    }

    #[derive(Default, Clone)]
    struct SharedMemory(Arc<std::sync::Mutex<Vec<u8>>>);

    /// The memory while a receive has it.
    struct BorrowedMemory(SharedMemory, Vec<u8>);

    impl BorrowedMemory {
        fn new(memory: &SharedMemory) -> BorrowedMemory {
            BorrowedMemory(memory.clone(), std::mem::take(&mut *memory.0.lock().unwrap()))
        }
    }

    impl AsMut<[u8]> for BorrowedMemory {
        fn as_mut(&mut self) -> &mut [u8] {
            &mut self.1
        }
    }

    impl Drop for BorrowedMemory {
        fn drop(&mut self) {
            *self.0.0.lock().unwrap() = std::mem::take(&mut self.1);
        }
    }

    fn bytes(seed: u8, length: usize) -> Vec<u8> {
        (0..length).map(|at| seed.wrapping_add(at as u8)).collect()
    }

    #[test]
    fn messages_of_any_length_come_in_order_and_by_tag() {
        for length in [0, 1, 10, 11, 95] {
            let mut pair = TwoRanks::new();
            let sent: Vec<Transfer> =
                [(7, 1), (8, 2), (7, 3)].map(|(tag, seed)| pair.send(0, tag, &bytes(seed, length))).into();
            // Awaited in another order than sent, after the first packets have come.
            pair.settle();
            let received = [(8, 2, Some(0)), (7, 1, None), (7, 3, Some(0))].map(|(tag, seed, from)| {
                let (transfer, memory) = pair.receive(1, from, tag, length);
                pair.settle();
                (transfer, memory, seed)
            });
            for (transfer, memory, seed) in received {
                assert_eq!(transfer.ended(), Some(Ok(Delivery { peer: 0, bytes: length })), "{length}");
                assert_eq!(*memory.0.lock().unwrap(), bytes(seed, length), "{length}");
            }
            assert!(sent.iter().all(|sent| sent.ended() == Some(Ok(Delivery { peer: 1, bytes: length }))));
            assert!(pair.0.iter().all(|(_, transfers)| transfers.is_empty()));
        }
    }

    #[test]
    fn a_message_is_received_while_it_arrives() {
        let mut pair = TwoRanks::new();
        let sent = pair.send(0, 0, &bytes(5, 95));
        let [(first, sender), (second, receiver)] = &mut pair.0;
        sender.pass(first).unwrap();
        // A send to the other rank makes it look there.
        receiver.send(0, 0, Box::new(bytes(6, 95)));
        receiver.pass(second).unwrap();
        assert!(sent.ended().is_none() && receiver.arriving[0].is_some());
        let (received, memory) = pair.receive(1, Some(0), 0, 95);
        pair.settle();
        assert_eq!(
            (received.ended().unwrap(), sent.ended().unwrap().is_ok()),
            (Ok(Delivery { peer: 0, bytes: 95 }), true)
        );
        assert_eq!(*memory.0.lock().unwrap(), bytes(5, 95));
    }

    #[test]
    fn both_send_first() {
        let mut pair = TwoRanks::new();
        let sent = [0, 1].map(|from| pair.send(from, 0, &bytes(from as u8, 500)));
        pair.settle();
        assert!(sent.iter().all(|sent| sent.ended().is_some()), "what comes is kept while this rank sends");
        let received = [0, 1].map(|to| pair.receive(to, Some(1 - to), 0, 500));
        for (from, (transfer, memory)) in received.into_iter().rev().enumerate() {
            assert!(transfer.ended().is_some() && *memory.0.lock().unwrap() == bytes(from as u8, 500));
        }
    }

    #[test]
    fn a_message_of_another_length_is_refused_and_the_next_one_comes() {
        for is_early in [true, false] {
            let mut pair = TwoRanks::new();
            let awaited = (!is_early).then(|| pair.receive(1, Some(0), 0, 30).0);
            pair.send(0, 0, &bytes(1, 31));
            pair.send(0, 0, &bytes(2, 30));
            pair.receive(1, Some(0), 9, 1);
            pair.settle();
            let refused = awaited.unwrap_or_else(|| pair.receive(1, Some(0), 0, 30).0);
            let (received, memory) = pair.receive(1, Some(0), 0, 30);
            pair.settle();
            let message = refused.ended().unwrap().unwrap_err().to_string();
            assert!(message.contains("rank 0 sent 31 bytes under tag 0 and 30 are awaited"), "{message}");
            assert!(received.ended().unwrap().is_ok() && *memory.0.lock().unwrap() == bytes(2, 30));
        }
    }

    #[test]
    fn packets_that_nobody_sends_are_refused() {
        let mut pair = TwoRanks::new();
        let [(transport, _), (other, receiver)] = &mut pair.0;
        let head = PacketHeader { operation: 0, packet: 0, call: 3 };
        assert!(transport.post_send(1, head, 4, |packet| packet.fill(0)).unwrap());
        receiver.receive(Some(0), 0, Box::new(vec![0; 3]));
        assert!(matches!(receiver.pass(other), Err(Failure::Transport(message)) if message.contains("no message")));
    }

    #[test]
    fn any_rank_is_awaited_but_those_that_have_left() {
        let mut transfers = Transfers::new(4);
        transfers.receive(None, 0, Box::new(vec![0]));
        assert_eq!(transfers.awaited(1, |rank| rank == 2), (vec![], vec![0, 3]));
        assert_eq!(transfers.awaited(1, |_| true), (vec![0, 2, 3], vec![]));
        transfers.receive(Some(2), 0, Box::new(vec![0]));
        assert_eq!(transfers.awaited(1, |_| true), (vec![2], vec![]));
        assert_eq!(transfers.awaited(1, |_| false), (vec![2], vec![0, 2, 3]));
    }
}
