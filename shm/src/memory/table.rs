//! The table of regions at the start of the arena: the holders of each region, its part of the budget, and the groups in whose
//! operations it is used.
//!
//! One page of head, then a record of 256 bytes per region. Only the holder of the lock in the head changes the table, with one
//! exception: the owner of a buffer enters the groups that use the buffer without the lock. A change that a dead holder left
//! half done reads as "not allocated" or "no holder". Numbers found here are bounded before they are used.
//!
//! All accesses go through [`RegionMemory`], so that `shm/tests/pool_states.rs` explores the shipping lines, one access after
//! the other, with ranks that die between any two of them.

use super::grant::{AllocationName, Grant, HEAD_BYTES, MAX_REGIONS, Origin, TABLE_BYTES};
use super::shared_words::RegionMemory;
use crate::Error;

const RECORD_BYTES: usize = 256;

const _: () = assert!(HEAD_BYTES + MAX_REGIONS * RECORD_BYTES <= TABLE_BYTES);

// words of the head
const NEXT_ID: usize = 0;
/// Records that were ever used lie below this one.
const SEEN: usize = 1;
/// True if some region may have become free and has not been given back.
const DUE: usize = 2;
/// The lock: `generation 48 | rank + 1, or 0`, in a cache line of its own.
pub const LOCK: usize = 16;

// words of a record
/// 0 for a region without a holder; no two allocations ever have the same.
const ID: usize = 0;
const COST: usize = 1;
const PARENT: usize = 2;
const SERIAL: usize = 3;
/// The groups in whose operations a buffer lies, by the names of their regions, in any order; 0 for none.
pub const USES: usize = 4;
/// Groups in whose operations a buffer can lie at a time.
pub const MAX_USES: usize = 8;
const HOLDERS: usize = 16;
const SET_WORDS: usize = 16;

const _: () = assert!(super::control::MAX_RANKS <= SET_WORDS * 64);
const _: () = assert!(USES + MAX_USES <= HOLDERS && (HOLDERS + SET_WORDS) * 8 == RECORD_BYTES);

/// A request for a region.
#[derive(Debug, Clone, Copy)]
pub struct AllocationRequest<'a> {
    /// Bytes of the budget.
    pub cost: u64,
    /// Bytes to reserve at once.
    pub lines: usize,
    /// The operation that makes the allocation.
    pub origin: Origin,
    /// The ranks that hold it.
    pub holders: &'a [usize],
}

/// The table, as one rank sees it.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a, B> {
    /// The memory that holds the table.
    pub memory: &'a B,
    /// Number of regions.
    pub regions: usize,
    /// Number of ranks.
    pub ranks: usize,
}

/// The lock of the table, held: its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockToken {
    /// The value of the word meanwhile.
    pub word: u64,
    /// True if it was taken from a rank that has ended, perhaps in the middle of a change.
    pub inherited: bool,
}

/// The holder in a value of the lock's word, if any; in a damaged word it may be no rank of the job.
pub fn holder(word: u64) -> Option<usize> {
    (word & 0xffff).checked_sub(1).map(|rank| rank as usize)
}

/// The value that `rank` stores over `before` to take the lock.
pub fn taken(before: u64, rank: usize) -> u64 {
    ((before >> 16).wrapping_add(1) << 16) | (rank as u64 + 1)
}

impl<B: RegionMemory> Table<'_, B> {
    pub(super) fn get(&self, word: usize) -> u64 {
        self.memory.load(word)
    }

    pub(super) fn set(&self, word: usize, value: u64) {
        self.memory.store(word, value);
    }

    fn record(slot: usize) -> usize {
        (HEAD_BYTES + slot * RECORD_BYTES) / 8
    }

    /// Takes the lock for rank `me` if it is free or its holder has ended. No other thread of the rank may hold it.
    ///
    /// # Errors
    /// The value of the word otherwise, which names the holder.
    pub fn try_lock(&self, me: usize) -> Result<LockToken, u64> {
        let seen = self.get(LOCK);
        let inherited = match holder(seen) {
            None => false,
            // Not a rank, or this one, which has not taken it: the word is damaged.
            Some(rank) if rank >= self.ranks || rank == me || self.memory.has_ended(rank) => true,
            Some(_) => return Err(seen),
        };
        let word = taken(seen, me);
        self.memory.compare_exchange(LOCK, seen, word).map(|()| LockToken { word, inherited })
    }

    /// Releases the lock.
    pub fn unlock(&self, hold: LockToken) {
        // Not if the word has changed: another process has damaged it, and it may be another rank's.
        let _ = self.memory.compare_exchange(LOCK, hold.word, hold.word >> 16 << 16);
    }

    /// Prepares the table under the lock. Writes the record of region 0 unless that is done: `first` is its cost and its number
    /// of holders. Frees the regions that other ranks could not.
    ///
    /// # Errors
    /// The errors of [`RegionMemory::prepare`].
    pub fn open(&self, hold: LockToken, first: (u64, usize)) -> Result<(), Error> {
        if self.get(NEXT_ID) == 0 {
            let (cost, size) = first;
            let holders: Vec<usize> = (0..size).collect();
            let base = AllocationRequest { cost, lines: 0, origin: Origin { parent: 0, serial: 0 }, holders: &holders };
            self.write(0, Grant::BASE, base)?;
            self.set(NEXT_ID, Grant::BASE + 1);
        }
        if hold.inherited || self.is_due() {
            self.sweep();
        }
        Ok(())
    }

    /// Returns true if some region may have become free and has not been given back.
    pub fn is_due(&self) -> bool {
        self.get(DUE) != 0
    }

    /// Records that may be in use.
    pub fn seen(&self) -> usize {
        (self.get(SEEN) as usize).min(self.regions)
    }

    /// The number of the allocation of a region, 0 for none.
    pub fn id(&self, slot: usize) -> u64 {
        self.get(Self::record(slot) + ID)
    }

    /// Bytes of the budget that the allocation of this name takes; `None` if it is not allocated. Needs no lock: memory that a rank may
    /// still touch stays allocated.
    pub fn cost_of(&self, name: AllocationName) -> Option<u64> {
        let is_allocated = name.id != 0 && name.slot < self.seen() && self.is(name);
        is_allocated.then(|| self.get(Self::record(name.slot) + COST))
    }

    fn is(&self, name: AllocationName) -> bool {
        AllocationName { slot: name.slot, id: self.id(name.slot) }.word() == name.word()
    }

    /// Returns whether the operation `origin` made an allocation.
    pub fn is_from(&self, slot: usize, origin: Origin) -> bool {
        let record = Self::record(slot);
        self.get(record + PARENT) == origin.parent && self.get(record + SERIAL) == origin.serial
    }

    /// Bytes of the budget that are allocated.
    pub fn used(&self) -> u64 {
        self.allocated().fold(0, |sum, slot| sum.saturating_add(self.get(Self::record(slot) + COST)))
    }

    fn allocated(&self) -> impl Iterator<Item = usize> {
        (0..self.seen()).filter(|&slot| self.id(slot) != 0)
    }

    /// The allocations that the operation `origin` made.
    pub fn of_origin(&self, origin: Origin) -> Vec<Grant> {
        let slots = self.allocated().filter(|&slot| self.is_from(slot, origin));
        slots.map(|slot| Grant { slot, id: self.id(slot), bytes: 0 }).collect()
    }

    /// Allocates the first free region from `from` on; `None` where none is free.
    ///
    /// # Errors
    /// The errors of [`RegionMemory::reserve`]; nothing is allocated then.
    pub fn allocate(&self, from: usize, wanted: AllocationRequest<'_>) -> Result<Option<Grant>, Error> {
        let Some(slot) = (from..self.regions).find(|&s| s >= self.seen() || self.id(s) == 0) else { return Ok(None) };
        let id = self.get(NEXT_ID).max(Grant::BASE + 1);
        self.set(NEXT_ID, id.wrapping_add(1));
        self.write(slot, id, wanted)?;
        match self.memory.reserve(slot, wanted.lines) {
            Ok(()) => Ok(Some(Grant { slot, id, bytes: wanted.cost })),
            Err(error) => {
                self.give_back(slot);
                Err(error)
            }
        }
    }

    /// Fills in a record. The id comes last: without it the record counts as unused.
    fn write(&self, slot: usize, id: u64, wanted: AllocationRequest<'_>) -> Result<(), Error> {
        let record = Self::record(slot);
        self.memory.prepare(record * 8, RECORD_BYTES)?;
        let mut set = [0u64; SET_WORDS];
        wanted.holders.iter().for_each(|rank| set[rank / 64] |= 1 << (rank % 64));
        set.iter().enumerate().for_each(|(i, bits)| self.set(record + HOLDERS + i, *bits));
        (0..MAX_USES).for_each(|i| self.set(record + USES + i, 0));
        self.set(record + COST, wanted.cost);
        self.set(record + PARENT, wanted.origin.parent);
        self.set(record + SERIAL, wanted.origin.serial);
        if slot >= self.seen() {
            self.set(SEEN, slot as u64 + 1);
        }
        self.set(record + ID, id);
        Ok(())
    }

    /// The ranks that hold a region.
    pub fn holders(&self, slot: usize) -> impl Iterator<Item = usize> {
        let record = Self::record(slot) + HOLDERS;
        let words = (0..self.ranks.div_ceil(64).min(SET_WORDS)).map(move |i| (i * 64, self.get(record + i)));
        words.flat_map(|(first, bits)| (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| first + bit))
    }

    /// Removes `rank` from the holders of a region, and frees the region if no rank may touch it any more.
    pub fn release(&self, slot: usize, id: u64, rank: usize) {
        if slot < self.seen() && self.id(slot) == id {
            let word = Self::record(slot) + HOLDERS + rank / 64;
            self.set(word, self.get(word) & !(1 << (rank % 64)));
            self.settle(slot);
        }
    }

    /// Gives back all regions that no rank may touch any more. Returns their number.
    pub fn sweep(&self) -> usize {
        self.set(DUE, 0);
        let allocated: Vec<usize> = self.allocated().collect();
        allocated.into_iter().filter(|&slot| self.id(slot) != 0 && self.settle(slot)).count()
    }

    /// Frees a region if no rank may touch it any more. If only dying ranks may, it is marked for a later check.
    fn settle(&self, slot: usize) -> bool {
        if self.is_kept_by(slot, |rank| !self.memory.has_ended(rank)) {
            if !self.is_kept_by(slot, |rank| self.memory.is_alive(rank)) {
                self.set(DUE, 1);
            }
            return false;
        }
        self.give_back(slot)
    }

    /// Returns whether a rank for which `counts` is true may touch the region: as its holder, or as a holder of the region of a
    /// group that uses it. A failed operation may still run in a late rank, until that leaves the group.
    fn is_kept_by(&self, slot: usize, counts: impl Fn(usize) -> bool) -> bool {
        let holds = |slot| self.holders(slot).any(&counts);
        holds(slot) || self.uses(slot).any(|group| self.cost_of(group).is_some() && holds(group.slot))
    }

    fn uses(&self, slot: usize) -> impl Iterator<Item = AllocationName> {
        let words = (0..MAX_USES).map(move |i| self.get(Self::record(slot) + USES + i));
        words.filter(|word| *word != 0).map(AllocationName::from_word)
    }

    /// Frees a region: its memory first, so that a free region reads as zero, then the buffers that waited for this group's end.
    pub(super) fn give_back(&self, slot: usize) -> bool {
        let name = AllocationName::from_word(AllocationName { slot, id: self.id(slot) }.word());
        if self.memory.give_back(slot).is_err() {
            // Another rank may be able to.
            self.set(DUE, 1);
            return false;
        }
        self.set(Self::record(slot) + ID, 0);
        let waiting: Vec<usize> =
            self.allocated().filter(|&other| self.uses(other).any(|group| group == name)).collect();
        for other in waiting {
            self.settle(other);
        }
        true
    }

    /// Enters `group` among the users of this rank's buffer: returns the word to clear when the operation has
    /// succeeded, or `None` where a failed operation has entered it for good. Needs no lock: only the owner's process writes these
    /// words as long as the buffer is allocated.
    ///
    /// # Errors
    /// `Err(())` where the buffer lies in operations of [`MAX_USES`] groups.
    #[allow(clippy::result_unit_err)]
    pub fn begin_use(&self, slot: usize, group: AllocationName) -> Result<Option<usize>, ()> {
        loop {
            let mut free = None;
            for word in (0..MAX_USES).map(|i| Self::record(slot) + USES + i) {
                let seen = self.get(word);
                if seen == group.word() {
                    return Ok(None);
                }
                if free.is_none() && (seen == 0 || self.cost_of(AllocationName::from_word(seen)).is_none()) {
                    free = Some((word, seen));
                }
            }
            let (word, seen) = free.ok_or(())?;
            if self.memory.compare_exchange(word, seen, group.word()).is_ok() {
                return Ok(Some(word));
            }
        }
    }

    /// Ends the use of a buffer by an operation that has succeeded.
    pub fn end_use(&self, word: usize) {
        self.set(word, 0);
    }
}

#[cfg(test)]
mod tests;
