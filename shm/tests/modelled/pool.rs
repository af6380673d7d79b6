//! The table of regions and the votes of survivors, run by loom: the shipping lines of `shm/src/memory/table.rs` and
//! `shm/src/memory/survivors.rs`. Deaths have explorers of their own, `shm/tests/pool_states.rs` and `shm/src/memory/survivors/tests.rs`.

use earlybird_shm::Error;
use earlybird_shm::memory::grant::{HEAD_BYTES, Origin};
use earlybird_shm::memory::shared_words::{self, RegionMemory, SharedWords};
use earlybird_shm::memory::survivors::{Records, RoundRecord, Vote};
use earlybird_shm::memory::table::{AllocationRequest, LOCK, LockToken, Table};
use earlybird_shm::model::words;
use earlybird_shm::sync::AtomicU64;
use loom::cell::UnsafeCell;
use std::rc::Rc;

/// Regions of the modelled arena.
const REGIONS: usize = 2;
/// Words of the head that are used, and words of a record.
const HEAD_WORDS: usize = LOCK + 1;
const RECORD_WORDS: usize = 32;

/// Words of a record of votes, and the first word of all of them. The model has the second record.
const VOTES_WORDS: usize = 256;
const FIRST_VOTES: usize = 1 << 20;

/// The round of which the record is open from the start.
const ROUND: RoundRecord = RoundRecord { record: 1, group: 9, round: 4 };

struct PoolWords {
    words: Vec<AtomicU64>,
    votes: Vec<AtomicU64>,
    regions: Vec<UnsafeCell<()>>,
}

impl PoolWords {
    fn word(&self, word: usize) -> &AtomicU64 {
        match word.checked_sub(FIRST_VOTES + VOTES_WORDS) {
            Some(word) => &self.votes[word],
            None if word < HEAD_WORDS => &self.words[word],
            None => &self.words[HEAD_WORDS + word - HEAD_BYTES / 8],
        }
    }
}

impl SharedWords for PoolWords {
    fn load(&self, word: usize) -> u64 {
        shared_words::load(self.word(word))
    }
    fn store(&self, word: usize, value: u64) {
        shared_words::store(self.word(word), value);
    }
    fn has_ended(&self, _: usize) -> bool {
        false
    }
}

impl RegionMemory for PoolWords {
    fn compare_exchange(&self, word: usize, from: u64, to: u64) -> Result<(), u64> {
        shared_words::exchange(self.word(word), from, to)
    }
    fn is_alive(&self, _: usize) -> bool {
        true
    }
    fn prepare(&self, _: usize, _: usize) -> Result<(), Error> {
        Ok(())
    }
    fn reserve(&self, _: usize, _: usize) -> Result<(), Error> {
        Ok(())
    }
    fn give_back(&self, slot: usize) -> Result<(), Error> {
        self.regions[slot].with_mut(|_| ());
        Ok(())
    }
}

/// A table of regions, and perhaps a record of votes, that two modelled ranks share.
pub struct Pool(Rc<PoolWords>);

impl Pool {
    /// A fresh pool; `votes` is true if the ranks agree on the survivors.
    pub fn new(votes: bool) -> Self {
        words::reset(2);
        let word = |value| AtomicU64::new(value);
        let opened = [ROUND.group, ROUND.round].into_iter().chain(std::iter::repeat(0)).map(word);
        Pool(Rc::new(PoolWords {
            words: (0..HEAD_WORDS + REGIONS * RECORD_WORDS).map(|_| word(0)).collect(),
            votes: opened.take(if votes { VOTES_WORDS } else { 0 }).collect(),
            regions: (0..REGIONS).map(|_| UnsafeCell::new(())).collect(),
        }))
    }

    /// A copy to move into another thread.
    pub fn share(&self) -> Self {
        Pool(self.0.clone())
    }

    fn table(&self) -> Table<'_, PoolWords> {
        Table { memory: &self.0, regions: REGIONS, ranks: 2 }
    }

    fn lock(&self, rank: usize) -> LockToken {
        words::poll(|| self.table().try_lock(rank).ok())
    }

    /// Rank `rank` allocates the one region that groups can have, if it is free, writes to it and releases it.
    pub fn allocate_and_release(&self, rank: usize) {
        words::enter(rank);
        let table = self.table();
        let hold = self.lock(rank);
        let origin = Origin { parent: 1, serial: rank as u64 };
        let wanted = AllocationRequest { cost: 1, lines: 0, origin, holders: &[rank] };
        let granted = table.allocate(1, wanted).expect("nothing here fails");
        table.unlock(hold);
        let Some(granted) = granted else { return };
        self.0.regions[granted.slot].with_mut(|_| ());
        let hold = self.lock(rank);
        table.release(granted.slot, granted.id, rank);
        table.unlock(hold);
    }

    fn records(&self) -> Records<'_, PoolWords> {
        Records { words: &self.0, first_word: FIRST_VOTES, ranks: 2 }
    }

    fn decision(&self) -> (Vec<usize>, bool) {
        let decision = self.records().decision(ROUND);
        (decision.survivors, decision.outcome == Vote::Joined)
    }

    /// Rank 0 decides a round in which both have voted; returns the survivors and whether all have joined.
    pub fn decide(&self) -> (Vec<usize>, bool) {
        words::enter(0);
        (0..2).for_each(|rank| self.records().vote(ROUND, rank, &Vote::Joined));
        let hold = self.lock(0);
        self.records().decide(ROUND, &[0, 1], |_| false).expect("nothing is damaged");
        self.table().unlock(hold);
        self.decision()
    }

    /// Rank 1 waits for the decision and returns what it reads.
    pub fn read_decision(&self) -> (Vec<usize>, bool) {
        words::enter(1);
        words::poll(|| self.records().is_decided(ROUND).expect("nothing is damaged").then_some(()));
        self.decision()
    }
}
