//! The table of regions at the start of the arena: who holds which, what of the budget it takes, and in which group's
//! operations it lies.
//!
//! One page of head, then a record of 256 bytes per region. Only the holder of the lock in the head changes it, with one
//! exception: the owner of a buffer says by itself in which groups' operations the buffer lies. What a dead holder left
//! half done reads as "not lent" or "nobody holds it". Numbers found here are bounded before they are used.
//!
//! Everything goes through [`Backing`], so that `shm/tests/pool_states.rs` explores the lines that ship, one access after
//! the other, with ranks that die between any two of them.

use super::loan::LoanName;
use super::pool::{Grant, Origin};
use crate::Error;

/// Bytes of the head.
pub const HEAD_BYTES: usize = 4096;
const RECORD_BYTES: usize = 256;

/// Bytes before the first region.
pub const POOL_BYTES: usize = 2 << 20;

const _: () = assert!(HEAD_BYTES + super::pool::MAX_REGIONS * RECORD_BYTES <= POOL_BYTES);

// words of the head
const NEXT_ID: usize = 0;
/// Records that were ever used lie below this one.
const SEEN: usize = 1;
/// Whether some region may have become free that nobody has given back.
const DUE: usize = 2;
/// The lock: `generation 48 | rank + 1, or 0`, in a cache line of its own.
pub const LOCK: usize = 16;

// words of a record
/// 0 for a region that nobody has; no two loans ever have the same.
const ID: usize = 0;
const COST: usize = 1;
const PARENT: usize = 2;
const SERIAL: usize = 3;
/// The groups in whose operations a buffer lies, by the names of their regions, in any order; 0 for none.
pub const USES: usize = 4;
/// Groups in whose operations a buffer can lie at a time.
pub const MOST_USES: usize = 8;
const HOLDERS: usize = 16;
const SET_WORDS: usize = 16;

const _: () = assert!(super::control::MAX_RANKS <= SET_WORDS * 64);
const _: () = assert!(USES + MOST_USES <= HOLDERS && (HOLDERS + SET_WORDS) * 8 == RECORD_BYTES);

/// Words that processes share, the memory behind them, and news of the ranks.
pub trait Backing {
    /// The value of a word, with all that was written before it was stored.
    fn load(&self, word: usize) -> u64;
    /// Stores a word, after all that was written before.
    fn store(&self, word: usize, value: u64);
    /// Stores `to` if the word is `from`; the value it had otherwise.
    fn compare_exchange(&self, word: usize, from: u64, to: u64) -> Result<(), u64>;
    /// Whether nothing of the rank's process can touch the node's memory any more.
    fn has_ended(&self, rank: usize) -> bool;
    /// Whether the rank's process lives, as far as one can see: not if it is dying.
    fn is_alive(&self, rank: usize) -> bool;
    /// Makes the words of a range of bytes present.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::System`].
    fn prepare(&self, start: usize, bytes: usize) -> Result<(), Error>;
    /// Reserves the first bytes of a region.
    ///
    /// # Errors
    /// [`Error::NoSpace`] and [`Error::System`].
    fn reserve(&self, slot: usize, bytes: usize) -> Result<(), Error>;
    /// Gives all memory of a region back: it reads as zero from then on.
    ///
    /// # Errors
    /// [`Error::System`].
    fn give_back(&self, slot: usize) -> Result<(), Error>;
}

/// What a rank asks a region for.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// Bytes of the budget.
    pub cost: u64,
    /// Bytes to reserve at once.
    pub lines: usize,
    /// Where the loan comes from.
    pub origin: Origin,
    /// The ranks that hold it.
    pub holders: &'a [usize],
}

/// The table, as one rank sees it.
#[derive(Debug, Clone, Copy)]
pub struct Table<'a, B> {
    /// Where it lies.
    pub backing: &'a B,
    /// Regions there are.
    pub regions: usize,
    /// Ranks there are.
    pub ranks: usize,
}

/// The lock of the table, held: its word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hold {
    /// The value of the word meanwhile.
    pub word: u64,
    /// Whether it was taken from a rank that has ended, perhaps in the middle of a change.
    pub inherited: bool,
}

/// The rank that a value of the lock's word names, if any: it may be no rank of the job.
pub fn holder(word: u64) -> Option<usize> {
    (word & 0xffff).checked_sub(1).map(|rank| rank as usize)
}

/// The value after `before` with which `rank` takes the lock.
pub fn taken(before: u64, rank: usize) -> u64 {
    ((before >> 16).wrapping_add(1) << 16) | (rank as u64 + 1)
}

impl<B: Backing> Table<'_, B> {
    pub(super) fn get(&self, word: usize) -> u64 {
        self.backing.load(word)
    }

    pub(super) fn set(&self, word: usize, value: u64) {
        self.backing.store(word, value);
    }

    fn record(slot: usize) -> usize {
        (HEAD_BYTES + slot * RECORD_BYTES) / 8
    }

    /// Takes the lock for rank `me`, of which no other thread has it: if nobody has it, or who has it has ended. The word
    /// as it is otherwise.
    ///
    /// # Errors
    /// The value of the word, which names the holder.
    pub fn try_lock(&self, me: usize) -> Result<Hold, u64> {
        let seen = self.get(LOCK);
        let inherited = match holder(seen) {
            None => false,
            // Not a rank, or this one, which has not taken it: the word is damaged.
            Some(rank) if rank >= self.ranks || rank == me || self.backing.has_ended(rank) => true,
            Some(_) => return Err(seen),
        };
        let word = taken(seen, me);
        self.backing.compare_exchange(LOCK, seen, word).map(|()| Hold { word, inherited })
    }

    /// Lets go of the lock.
    pub fn unlock(&self, hold: Hold) {
        // Not if the word is another one by now: somebody has damaged it, and it may be another rank's.
        let _ = self.backing.compare_exchange(LOCK, hold.word, hold.word >> 16 << 16);
    }

    /// Makes the head usable: `first` says who has region 0, and at what cost, when nobody has written it yet. Gives back
    /// what others could not.
    ///
    /// # Errors
    /// As [`Backing::prepare`].
    pub fn open(&self, hold: Hold, first: (u64, usize)) -> Result<(), Error> {
        if self.get(NEXT_ID) == 0 {
            let (cost, size) = first;
            let holders: Vec<usize> = (0..size).collect();
            let base = Wanted { cost, lines: 0, origin: Origin { parent: 0, serial: 0 }, holders: &holders };
            self.write(0, Grant::BASE, base)?;
            self.set(NEXT_ID, Grant::BASE + 1);
        }
        if hold.inherited || self.is_due() {
            self.sweep();
        }
        Ok(())
    }

    /// Whether some region may have become free that nobody has given back.
    pub fn is_due(&self) -> bool {
        self.get(DUE) != 0
    }

    /// Records that may be in use.
    pub fn seen(&self) -> usize {
        (self.get(SEEN) as usize).min(self.regions)
    }

    /// The number of the loan of a region, 0 for none.
    pub fn id(&self, slot: usize) -> u64 {
        self.get(Self::record(slot) + ID)
    }

    /// Bytes of the budget that the loan of this name takes; `None` if it is not lent. Needs no lock: what a rank may still
    /// touch stays lent.
    pub fn cost_of(&self, name: LoanName) -> Option<u64> {
        let is_lent = name.id != 0 && name.slot < self.seen() && self.is(name);
        is_lent.then(|| self.get(Self::record(name.slot) + COST))
    }

    fn is(&self, name: LoanName) -> bool {
        LoanName { slot: name.slot, id: self.id(name.slot) }.word() == name.word()
    }

    /// Whether a loan comes from there.
    pub fn is_from(&self, slot: usize, origin: Origin) -> bool {
        let record = Self::record(slot);
        self.get(record + PARENT) == origin.parent && self.get(record + SERIAL) == origin.serial
    }

    /// Bytes of the budget that are spoken for.
    pub fn used(&self) -> u64 {
        self.lent().fold(0, |sum, slot| sum.saturating_add(self.get(Self::record(slot) + COST)))
    }

    fn lent(&self) -> impl Iterator<Item = usize> {
        (0..self.seen()).filter(|&slot| self.id(slot) != 0)
    }

    /// The loans that come from there.
    pub fn of_origin(&self, origin: Origin) -> Vec<Grant> {
        let slots = self.lent().filter(|&slot| self.is_from(slot, origin));
        slots.map(|slot| Grant { slot, id: self.id(slot), bytes: 0 }).collect()
    }

    /// Lends the first region that nobody has from `from` on; `None` where all are lent.
    ///
    /// # Errors
    /// As [`Backing::reserve`]; nothing is lent then.
    pub fn lend(&self, from: usize, wanted: Wanted<'_>) -> Result<Option<Grant>, Error> {
        let Some(slot) = (from..self.regions).find(|&s| s >= self.seen() || self.id(s) == 0) else { return Ok(None) };
        let id = self.get(NEXT_ID).max(Grant::BASE + 1);
        self.set(NEXT_ID, id.wrapping_add(1));
        self.write(slot, id, wanted)?;
        match self.backing.reserve(slot, wanted.lines) {
            Ok(()) => Ok(Some(Grant { slot, id, bytes: wanted.cost })),
            Err(error) => {
                self.give_back(slot);
                Err(error)
            }
        }
    }

    /// Fills in a record. The id comes last: without it the record says nothing.
    fn write(&self, slot: usize, id: u64, wanted: Wanted<'_>) -> Result<(), Error> {
        let record = Self::record(slot);
        self.backing.prepare(record * 8, RECORD_BYTES)?;
        let mut set = [0u64; SET_WORDS];
        wanted.holders.iter().for_each(|rank| set[rank / 64] |= 1 << (rank % 64));
        set.iter().enumerate().for_each(|(i, bits)| self.set(record + HOLDERS + i, *bits));
        (0..MOST_USES).for_each(|i| self.set(record + USES + i, 0));
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

    /// Says that `rank` does not touch the region any more, and gives it back if nobody may.
    pub fn let_go(&self, slot: usize, id: u64, rank: usize) {
        if slot < self.seen() && self.id(slot) == id {
            let word = Self::record(slot) + HOLDERS + rank / 64;
            self.set(word, self.get(word) & !(1 << (rank % 64)));
            self.settle(slot);
        }
    }

    /// Gives back all regions that nobody may touch any more; how many.
    pub fn sweep(&self) -> usize {
        self.set(DUE, 0);
        let lent: Vec<usize> = self.lent().collect();
        lent.into_iter().filter(|&slot| self.id(slot) != 0 && self.settle(slot)).count()
    }

    /// Gives a region back if nobody may touch it any more. Where only ranks that are dying may, somebody has to look again.
    fn settle(&self, slot: usize) -> bool {
        if self.is_kept_by(slot, |rank| !self.backing.has_ended(rank)) {
            if !self.is_kept_by(slot, |rank| self.backing.is_alive(rank)) {
                self.set(DUE, 1);
            }
            return false;
        }
        self.give_back(slot)
    }

    /// Whether a rank for which `counts` may touch the region: as a holder, or as a holder of the region of a group in whose
    /// operation it lies. An operation that failed may be going on in a rank that is late, until it leaves the group.
    fn is_kept_by(&self, slot: usize, counts: impl Fn(usize) -> bool) -> bool {
        let holds = |slot| self.holders(slot).any(&counts);
        holds(slot) || self.uses(slot).any(|group| self.cost_of(group).is_some() && holds(group.slot))
    }

    fn uses(&self, slot: usize) -> impl Iterator<Item = LoanName> {
        let words = (0..MOST_USES).map(move |i| self.get(Self::record(slot) + USES + i));
        words.filter(|word| *word != 0).map(LoanName::from_word)
    }

    /// Memory first: a region that is free reads as zero. Then the buffers that waited for this group's end.
    pub(super) fn give_back(&self, slot: usize) -> bool {
        let name = LoanName::from_word(LoanName { slot, id: self.id(slot) }.word());
        if self.backing.give_back(slot).is_err() {
            // Another rank may be able to.
            self.set(DUE, 1);
            return false;
        }
        self.set(Self::record(slot) + ID, 0);
        let waiting: Vec<usize> = self.lent().filter(|&other| self.uses(other).any(|group| group == name)).collect();
        for other in waiting {
            self.settle(other);
        }
        true
    }

    /// Says that a buffer of this rank lies in an operation of `group` from now on: the word to clear when the operation has
    /// succeeded, or none where one that failed has said so for good. Needs no lock: only the owner's process writes these
    /// words as long as the buffer is lent.
    ///
    /// # Errors
    /// `Err(())` where the buffer lies in operations of [`MOST_USES`] groups.
    #[allow(clippy::result_unit_err)]
    pub fn enter(&self, slot: usize, group: LoanName) -> Result<Option<usize>, ()> {
        loop {
            let mut free = None;
            for word in (0..MOST_USES).map(|i| Self::record(slot) + USES + i) {
                let seen = self.get(word);
                if seen == group.word() {
                    return Ok(None);
                }
                if free.is_none() && (seen == 0 || self.cost_of(LoanName::from_word(seen)).is_none()) {
                    free = Some((word, seen));
                }
            }
            let (word, seen) = free.ok_or(())?;
            if self.backing.compare_exchange(word, seen, group.word()).is_ok() {
                return Ok(Some(word));
            }
        }
    }

    /// The operation has succeeded: nobody touches the buffer for it any more.
    pub fn leave(&self, word: usize) {
        self.set(word, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::super::pool::MAX_REGIONS;
    use super::super::{MAX_RANKS, Region};
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::sync::atomic::Ordering::Relaxed;

    /// A table without an arena: which ranks have ended, and what was given back.
    struct Alone {
        words: Region,
        ended: Cell<u64>,
        given_back: RefCell<Vec<usize>>,
    }

    impl Alone {
        fn new() -> Alone {
            let words = Region::private(POOL_BYTES).unwrap();
            Alone { words, ended: Cell::new(0), given_back: RefCell::default() }
        }

        fn table(&self, regions: usize) -> Table<'_, Alone> {
            Table { backing: self, regions, ranks: MAX_RANKS }
        }
    }

    impl Backing for Alone {
        fn load(&self, word: usize) -> u64 {
            self.words.word(word).load(Relaxed)
        }
        fn store(&self, word: usize, value: u64) {
            self.words.word(word).store(value, Relaxed);
        }
        fn compare_exchange(&self, word: usize, from: u64, to: u64) -> Result<(), u64> {
            self.words.word(word).compare_exchange(from, to, Relaxed, Relaxed).map(drop)
        }
        fn has_ended(&self, rank: usize) -> bool {
            rank < 64 && self.ended.get() >> rank & 1 == 1
        }
        fn is_alive(&self, rank: usize) -> bool {
            !self.has_ended(rank)
        }
        fn prepare(&self, _: usize, _: usize) -> Result<(), Error> {
            Ok(())
        }
        fn reserve(&self, _: usize, _: usize) -> Result<(), Error> {
            Ok(())
        }
        fn give_back(&self, slot: usize) -> Result<(), Error> {
            self.given_back.borrow_mut().push(slot);
            Ok(())
        }
    }

    fn wanted(cost: u64, serial: u64, holders: &[usize]) -> Wanted<'_> {
        Wanted { cost, lines: 0, origin: Origin { parent: 1, serial }, holders }
    }

    #[test]
    fn a_record_is_what_was_lent() {
        let alone = Alone::new();
        let table = alone.table(MAX_REGIONS);
        let hold = table.try_lock(5).unwrap();
        table.open(hold, (1000, 3)).unwrap();
        table.open(hold, (9, 9)).unwrap();
        assert_eq!((table.seen(), table.used(), table.id(0)), (1, 1000, Grant::BASE));
        assert_eq!(table.holders(0).collect::<Vec<_>>(), [0, 1, 2]);

        let last = MAX_REGIONS - 1;
        let a = table.lend(0, wanted(10, 8, &[0, 1022])).unwrap().unwrap();
        let b = table.lend(last, wanted(5, 9, &[1])).unwrap().unwrap();
        assert!(table.lend(last, wanted(5, 9, &[1])).unwrap().is_none(), "all are lent");
        assert!(a.id != b.id && a.id != Grant::BASE && (a.slot, b.slot) == (1, last));
        assert_eq!((table.seen(), table.used()), (MAX_REGIONS, 1015));
        assert_eq!(table.cost_of(LoanName { slot: 1, id: a.id }), Some(10));
        assert_eq!(table.cost_of(LoanName { slot: 1, id: b.id }), None);
        assert_eq!(table.holders(1).collect::<Vec<_>>(), [0, 1022]);
        assert_eq!(table.of_origin(Origin { parent: 1, serial: 8 }).len(), 1);
        table.let_go(1, a.id, 1022);
        assert_eq!(table.holders(1).collect::<Vec<_>>(), [0]);
        table.let_go(1, b.id, 0);
        assert!(alone.given_back.borrow().is_empty());
        table.let_go(1, a.id, 0);
        assert_eq!((alone.given_back.take(), table.used()), (vec![1], 1005));
        assert_eq!(table.lend(0, wanted(7, 1, &[2])).unwrap().map(|grant| grant.slot), Some(1));
    }

    #[test]
    fn a_buffer_that_lies_in_a_failed_operation_waits_for_its_group() {
        let alone = Alone::new();
        let table = alone.table(9);
        table.open(table.try_lock(0).unwrap(), (0, 3)).unwrap();
        let group = table.lend(0, wanted(1, 1, &[0, 2])).unwrap().unwrap();
        let name = LoanName { slot: group.slot, id: group.id };
        let [one, two] = [0, 1].map(|_| table.lend(0, wanted(1, 2, &[0])).unwrap().unwrap());
        let word = table.enter(one.slot, name).unwrap().unwrap();
        assert_eq!(table.enter(one.slot, name), Ok(None), "it is said already");
        table.leave(word);
        assert!(table.enter(two.slot, name).unwrap().is_some());
        for grant in [one, two] {
            table.let_go(grant.slot, grant.id, 0);
        }
        assert_eq!(alone.given_back.take(), [one.slot], "the other lies in an operation that rank 2 may still be in");
        table.let_go(group.slot, group.id, 0);
        assert_eq!((alone.given_back.take(), table.sweep()), (vec![], 0));
        alone.ended.set(1 << 2);
        assert!(table.sweep() > 0);
        assert_eq!((alone.given_back.take(), table.used()), (vec![group.slot, two.slot], 0));

        let many: Vec<Grant> = (0..5).map(|_| table.lend(0, wanted(1, 1, &[0])).unwrap().unwrap()).collect();
        for at in 0..2 * MOST_USES {
            // what was said of groups that are gone makes room
            let entered = table.enter(many[0].slot, LoanName { slot: 7, id: 100 + at as u64 });
            assert!(entered.unwrap().is_some());
        }
    }

    #[test]
    fn the_lock_is_taken_from_nobody_who_may_be_in_the_table() {
        let alone = Alone::new();
        let table = Table { ranks: 3, ..alone.table(9) };
        let first = table.try_lock(1).unwrap();
        assert_eq!((table.try_lock(0), holder(first.word)), (Err(first.word), Some(1)));
        alone.ended.set(1 << 1);
        let second = table.try_lock(0).unwrap();
        assert!(second.inherited && second.word != first.word);
        table.unlock(first);
        assert_eq!(table.try_lock(2), Err(second.word), "the word of a holder that was robbed counts nothing");
        table.unlock(second);
        let third = table.try_lock(2).unwrap();
        assert!(!third.inherited && third.word > second.word);
        // what no rank has written
        for word in [u64::MAX, 77, third.word] {
            alone.store(LOCK, word);
            assert!(table.try_lock(2).unwrap().inherited);
        }
    }

    #[test]
    fn a_damaged_head_bounds_nothing_wrongly() {
        let alone = Alone::new();
        let table = alone.table(5);
        table.open(table.try_lock(0).unwrap(), (7, 1)).unwrap();
        table.set(SEEN, u64::MAX);
        table.set(Table::<Alone>::record(3) + ID, 1);
        table.set(Table::<Alone>::record(3) + COST, u64::MAX);
        table.set(Table::<Alone>::record(3) + USES, u64::MAX);
        assert_eq!((table.seen(), table.used()), (5, u64::MAX));
        assert_eq!(table.cost_of(LoanName { slot: usize::MAX, id: 1 }), None);
        assert_eq!(table.sweep(), 1);
    }
}
