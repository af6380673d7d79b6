//! The state of a model, and the table's view of it: a call runs anew from its beginning for every step, is given again what
//! it read before, makes one access more, and is stopped there.

use earlybird_shm::Error;
use earlybird_shm::memory::shared_words::{RegionMemory, SharedWords};
use earlybird_shm::memory::table::{LOCK, MAX_USES, Table, USES, holder};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub const RANKS: usize = 3;
const HEAD: usize = 4096 / 8;
const RECORD: usize = 256 / 8;

/// The rule that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// A rank that is not alive counts as one that has ended, where memory is freed.
    FreesTheDying,
    /// Nobody says, or looks, in whose operations a buffer lies.
    ForgetsOperations,
    /// A rank that is not alive counts as one that has ended, where the lock is taken.
    RobsTheDying,
    /// The record is cleared before the memory is given back.
    ClearsFirst,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Life {
    #[default]
    Alive,
    /// Killed, and still going on with what it was at.
    Dying,
    Ended,
}

/// A region and the number of its allocation.
pub type Allocation = (usize, u64);

/// Task of a rank on the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Task {
    Release(Allocation),
    Allocate,
    Sweep,
}

/// A task under way: what it has read so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Call {
    pub task: Task,
    pub read: Vec<u64>,
    /// True if it has the lock.
    pub inside: bool,
}

/// Progress of a rank in an operation of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Phase {
    /// The owner has said that its buffer lies in it.
    BufferUse,
    Deposited,
    /// The rank holds a chunk, finds the buffer by its name, and writes to it.
    Writing,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Rank {
    pub life: Life,
    /// Allocations of groups that it is a member of, by group.
    pub groups: [Option<Allocation>; 2],
    /// The buffer that lies in operations, if this is its owner.
    pub buffer: Option<Allocation>,
    /// Another allocation of the rank.
    pub more: Option<Allocation>,
    pub call: Option<Call>,
    pub operation: Option<(usize, Phase)>,
    /// The word that says in which operation the buffer lies.
    pub word: Option<usize>,
}

/// An operation of a group; there is one of each.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Operation {
    pub begun: u8,
    pub deposited: u8,
    pub claimed: bool,
    pub folded: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// Head and records, as far as they are used.
    words: Vec<u64>,
    /// True if the memory of a region may be something else than zero.
    dirty: Vec<bool>,
    pub ranks: [Rank; RANKS],
    pub operations: [Operation; 2],
    pub kills: u8,
    pub allocations: u8,
}

impl State {
    pub fn new(regions: usize, ranks: [Rank; RANKS], kills: u8, allocations: u8) -> State {
        let words = vec![0; 32 + regions * RECORD];
        State { words, dirty: vec![false; regions], ranks, operations: Default::default(), kills, allocations }
    }

    fn word(&mut self, word: usize) -> &mut u64 {
        // the head has a page, of which little is used
        let at = if word >= HEAD { word - HEAD + 32 } else { word };
        &mut self.words[at]
    }

    /// A rank that may still touch this allocation, because it holds it.
    fn toucher(&self, allocation: Allocation) -> Option<usize> {
        let has =
            |rank: &Rank| rank.groups.iter().chain([&rank.buffer, &rank.more]).any(|held| *held == Some(allocation));
        self.ranks.iter().position(|rank| rank.life != Life::Ended && has(rank))
    }

    pub fn owner_buffer(&self, owner: usize) -> Option<Allocation> {
        self.ranks[owner].buffer
    }
}

/// Thrown where a call stops.
struct Suspended;

/// The table's view for one step of rank `me`.
pub struct View {
    pub state: RefCell<State>,
    pub me: usize,
    pub broken: Broken,
    read: RefCell<Vec<u64>>,
    /// Number of recorded reads that the call has had again.
    again: Cell<usize>,
    /// Accesses that may still be made; more than one only where nobody else takes steps.
    left: Cell<usize>,
    inside: Cell<bool>,
    wrong: RefCell<Option<String>>,
}

impl View {
    /// Of a call that was interrupted after it had read this, for so many accesses.
    pub fn new(state: State, me: usize, broken: Broken, read: Vec<u64>, accesses: usize) -> View {
        View {
            state: RefCell::new(state),
            me,
            broken,
            read: RefCell::new(read),
            again: Cell::new(0),
            left: Cell::new(accesses),
            inside: Cell::new(false),
            wrong: RefCell::new(None),
        }
    }

    pub fn table(&self) -> Table<'_, View> {
        Table { memory: self, regions: self.state.borrow().dirty.len(), ranks: RANKS }
    }

    /// Runs `f` until it ends or its accesses are used up; what it gave, if it ended.
    pub fn run<R>(&self, f: impl FnOnce(&Table<'_, View>) -> R) -> Result<Option<R>, String> {
        let ended = match catch_unwind(AssertUnwindSafe(|| f(&self.table()))) {
            Ok(result) => Some(result),
            Err(thrown) if thrown.is::<Suspended>() => None,
            Err(panic) => resume_unwind(panic),
        };
        match self.wrong.take() {
            Some(wrong) => Err(wrong),
            None => Ok(ended),
        }
    }

    /// State, values read by the call, and whether it has the lock.
    pub fn into_parts(self) -> (State, Vec<u64>, bool) {
        (self.state.into_inner(), self.read.into_inner(), self.inside.get())
    }

    /// An access: as before where the call runs again, otherwise for the first time. What only looks at what no other rank
    /// changes meanwhile is no step of its own.
    fn access(&self, is_step: bool, act: impl FnOnce(&mut State) -> u64) -> u64 {
        let at = self.again.get();
        if let Some(value) = self.read.borrow().get(at) {
            self.again.set(at + 1);
            return *value;
        }
        if is_step {
            match self.left.get() {
                0 => resume_unwind(Box::new(Suspended)),
                left => self.left.set(left - 1),
            }
        }
        let value = act(&mut self.state.borrow_mut());
        self.read.borrow_mut().push(value);
        self.again.set(at + 1);
        value
    }

    fn wrong(&self, why: String) {
        self.wrong.borrow_mut().get_or_insert(why);
    }

    fn punch(&self, slot: usize) {
        self.access(true, |state| {
            let id = *state.word(HEAD + slot * RECORD);
            if let Some(rank) = state.toucher((slot, id)) {
                self.wrong(format!("region {slot} is given back while rank {rank} holds it"));
            }
            state.dirty[slot] = false;
            0
        });
    }

    fn is(&self, rank: usize, lives: &[Life]) -> bool {
        self.access(false, |state| u64::from(lives.contains(&state.ranks[rank].life))) == 1
    }
}

/// The region whose field a word is.
fn field(word: usize) -> Option<(usize, usize)> {
    word.checked_sub(HEAD).map(|at| (at / RECORD, at % RECORD))
}

impl SharedWords for View {
    fn load(&self, word: usize) -> u64 {
        let of_use = field(word).is_some_and(|(_, field)| (USES..USES + MAX_USES).contains(&field));
        match of_use && self.broken == Broken::ForgetsOperations {
            true => 0,
            false => self.access(word == LOCK, |state| *state.word(word)),
        }
    }

    fn store(&self, word: usize, value: u64) {
        let is_change = *self.state.borrow_mut().word(word) != value;
        self.access(is_change, |state| {
            *state.word(word) = value;
            if let Some((slot, 0)) = field(word).filter(|_| value != 0) {
                if state.dirty[slot] {
                    self.wrong(format!("region {slot} is allocated and is not zero"));
                }
                state.dirty[slot] = true;
            }
            0
        });
        if let Some((slot, 0)) = field(word).filter(|_| value == 0 && self.broken == Broken::ClearsFirst) {
            self.punch(slot);
        }
    }

    fn has_ended(&self, rank: usize) -> bool {
        let robs = self.broken == Broken::RobsTheDying && !self.inside.get();
        let frees = self.broken == Broken::FreesTheDying && self.inside.get();
        self.is(rank, if robs || frees { &[Life::Dying, Life::Ended] } else { &[Life::Ended] })
    }
}

impl RegionMemory for View {
    fn compare_exchange(&self, word: usize, from: u64, to: u64) -> Result<(), u64> {
        let seen = self.access(true, |state| {
            let seen = *state.word(word);
            if seen == from {
                *state.word(word) = to;
            }
            seen
        });
        if seen != from {
            return Err(seen);
        }
        if word == LOCK {
            self.inside.set(holder(to) == Some(self.me));
        }
        Ok(())
    }

    fn is_alive(&self, rank: usize) -> bool {
        self.is(rank, &[Life::Alive])
    }

    fn prepare(&self, _: usize, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn reserve(&self, _: usize, _: usize) -> Result<(), Error> {
        Ok(())
    }

    fn give_back(&self, slot: usize) -> Result<(), Error> {
        if self.broken != Broken::ClearsFirst {
            self.punch(slot);
        }
        Ok(())
    }
}
