//! The rings of a group as a caller sees them: join, send, receive, fail.

use super::fault::{CallDescription, Fault, FaultRecord};
use super::layout::RingLayout;
use super::lines::DETAILS;
use super::mapped::MappedRings;
use super::ring::{self, Incoming, Outgoing, RankPair};
use super::wait_state::WaitState;
use crate::Error;
use crate::config::WaitPreset;
use crate::memory::{Absent, AttachOptions, Grant, MemoryBudget, Reservation, Segment};
use crate::progress::Progress;
use crate::protocol::collective::Collective;
use crate::protocol::wait_counts::WaitCounts;
use crate::protocol::word::PoisonWord;
use crate::shrink::Membership;
use crate::sync::{Ordering, SyncPoint};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options for joining a group of rings.
#[derive(Debug, Clone, Default)]
pub struct RingOptions {
    /// This process's number, from 0.
    pub rank: usize,
    /// Ranks in the group.
    pub size: usize,
    /// Names the group: equal on its ranks, different for any other group of this user on this node.
    pub key: String,
    /// Directory where ranks meet that share no network namespace (`EARLYBIRD_DIR`).
    pub dir: Option<PathBuf>,
    /// Waiting preset.
    pub wait: WaitPreset,
    /// Deadline of one wait; `None` waits for ever. Deaths are noticed all the same.
    pub timeout: Option<Duration>,
    /// Budget for the memory of the rings that this rank sends through; `None` for no limit.
    pub memory_budget: Option<MemoryBudget>,
    /// Names and values of settings that must be equal on all ranks.
    pub settings: Vec<(String, String)>,
}

/// Rings for which budget is reserved at once.
const RESERVED_TOGETHER: usize = 8;

/// This process's ends of the rings between the processes of a node.
///
/// Only [`Rings::idle`] blocks, at most 50 ms. The first error is the group's only one and does not change.
/// Dropping it leaves the group: ranks that still need this one get [`Error::PeerDied`].
#[derive(Debug)]
pub struct Rings {
    pub(super) board: MappedRings,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) wait: WaitPreset,
    pub(super) oversubscribed: bool,
    pub(super) timeout_ns: Option<u64>,
    /// The ranks that this one exchanges packets with, and itself.
    pub(super) partners: Vec<usize>,
    /// Partners that may leave while this rank waits: it waits for any of them.
    pub(super) may_leave: Vec<usize>,
    /// True if the group has other ranks too, which share the group's error.
    pub(super) is_partial: bool,
    /// Number and collective of this rank's call, for errors ([`Rings::name_call`]).
    pub(super) call_name: u64,
    /// The number of each rank in the job, if that is different.
    job_ranks: Option<Arc<[usize]>>,
    /// The ring to each rank; `None` until it is used.
    outgoing: Vec<Option<Outgoing>>,
    memory_budget: Option<MemoryBudget>,
    /// Reservations for outgoing rings, and the number of rings that they cover.
    reserved: (Vec<Reservation>, usize),
    incoming: Vec<Option<Incoming>>,
    /// True for ranks from which the last check found no packet.
    pub(super) without_packet: Vec<bool>,
    /// True for ranks to which the last check found no room.
    pub(super) without_room: Vec<bool>,
    pub(super) completed: u64,
    /// Calls and exchanges begun, as in the own [`super::lines::StateLine`].
    pub(super) begun: u64,
    /// True between the begin of an exchange and its end.
    pub(super) exchanging: bool,
    /// The waits that this rank has begun, and the packets that it has sent and taken.
    pub(super) counts: WaitCounts,
    pub(super) wait_state: WaitState,
}

impl Rings {
    /// Joins and returns when all ranks have. Memory of a ring is reserved when it is first used.
    ///
    /// # Errors
    /// The errors of [`Segment::attach`].
    pub fn join(options: &RingOptions) -> Result<Rings, Error> {
        Rings::join_within(options, &|| None)
    }

    /// Joins ranks that are members of another group already, which `absent` asks.
    ///
    /// # Errors
    /// The errors of [`Segment::attach_within`].
    pub fn join_within(options: &RingOptions, absent: Absent<'_>) -> Result<Rings, Error> {
        let attach = AttachOptions {
            rank: options.rank,
            size: options.size,
            key: options.key.clone(),
            dir: options.dir.clone(),
            region_bytes: RingLayout::new(options.size).bytes(),
            policy: [0; 32],
            timeout: options.timeout,
            settings: options.settings.clone(),
        };
        let (segment, region) = Segment::attach_within(&attach, absent)?;
        let (rank, size) = (segment.rank(), segment.size());
        let oversubscribed = size > segment.allowed_cpus();
        Ok(Rings {
            board: MappedRings::new(segment, region)?,
            rank,
            size,
            wait: options.wait,
            oversubscribed,
            timeout_ns: options.timeout.map(crate::nanoseconds),
            is_partial: false,
            partners: (0..size).collect(),
            may_leave: Vec::new(),
            call_name: 0,
            job_ranks: None,
            outgoing: vec![None; size],
            memory_budget: options.memory_budget.clone(),
            reserved: (Vec::new(), 0),
            incoming: vec![None; size],
            without_packet: vec![false; size],
            without_room: vec![false; size],
            completed: 0,
            begun: 0,
            exchanging: false,
            counts: WaitCounts::default(),
            wait_state: WaitState::default(),
        })
    }

    /// Restricts this rank's exchanges to `ranks`, itself among them, which do the same. Other ranks are not waited for, but share
    /// the group's error.
    pub fn exchange_among(&mut self, ranks: &[usize]) {
        self.partners = ranks.to_vec();
        self.may_leave.clear();
        self.is_partial = true;
    }

    /// Sets the ranks that this one waits for: all of `ranks`, whose death or leave fails a wait, and any of `any_of`, whose death
    /// does. The end of other ranks fails no wait.
    pub fn wait_for(&mut self, ranks: &[usize], mut any_of: Vec<usize>) {
        any_of.retain(|rank| !ranks.contains(rank));
        self.partners = [ranks, &any_of].concat();
        self.may_leave = any_of;
        self.is_partial = false;
    }

    /// Returns whether a rank has left the group, alive.
    pub fn has_left(&self, rank: usize) -> bool {
        rank < self.size && self.board.segment().has_left(rank)
    }

    /// Sets the job's number of each rank, which errors add to the rank.
    pub fn set_job_ranks(&mut self, job_ranks: Arc<[usize]>) {
        self.job_ranks = Some(job_ranks);
    }

    /// Sets the progress function of long waits.
    pub fn set_progress(&mut self, progress: Option<Progress>) {
        self.board.driver.set(progress);
    }

    /// Sets the budget of rings that are first used from here on.
    pub fn set_memory_budget(&mut self, memory_budget: MemoryBudget) {
        self.memory_budget = Some(memory_budget);
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks in the group.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Bytes of the largest packet.
    pub fn packet_bytes(&self) -> usize {
        self.board.packet_bytes()
    }

    /// Sends a packet of `bytes` bytes to `to`, filled by `write`, if there is room for it. `header` goes with it.
    ///
    /// # Errors
    /// [`Error::NoSpace`] on the first use of a ring; [`Error::Usage`] for a rank or a size that cannot be.
    pub fn send(
        &mut self,
        to: usize,
        header: [u64; 2],
        bytes: usize,
        write: impl FnOnce(&mut [u8]),
    ) -> Result<bool, Error> {
        let pair = self.pair(self.rank, to)?;
        if bytes > self.packet_bytes() {
            let most = self.packet_bytes();
            return Err(Error::usage(format!("a packet of {bytes} bytes was given; the most is {most}, cut it")));
        }
        if self.outgoing[to].is_none() {
            self.open(pair)?;
            self.outgoing[to] = Some(Outgoing::default());
        }
        let Some(end) = &mut self.outgoing[to] else { unreachable!("opened above") };
        self.without_room[to] = !end.has_room(&self.board, pair);
        if self.without_room[to] {
            return Ok(false);
        }
        self.board.send(end, pair, [header[0], header[1], bytes as u64], bytes, write);
        self.counts.moved();
        ring::announce(&self.board, to);
        Ok(true)
    }

    /// Passes the next packet of `from`, if there is one, to `take`, and frees its memory if `take` returns true.
    ///
    /// # Errors
    /// The errors of [`Rings::send`]; [`Error::Poisoned`] for a packet that no healthy rank sends.
    pub fn receive(&mut self, from: usize, take: impl FnOnce([u64; 2], &[u8]) -> bool) -> Result<bool, Error> {
        let pair = self.pair(from, self.rank)?;
        if self.incoming[from].is_none() {
            self.open(pair)?;
            self.incoming[from] = Some(Incoming::default());
        }
        let Some(end) = &mut self.incoming[from] else { unreachable!("opened above") };
        self.without_packet[from] = !end.has_packet(&self.board, pair);
        if self.without_packet[from] {
            return Ok(false);
        }
        let [a, b, bytes] = end.header(&self.board, pair);
        let bytes = bytes as usize;
        if bytes > self.board.packet_bytes() {
            return Err(self.raise(Fault::Corrupt));
        }
        let acknowledged = self.board.take(end, pair, bytes, |payload| take([a, b], payload));
        if acknowledged {
            self.counts.moved();
            ring::announce(&self.board, from);
        }
        Ok(acknowledged)
    }

    /// Returns whether the group has more ranks than CPUs, so that none of them may spin.
    pub fn is_oversubscribed(&self) -> bool {
        self.oversubscribed
    }

    /// Returns whether it has more ranks than their affinity masks have CPUs: the same on all ranks.
    pub fn outnumbers_cpus(&self) -> bool {
        self.size > self.board.segment().affine_cpus()
    }

    /// Names call `number` of a communicator for errors that this rank reports from now on.
    pub fn name_call(&mut self, collective: Collective, number: u64, description: CallDescription) {
        self.call_name = number << 8 | collective as u64;
        self.describe_call(number, description);
    }

    /// Calls that have begun on this rank.
    pub fn calls(&self) -> u64 {
        self.begun >> 32
    }

    /// Publishes the description of this rank's call `number`, for errors that any rank reports.
    pub fn describe_call(&self, number: u64, description: CallDescription) {
        let state = self.board.state(self.rank);
        for (word, value) in state.description.iter().zip(description.words()) {
            word.store(value, Ordering::Relaxed);
        }
        state.called.store(number, Ordering::Relaxed);
    }

    /// Returns the fault of ranks that make different calls, with their descriptions where these are of this rank's call number.
    pub fn mismatch(&self, ranks: [usize; 2]) -> Fault {
        let number = |rank: usize| self.board.state(rank).called.load(Ordering::Relaxed);
        let description = |rank: usize| {
            let is_due = rank < self.size && number(rank) != 0 && number(rank) == number(self.rank);
            let words = || self.board.state(rank).description.each_ref().map(|word| word.load(Ordering::Relaxed));
            if is_due { CallDescription::from_words(words()) } else { None }
        };
        let calls = ranks.map(description);
        // Equal calls are not those of the mismatch.
        let calls = if calls[0] == calls[1] { [None; 2] } else { calls };
        Fault::Mismatch { ranks, calls }
    }

    /// Completes this rank's exchange: its death does not fail that exchange any more.
    pub fn complete_exchange(&mut self) {
        self.exchanging = false;
        self.completed += 1;
        // A rank that sees this one dead sees this too; nothing else is ordered by it.
        self.board.state(self.rank).completed.store(self.completed, Ordering::Relaxed);
    }

    /// Publishes that this rank has completed call `number` of a communicator ([`Rings::name_call`]): its death fails that one and
    /// those before it no more.
    pub fn end_call(&self, number: u64) {
        self.board.state(self.rank).ended.store(number, Ordering::Relaxed);
    }

    /// Begins a call of this rank: an exchange, or one that uses no ring. All ranks count their calls from the
    /// same one on. A rank that waits in an exchange for one that made another call instead gets [`Error::Mismatch`].
    pub fn begin(&mut self, exchange: bool) {
        let (calls, exchanges) = (self.begun >> 32, self.begun & 0xffff_ffff);
        let exchanges = exchanges.wrapping_add(u64::from(exchange)) & 0xffff_ffff;
        self.exchanging = exchange;
        self.begun = calls.wrapping_add(1) << 32 | exchanges;
        self.board.state(self.rank).begun.store(self.begun, Ordering::Relaxed);
    }

    /// Takes back the call that began last, no exchange, which was refused on this rank alone.
    pub fn take_back(&mut self) {
        self.begun = self.begun.wrapping_sub(1 << 32);
        self.board.state(self.rank).begun.store(self.begun, Ordering::Relaxed);
    }

    /// The group's one error, if it has failed.
    ///
    /// # Errors
    /// The error that stands, or [`Error::Forked`].
    pub fn healthy(&self) -> Result<(), Error> {
        match self.board.poison().load(SyncPoint::PoisonAcquire.order()) {
            0 if self.board.segment().is_forked_child() => Err(Error::Forked),
            0 => Ok(()),
            poison => Err(self.error_of(PoisonWord(poison))),
        }
    }

    /// The ranks of the rings, of which the survivors can form new rings.
    pub fn membership(&self) -> Membership {
        Membership::new(self.board.shared_segment(), Grant::BASE, (0..self.size).collect())
    }

    /// Returns a rank among `ranks` that will not join a group made from this one: it is gone, has failed this group, or has given
    /// up joining the group with the number `joining`.
    pub fn absent(&self, ranks: &[usize], joining: Option<u64>) -> Option<usize> {
        let segment = self.board.segment();
        let reporter = match self.board.poison().load(SyncPoint::PoisonAcquire.order()) {
            0 => None,
            poison => Some(PoisonWord(poison).reporter()),
        };
        let is_absent = |rank: usize| {
            let gave_up = self.board.state(rank).gave_up.load(Ordering::Relaxed);
            reporter == Some(rank) || joining == Some(gave_up) || !segment.is_alive(rank) || segment.has_left(rank)
        };
        ranks.iter().copied().find(|rank| *rank < self.size && is_absent(*rank))
    }

    /// Publishes that this rank has given up joining a group made from this one, whose number is `joining`, not 0.
    pub fn give_up(&self, joining: u64) {
        self.board.state(self.rank).gave_up.store(joining, Ordering::Relaxed);
    }

    /// Fails the group, unless it has failed already; the error that stands, for every rank.
    pub fn raise(&mut self, fault: Fault) -> Error {
        if let Err(earlier) = self.healthy() {
            return earlier;
        }
        let (cause, mut details) = fault.words();
        details[DETAILS - 1] = self.call_name;
        for (word, value) in self.board.state(self.rank).details.iter().zip(details) {
            word.store(value, Ordering::Relaxed);
        }
        let poison = PoisonWord::new(cause, self.rank, self.completed + 1);
        let stands = match self.board.poison().compare_exchange(
            0,
            poison.0,
            SyncPoint::PoisonRelease.order(),
            SyncPoint::PoisonAcquire.order(),
        ) {
            Ok(_) => poison,
            Err(earlier) => PoisonWord(earlier),
        };
        (0..self.size).for_each(|rank| ring::announce(&self.board, rank));
        self.error_of(stands)
    }

    /// Returns whether something came where the last looks found nothing, or room where there was none.
    pub(super) fn something_changed(&self) -> bool {
        let came = |from: usize| {
            let end = self.incoming[from].as_ref().filter(|_| self.without_packet[from]);
            end.is_some_and(|end| end.has_packet(&self.board, RankPair { from, to: self.rank }))
        };
        let room = |to: usize| {
            let end = self.outgoing[to].filter(|_| self.without_room[to]);
            end.is_some_and(|mut end| end.has_room(&self.board, RankPair { from: self.rank, to }))
        };
        (0..self.size).any(|rank| came(rank) || room(rank))
    }

    fn pair(&self, from: usize, to: usize) -> Result<RankPair, Error> {
        if from < self.size && to < self.size {
            return Ok(RankPair { from, to });
        }
        Err(Error::usage(format!("rank {} was named in a group of {}", from.max(to), self.size)))
    }

    /// Reserves a ring; a group in which one rank cannot has failed.
    fn open(&mut self, pair: RankPair) -> Result<(), Error> {
        let reserved = if pair.from == self.rank { self.reserve_budget() } else { Ok(()) };
        reserved.and_then(|()| self.board.open(pair)).map_err(|error| match error {
            Error::NoSpace { needed, free, .. } => self.raise(Fault::NoSpace { needed, free }),
            Error::Forked => error,
            other => self.raise(Fault::Other(other.to_string())),
        })
    }

    /// Reserves budget for one more ring, on the sending rank, for some rings at once.
    fn reserve_budget(&mut self) -> Result<(), Error> {
        let (open, most) = (self.outgoing.iter().flatten().count(), self.partners.len().saturating_sub(1).max(1));
        let (reservations, rings) = &mut self.reserved;
        if let Some(memory_budget) = &self.memory_budget
            && open >= *rings
        {
            let more = RESERVED_TOGETHER.min(most.saturating_sub(*rings).max(1));
            reservations.push(memory_budget.reserve((more * RingLayout::new(self.size).ring_bytes()) as u64)?);
            *rings += more;
        }
        Ok(())
    }

    /// The group's one error in words. What the words name is checked: a bad peer can make it wrong, not harmful.
    fn error_of(&self, poison: PoisonWord) -> Error {
        if poison.reporter() >= self.size {
            return Error::Poisoned { cause: format!("unreadable poison word {:#x}", poison.0) };
        }
        let details = self.board.state(poison.reporter()).details.each_ref().map(|word| word.load(Ordering::Relaxed));
        let outcome = FaultRecord { poison: poison.0, details };
        outcome.error(self.size, self.job_ranks.as_deref(), |rank| self.board.segment().peer(rank))
    }
}
