//! A board of loom cells: the shipping protocol, run by loom under every interleaving it can find.
//!
//! Words are atomics that a waiting rank can block on (`shm/src/model/words.rs`), payload lies in loom cells, which refuse every
//! access that the protocol has not ordered. A futex is the check of its word and the blocking in one step, as the
//! kernel promises. A death is a word of its own, stored by the dead and seen sooner or later by the others.

use earlybird_shm::Error;
use earlybird_shm::model::{spins, words};
use earlybird_shm::protocol::board::{AREAS, Board, Exposed, Need, Place, SLOTS, SMALL_DEPOSITS, Watch};
use earlybird_shm::protocol::lines::{EventLine, MemberLines, RankLine, RankSet, WordLine};
use earlybird_shm::protocol::payload;
use earlybird_shm::protocol::rotation::Rotation;
use earlybird_shm::protocol::step::Step;
use earlybird_shm::protocol::word::PoisonWord;
use earlybird_shm::sync::{AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use std::cell::Cell as StdCell;
use std::rc::Rc;

/// The poison word of a healthy group.
const HEALTHY: u64 = PoisonWord::healthy(1);

/// Pieces of payload that a model may use per deposit or accumulator.
const PIECES: usize = 2;

/// Words of one piece: the 64 bytes of a modelled chunk, of which a part fits beside the mark.
const WORDS: usize = 8;

type Cell = UnsafeCell<[u64; WORDS]>;

fn cells(n: usize) -> Vec<Cell> {
    (0..n).map(|_| UnsafeCell::new([0; WORDS])).collect()
}

fn lines<T: Default>(n: usize) -> Vec<T> {
    (0..n).map(|_| T::default()).collect()
}

struct Shared {
    ranks: usize,
    inspects: bool,
    poison: WordLine,
    members: Vec<MemberLines>,
    arrivals: Vec<WordLine>,
    events: Vec<EventLine>,
    lines: Vec<RankLine>,
    fold_words: Vec<WordLine>,
    folded: Vec<RankSet>,
    chunks: Vec<WordLine>,
    inline: Vec<Cell>,
    deposits: Vec<Cell>,
    accumulators: Vec<Cell>,
    /// Registered buffers: those of all ranks for each operation that can be under way.
    registered: Vec<Cell>,
    /// Places of results, where they do not replace the registered contributions.
    results: Vec<Cell>,
    /// Private buffers that others read.
    exposed: Vec<Cell>,
    /// Where blocks begin in what is exposed.
    lists: Vec<Cell>,
    /// Memory of each rank that others read before they leave an operation.
    kept: Vec<Cell>,
    /// The last operation that each rank has sent from it, as that rank alone knows.
    published: Vec<StdCell<u64>>,
    /// The rank that may not read what others expose.
    cannot_read: Option<usize>,
    /// A `left` word in which every operation is left, for the must-fail test that reuses memory without waiting.
    forgets_left: Option<WordLine>,
    /// True for the must-fail test in which ranks keep the registered buffers that they opened first.
    opens_once: bool,
}

/// One rank's handle on the modelled board.
pub struct Heap {
    shared: Rc<Shared>,
    rank: usize,
    /// Die (unwind) on reaching this step for the n-th time.
    dies: Option<(Step, usize)>,
    reached: StdCell<usize>,
    clock_ns: StdCell<u64>,
    /// True if ranks register a place for the result beside their contribution: all of them, as they say with their names.
    apart: StdCell<bool>,
    /// The slot of the operation in hand, whose line was looked at last: this rank's own registered buffers are of it.
    slot: StdCell<usize>,
    /// The names under which this rank opened the registered buffers of the others.
    opened: Vec<StdCell<u64>>,
}

/// The name of a registered buffer of the operation with this number.
pub fn name_of(number: usize) -> u64 {
    1 + number.rem_euclid(SLOTS) as u64
}

/// The panic payload of a modelled rank that dies.
pub struct Died;

/// The boards of a group of `ranks`; `inspects` where the model has deaths or mismatches.
pub struct Group(Rc<Shared>);

impl Group {
    /// A fresh group, as after attach.
    pub fn new(ranks: usize, inspects: bool) -> Self {
        words::reset(ranks);
        Group(Rc::new(Shared {
            ranks,
            inspects,
            poison: WordLine(AtomicU64::new(HEALTHY)),
            members: lines(ranks),
            arrivals: lines(SLOTS),
            events: lines(SLOTS),
            lines: lines(SLOTS * ranks),
            fold_words: lines(AREAS),
            folded: lines(AREAS),
            chunks: lines((AREAS + SLOTS) * PIECES),
            inline: cells(SLOTS * ranks),
            deposits: cells((AREAS + SMALL_DEPOSITS.len() * SLOTS) * ranks * PIECES),
            accumulators: cells(AREAS * PIECES),
            registered: cells(SLOTS * ranks * PIECES),
            results: cells(ranks * PIECES),
            exposed: cells(ranks),
            lists: cells(ranks),
            kept: cells(ranks),
            published: lines(ranks),
            cannot_read: None,
            forgets_left: None,
            opens_once: false,
        }))
    }

    /// A group whose ranks reuse memory without waiting until it has been left, for a must-fail test.
    pub fn forgetful(ranks: usize) -> Self {
        let Group(shared) = Self::new(ranks, false);
        let mut shared = Rc::into_inner(shared).expect("a fresh group has one owner");
        shared.forgets_left = Some(WordLine(AtomicU64::new(u64::MAX - 1)));
        Group(Rc::new(shared))
    }

    /// A group whose ranks keep the registered buffers that they opened first, if that is so, for a must-fail test.
    pub fn opening_once(self, once: bool) -> Self {
        let mut shared = Rc::into_inner(self.0).expect("a fresh group has one owner");
        shared.opens_once = once;
        Group(Rc::new(shared))
    }

    /// Forbids this rank to read exposed buffers of others.
    pub fn without_reads_of(self, rank: Option<usize>) -> Self {
        let mut shared = Rc::into_inner(self.0).expect("a fresh group has one owner");
        shared.cannot_read = rank;
        Group(Rc::new(shared))
    }

    /// A copy to move into another thread.
    pub fn share(&self) -> Self {
        Group(self.0.clone())
    }

    /// The board of `rank`, in the thread that is this rank from here on. It dies on reaching `dies.0` for the
    /// `dies.1`-th time (from 1).
    pub fn board(&self, rank: usize, dies: Option<(Step, usize)>) -> Heap {
        words::enter(rank);
        let shared = self.0.clone();
        Heap {
            shared,
            rank,
            dies,
            reached: Default::default(),
            clock_ns: Default::default(),
            apart: Default::default(),
            slot: Default::default(),
            opened: lines(self.0.ranks),
        }
    }

    /// The first details that `reporter` left about an error.
    pub fn details(&self, reporter: usize) -> [u64; 5] {
        std::array::from_fn(|i| self.0.members[reporter].details[i].load(Ordering::Relaxed))
    }

    /// The last operation before all that the rank has not left. Called when all ranks have ended.
    pub fn left(&self, rank: usize) -> u64 {
        self.0.members[rank].left.0.load_newest(Ordering::Relaxed)
    }

    /// The rank is dead from now on, or has dropped its handle, which looks the same to the others. A rank that learns of
    /// it has seen all that this one did: of a death the kernel promises as much.
    pub fn bury(&self, rank: usize) {
        self.0.members[rank].go();
    }
}

impl Heap {
    fn cell(&self, at: Place) -> &Cell {
        let s = &*self.shared;
        match at {
            Place::Inline { slot, rank, .. } => &s.inline[slot * s.ranks + rank],
            Place::Deposit { area, rank, piece, offset, .. } => {
                let area = match area.checked_sub(AREAS) {
                    None => area,
                    Some(size) => AREAS + size * SLOTS + offset / SMALL_DEPOSITS[size].bytes,
                };
                &s.deposits[(area * s.ranks + rank) * PIECES + piece]
            }
            Place::Registered { rank, result: true, piece, .. } if self.apart.get() => {
                &s.results[rank * PIECES + piece]
            }
            Place::Registered { rank, piece, .. } => {
                let opened = self.opened[rank].get().saturating_sub(1) as usize;
                let of = if rank == self.rank { self.slot.get() } else { opened };
                &s.registered[(of * s.ranks + rank) * PIECES + piece]
            }
            Place::Accumulator { area, chunk, .. } => &s.accumulators[area * PIECES + chunk],
        }
    }
}

impl Heap {
    /// The kept memory of all ranks.
    pub fn kept(&self) -> KeptMemory {
        KeptMemory { shared: self.shared.clone(), rank: self.rank }
    }
}

/// The kept memory of all ranks, for one of them.
pub struct KeptMemory {
    shared: Rc<Shared>,
    rank: usize,
}

impl KeptMemory {
    /// The last operation that this rank has sent from its memory.
    pub fn published(&self) -> u64 {
        self.shared.published[self.rank].get()
    }

    /// Writes this rank's memory, from which it sends operation `number`.
    pub fn write(&self, value: u64, number: u64) {
        self.shared.published[self.rank].set(number);
        self.shared.kept[self.rank].with_mut(|cell| payload::store(cell.cast(), &value.to_ne_bytes()));
    }

    /// Reads the memory of a rank.
    pub fn read(&self, rank: usize) -> u64 {
        let mut value = [0; 8];
        self.shared.kept[rank].with(|cell| payload::load(cell.cast(), &mut value));
        u64::from_ne_bytes(value)
    }
}

impl Board for Heap {
    fn ranks(&self) -> usize {
        self.shared.ranks
    }
    fn rank(&self) -> usize {
        self.rank
    }
    fn poison(&self) -> &AtomicU64 {
        &self.shared.poison.0
    }
    fn healthy(&self) -> u64 {
        HEALTHY
    }
    fn is_ours(&self) -> bool {
        true
    }
    fn left(&self, rank: usize) -> &AtomicU64 {
        match &self.shared.forgets_left {
            Some(done) if rank != self.rank => &done.0,
            _ => &self.shared.members[rank].left.0,
        }
    }
    fn member(&self, rank: usize) -> &MemberLines {
        &self.shared.members[rank]
    }
    fn arrival(&self, slot: usize) -> &AtomicU64 {
        &self.shared.arrivals[slot].0
    }
    fn event(&self, slot: usize) -> &EventLine {
        &self.shared.events[slot]
    }
    fn line(&self, slot: usize, rank: usize) -> &RankLine {
        self.slot.set(slot);
        &self.shared.lines[slot * self.shared.ranks + rank]
    }
    fn fold_word(&self, area: usize) -> &AtomicU64 {
        &self.shared.fold_words[area].0
    }
    fn folded(&self, area: usize) -> &RankSet {
        &self.shared.folded[area]
    }
    fn chunk(&self, area: usize, chunk: usize) -> &AtomicU64 {
        &self.shared.chunks[area * PIECES + chunk].0
    }

    fn read<R>(&self, at: Place, f: impl FnOnce(*const u8) -> R) -> R {
        self.cell(at).with(|p| f(p.cast()))
    }
    fn write<R>(&self, at: Place, f: impl FnOnce(*mut u8) -> R) -> R {
        self.cell(at).with_mut(|p| f(p.cast()))
    }
    fn rotation(&self) -> Rotation {
        Rotation::of(0, true)
    }
    fn reserve(&self, _area: usize, need: Need) -> Result<(), Error> {
        assert!(need.accumulator.max(need.deposit) <= PIECES * 64, "a model has {PIECES} pieces of 64 bytes: {need:?}");
        Ok(())
    }

    fn register(&self, _contribution: *mut u8, _result: *mut u8, _bytes: usize) {}
    fn open(&self, rank: usize, names: [u64; 2]) -> Result<(), Error> {
        self.apart.set(names[0] != names[1]);
        if !self.shared.opens_once || self.opened[rank].get() == 0 {
            self.opened[rank].set(names[0]);
        }
        Ok(())
    }

    fn expose(&self, buffer: &[u8], starts: &[usize]) -> Exposed {
        let list: Vec<u8> = starts.iter().flat_map(|start| start.to_ne_bytes()).collect();
        self.shared.exposed[self.rank].with_mut(|cell| payload::store(cell.cast(), buffer));
        self.shared.lists[self.rank].with_mut(|cell| payload::store(cell.cast(), &list));
        // The addresses of a model are numbers of cells.
        Exposed { address: 0, starts: 1, token_address: 0, token: 0 }
    }
    fn read_exposed(&self, rank: usize, exposed: Exposed, offset: usize, to: &mut [u8]) -> bool {
        let may = self.shared.cannot_read != Some(self.rank);
        if may {
            let Shared { exposed: buffers, lists, .. } = &*self.shared;
            let cells = [buffers, lists][exposed.address as usize];
            cells[rank].with(|cell| payload::load(cell.cast::<u8>().wrapping_add(offset), to));
        }
        may
    }
    /// The owner uses its buffer and its list for something else.
    fn end_exposure(&self) {
        self.shared.exposed[self.rank].with_mut(|_| {});
        self.shared.lists[self.rank].with_mut(|_| {});
    }

    fn watch(&self, watch: Watch) {
        match watch {
            Watch::Start => words::start(self.rank),
            Watch::Inspect => words::inspect(self.rank),
            Watch::Hold => words::hold(self.rank),
            Watch::Stop => words::stop(self.rank),
        }
    }
    fn inspects(&self) -> bool {
        self.shared.inspects
    }

    fn is_gone(&self, rank: usize) -> bool {
        self.shared.members[rank].is_gone()
    }
    fn is_held(&self, _rank: usize) -> bool {
        false
    }
    fn warn_late(&self, _operation: u64, _waited_s: u64, _missing: &[usize]) {}
    /// A clock by which every look of a long wait is due for an inspection, and for sleep; where ranks spin and yield, it is
    /// slower, so that they yield once before they sleep.
    fn now_ns(&self) -> u64 {
        self.clock_ns.update(|now| now + if spins() == 0 { 100_000_000 } else { 600_000 });
        self.clock_ns.get()
    }
    fn prepare_line(&self, _slot: usize) {}
    fn prefetch(&self, _slot: usize) {}
    fn demote(&self, _at: Place) {}
    fn drive(&self, _now_ns: u64) -> bool {
        false
    }
    fn sleep_ns(&self, most_ns: u64) -> u64 {
        most_ns
    }
    fn yield_now(&self) {}
    /// Blocks until a watched word changes; returns at once if one has, or was read while it was old.
    fn backoff(&self, _ns: u64) {
        words::block(self.rank, false);
    }
    fn step(&self, step: Step) {
        if let Some((fatal, at)) = self.dies
            && step == fatal
        {
            self.reached.set(self.reached.get() + 1);
            if self.reached.get() == at {
                std::panic::resume_unwind(Box::new(Died));
            }
        }
    }
}
