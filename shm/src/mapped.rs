//! The mapped board: the protocol's words and places in the region of a group.
//!
//! Invariants, relied on by every block here:
//!
//! * **M (mapping)**: the region is mapped at `base`, at least `Layout::bytes()` long, for as long as this board lives,
//!   which owns it; the word that is 0 in a forked child lives as long as the segment, of which the board has a share.
//! * **L (layout)**: [`Layout`] puts every line inside the region, aligned to 128 bytes and apart from all others
//!   (tested for 1 to 1023 ranks), the chunk words of a slot as one; slots, areas, chunks and ranks are checked or bounded here before use.
//! * **A (atomics)**: lines consist of atomics only, for which every bit pattern is valid, so another process can
//!   spoil values but not memory safety. The lines' memory is reserved before the board exists: no SIGBUS.
#![allow(unsafe_code)]

use crate::kernels::{fetch_for_reading, fetch_for_writing};
use crate::layout::{ACCUMULATOR_BYTES, DEPOSIT_BYTES, Layout};
use crate::memory::{Peer, PeerState, Region, Segment};
use crate::progress::{Driver, Progress};
use crate::protocol::board::{AREAS, Board, CHUNKS, Exposed, Need, Place, SLOTS, SMALL_DEPOSITS};
use crate::protocol::geometry::Who;
use crate::protocol::lines::{EventLine, INLINE_BYTES, MemberLines, PoisonLine, RankLine, RankSet, WordLine};
use crate::protocol::rotation::Rotation;
use crate::protocol::step::Step;
use crate::protocol::word::PoisonWord;
use crate::registration_cache::RegistrationCache;
use crate::{Error, clock, peer_memory, warn};
use std::cell::{Cell, RefCell};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Memory is reserved in steps of at least this, doubling: few system calls while sizes grow.
const LEAST_RESERVE_BYTES: usize = 64 * 1024;

// The segment and the protocol do not know each other; here they must agree.
const _: () = assert!(crate::memory::MAX_RANKS == crate::protocol::word::MAX_RANKS);

/// The fault that a test asked for; nothing in what ships.
#[cfg(feature = "fault")]
type Injected = Option<Arc<crate::fault_injection::InjectedFaults>>;
#[cfg(not(feature = "fault"))]
type Injected = Option<core::convert::Infallible>;

/// Members of a group, and the allocation that is its region.
#[derive(Debug, Clone)]
#[repr(C)]
pub struct GroupInfo {
    /// This process's rank in the group.
    pub me: usize,
    /// The members by their rank in the group: each one's rank in the segment.
    pub members: Arc<[usize]>,
    /// Region and number of the allocation; `None` for a group of one, which shares nothing.
    pub allocation: Option<(usize, u64)>,
}

/// Reserved bytes of an area.
#[derive(Debug, Default)]
struct Reserved {
    accumulator: Cell<usize>,
    deposits: Vec<Cell<usize>>,
    /// The smallest of the deposits.
    least_deposit: Cell<usize>,
}

/// One rank's view of the region of a group. What every call looks at comes first.
#[derive(Debug)]
#[repr(C)]
pub struct Mapped {
    base: *mut u8,
    /// The poison word while the group is well.
    healthy: u64,
    /// The segment's word that is 0 in a forked child.
    forked: Option<NonNull<AtomicU64>>,
    layout: Layout,
    rotation: Rotation,
    group_info: GroupInfo,
    /// Per area, and for small deposits: the reserved and mapped parts of the accumulator and of each rank's deposit.
    reserved: [Reserved; AREAS + SMALL_DEPOSITS.len()],
    fault: Injected,
    driver: Driver,
    /// Registered buffers of the group's ranks that are mapped here.
    registrations: RefCell<RegistrationCache>,
    /// Unmapped when the board goes.
    region: Region,
    segment: Arc<Segment>,
}

// SAFETY: M: `base` is a plain address that no other handle of this process uses to create references other than to
// atomics; moving the board between threads moves nothing in memory.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Maps the board of the group whose region this is: reserves the lines and makes them present. `rotation` is the same on all
    /// ranks.
    ///
    /// # Errors
    /// [`Error::NoSpace`] before anything is touched; whatever the system refuses.
    pub fn new(
        segment: Arc<Segment>,
        group_info: GroupInfo,
        region: Region,
        rotation: Rotation,
    ) -> Result<Self, Error> {
        #[cfg(feature = "fault")]
        let fault = crate::fault_injection::InjectedFaults::from_env(segment.rank())?.map(Arc::new);
        #[cfg(not(feature = "fault"))]
        let fault = None;
        Mapped::with(segment, group_info, region, rotation, fault, Driver::default())
    }

    /// Maps the board of a group of some members of this one; injected faults keep their counts.
    ///
    /// # Errors
    /// As [`Mapped::new`].
    pub fn new_part(&self, group_info: GroupInfo, region: Region, rotation: Rotation) -> Result<Self, Error> {
        #[cfg(feature = "fault")]
        let fault = self.fault.clone();
        #[cfg(not(feature = "fault"))]
        let fault = self.fault;
        Mapped::with(self.segment.clone(), group_info, region, rotation, fault, self.driver.another())
    }

    fn with(
        segment: Arc<Segment>,
        group_info: GroupInfo,
        region: Region,
        rotation: Rotation,
        fault: Injected,
        driver: Driver,
    ) -> Result<Self, Error> {
        let ranks = group_info.members.len();
        let (base, layout) = (region.as_ptr(), Layout::new(ranks));
        let reserved = std::array::from_fn(|_| Reserved { deposits: vec![Cell::new(0); ranks], ..Reserved::default() });
        let registrations = RefCell::new(RegistrationCache::new(ranks));
        let forked = segment.fork_word().map(NonNull::from);
        let healthy = PoisonWord::healthy(group_info.allocation.map_or(0, |(_, id)| id));
        let board = Mapped {
            base,
            healthy,
            forked,
            layout,
            rotation,
            group_info,
            reserved,
            fault,
            driver,
            registrations,
            region,
            segment,
        };
        board.make_present()?;
        Ok(board)
    }

    fn make_present(&self) -> Result<(), Error> {
        if self.region.len() < self.layout.bytes() {
            return Err(Error::usage(format!(
                "the region has {} bytes and the layout for {} ranks needs {}; all ranks must run one version",
                self.region.len(),
                self.ranks(),
                self.layout.bytes()
            )));
        }
        if self.group_info.allocation.is_none() {
            return Ok(());
        }
        self.region.reserve(0..self.layout.control_bytes())?;
        self.at::<PoisonLine>(self.layout.poison()).begin(self.healthy);
        Ok(())
    }

    /// Sets the progress function of the waits that follow; groups made from this one inherit it.
    pub fn set_progress(&mut self, progress: Option<Progress>) {
        self.driver.set(progress);
    }

    /// The segment that the group is a part of.
    pub fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    /// Returns whether this is a child made by fork, which is no member.
    #[inline(always)]
    pub fn is_forked_child(&self) -> bool {
        match self.forked {
            // SAFETY: M; it is touched as an atomic only.
            Some(word) => unsafe { word.as_ref() }.load(Ordering::Relaxed) == 0,
            None => self.segment.is_forked_child(),
        }
    }

    /// Members of the group.
    pub fn group_info(&self) -> &GroupInfo {
        &self.group_info
    }

    /// Process of the member `rank` of the group.
    pub fn peer(&self, rank: usize) -> Peer {
        self.segment.peer(self.group_info.members[rank])
    }

    #[cold]
    fn reserve_more(&self, area: usize, need: Need) -> Result<(), Error> {
        let reserved = &self.reserved[area];
        let step = |need: usize, most: usize| need.next_power_of_two().clamp(LEAST_RESERVE_BYTES, most);
        if need.accumulator > reserved.accumulator.get() {
            let (at, want) = (self.layout.accumulator(area), step(need.accumulator, ACCUMULATOR_BYTES));
            self.region.reserve(at..at + want)?;
            reserved.accumulator.set(want);
        }
        for (rank, has) in reserved.deposits.iter().enumerate().filter(|(rank, _)| need.whose.has(*rank)) {
            if need.deposit <= has.get() {
                continue;
            }
            let at = self.layout.deposit(area, rank);
            // The places of small ones are there together.
            let want = if area < AREAS { step(need.deposit, DEPOSIT_BYTES) } else { Layout::deposit_room(area) };
            self.region.reserve(at..at + want)?;
            has.set(want);
        }
        reserved.least_deposit.set(reserved.deposits.iter().map(Cell::get).min().unwrap_or(0));
        Ok(())
    }

    #[inline(always)]
    fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: M, L, A: callers pass an offset of `Layout` for a line of type T.
        unsafe { &*self.base.add(offset).cast::<T>() }
    }

    #[inline(always)]
    fn place(&self, at: Place) -> *mut u8 {
        let (offset, within, bytes, room) = match at {
            Place::Inline { slot, rank, bytes } => {
                assert!(bytes <= INLINE_BYTES, "{bytes} bytes in the line of rank {rank}");
                return self.line(slot, rank).payload.as_ptr().cast_mut().cast();
            }
            Place::Deposit { area, rank, offset, bytes, .. } => {
                assert!(area < self.reserved.len() && rank < self.ranks(), "place {at:?} does not exist");
                (self.layout.deposit(area, rank), offset, bytes, Layout::deposit_room(area))
            }
            Place::Registered { rank, result, offset, bytes, .. } => {
                let registrations = self.registrations.borrow();
                // The end lies inside, too.
                registrations.at(rank, result, offset.saturating_add(bytes));
                return registrations.at(rank, result, offset);
            }
            Place::Accumulator { area, offset, bytes, .. } => {
                assert!(area < AREAS, "place {at:?} does not exist");
                (self.layout.accumulator(area), offset, bytes, ACCUMULATOR_BYTES)
            }
        };
        assert!(within <= room && bytes <= room - within, "place {at:?} lies outside its area");
        // SAFETY: M, L, and the check above.
        unsafe { self.base.add(offset + within) }
    }
}

impl Board for Mapped {
    #[inline(always)]
    fn ranks(&self) -> usize {
        self.layout.ranks()
    }
    fn rank(&self) -> usize {
        self.group_info.me
    }

    #[inline(always)]
    fn poison(&self) -> &AtomicU64 {
        &self.at::<PoisonLine>(self.layout.poison()).poison
    }
    #[inline(always)]
    fn healthy(&self) -> u64 {
        self.healthy
    }
    fn is_ours(&self) -> bool {
        self.at::<PoisonLine>(self.layout.poison()).group.load(Ordering::Relaxed) == self.healthy
    }
    fn left(&self, rank: usize) -> &AtomicU64 {
        &self.member(rank).left.0
    }
    fn member(&self, rank: usize) -> &MemberLines {
        assert!(rank < self.ranks());
        self.at(self.layout.member(rank))
    }

    #[inline]
    fn arrival(&self, slot: usize) -> &AtomicU64 {
        &self.at::<WordLine>(self.layout.arrival(slot % SLOTS)).0
    }
    #[inline(always)]
    fn event(&self, slot: usize) -> &EventLine {
        self.at(self.layout.event(slot % SLOTS))
    }
    #[inline(always)]
    fn line(&self, slot: usize, rank: usize) -> &RankLine {
        if rank >= self.ranks() {
            no_line(rank);
        }
        self.at(self.layout.line(slot % SLOTS, rank))
    }
    fn fold_word(&self, area: usize) -> &AtomicU64 {
        &self.at::<WordLine>(self.layout.fold_word(area % AREAS)).0
    }
    fn folded(&self, area: usize) -> &RankSet {
        self.at(self.layout.folded(area % AREAS))
    }
    fn chunk(&self, area: usize, chunk: usize) -> &AtomicU64 {
        assert!(chunk < CHUNKS);
        match area.checked_sub(AREAS) {
            None => &self.at::<WordLine>(self.layout.chunk(area, chunk)).0,
            Some(slot) => self.at::<AtomicU64>(self.layout.slot_chunk(slot % SLOTS, chunk)),
        }
    }

    #[inline(always)]
    fn read<R>(&self, at: Place, f: impl FnOnce(*const u8) -> R) -> R {
        f(self.place(at))
    }
    #[inline(always)]
    fn write<R>(&self, at: Place, f: impl FnOnce(*mut u8) -> R) -> R {
        f(self.place(at))
    }

    #[inline(always)]
    fn rotation(&self) -> Rotation {
        self.rotation
    }
    #[inline(always)]
    fn has_reserved(&self, area: usize, need: Need) -> bool {
        let reserved = &self.reserved[area];
        let deposit = match need.whose {
            Who::All => reserved.least_deposit.get(),
            Who::Only(rank) => reserved.deposits[rank].get(),
        };
        need.accumulator <= reserved.accumulator.get() && need.deposit <= deposit
    }
    #[inline]
    fn reserve(&self, area: usize, need: Need) -> Result<(), Error> {
        if self.has_reserved(area, need) { Ok(()) } else { self.reserve_more(area, need) }
    }

    fn register(&self, contribution: *mut u8, result: *mut u8, bytes: usize) {
        self.registrations.borrow_mut().begin(self.group_info.me, [contribution, result], bytes);
    }
    fn open(&self, rank: usize, names: [u64; 2]) -> Result<(), Error> {
        self.registrations.borrow_mut().open(&self.segment, rank, names)
    }

    fn expose(&self, buffer: &[u8], starts: &[usize]) -> Exposed {
        peer_memory::expose(buffer, starts)
    }
    fn read_exposed(&self, rank: usize, exposed: Exposed, offset: usize, to: &mut [u8]) -> bool {
        peer_memory::read(self.segment.pid(self.group_info.members[rank]), exposed, offset, to)
    }

    fn is_gone(&self, rank: usize) -> bool {
        self.member(rank).is_gone() || !self.segment.is_alive(self.group_info.members[rank])
    }
    fn is_held(&self, rank: usize) -> bool {
        matches!(self.segment.state(self.group_info.members[rank]), PeerState::Stopped | PeerState::Traced)
    }
    fn warn_late(&self, operation: u64, waited_s: u64, missing: &[usize]) {
        let name =
            |r| format!("rank {r} (pid {}, {})", self.peer(r).pid, self.segment.state(self.group_info.members[r]));
        warn::warn(format_args!(
            "rank {} has waited {waited_s} s in operation {operation} for {}",
            self.rank(),
            warn::list_late(missing, name)
        ));
    }
    #[inline]
    fn now_ns(&self) -> u64 {
        clock::now_ns()
    }
    #[inline(always)]
    fn prepare_line(&self, slot: usize) {
        let line = core::ptr::from_ref(self.line(slot, self.rank()));
        fetch_for_writing(line.cast());
        fetch_for_writing(line.cast::<u8>().wrapping_add(64));
    }
    #[inline(always)]
    fn prefetch(&self, slot: usize) {
        fetch_for_reading(core::ptr::from_ref(self.event(slot)).cast());
        fetch_for_writing(core::ptr::from_ref(self.left(self.rank())).cast());
        if self.ranks() == 2 {
            fetch_for_reading(core::ptr::from_ref(self.line(slot, 1 - self.rank().min(1))).cast());
        }
    }
    #[inline]
    fn demote(&self, at: Place) {
        let (Place::Deposit { bytes, .. } | Place::Accumulator { bytes, .. }) = at else { return };
        let from = self.place(at);
        for offset in (0..bytes).step_by(64) {
            demote(from.wrapping_add(offset));
        }
    }
    fn yield_now(&self) {
        rustix::thread::sched_yield();
    }
    fn drive(&self, now_ns: u64) -> bool {
        self.driver.drive(now_ns)
    }
    fn sleep_ns(&self, most_ns: u64) -> u64 {
        self.driver.sleep_ns(most_ns)
    }
    fn backoff(&self, ns: u64) {
        std::thread::sleep(std::time::Duration::from_nanos(ns));
    }
    #[inline(always)]
    fn step(&self, step: Step) {
        #[cfg(feature = "fault")]
        if let Some(fault) = &self.fault {
            fault.reached(step);
        }
        #[cfg(not(feature = "fault"))]
        let _ = step;
    }
}

impl Drop for Mapped {
    /// Marks this rank as gone, then releases the region. A forked child is no member and does neither.
    fn drop(&mut self) {
        if let Some((slot, id)) = self.group_info.allocation
            && !self.is_forked_child()
        {
            self.member(self.group_info.me).go();
            self.segment.release(slot, id);
        }
    }
}

/// Panics apart from the hot path, on which the arguments of a message would be prepared otherwise.
#[cold]
#[inline(never)]
fn no_line(rank: usize) -> ! {
    panic!("rank {rank} has no line");
}

/// Moves the cache line at `address` to a cache that other cores reach faster. A hint: no architectural effect.
#[inline(always)]
fn demote(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: CLDEMOTE never faults; processors without it execute its encoding as a no-op.
    unsafe {
        core::arch::asm!("cldemote [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
