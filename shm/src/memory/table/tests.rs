//! Records, the lock, and what waits for what, without an arena.

use super::super::shared_words::SharedWords;
use super::super::{MAX_RANKS, POOL_BYTES, Region};
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
        Table { memory: self, regions, ranks: MAX_RANKS }
    }
}

impl SharedWords for Alone {
    fn load(&self, word: usize) -> u64 {
        self.words.word(word).load(Relaxed)
    }
    fn store(&self, word: usize, value: u64) {
        self.words.word(word).store(value, Relaxed);
    }
    fn has_ended(&self, rank: usize) -> bool {
        rank < 64 && self.ended.get() >> rank & 1 == 1
    }
}

impl RegionMemory for Alone {
    fn compare_exchange(&self, word: usize, from: u64, to: u64) -> Result<(), u64> {
        self.words.word(word).compare_exchange(from, to, Relaxed, Relaxed).map(drop)
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

fn wanted(cost: u64, serial: u64, holders: &[usize]) -> AllocationRequest<'_> {
    AllocationRequest { cost, lines: 0, origin: Origin { parent: 1, serial }, holders }
}

#[test]
fn a_record_is_what_was_allocated() {
    let alone = Alone::new();
    let table = alone.table(MAX_REGIONS);
    let hold = table.try_lock(5).unwrap();
    table.open(hold, (1000, 3)).unwrap();
    table.open(hold, (9, 9)).unwrap();
    assert_eq!((table.seen(), table.used(), table.id(0)), (1, 1000, Grant::BASE));
    assert_eq!(table.holders(0).collect::<Vec<_>>(), [0, 1, 2]);

    let last = MAX_REGIONS - 1;
    let a = table.allocate(0, wanted(10, 8, &[0, 1022])).unwrap().unwrap();
    let b = table.allocate(last, wanted(5, 9, &[1])).unwrap().unwrap();
    assert!(table.allocate(last, wanted(5, 9, &[1])).unwrap().is_none(), "all are allocated");
    assert!(a.id != b.id && a.id != Grant::BASE && (a.slot, b.slot) == (1, last));
    assert_eq!((table.seen(), table.used()), (MAX_REGIONS, 1015));
    assert_eq!(table.cost_of(AllocationName { slot: 1, id: a.id }), Some(10));
    assert_eq!(table.cost_of(AllocationName { slot: 1, id: b.id }), None);
    assert_eq!(table.holders(1).collect::<Vec<_>>(), [0, 1022]);
    assert_eq!(table.of_origin(Origin { parent: 1, serial: 8 }).len(), 1);
    table.release(1, a.id, 1022);
    assert_eq!(table.holders(1).collect::<Vec<_>>(), [0]);
    table.release(1, b.id, 0);
    assert!(alone.given_back.borrow().is_empty());
    table.release(1, a.id, 0);
    assert_eq!((alone.given_back.take(), table.used()), (vec![1], 1005));
    assert_eq!(table.allocate(0, wanted(7, 1, &[2])).unwrap().map(|grant| grant.slot), Some(1));
}

#[test]
fn a_buffer_that_lies_in_a_failed_operation_waits_for_its_group() {
    let alone = Alone::new();
    let table = alone.table(9);
    table.open(table.try_lock(0).unwrap(), (0, 3)).unwrap();
    let group = table.allocate(0, wanted(1, 1, &[0, 2])).unwrap().unwrap();
    let name = AllocationName { slot: group.slot, id: group.id };
    let [one, two] = [0, 1].map(|_| table.allocate(0, wanted(1, 2, &[0])).unwrap().unwrap());
    let word = table.begin_use(one.slot, name).unwrap().unwrap();
    assert_eq!(table.begin_use(one.slot, name), Ok(None), "it is said already");
    table.end_use(word);
    assert!(table.begin_use(two.slot, name).unwrap().is_some());
    for grant in [one, two] {
        table.release(grant.slot, grant.id, 0);
    }
    assert_eq!(alone.given_back.take(), [one.slot], "the other lies in an operation that rank 2 may still be in");
    table.release(group.slot, group.id, 0);
    assert_eq!((alone.given_back.take(), table.sweep()), (vec![], 0));
    alone.ended.set(1 << 2);
    assert!(table.sweep() > 0);
    assert_eq!((alone.given_back.take(), table.used()), (vec![group.slot, two.slot], 0));

    let many: Vec<Grant> = (0..5).map(|_| table.allocate(0, wanted(1, 1, &[0])).unwrap().unwrap()).collect();
    for at in 0..2 * MAX_USES {
        // what was said of groups that are gone makes room
        let entered = table.begin_use(many[0].slot, AllocationName { slot: 7, id: 100 + at as u64 });
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
    assert_eq!(table.cost_of(AllocationName { slot: usize::MAX, id: 1 }), None);
    assert_eq!(table.sweep(), 1);
}
