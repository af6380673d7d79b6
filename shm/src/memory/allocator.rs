//! The allocator of the arena: regions are granted to groups of ranks out of one budget and freed by their last holder.
//!
//! Allocating and releasing are rare, so they take turns under one lock, a word of the table that names its holder. The lock
//! is taken from a rank that has ended, and from no other, so nothing here waits for a dead rank. Regions held only by dead
//! ranks are reclaimed: by the last living holder that releases the region, or by a rank that finds the arena full.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use super::allocator_state::DeferredRelease;
use super::budget_shares::shares;
use super::deadline::Deadline;
use super::grant::{AllocationName, BudgetLimits, Claim, Grant, HEAD_BYTES, Origin, POOL_BYTES};
use super::shared_words::{self, RegionMemory, SharedWords};
use super::table::{self, AllocationRequest, LockToken, Table};
use super::{PeerState, Region, Segment};
use crate::Error;

/// Longest wait of a dropped handle for the lock; after that its release is deferred to the next holder in this process.
pub(super) const RELEASE_WITHIN: Duration = Duration::from_secs(1);
/// A rank that waits for the lock yields its CPU for so long before it sleeps.
const YIELD_FOR: Duration = Duration::from_micros(100);

/// A holder of the lock that runs for this long without releasing it is taken for a damaged word.
const DAMAGED_AFTER: Duration = Duration::from_secs(60);
/// Interval at which a waiting rank checks whether the holder is stopped.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The table's words in the arena.
impl SharedWords for Segment {
    fn load(&self, word: usize) -> u64 {
        shared_words::load(self.allocator.words().word(word))
    }
    fn store(&self, word: usize, value: u64) {
        shared_words::store(self.allocator.words().word(word), value);
    }
    fn has_ended(&self, rank: usize) -> bool {
        Segment::has_ended(self, rank)
    }
}

/// The regions' memory in the arena.
impl RegionMemory for Segment {
    fn compare_exchange(&self, word: usize, from: u64, to: u64) -> Result<(), u64> {
        shared_words::exchange(self.allocator.words().word(word), from, to)
    }
    fn is_alive(&self, rank: usize) -> bool {
        Segment::is_alive(self, rank)
    }
    fn prepare(&self, start: usize, bytes: usize) -> Result<(), Error> {
        self.allocator.words().reserve(start..start + bytes)
    }
    fn reserve(&self, slot: usize, bytes: usize) -> Result<(), Error> {
        let start = POOL_BYTES + slot * self.allocator.region_bytes;
        let bytes = bytes.next_multiple_of(rustix::param::page_size()).min(self.allocator.region_bytes);
        Region::of(&self.arena, start, bytes)?.reserve(0..bytes)
    }
    fn give_back(&self, slot: usize) -> Result<(), Error> {
        // In steps, so that little address space is needed.
        const STEP: usize = 64 << 20;
        let bytes = self.allocator.region_bytes;
        let first = POOL_BYTES + slot * bytes;
        (0..bytes)
            .step_by(STEP)
            .try_for_each(|at| Region::of(&self.arena, first + at, STEP.min(bytes - at))?.give_back())
    }
}

/// The held lock, released when dropped.
pub(super) struct Locked<'a> {
    segment: &'a Segment,
    table: Table<'a, Segment>,
    hold: LockToken,
    _turn: MutexGuard<'a, ()>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.table.unlock(self.hold);
    }
}

impl Segment {
    /// Bytes of memory in use by the arena, on all ranks together.
    pub fn taken_bytes(&self) -> u64 {
        self.free_due_regions();
        self.arena.taken_bytes()
    }

    /// Bytes of the largest [`super::Allocation`].
    pub fn max_allocation_bytes(&self) -> usize {
        self.allocator.region_bytes
    }

    /// Sets the limits of all groups, the same on all ranks, before the first group is made.
    pub fn set_budget(&self, budget: BudgetLimits) {
        let _ = self.allocator.limits.set(budget);
    }

    /// Allocates a region to each of the groups, or to none of them. `None` if `healthy` returns false under the lock.
    ///
    /// Each gets a 32nd of the remaining budget, the groups of one call at most half of it together; never more than it can
    /// use, and never less than it needs.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when the budget or the memory left is less than the groups need; [`Error::Timeout`] when another
    /// process holds the lock beyond `timeout`, which it does only while it is stopped.
    pub fn allocate(
        &self,
        claims: &[Claim],
        origin: Origin,
        timeout: Option<Duration>,
        healthy: impl FnOnce() -> bool,
    ) -> Result<Option<Vec<Grant>>, Error> {
        self.control.header.pooled.store(1, Relaxed);
        let locked = self.lock_allocator(&mut Deadline::new(timeout))?;
        if !healthy() {
            return Ok(None);
        }
        match locked.try_allocate(claims, origin) {
            Err(Error::NoSpace { .. }) if locked.table.sweep() > 0 => locked.try_allocate(claims, origin).map(Some),
            other => other.map(Some),
        }
    }

    /// Allocates a region with exactly `bytes` bytes of the budget to `members`, and reserves its first `lines` bytes.
    ///
    /// # Errors
    /// The errors of [`Segment::allocate`].
    pub(crate) fn allocate_one(
        &self,
        members: Vec<usize>,
        (lines, bytes): (usize, u64),
        origin: Origin,
        timeout: Option<Duration>,
    ) -> Result<Grant, Error> {
        let claim = Claim { members, lines, least: bytes, most: bytes };
        let grants = self.allocate(&[claim], origin, timeout, || true)?;
        let Some(&[grant]) = grants.as_deref() else { unreachable!("one claim that nothing denies") };
        Ok(grant)
    }

    /// Releases a region that this process does not touch any more. The last release frees its memory and its budget. Waits at
    /// most a second for the lock: then the release is deferred to the next thread of this process that takes the lock.
    pub fn release(&self, slot: usize, id: u64) {
        self.release_or_defer(DeferredRelease::Allocation(slot, id));
    }

    /// Releases all allocations of this rank that one operation made: of a split that failed, or for the results of a group.
    pub fn release_all_of(&self, origin: Origin) {
        self.release_or_defer(DeferredRelease::AllOf(origin));
    }

    fn release_or_defer(&self, release: DeferredRelease) {
        // a job that never split has allocated nothing, and its arena is freed as a whole
        if self.control.header.pooled.load(Relaxed) == 0 || self.is_forked_child() {
            return;
        }
        match self.lock_allocator(&mut Deadline::new(Some(RELEASE_WITHIN))) {
            Ok(locked) => locked.release(release),
            Err(_) => self.deferred().push(release),
        }
    }

    fn deferred(&self) -> MutexGuard<'_, Vec<DeferredRelease>> {
        self.allocator.deferred.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Frees regions that other ranks could not free, if the table marks any as due.
    pub(super) fn free_due_regions(&self) {
        if self.control.header.pooled.load(Relaxed) != 0 && !self.is_forked_child() && self.table().is_due() {
            drop(self.lock_allocator(&mut Deadline::new(Some(RELEASE_WITHIN))));
        }
    }

    /// Bytes of another rank's registered buffer; `None` for a name that no buffer has.
    pub(crate) fn bytes_of(&self, name: AllocationName) -> Option<usize> {
        let bytes = self.table().cost_of(name).and_then(|bytes| usize::try_from(bytes).ok())?;
        (bytes <= self.allocator.region_bytes).then_some(bytes)
    }

    pub(super) fn table(&self) -> Table<'_, Segment> {
        Table { memory: self, regions: self.allocator.regions, ranks: self.size }
    }

    /// Maps the first `bytes` bytes of a region. Takes no memory.
    ///
    /// # Errors
    /// [`Error::Usage`] for a region that does not exist, [`Error::System`] when the address space is used up.
    pub fn region(&self, slot: usize, bytes: usize) -> Result<Region, Error> {
        if slot >= self.allocator.regions || bytes > self.allocator.region_bytes {
            return Err(Error::usage(format!(
                "region {slot} with {bytes} bytes was asked for; there are {} of {} bytes",
                self.allocator.regions, self.allocator.region_bytes
            )));
        }
        Region::of(&self.arena, POOL_BYTES + slot * self.allocator.region_bytes, bytes)
    }

    pub(super) fn lock_allocator(&self, deadline: &mut Deadline) -> Result<Locked<'_>, Error> {
        let allocator = &self.allocator;
        allocator.words().reserve(0..HEAD_BYTES)?;
        let (began, mut pause) = (Instant::now(), Duration::from_micros(20));
        let mut damage = LockDamage::new(began);
        let locked = loop {
            let word = match self.try_lock_allocator() {
                Ok(locked) => break locked,
                Err(word) => word,
            };
            let holder = table::holder(word).filter(|rank| *rank < self.size).unwrap_or(self.rank);
            let waiting_for = || format!("the table of regions, which process {} holds", self.peer(holder).pid);
            deadline.check(waiting_for, || vec![holder], || true)?;
            let is_running = || matches!(self.state(holder), PeerState::Running | PeerState::Disk);
            if damage.is_seen(word, Instant::now(), is_running) {
                let context = format!("taking the lock of the table of regions (word {word:#x})");
                let reason = format!("rank {holder} has it for {DAMAGED_AFTER:?}, and runs: shared memory was damaged");
                return Err(Error::system(context, reason));
            }
            // Most holders are done before a sleeper would have its CPU again.
            if began.elapsed() < YIELD_FOR {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        };
        let base = allocator.limits.get().map_or(0, |budget| budget.base);
        locked.table.open(locked.hold, (base, self.size))?;
        for release in std::mem::take(&mut *self.deferred()) {
            locked.release(release);
        }
        Ok(locked)
    }

    /// Takes the lock if it is free now; returns its word otherwise, which may name this rank while another thread takes it.
    fn try_lock_allocator(&self) -> Result<Locked<'_>, u64> {
        let turn = match self.allocator.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(turn)) => turn.into_inner(),
            Err(TryLockError::WouldBlock) => return Err(self.load(table::LOCK)),
        };
        let table = self.table();
        table.try_lock(self.rank).map(|hold| Locked { segment: self, table, hold, _turn: turn })
    }
}

/// Distinguishes a lock that is held for long from a damaged word, which no holder will ever clear.
struct LockDamage {
    word: u64,
    since: Instant,
    looked: Instant,
}

impl LockDamage {
    fn new(now: Instant) -> LockDamage {
        LockDamage { word: 0, since: now, looked: now }
    }

    /// Returns whether the word has named one holder for [`DAMAGED_AFTER`], which was running at every check.
    fn is_seen(&mut self, word: u64, now: Instant, is_running: impl FnOnce() -> bool) -> bool {
        if word != self.word {
            *self = LockDamage { word, ..LockDamage::new(now) };
        } else if now.duration_since(self.looked) >= LOOK_EVERY {
            self.looked = now;
            if !is_running() {
                self.since = now;
            }
        }
        now.duration_since(self.since) >= DAMAGED_AFTER
    }
}

impl Locked<'_> {
    fn release(&self, release: DeferredRelease) {
        let (table, me) = (&self.table, self.segment.rank);
        match release {
            DeferredRelease::Allocation(slot, id) => table.release(slot, id, me),
            DeferredRelease::AllOf(origin) => {
                table.of_origin(origin).iter().for_each(|grant| table.release(grant.slot, grant.id, me));
            }
        }
    }

    fn try_allocate(&self, claims: &[Claim], origin: Origin) -> Result<Vec<Grant>, Error> {
        let total = self.segment.allocator.limits.get().map_or(0, |budget| budget.total);
        let left = total.saturating_sub(self.table.used());
        let Some(shares) = shares(claims, left) else {
            return Err(Error::NoSpace {
                needed: claims.iter().map(|claim| claim.least).fold(0, u64::saturating_add),
                free: left,
                hint: format!(
                    "communicators may use {total} bytes in all; drop those no longer used, or set EARLYBIRD_ARENA_MAX higher"
                ),
            });
        };
        let mut grants: Vec<Grant> = Vec::with_capacity(claims.len());
        for (claim, cost) in claims.iter().zip(shares) {
            let wanted = AllocationRequest { cost, lines: claim.lines, origin, holders: &claim.members };
            match self.table.allocate(grants.last().map_or(0, |last| last.slot + 1), wanted) {
                Ok(Some(grant)) => grants.push(grant),
                failed => {
                    for grant in &grants {
                        self.table.give_back(grant.slot);
                    }
                    let regions = self.segment.allocator.regions;
                    failed?;
                    return Err(Error::NoSpace {
                        needed: claim.least,
                        free: 0,
                        hint: format!(
                            "all {regions} regions are allocated; drop communicators that are no longer used"
                        ),
                    });
                }
            }
        }
        Ok(grants)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_that_runs_for_long_is_none_and_one_that_is_stopped_may_be_one() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut damage = LockDamage::new(start);
        assert!((0..600).all(|i| !damage.is_seen(7, at(i * 100), || true)));
        assert!(damage.is_seen(7, at(60_000), || true));
        // another holder, or one seen stopped, restarts the time
        assert!(!damage.is_seen(8, at(60_100), || true));
        assert!(!damage.is_seen(8, at(100_000), || false));
        assert!(!damage.is_seen(8, at(159_000), || true));
        assert!(damage.is_seen(8, at(160_000), || true));
    }
}
