//! The transport over messages of MPI or its like: point-to-point only.
//!
//! A packet is one message: a head of 16 bytes, then the payload, written once into a buffer that MPI sends from
//! and read where MPI put it. Receives are posted before packets come, so a message above MPI's eager limit moves as
//! soon as both sides drive MPI, which every method here does.
//!
//! MPI buffers small messages for which no receive was posted, without limit, and reports them as sent. So a receiver sends credits
//! for the packets it has consumed, and a sender stops when it has used up its credit.

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

/// Passes without progress that only yield; after them a rank sleeps for a short time in each pass.
const YIELDS: u32 = 20_000;
/// The sleep of a pass: MPI is driven at least this often while a rank waits.
const SLEEP: Duration = Duration::from_micros(50);
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
    /// Packets for which a receiver sends credit at a time.
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
    /// Posted receives: from the first announced packet on as many as the sender has credit for, because the sender chooses the order
    /// in which packets of several operations come.
    posted: VecDeque<Box<dyn Message>>,
    /// Bytes of the first posted one, once it is complete.
    complete: Option<usize>,
    /// Packets consumed since the last credit.
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
    /// Notices and credits under way.
    control: Vec<Box<dyn Message>>,
    messages: Box<dyn Messages>,
    options: MessageOptions,
    /// Memory of packets that were sent.
    spare: Vec<Vec<u8>>,
    failure: Option<Failure>,
    /// Drives calls started on other communicators while this one waits.
    pace: Pace,
    /// The progress function of the user, and the instant of its last call.
    progress: Option<(Progress, Instant)>,
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
            control: Vec::new(),
            messages,
            options,
            spare: Vec::new(),
            failure: None,
            pace: Pace::default(),
            progress: None,
        })
    }

    /// The transport of a group of some of the ranks: those that give one color, ordered by key. Collective.
    pub(crate) fn split(&self, color_and_key: Option<(usize, usize)>) -> Result<Option<MessageTransport>, Failure> {
        self.messages.split(color_and_key)?.map(|messages| Self::over(messages, self.options)).transpose()
    }

    /// Sets the progress function that is called during waits.
    pub(crate) fn set_progress(&mut self, progress: Option<Progress>) {
        self.progress = progress.map(|progress| (progress, Instant::now()));
    }

    /// Checks that this thread may call.
    pub(crate) fn may_call(&self) -> Result<(), Failure> {
        self.messages.may_call()
    }

    /// Returns true if this thread may make progress in calls.
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
        let peer = &mut self.outgoing[to];
        while let Some(oldest) = peer.pending.front_mut()
            && oldest.test()?.is_some()
        {
            self.spare.extend(peer.pending.pop_front().map(Message::into_buffer));
        }
        while let Some(mut credit) = peer.credit.take() {
            let received = match credit.test() {
                // A rank may leave once it has received all it needs; a receive from a rank that is gone fails by itself.
                Err(Failure::PeerDied { .. }) if peer.has_room(self.options.depth) => None,
                other => other?,
            };
            let Some(bytes) = received else {
                peer.credit = Some(credit);
                break;
            };
            let Ok(packets) = credit.contents()[..bytes].try_into().map(u32::from_le_bytes) else {
                return Err(Failure::Transport(format!("rank {to} sent a credit of {bytes} bytes")));
            };
            peer.credited += u64::from(packets);
            peer.credit = Some(self.messages.receive(Some(to), CREDIT_TAG, credit.into_buffer())?);
        }
        Ok(())
    }

    /// Returns true if every message to this rank has arrived, and every message from it has been sent.
    fn settled(&mut self) -> Result<bool, Failure> {
        self.may_call()?;
        self.progress()?;
        let flushed = self.is_flushed()?;
        let due = |peer: &Outgoing| peer.sent - peer.sent % self.options.credit();
        Ok(flushed && self.control.is_empty() && self.outgoing.iter().all(|peer| peer.credited >= due(peer)))
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
        let peer = &mut self.incoming[from];
        let Some(first) = peer.posted.front_mut() else { return Ok(false) };
        if peer.complete.is_none() {
            peer.complete = first.test()?;
        }
        let Some(bytes) = peer.complete else { return Ok(false) };
        let Some((head, payload)) = first.contents()[..bytes].split_first_chunk::<HEAD_BYTES>() else {
            return Err(Failure::Transport(format!("rank {from} sent a message of {bytes} bytes, which is no packet")));
        };
        let words: [u64; 2] = bytemuck::cast(*head);
        match take(header(words.map(u64::from_le)), payload) {
            PacketDecision::Leave => Ok(false),
            PacketDecision::Consume => {
                peer.complete = None;
                peer.owed += 1;
                let buffer = peer.posted.pop_front().map(Message::into_buffer);
                if u64::from(peer.owed) >= self.options.credit() {
                    let credit = std::mem::take(&mut peer.owed).to_le_bytes().to_vec();
                    self.control.push(self.messages.send(from, CREDIT_TAG, credit)?);
                }
                // Its own buffer again: those of sent packets may be shorter.
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
        Ok(self.outgoing.iter().all(|peer| peer.pending.is_empty()))
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
        while let Some(message) = self.control.get_mut(at) {
            match message.test()? {
                Some(_) => drop(self.control.swap_remove(at)),
                None => at += 1,
            }
        }
        Ok(())
    }

    /// Yields, and sleeps after a while, but never so long that others wait for this rank to drive MPI.
    fn idle(&mut self, passes: u32) -> Result<(), Failure> {
        self.pace.drive();
        if let Some((progress, last)) =
            self.progress.as_mut().filter(|(progress, last)| last.elapsed() > progress.every())
        {
            progress.run();
            *last = Instant::now();
        }
        if passes < YIELDS {
            std::thread::yield_now()
        } else {
            std::thread::sleep(SLEEP)
        }
        self.progress()
    }

    fn raise(&mut self, failure: Failure) -> Failure {
        // A test may look at one rank only, and see the end of a rank before its notice.
        for _ in 0..self.messages.size() {
            if let Err(earlier) = self.progress() {
                return earlier;
            }
        }
        for rank in (0..self.messages.size()).filter(|rank| *rank != self.messages.rank()) {
            // This rank has a failure to report already, so errors of sending are ignored.
            self.control.extend(self.messages.send(rank, NOTICE_TAG, notice::encode(&failure)));
        }
        self.failure = Some(failure.clone());
        failure
    }
}

impl Drop for MessageTransport {
    /// Waits for the last credits of ranks that this one has sent to, so that no message arrives at a communicator that is freed: MPI
    /// may use its number again.
    fn drop(&mut self) {
        let since = Instant::now();
        loop {
            match self.settled() {
                Ok(true) => return,
                Ok(false) if since.elapsed() < LAST_CREDITS => {
                    self.pace.drive();
                    std::thread::yield_now();
                }
                _ => return self.messages.abandon(),
            }
        }
    }
}
