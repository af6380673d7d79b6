//! The pool: regions of the arena are lent to groups of ranks, out of one budget, and given back by the last of them.
//!
//! Lending and giving back are rare, so they take turns under one record lock on the arena. The kernel drops it when
//! its holder dies, so nothing here ever waits for the dead, and there is no word that two processes write at once.
//! What the dead held is theirs no more: whoever lets go of a region last among the living gives it back, and whoever
//! finds the pool short looks for regions that only dead ranks hold.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::deadline::Deadline;
pub use super::table::POOL_BYTES;
use super::table::Table;
use super::{Region, Segment, roll};
use crate::Error;

/// Regions of an arena: one for all ranks, the others for groups of them.
pub const MAX_REGIONS: usize = 4096;

/// The byte of the arena whose lock guards the table; those of the ranks come before it.
const LOCK: usize = 4096;

/// A group takes at most this part of what is left of the budget; those made together at most `TOGETHER` such parts.
const PART: u64 = 32;
const TOGETHER: u64 = 16;

/// What all groups of a node together may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Bytes in all.
    pub total: u64,
    /// Bytes of them that the group of all ranks takes.
    pub base: u64,
}

/// What a group that is to be made needs.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Its ranks, by their number in the segment.
    pub members: Vec<usize>,
    /// Bytes at the start of its region to reserve at once.
    pub lines: usize,
    /// The smallest and the largest cost it can do with, bytes.
    pub least: u64,
    /// See `least`.
    pub most: u64,
}

/// What a group was lent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// Its region.
    pub slot: usize,
    /// The number of the loan, never given twice in a job.
    pub id: u64,
    /// What it costs of the budget, bytes: the most that the group may reserve.
    pub bytes: u64,
}

impl Grant {
    /// The loan of the group of all ranks.
    pub const BASE: u64 = 1;
}

/// Where a loan comes from, so that a rank that was not told its number can still let go of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// The loan of the group that was split.
    pub parent: u64,
    /// Distinguishes the splits of that group.
    pub serial: u64,
}

/// This process's access to the table of regions.
#[derive(Debug)]
pub(super) struct Pool {
    words: Region,
    regions: usize,
    region_bytes: usize,
    budget: OnceLock<Budget>,
    /// Loans that this process could not let go of in time, for the next to hold the lock. Guards the lock too, which
    /// the threads of one process would share.
    forsaken: Mutex<Vec<Grant>>,
}

impl Pool {
    pub fn region_bytes(&self) -> usize {
        self.region_bytes
    }

    pub fn new(words: Region, regions: usize, region_bytes: usize) -> Pool {
        Pool { words, regions, region_bytes, budget: OnceLock::new(), forsaken: Mutex::default() }
    }
}

/// Gives the lock back however its holder ends.
struct Locked<'a> {
    segment: &'a Segment,
    table: Table<'a>,
    forsaken: MutexGuard<'a, Vec<Grant>>,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        roll::give_back(&self.segment.arena.fd(), LOCK);
    }
}

impl Segment {
    /// Says what the groups may use, the same on all ranks, before the first is made.
    pub fn set_budget(&self, budget: Budget) {
        let _ = self.pool.budget.set(budget);
    }

    /// Lends a region to each of the groups, or to none of them. `None` if `healthy`, asked under the lock, denies.
    ///
    /// Each gets a part in 32 of what is left of the budget, those made together at most half of it; never more than it
    /// can use, and never less than it needs.
    ///
    /// # Errors
    /// [`Error::NoSpace`] when even the least that the groups need is not left, or not in memory; [`Error::Timeout`]
    /// when another process holds the lock beyond `timeout`, which it does only while it is stopped.
    pub fn lend(
        &self,
        claims: &[Claim],
        origin: Origin,
        timeout: Option<Duration>,
        healthy: impl FnOnce() -> bool,
    ) -> Result<Option<Vec<Grant>>, Error> {
        self.control.header.pooled.store(1, Relaxed);
        let locked = self.lock_pool(&mut Deadline::new(timeout))?;
        if !healthy() {
            return Ok(None);
        }
        match locked.try_lend(claims, origin) {
            Err(Error::NoSpace { .. }) if locked.sweep() > 0 => locked.try_lend(claims, origin).map(Some),
            other => other.map(Some),
        }
    }

    /// This process does not touch the region any more. The last one to say so gives its memory and its budget back.
    pub fn let_go(&self, slot: usize, id: u64) {
        // a job that never split has lent nothing, and its arena goes as a whole
        if self.control.header.pooled.load(Relaxed) == 0 || self.is_forked_child() {
            return;
        }
        match self.lock_pool(&mut Deadline::new(Some(Duration::from_secs(1)))) {
            Ok(locked) => locked.let_go(slot, id),
            Err(_) => {
                let mut forsaken = self.pool.forsaken.lock().unwrap_or_else(PoisonError::into_inner);
                forsaken.push(Grant { slot, id, bytes: 0 });
            }
        }
    }

    /// Lets go of all that was lent to this rank by a split it did not see the end of, or for the results of a group it leaves.
    pub fn abandon(&self, origin: Origin) {
        if self.control.header.pooled.load(Relaxed) == 0 || self.is_forked_child() {
            return;
        }
        if let Ok(locked) = self.lock_pool(&mut Deadline::new(Some(Duration::from_secs(1)))) {
            let table = &locked.table;
            let mine = (0..table.seen()).filter(|&slot| table.id(slot) != 0 && table.is_from(slot, origin));
            mine.for_each(|slot| locked.let_go(slot, table.id(slot)));
        }
    }

    /// Maps the first `bytes` bytes of a region. Takes no memory.
    ///
    /// # Errors
    /// [`Error::Usage`] for a region that does not exist, [`Error::System`] when the address space is used up.
    pub fn region(&self, slot: usize, bytes: usize) -> Result<Region, Error> {
        if slot >= self.pool.regions || bytes > self.pool.region_bytes {
            return Err(Error::usage(format!(
                "region {slot} with {bytes} bytes was asked for; there are {} of {} bytes",
                self.pool.regions, self.pool.region_bytes
            )));
        }
        Region::of(&self.arena, POOL_BYTES + slot * self.pool.region_bytes, bytes)
    }

    fn lock_pool(&self, patience: &mut Deadline) -> Result<Locked<'_>, Error> {
        let pool = &self.pool;
        let forsaken = pool.forsaken.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.arena.fd();
        let mut pause = Duration::from_micros(20);
        while !roll::try_take(&file, LOCK)? {
            let holder = roll::holder(&file, LOCK, 1).unwrap_or(None);
            let who = || format!("the table of regions, which process {} holds", holder.unwrap_or(0));
            let rank = || (0..self.size).filter(|&r| Some(self.peer(r).pid) == holder).collect();
            patience.check(who, rank, || true)?;
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_millis(1));
        }
        let table = Table { words: &pool.words, regions: pool.regions };
        let mut locked = Locked { segment: self, table, forsaken };
        let base = pool.budget.get().map_or(0, |budget| budget.base);
        locked.table.open((base, self.size))?;
        for grant in std::mem::take(&mut *locked.forsaken) {
            locked.let_go(grant.slot, grant.id);
        }
        Ok(locked)
    }
}

impl Locked<'_> {
    fn try_lend(&self, claims: &[Claim], origin: Origin) -> Result<Vec<Grant>, Error> {
        let total = self.segment.pool.budget.get().map_or(0, |budget| budget.total);
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
        let mut grants = Vec::with_capacity(claims.len());
        for (claim, bytes) in claims.iter().zip(shares) {
            if let Err(error) = self.lend_one(claim, bytes, origin, &mut grants) {
                grants.iter().for_each(|grant| self.give_back(grant.slot));
                return Err(error);
            }
        }
        Ok(grants)
    }

    fn lend_one(&self, claim: &Claim, bytes: u64, origin: Origin, grants: &mut Vec<Grant>) -> Result<(), Error> {
        let pool = &self.segment.pool;
        let Some(slot) = self.table.free_from(grants.last().map_or(0, |last| last.slot + 1)) else {
            return Err(Error::NoSpace {
                needed: claim.least,
                free: 0,
                hint: format!("all {} regions are lent; drop communicators that are no longer used", pool.regions),
            });
        };
        let id = self.table.next_id();
        self.table.lend(slot, id, bytes, origin, claim.members.iter().copied())?;
        grants.push(Grant { slot, id, bytes });
        let start = POOL_BYTES + slot * pool.region_bytes;
        let lines = claim.lines.next_multiple_of(rustix::param::page_size()).min(pool.region_bytes);
        self.segment.arena.reserve(std::slice::from_ref(&(start..start + lines)))
    }

    fn let_go(&self, slot: usize, id: u64) {
        if slot < self.table.seen() && self.table.id(slot) == id {
            self.table.let_go(slot, self.segment.rank);
            if !self.table.holders(slot).any(|rank| !self.segment.has_ended(rank)) {
                self.give_back(slot);
            }
        }
    }

    /// Memory first: a region that is free reads as zero.
    fn give_back(&self, slot: usize) {
        let bytes = self.segment.pool.region_bytes;
        let start = POOL_BYTES + slot * bytes;
        if self.segment.arena.give_back(start..start + bytes).is_ok() {
            self.table.clear(slot);
        }
    }

    /// Gives back the regions that only dead ranks hold; how many.
    fn sweep(&self) -> usize {
        let mut alive = vec![None; self.segment.size];
        let mut lives =
            |rank: usize| rank < alive.len() && *alive[rank].get_or_insert_with(|| !self.segment.has_ended(rank));
        let lent = (0..self.table.seen()).filter(|&slot| self.table.id(slot) != 0);
        let orphans: Vec<_> = lent.filter(|&slot| !self.table.holders(slot).any(&mut lives)).collect();
        orphans.iter().for_each(|&slot| self.give_back(slot));
        orphans.len()
    }
}

/// What each group gets of the `left` bytes; `None` when they are too few.
fn shares(claims: &[Claim], left: u64) -> Option<Vec<u64>> {
    let least = claims.iter().try_fold(0, |sum: u64, claim| sum.checked_add(claim.least)).filter(|sum| *sum <= left)?;
    let pot = left / PART * TOGETHER.min(claims.len() as u64);
    let members = claims.iter().map(|claim| claim.members.len() as u64).sum::<u64>().max(1);
    let share = |claim: &Claim| {
        let even = (u128::from(pot) * claim.members.len() as u128 / u128::from(members)) as u64;
        (even / 4096 * 4096).min(claim.most).max(claim.least)
    };
    let shares: Vec<u64> = claims.iter().map(share).collect();
    match shares.iter().sum::<u64>() <= left.max(least) {
        true => Some(shares),
        false => Some(claims.iter().map(|claim| claim.least).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(members: usize, least: u64, most: u64) -> Claim {
        Claim { members: (0..members).collect(), lines: 0, least, most }
    }

    #[test]
    fn a_share_is_a_part_of_what_is_left_within_what_is_needed_and_usable() {
        let mi = 1 << 20;
        assert_eq!(shares(&[claim(2, 1, 1 << 40)], 320 * mi), Some(vec![10 * mi]));
        assert_eq!(shares(&[claim(2, 1, 3 * mi)], 320 * mi), Some(vec![3 * mi]));
        assert_eq!(shares(&[claim(2, 20 * mi, 1 << 40)], 320 * mi), Some(vec![20 * mi]));
        // by their members, together half of what is left
        let many: Vec<_> = (0..20).map(|i| claim(if i == 0 { 21 } else { 1 }, 1, 1 << 40)).collect();
        let given = shares(&many, 160 * mi).unwrap();
        assert_eq!((given[0], given[19]), (42 * mi, 2 * mi));
        assert_eq!(given.iter().sum::<u64>(), 80 * mi);
    }

    #[test]
    fn the_least_is_given_when_shares_do_not_fit_and_nothing_when_that_does_not() {
        // the first one's share and the least of the other are more than there is
        let claims = [claim(1000, 4096, 1 << 40), claim(1, 190_000, 1 << 40)];
        assert_eq!(shares(&claims, 205_000), Some(vec![12288, 190_000]));
        assert_eq!(shares(&claims, 202_000), Some(vec![4096, 190_000]));
        assert_eq!(shares(&claims, 194_096), Some(vec![4096, 190_000]));
        assert_eq!(shares(&claims, 194_095), None);
        assert_eq!(shares(&[claim(1, u64::MAX, u64::MAX), claim(1, 2, 2)], u64::MAX), None);
    }

    /// Whatever was lent, the budget is kept, and it is all there again afterwards.
    #[test]
    fn the_budget_lasts_for_many_groups() {
        let least = 100 << 10;
        let (mut left, mut groups) = (400u64 << 20, 0);
        while let Some(given) = shares(&[claim(2, least, 134 << 20)], left) {
            assert!(given[0] >= least && given[0] <= left);
            left -= given[0];
            groups += 1;
        }
        assert!(groups > 150 && left < least, "{groups} groups, {left} bytes left");
    }
}
