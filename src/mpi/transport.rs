//! The transport over MPI: point-to-point messages only, on a communicator of its own.
//!
//! A packet is one MPI message: a head of 16 bytes, then the payload, written once into a buffer that MPI sends from
//! and read where MPI put it. Receives are posted before packets come, so a message above MPI's eager limit moves as
//! soon as both sides drive MPI, which every method here does.
//!
//! MPI keeps small messages for a receiver that has not asked for them, without limit, and reports them as sent. So a
//! receiver gives credit for what it has taken, and a sender stops when it has used up its credit.

use super::notice::{self, NOTICE_BYTES};
use super::raw::{Comm, Pending};
use earlybird_hier::exec::{Failure, Head, Take, Transport};
use mpi::ffi;
use mpi::traits::AsRaw;
use std::collections::VecDeque;
use std::time::Duration;

const HEAD_BYTES: usize = 16;
const PACKET_TAG: i32 = 0;
const NOTICE_TAG: i32 = 1;
const CREDIT_TAG: i32 = 2;

/// Passes without movement that only yield; after them a rank sleeps in short naps and looks again.
const YIELDS: u32 = 20_000;
/// A nap: MPI is driven at least this often while a rank waits.
const NAP: Duration = Duration::from_micros(50);

/// Sizes of the transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MpiOptions {
    /// Bytes of the largest packet. At or below MPI's eager limit a packet needs no answer from its receiver.
    pub packet_bytes: usize,
    /// Packets under way to one rank, and receives posted from one rank, at least 1.
    pub depth: usize,
}

impl Default for MpiOptions {
    fn default() -> Self {
        // Open MPI sends 64 KiB eagerly over TCP, MPICH 128 KiB, both with their own head on top.
        MpiOptions { packet_bytes: 48 << 10, depth: 8 }
    }
}

/// Packets to one rank.
#[derive(Debug, Default)]
struct Outgoing {
    pending: VecDeque<Pending>,
    sent: u64,
    credited: u64,
    /// Where the next credit comes in, from the first packet on.
    credit: Option<Pending>,
}

/// Packets from one rank.
#[derive(Debug, Default)]
struct Incoming {
    /// From the first packet that is announced on always as many as the sender has credit for: several operations share
    /// a lane, and which one's packets come first is the sender's choice.
    posted: VecDeque<Pending>,
    /// Bytes of the first posted one, once it is complete.
    complete: Option<usize>,
    /// Taken since this rank last gave credit.
    owed: u32,
}

/// One rank of an MPI communicator.
///
/// Making and dropping it is collective, as for any MPI communicator; drop it before MPI_Finalize. The death of a rank
/// is MPI's to notice: it ends the job. A failure that a rank raises reaches the others at their next progress; should
/// two ranks raise one at once, each keeps what it saw first.
#[derive(Debug)]
pub struct MpiTransport {
    // Before the communicator: fields are dropped in this order.
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
    notice: Option<Pending>,
    /// Notices and credits on their way.
    words: Vec<Pending>,
    comm: Comm,
    options: MpiOptions,
    /// Memory of packets that were sent.
    spare: Vec<Vec<u8>>,
    failure: Option<Failure>,
}

impl MpiTransport {
    /// A transport between the ranks of `comm`, which is duplicated. Collective over `comm`.
    ///
    /// # Errors
    /// What MPI reports.
    pub fn new<C: AsRaw<Raw = ffi::MPI_Comm>>(comm: &C, options: MpiOptions) -> Result<MpiTransport, Failure> {
        Self::over(Comm::duplicate(comm)?, options)
    }

    /// The transport of a group of some of the ranks: those that give one color, ordered by key. Collective.
    pub(crate) fn split(&self, color_and_key: Option<(usize, usize)>) -> Result<Option<MpiTransport>, Failure> {
        self.comm.split(color_and_key)?.map(|comm| Self::over(comm, self.options)).transpose()
    }

    fn over(comm: Comm, options: MpiOptions) -> Result<MpiTransport, Failure> {
        let options = MpiOptions { packet_bytes: options.packet_bytes.max(1), depth: options.depth.max(1) };
        let notice = Some(comm.receive(None, NOTICE_TAG, vec![0; NOTICE_BYTES])?);
        let size = comm.size();
        Ok(MpiTransport {
            outgoing: (0..size).map(|_| Outgoing::default()).collect(),
            incoming: (0..size).map(|_| Incoming::default()).collect(),
            notice,
            words: Vec::new(),
            comm,
            options,
            spare: Vec::new(),
            failure: None,
        })
    }

    /// Whether this thread may call MPI.
    pub(crate) fn may_call(&self) -> Result<(), Failure> {
        self.comm.may_call()
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
            if self.comm.test(oldest)?.is_none() {
                break;
            }
            self.spare.extend(lane.pending.pop_front().map(Pending::into_buffer));
        }
        while let Some(mut credit) = lane.credit.take() {
            let Some(bytes) = self.comm.test(&mut credit)? else {
                lane.credit = Some(credit);
                break;
            };
            let Ok(packets) = credit.contents()[..bytes].try_into().map(u32::from_le_bytes) else {
                return Err(Failure::Transport(format!("rank {to} sent a credit of {bytes} bytes")));
            };
            lane.credited += u64::from(packets);
            lane.credit = Some(self.comm.receive(Some(to), CREDIT_TAG, credit.into_buffer())?);
        }
        Ok(())
    }

    fn has_room(&self, to: usize) -> bool {
        let lane = &self.outgoing[to];
        lane.pending.len() < self.options.depth && lane.sent - lane.credited.min(lane.sent) < self.options.depth as u64
    }

    /// Posts one more receive from `from` into `buffer`, which has room for any packet.
    fn post_one(&mut self, from: usize, buffer: Vec<u8>) -> Result<(), Failure> {
        let pending = self.comm.receive(Some(from), PACKET_TAG, buffer)?;
        self.incoming[from].posted.push_back(pending);
        Ok(())
    }

    fn check_peer(&self, rank: usize) -> Result<(), Failure> {
        match rank < self.comm.size() && rank != self.comm.rank() {
            true => Ok(()),
            false => Err(Failure::Transport(format!("there is no way to rank {rank} from rank {}", self.comm.rank()))),
        }
    }
}

impl Transport for MpiTransport {
    fn rank(&self) -> usize {
        self.comm.rank()
    }

    fn size(&self) -> usize {
        self.comm.size()
    }

    fn packet_bytes(&self) -> usize {
        self.options.packet_bytes
    }

    fn post_send(
        &mut self,
        to: usize,
        head: Head,
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Failure> {
        self.check_peer(to)?;
        if bytes > self.options.packet_bytes {
            let most = self.options.packet_bytes;
            return Err(Failure::Transport(format!("a packet of {bytes} bytes where at most {most} were agreed")));
        }
        if self.outgoing[to].credit.is_none() {
            self.outgoing[to].credit = Some(self.comm.receive(Some(to), CREDIT_TAG, vec![0; 4])?);
        }
        if !self.has_room(to) {
            self.collect(to)?;
            if !self.has_room(to) {
                return Ok(false);
            }
        }
        let mut buffer = self.buffer(HEAD_BYTES + bytes);
        buffer[..HEAD_BYTES].copy_from_slice(&pack(head));
        write(&mut buffer[HEAD_BYTES..]);
        let pending = self.comm.send(to, PACKET_TAG, buffer)?;
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

    fn receive(&mut self, from: usize, take: impl FnOnce(Head, &[u8]) -> Take) -> Result<bool, Failure> {
        self.check_peer(from)?;
        let lane = &mut self.incoming[from];
        let Some(first) = lane.posted.front_mut() else { return Ok(false) };
        let bytes = match lane.complete {
            Some(bytes) => bytes,
            None => match self.comm.test(first)? {
                Some(bytes) => bytes,
                None => return Ok(false),
            },
        };
        lane.complete = Some(bytes);
        let Some((head, payload)) = first.contents()[..bytes].split_first_chunk() else {
            return Err(Failure::Transport(format!("rank {from} sent a message of {bytes} bytes, which is no packet")));
        };
        match take(unpack(*head), payload) {
            Take::Left => Ok(false),
            Take::Taken => {
                lane.complete = None;
                lane.owed += 1;
                let buffer = lane.posted.pop_front().map(Pending::into_buffer);
                if lane.owed as usize >= self.options.depth.div_ceil(2) {
                    let credit = std::mem::take(&mut lane.owed).to_le_bytes().to_vec();
                    self.words.push(self.comm.send(from, CREDIT_TAG, credit)?);
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
            && let Some(bytes) = self.comm.test(notice)?
        {
            let failure = notice::decode(&notice.contents()[..bytes]);
            self.notice = None;
            self.failure = Some(failure.clone());
            return Err(failure);
        }
        let mut at = 0;
        while let Some(word) = self.words.get_mut(at) {
            match self.comm.test(word)? {
                Some(_) => drop(self.words.swap_remove(at)),
                None => at += 1,
            }
        }
        Ok(())
    }

    /// Yields, and naps after a while, but never so long that others wait for this rank's part of MPI's progress.
    fn idle(&mut self, passes: u32) -> Result<(), Failure> {
        match passes < YIELDS {
            true => std::thread::yield_now(),
            false => std::thread::sleep(NAP),
        }
        self.progress()
    }

    fn raise(&mut self, failure: Failure) -> Failure {
        if let Err(earlier) = self.progress() {
            return earlier;
        }
        for rank in (0..self.comm.size()).filter(|rank| *rank != self.comm.rank()) {
            // A rank that cannot be told is beyond help, and this one has a failure to report already.
            self.words.extend(self.comm.send(rank, NOTICE_TAG, notice::encode(&failure)));
        }
        self.failure = Some(failure.clone());
        failure
    }
}

fn pack(head: Head) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    bytes[..4].copy_from_slice(&head.operation.to_le_bytes());
    bytes[4..8].copy_from_slice(&head.packet.to_le_bytes());
    bytes[8..].copy_from_slice(&head.call.to_le_bytes());
    bytes
}

fn unpack(bytes: [u8; HEAD_BYTES]) -> Head {
    let [o0, o1, o2, o3, p0, p1, p2, p3, call @ ..] = bytes;
    Head {
        operation: u32::from_le_bytes([o0, o1, o2, o3]),
        packet: u32::from_le_bytes([p0, p1, p2, p3]),
        call: u64::from_le_bytes(call),
    }
}
