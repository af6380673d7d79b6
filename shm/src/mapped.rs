//! The board that ships: the protocol's words and places in the mapped segment.
//!
//! Invariants, relied on by every block here:
//!
//! * **M (mapping)**: the arena is mapped at `arena`, `Layout::bytes()` long, for as long as the segment lives, and
//!   the segment lives as long as this board.
//! * **L (layout)**: [`Layout`] puts every line inside the arena, aligned to 128 bytes and apart from all others
//!   (tested for 1 to 1023 ranks); slots, areas, chunks and ranks are checked or bounded here before use.
//! * **A (atomics)**: lines consist of atomics only, for which every bit pattern is valid, so another process can
//!   spoil values but not memory safety. The lines' memory is reserved before the board exists: no SIGBUS.
#![allow(unsafe_code)]

use crate::Error;
use crate::layout::{ACCUMULATOR_BYTES, DEPOSIT_BYTES, Layout};
use crate::protocol::board::{AREAS, Board, CHUNKS, Need, Place, SLOTS};
use crate::protocol::lines::{DETAILS, EventLine, RankLine, RankSet, WordLine};
use crate::protocol::step::Step;
use crate::segment::{PeerState, Segment};
use rustix::thread::futex;
use rustix::time::{ClockId, Timespec, clock_gettime};
use std::cell::Cell;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Memory is reserved in steps of at least this, doubling: few system calls while sizes grow.
const LEAST_RESERVE_BYTES: usize = 64 * 1024;

// The segment and the protocol do not know each other; here they must agree. The detail words agree by their type.
const _: () = assert!(crate::segment::MAX_RANKS == crate::protocol::word::MAX_RANKS);

/// One rank's view of the mapped segment.
#[derive(Debug)]
pub struct Mapped {
    segment: Segment,
    layout: Layout,
    /// Per area: what is reserved and mapped so far.
    reserved: [Cell<Need>; AREAS],
    #[cfg(feature = "fault")]
    fault: Option<crate::fault::Fault>,
}

// SAFETY: M: the arena pointer inside the segment is a plain address that no other handle of this process uses to
// create references other than to atomics; moving the board between threads moves nothing in memory.
unsafe impl Send for Mapped {}

impl Mapped {
    /// Reserves the lines and maps them.
    ///
    /// # Errors
    /// [`Error::NoSpace`] before anything is touched; whatever the system refuses.
    pub fn new(segment: Segment) -> Result<Self, Error> {
        let layout = Layout::new(segment.size());
        if segment.arena_len() < layout.bytes() {
            return Err(Error::usage(format!(
                "the arena has {} bytes and the layout for {} ranks needs {}; all ranks must run one version",
                segment.arena_len(),
                segment.size(),
                layout.bytes()
            )));
        }
        segment.reserve(0..layout.control_bytes())?;
        segment.populate_write(0..layout.control_bytes())?;
        #[cfg(feature = "fault")]
        let fault = crate::fault::Fault::from_env(segment.rank())?;
        let reserved = Default::default();
        Ok(Mapped {
            segment,
            layout,
            reserved,
            #[cfg(feature = "fault")]
            fault,
        })
    }

    /// The segment behind the board.
    pub fn segment(&self) -> &Segment {
        &self.segment
    }

    #[inline(always)]
    fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: M, L, A: callers pass an offset of `Layout` for a line of type T.
        unsafe { &*self.segment.arena().add(offset).cast::<T>() }
    }

    #[inline(always)]
    fn place(&self, at: Place) -> *mut u8 {
        let (offset, within, room) = match at {
            Place::Inline { slot, rank } => {
                return self.line(slot, rank).payload.as_ptr().cast_mut().cast();
            }
            Place::Deposit { area, rank, offset, .. } => (self.layout.deposit(area, rank), offset, DEPOSIT_BYTES),
            Place::Accumulator { area, offset, .. } => (self.layout.accumulator(area), offset, ACCUMULATOR_BYTES),
        };
        assert!(within <= room, "place {at:?} lies outside its area");
        // SAFETY: M, L, and the check above.
        unsafe { self.segment.arena().add(offset + within) }
    }
}

impl Board for Mapped {
    fn ranks(&self) -> usize {
        self.segment.size()
    }
    fn rank(&self) -> usize {
        self.segment.rank()
    }

    fn poison(&self) -> &AtomicU64 {
        &self.segment.control().poison
    }
    fn left(&self, rank: usize) -> &AtomicU64 {
        &self.segment.control().left[rank]
    }
    fn details(&self, rank: usize) -> &[AtomicU64; DETAILS] {
        self.segment.control().detail(rank).expect("ranks are bounded by the size of the group")
    }

    #[inline]
    fn arrival(&self, slot: usize) -> &AtomicU64 {
        &self.at::<WordLine>(self.layout.arrival(slot % SLOTS)).0
    }
    #[inline]
    fn event(&self, slot: usize) -> &EventLine {
        self.at(self.layout.event(slot % SLOTS))
    }
    #[inline]
    fn line(&self, slot: usize, rank: usize) -> &RankLine {
        assert!(rank < self.segment.size());
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
        &self.at::<WordLine>(self.layout.chunk(area % AREAS, chunk)).0
    }

    #[inline]
    fn read<R>(&self, at: Place, f: impl FnOnce(*const u8) -> R) -> R {
        f(self.place(at))
    }
    #[inline]
    fn write<R>(&self, at: Place, f: impl FnOnce(*mut u8) -> R) -> R {
        f(self.place(at))
    }

    fn reserve(&self, area: usize, need: Need) -> Result<(), Error> {
        let have = self.reserved[area].get();
        if need.accumulator <= have.accumulator && need.deposit <= have.deposit {
            return Ok(());
        }
        let step = |need: usize, have: usize, most: usize| match need > have {
            true => need.next_power_of_two().clamp(LEAST_RESERVE_BYTES, most),
            false => have,
        };
        let want = Need {
            accumulator: step(need.accumulator, have.accumulator, ACCUMULATOR_BYTES),
            deposit: step(need.deposit, have.deposit, DEPOSIT_BYTES),
        };
        if want.accumulator > have.accumulator {
            let at = self.layout.accumulator(area);
            self.segment.reserve(at..at + want.accumulator)?;
            self.segment.populate_write(at..at + want.accumulator)?;
        }
        if want.deposit > have.deposit {
            for rank in 0..self.ranks() {
                let at = self.layout.deposit(area, rank);
                self.segment.reserve(at..at + want.deposit)?;
                match rank == self.rank() {
                    true => self.segment.populate_write(at..at + want.deposit)?,
                    false => self.segment.populate_read(at..at + want.deposit)?,
                }
            }
        }
        self.reserved[area].set(want);
        Ok(())
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32, timeout_ns: u64) {
        let timeout =
            Timespec { tv_sec: (timeout_ns / 1_000_000_000) as i64, tv_nsec: (timeout_ns % 1_000_000_000) as i64 };
        // Woken, timed out, interrupted, changed before sleeping: the caller looks again in every case.
        let _ = futex::wait(word, futex::Flags::empty(), expected, Some(&timeout));
    }
    fn futex_wake(&self, word: &AtomicU32) {
        let _ = futex::wake(word, futex::Flags::empty(), i32::MAX as u32);
    }

    fn is_gone(&self, rank: usize) -> bool {
        !self.segment.is_alive(rank) || self.segment.has_left(rank)
    }
    fn is_held(&self, rank: usize) -> bool {
        matches!(self.segment.state(rank), PeerState::Stopped | PeerState::Traced)
    }
    fn warn_late(&self, operation: u64, waited_s: u64, missing: &[usize]) {
        let late: Vec<String> = missing
            .iter()
            .take(8)
            .map(|&r| format!("rank {r} (pid {}, {})", self.segment.peer(r).pid, self.segment.state(r)))
            .collect();
        let more = if missing.len() > 8 { format!(" and {} more", missing.len() - 8) } else { String::new() };
        eprintln!(
            "earlybird: rank {} has waited {waited_s} s in operation {operation} for {}{more}",
            self.rank(),
            late.join(", ")
        );
    }
    #[inline]
    fn now_ns(&self) -> u64 {
        let t = clock_gettime(ClockId::Monotonic);
        t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
    }
    fn cpu(&self) -> u32 {
        rustix::thread::sched_getcpu() as u32
    }
    #[inline]
    fn prepare_line(&self, slot: usize) {
        let line = core::ptr::from_ref(self.line(slot, self.rank()));
        prefetch_for_writing(line.cast());
        prefetch_for_writing(line.cast::<u8>().wrapping_add(64));
    }
    #[inline]
    fn hand_on(&self, at: Place, bytes: usize) {
        let from = self.place(at);
        for offset in (0..bytes).step_by(64) {
            demote(from.wrapping_add(offset));
        }
    }
    fn give_way(&self) {
        rustix::thread::sched_yield();
    }
    fn nap(&self, ns: u64) {
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

/// Asks for the cache line at `address` in a writable state. A hint: it reads and writes nothing.
#[inline(always)]
fn prefetch_for_writing(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: PREFETCHW never faults and has no architectural effect; processors without it execute it as a no-op.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
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
