//! The table of regions at the start of the arena: who holds which, and what of the budget it takes.
//!
//! One page of head, then a record of 256 bytes per region. It is read and written only by the holder of the pool's
//! lock, which the kernel hands from process to process together with all that was written; what a dead holder left
//! half done reads as "not lent" or "nobody holds it". Numbers found here are bounded before they are used.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::Region;
use super::control::MAX_RANKS;
use super::pool::{Grant, MAX_REGIONS, Origin};
use crate::Error;

const HEAD_BYTES: usize = 4096;
const RECORD_BYTES: usize = 256;
const SET_WORDS: usize = 16;

/// Bytes before the first region.
pub const POOL_BYTES: usize = 2 << 20;

const _: () = assert!(HEAD_BYTES + MAX_REGIONS * RECORD_BYTES <= POOL_BYTES);
const _: () = assert!(MAX_RANKS <= SET_WORDS * 64);

// words of the head
const NEXT_ID: usize = 0;
/// Records that were ever used lie below this one.
const SEEN: usize = 1;

// words of a record
/// 0 for a region that nobody has; no two loans ever have the same.
const ID: usize = 0;
const COST: usize = 1;
const PARENT: usize = 2;
const SERIAL: usize = 3;
const HOLDERS: usize = 16;

/// The table, in the hands of whoever holds the lock.
pub(super) struct Table<'a> {
    pub words: &'a Region,
    pub regions: usize,
}

impl Table<'_> {
    fn get(&self, word: usize) -> u64 {
        self.words.word(word).load(Relaxed)
    }

    fn set(&self, word: usize, value: u64) {
        self.words.word(word).store(value, Relaxed);
    }

    fn record(slot: usize) -> usize {
        (HEAD_BYTES + slot * RECORD_BYTES) / 8
    }

    /// Makes the head usable: `first` says who has region 0, and at what cost, when nobody has written it yet.
    pub fn open(&self, first: (u64, usize)) -> Result<(), Error> {
        self.words.reserve(0..HEAD_BYTES)?;
        if self.get(NEXT_ID) == 0 {
            let (cost, size) = first;
            self.lend(0, Grant::BASE, cost, Origin { parent: 0, serial: 0 }, 0..size)?;
            self.set(NEXT_ID, Grant::BASE + 1);
        }
        Ok(())
    }

    /// Records that may be in use.
    pub fn seen(&self) -> usize {
        (self.get(SEEN) as usize).min(self.regions)
    }

    /// The first region from `slot` on that nobody has.
    pub fn free_from(&self, slot: usize) -> Option<usize> {
        (slot..self.regions).find(|&s| s >= self.seen() || self.id(s) == 0)
    }

    pub fn id(&self, slot: usize) -> u64 {
        self.get(Self::record(slot) + ID)
    }

    pub fn next_id(&self) -> u64 {
        let id = self.get(NEXT_ID).max(Grant::BASE + 1);
        self.set(NEXT_ID, id.wrapping_add(1));
        id
    }

    pub fn is_from(&self, slot: usize, origin: Origin) -> bool {
        let record = Self::record(slot);
        self.get(record + PARENT) == origin.parent && self.get(record + SERIAL) == origin.serial
    }

    /// Bytes of the budget that are spoken for.
    pub fn used(&self) -> u64 {
        let lent = (0..self.seen()).filter(|&slot| self.id(slot) != 0);
        lent.fold(0, |sum, slot| sum.saturating_add(self.get(Self::record(slot) + COST)))
    }

    /// Lends a region that nobody has to `holders`. The id comes last: without it the record says nothing.
    pub fn lend(
        &self,
        slot: usize,
        id: u64,
        cost: u64,
        origin: Origin,
        holders: impl IntoIterator<Item = usize>,
    ) -> Result<(), Error> {
        let record = Self::record(slot);
        self.words.reserve(record * 8..record * 8 + RECORD_BYTES)?;
        let mut set = [0u64; SET_WORDS];
        holders.into_iter().for_each(|rank| set[rank / 64] |= 1 << (rank % 64));
        set.iter().enumerate().for_each(|(i, bits)| self.set(record + HOLDERS + i, *bits));
        self.set(record + COST, cost);
        self.set(record + PARENT, origin.parent);
        self.set(record + SERIAL, origin.serial);
        if slot >= self.seen() {
            self.set(SEEN, slot as u64 + 1);
        }
        self.words.word(record + ID).store(id, Release);
        Ok(())
    }

    /// `rank` does not hold the region any more.
    pub fn let_go(&self, slot: usize, rank: usize) {
        let word = Self::record(slot) + HOLDERS + rank / 64;
        self.set(word, self.get(word) & !(1 << (rank % 64)));
    }

    /// The ranks that hold a region.
    pub fn holders(&self, slot: usize) -> impl Iterator<Item = usize> {
        let record = Self::record(slot) + HOLDERS;
        (0..MAX_RANKS).filter(move |rank| self.get(record + rank / 64) >> (rank % 64) & 1 == 1)
    }

    /// Nobody has the region any more.
    pub fn clear(&self, slot: usize) {
        self.words.word(Self::record(slot) + ID).store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_what_was_lent() {
        let words = Region::private(POOL_BYTES).unwrap();
        let table = Table { words: &words, regions: MAX_REGIONS };
        table.open((1000, 3)).unwrap();
        table.open((9, 9)).unwrap();
        assert_eq!((table.seen(), table.used(), table.id(0)), (1, 1000, Grant::BASE));
        assert_eq!(table.holders(0).collect::<Vec<_>>(), [0, 1, 2]);

        let origin = Origin { parent: 1, serial: 8 };
        let (a, b) = (table.next_id(), table.next_id());
        assert!(a != b && a != Grant::BASE);
        let last = MAX_REGIONS - 1;
        table.lend(1, a, 10, origin, [0, 1022]).unwrap();
        table.lend(last, b, 5, Origin { serial: 9, ..origin }, [1]).unwrap();
        assert_eq!((table.seen(), table.used()), (MAX_REGIONS, 1015));
        assert_eq!(table.holders(1).collect::<Vec<_>>(), [0, 1022]);
        assert!(table.is_from(1, origin) && !table.is_from(last, origin));
        table.let_go(1, 1022);
        assert_eq!(table.holders(1).collect::<Vec<_>>(), [0]);
        assert_eq!((table.free_from(0), table.free_from(last)), (Some(2), None));
        table.clear(1);
        assert_eq!((table.free_from(0), table.used()), (Some(1), 1005));
    }

    #[test]
    fn a_damaged_head_bounds_nothing_wrongly() {
        let words = Region::private(POOL_BYTES).unwrap();
        let table = Table { words: &words, regions: 5 };
        table.open((7, 1)).unwrap();
        table.set(SEEN, u64::MAX);
        table.set(Table::record(3) + ID, 1);
        table.set(Table::record(3) + COST, u64::MAX);
        assert_eq!((table.seen(), table.used()), (5, u64::MAX));
        assert_eq!(table.free_from(3), Some(4));
    }
}
