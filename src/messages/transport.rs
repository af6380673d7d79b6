//! The transport over messages of MPI or its like: point-to-point only.
//!
//! A packet is one message: a head of 16 bytes, then the payload, written once into a buffer that MPI sends from
//! and read where MPI put it. Receives are posted before packets come, so a message above MPI's eager limit moves as
//! soon as both sides drive MPI, which every method here does.
//!
//! MPI keeps small messages for a receiver that has not asked for them, without limit, and reports them as sent. So a
//! receiver gives credit for what it has taken, and a sender stops when it has used up its credit.

use super::notice::{self, NOTICE_BYTES};
use super::{Message, Messages};
use crate::transport::{header, to_words};
use bytemuck::bytes_of;
use earlybird_hier::exec::{Failure, PacketDecision, PacketHeader, Transport};
use earlybird_shm::Progress;
use earlybird_shm::engine::Pace;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const HEAD_BYTES: usize = 16;
const PACKET_TAG: i32 = 0;
const NOTICE_TAG: i32 = 1;
const CREDIT_TAG: i32 = 2;

/// Passes without movement that only yield; after them a rank sleeps in short naps and looks again.
const YIELDS: u32 = 20_000;
/// A nap: MPI is driven at least this often while a rank waits.
const NAP: Duration = Duration::from_micros(50);
/// Time that a leaving rank waits for the last credits, which come from ranks that have yet to take its packets.
const LAST_CREDITS: Duration = Duration::from_secs(1);

/// Sizes of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageOptions {
    /// Bytes of the largest packet. At or below MPI's eager limit a packet needs no answer from its receiver.
    pub packet_bytes: usize,
    /// Packets under way to one rank, and receives posted from one rank, at least 1.
    pub depth: usize,
}

impl Default for MessageOptions {
    fn default() -> Self {
        // Open MPI sends 64 KiB eagerly over TCP, MPICH 128 KiB, both with their own head on top.
        MessageOptions { packet_bytes: 48 << 10, depth: 32 }
    }
}

impl MessageOptions {
    /// Packets for which a receiver gives credit at a time.
    fn credit(&self) -> u64 {
        self.depth.div_ceil(2) as u64
    }
}

/// Packets to one rank.
#[derive(Debug, Default)]
struct Outgoing {
    pending: VecDeque<Box<dyn Message>>,
    sent: u64,
    credited: u64,
    /// The receive of the next credit, from the first packet on.
    credit: Option<Box<dyn Message>>,
}

impl Outgoing {
    fn has_room(&self, depth: usize) -> bool {
        self.pending.len() < depth && self.sent - self.credited.min(self.sent) < depth as u64
    }
}

/// Packets from one rank.
#[derive(Debug, Default)]
struct Incoming {
    /// From the first packet that is announced on always as many as the sender has credit for: several operations share
    /// a lane, and which one's packets come first is the sender's choice.
    posted: VecDeque<Box<dyn Message>>,
    /// Bytes of the first posted one, once it is complete.
    complete: Option<usize>,
    /// Taken since this rank last gave credit.
    owed: u32,
}

/// One rank of a job.
///
/// Drop it on all ranks, and before MPI_Finalize. The death of a rank is MPI's to notice: it ends the job. A failure that
/// a rank raises reaches the others at their next progress; should two ranks raise one at once, each keeps what it saw
/// first.
#[derive(Debug)]
pub struct MessageTransport {
    // Before the communicator: fields are dropped in this order.
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    notice: Option<Box<dyn Message>>,
    /// Notices and credits on their way.
    words: Vec<Box<dyn Message>>,
    messages: Box<dyn Messages>,
    options: MessageOptions,
    /// Memory of packets that were sent.
    spare: Vec<Vec<u8>>,
    failure: Option<Failure>,
    /// Makes progress on calls started elsewhere while this waits.
    elsewhere: Pace,
    /// The progress that the caller has besides, and when it was driven last.
    driven: Option<(Progress, Instant)>,
}

impl MessageTransport {
    /// A transport over `messages`, which must have no other user.
    ///
    /// # Errors
    /// The errors that the library of the messages reports.
    pub fn over(messages: Box<dyn Messages>, options: MessageOptions) -> Result<MessageTransport, Failure> {
        let options = MessageOptions { packet_bytes: options.packet_bytes.max(1), depth: options.depth.max(1) };
        let notice = Some(messages.receive(None, NOTICE_TAG, vec![0; NOTICE_BYTES])?);
        let size = messages.size();
        Ok(MessageTransport {
            outgoing: (0..size).map(|_| Outgoing::default()).collect(),
            incoming: (0..size).map(|_| Incoming::default()).collect(),
            notice,
            words: Vec::new(),
            messages,
            options,
            spare: Vec::new(),
            failure: None,
            elsewhere: Pace::default(),
            driven: None,
        })
    }

    /// The transport of a group of some of the ranks: those that give one color, ordered by key. Collective.
    pub(crate) fn split(&self, color_and_key: Option<(usize, usize)>) -> Result<Option<MessageTransport>, Failure> {
        self.messages.split(color_and_key)?.map(|messages| Self::over(messages, self.options)).transpose()
    }

    /// Sets what is driven while this waits.
    pub(crate) fn set_progress(&mut self, progress: Option<Progress>) {
        self.driven = progress.map(|progress| (progress, Instant::now()));
    }

    /// Checks that this thread may call.
    pub(crate) fn may_call(&self) -> Result<(), Failure> {
        self.messages.may_call()
    }

    /// Returns true if this thread may drive the progress of calls.
    pub(crate) fn may_be_driven(&self, was_here_last: bool) -> bool {
        (was_here_last || self.messages.is_concurrent()) && self.may_call().is_ok()
    }

    /// Memory for a packet to send.
    fn buffer(&mut self, bytes: usize) -> Vec<u8> {
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.resize(bytes, 0);
        buffer
    }

    /// Takes back the buffers of what has been sent to `to`, and the credit that came from there.
    fn collect(&mut self, to: usize) -> Result<(), Failure> {
        let lane = &mut self.outgoing[to];
        while let Some(oldest) = lane.pending.front_mut() {
            if oldest.test()?.is_none() {
                break;
            }
            self.spare.extend(lane.pending.pop_front().map(Message::into_buffer));
        }
        while let Some(mut credit) = lane.credit.take() {
            let came = match credit.test() {
                // A rank may leave that has taken all it needs. Whoever needs something from a rank that is gone learns of it there.
                Err(Failure::PeerDied { .. }) if lane.has_room(self.options.depth) => None,
                other => other?,
            };
            let Some(bytes) = came else {
                lane.credit = Some(credit);
                break;
            };
            let Ok(packets) = credit.contents()[..bytes].try_into().map(u32::from_le_bytes) else {
                return Err(Failure::Transport(format!("rank {to} sent a credit of {bytes} bytes")));
            };
            lane.credited += u64::from(packets);
            lane.credit = Some(self.messages.receive(Some(to), CREDIT_TAG, credit.into_buffer())?);
        }
        Ok(())
    }

    /// Returns true if every message sent to this rank has come, and every message from here has gone.
    fn settled(&mut self) -> Result<bool, Failure> {
        self.may_call()?;
        self.progress()?;
        let flushed = self.is_flushed()?;
        let due = |lane: &Outgoing| lane.sent - lane.sent % self.options.credit();
        Ok(flushed && self.words.is_empty() && self.outgoing.iter().all(|lane| lane.credited >= due(lane)))
    }

    fn has_room(&self, to: usize) -> bool {
        self.outgoing[to].has_room(self.options.depth)
    }

    /// Posts one more receive from `from` into `buffer`, which has room for any packet.
    fn post_one(&mut self, from: usize, buffer: Vec<u8>) -> Result<(), Failure> {
        let pending = self.messages.receive(Some(from), PACKET_TAG, buffer)?;
        self.incoming[from].posted.push_back(pending);
        Ok(())
    }

    fn check_peer(&self, rank: usize) -> Result<(), Failure> {
        match rank < self.messages.size() && rank != self.messages.rank() {
            true => Ok(()),
            false => {
                Err(Failure::Transport(format!("there is no way to rank {rank} from rank {}", self.messages.rank())))
            }
        }
    }
}

impl Transport for MessageTransport {
    fn rank(&self) -> usize {
        self.messages.rank()
    }

    fn size(&self) -> usize {
        self.messages.size()
    }

    fn packet_bytes(&self) -> usize {
        self.options.packet_bytes
    }

    fn post_send(
        &mut self,
        to: usize,
        head: PacketHeader,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Failure> {
        self.check_peer(to)?;
        if bytes > self.options.packet_bytes {
            let most = self.options.packet_bytes;
            return Err(Failure::Transport(format!("a packet of {bytes} bytes where at most {most} were agreed")));
        }
        if self.outgoing[to].credit.is_none() {
            self.outgoing[to].credit = Some(self.messages.receive(Some(to), CREDIT_TAG, vec![0; 4])?);
        }
        if !self.has_room(to) {
            self.collect(to)?;
            if !self.has_room(to) {
                return Ok(false);
            }
        }
        let mut buffer = self.buffer(HEAD_BYTES + bytes);
        buffer[..HEAD_BYTES].copy_from_slice(bytes_of(&to_words(head).map(u64::to_le)));
        write(&mut buffer[HEAD_BYTES..]);
        let pending = self.messages.send(to, PACKET_TAG, buffer)?;
        self.outgoing[to].pending.push_back(pending);
        self.outgoing[to].sent += 1;
        Ok(true)
    }

    fn post_receive(&mut self, from: usize, _: usize) -> Result<(), Failure> {
        self.check_peer(from)?;
        while self.incoming[from].posted.len() < self.options.depth {
            self.post_one(from, vec![0; HEAD_BYTES + self.options.packet_bytes])?;
        }
        Ok(())
    }

    fn receive(
        &mut self,
        from: usize,
        take: impl FnOnce(PacketHeader, &[u8]) -> PacketDecision,
    ) -> Result<bool, Failure> {
        self.check_peer(from)?;
        let lane = &mut self.incoming[from];
        let Some(first) = lane.posted.front_mut() else { return Ok(false) };
        let bytes = match lane.complete {
            Some(bytes) => bytes,
            None => match first.test()? {
                Some(bytes) => bytes,
                None => return Ok(false),
            },
        };
        lane.complete = Some(bytes);
        let Some((head, payload)) = first.contents()[..bytes].split_first_chunk::<HEAD_BYTES>() else {
            return Err(Failure::Transport(format!("rank {from} sent a message of {bytes} bytes, which is no packet")));
        };
        let words: [u64; 2] = bytemuck::cast(*head);
        match take(header(words.map(u64::from_le)), payload) {
            PacketDecision::Leave => Ok(false),
            PacketDecision::Consume => {
                lane.complete = None;
                lane.owed += 1;
                let buffer = lane.posted.pop_front().map(Message::into_buffer);
                if u64::from(lane.owed) >= self.options.credit() {
                    let credit = std::mem::take(&mut lane.owed).to_le_bytes().to_vec();
                    self.words.push(self.messages.send(from, CREDIT_TAG, credit)?);
                }
                // Its own memory again: buffers of packets sent are as short as those were.
                if let Some(buffer) = buffer {
                    self.post_one(from, buffer)?;
                }
                Ok(true)
            }
        }
    }

    fn is_flushed(&mut self) -> Result<bool, Failure> {
        for to in 0..self.outgoing.len() {
            self.collect(to)?;
        }
        Ok(self.outgoing.iter().all(|lane| lane.pending.is_empty()))
    }

    fn progress(&mut self) -> Result<(), Failure> {
        if let Some(failure) = &self.failure {
            return Err(failure.clone());
        }
        if let Some(notice) = &mut self.notice
            && let Some(bytes) = notice.test()?
        {
            let failure = notice::decode(&notice.contents()[..bytes]);
            self.notice = None;
            self.failure = Some(failure.clone());
            return Err(failure);
        }
        let mut at = 0;
        while let Some(word) = self.words.get_mut(at) {
            match word.test()? {
                Some(_) => drop(self.words.swap_remove(at)),
                None => at += 1,
            }
        }
        Ok(())
    }

    /// Yields, and naps after a while, but never so long that others wait for this rank's part of MPI's progress.
    fn idle(&mut self, passes: u32) -> Result<(), Failure> {
        self.elsewhere.drive();
        if let Some((progress, last)) =
            self.driven.as_mut().filter(|(progress, last)| last.elapsed() > progress.every())
        {
            progress.run();
            *last = Instant::now();
        }
        match passes < YIELDS {
            true => std::thread::yield_now(),
            false => std::thread::sleep(NAP),
        }
        self.progress()
    }

    fn raise(&mut self, failure: Failure) -> Failure {
        // Some messages show one rank at each look, and the end of a rank may be seen before what it told.
        for _ in 0..self.messages.size() {
            if let Err(earlier) = self.progress() {
                return earlier;
            }
        }
        for rank in (0..self.messages.size()).filter(|rank| *rank != self.messages.rank()) {
            // A rank that cannot be told is beyond help, and this one has a failure to report already.
            self.words.extend(self.messages.send(rank, NOTICE_TAG, notice::encode(&failure)));
        }
        self.failure = Some(failure.clone());
        failure
    }
}

impl Drop for MessageTransport {
    /// Waits for what is still to come from ranks that this one sent to, so that nothing comes to a communicator that is
    /// no more: MPI may give its number to another.
    fn drop(&mut self) {
        let since = Instant::now();
        loop {
            match self.settled() {
                Ok(true) => return,
                Ok(false) if since.elapsed() < LAST_CREDITS => {
                    self.elsewhere.drive();
                    std::thread::yield_now();
                }
                _ => return self.messages.abandon(),
            }
        }
    }
}
