//! A board of loom cells: the shipping protocol, run by loom under every interleaving it can find.
//!
//! Waiting parks on a modelled futex (a mutex and a condition variable with the value check under the lock), because
//! loom's scheduler can neither spin nor tell time. The clock, the liveness oracle and the counters below are plain
//! atomics that loom does not see: they order nothing.

use crate::Error;
use crate::protocol::board::{AREAS, Board, Need, Place, SLOTS};
use crate::protocol::lines::{DETAILS, EventLine, INLINE_BYTES, RankLine, RankSet, WordLine};
use crate::protocol::step::Step;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use std::sync::atomic::{AtomicBool as StdBool, AtomicUsize as StdUsize, Ordering::SeqCst};

/// Pieces of payload that a model may use per deposit or accumulator.
const PIECES: usize = 2;

/// Words of one piece: 64 bytes, or a line's worth beside the mark.
const WORDS: usize = INLINE_BYTES / 8;

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
    left: Vec<WordLine>,
    details: Vec<[AtomicU64; DETAILS]>,
    arrivals: Vec<WordLine>,
    events: Vec<EventLine>,
    lines: Vec<RankLine>,
    fold_words: Vec<WordLine>,
    folded: Vec<RankSet>,
    chunks: Vec<WordLine>,
    inline: Vec<Cell>,
    deposits: Vec<Cell>,
    accumulators: Vec<Cell>,
    /// Bumped by every change of a polled word.
    version: AtomicU64,
    parked: StdUsize,
    lock: Mutex<()>,
    changed: Condvar,
    gone: Vec<StdBool>,
}

/// One rank's handle on the modelled board.
#[derive(Clone)]
pub struct Heap {
    shared: Arc<Shared>,
    rank: usize,
    /// Die (unwind) on reaching this step for the n-th time.
    dies: Option<(Step, usize)>,
    reached: std::rc::Rc<std::cell::Cell<usize>>,
}

/// What a modelled rank throws when it dies.
pub struct Died;

/// The boards of a group of `ranks`; `inspects` where the model has deaths or mismatches.
pub struct Group(Arc<Shared>);

impl Group {
    /// A fresh group, as after attach.
    pub fn new(ranks: usize, inspects: bool) -> Self {
        Group(Arc::new(Shared {
            ranks,
            inspects,
            poison: WordLine::default(),
            left: lines(ranks),
            details: (0..ranks).map(|_| std::array::from_fn(|_| AtomicU64::new(0))).collect(),
            arrivals: lines(SLOTS),
            events: lines(SLOTS),
            lines: lines(SLOTS * ranks),
            fold_words: lines(AREAS),
            folded: lines(AREAS),
            chunks: lines(AREAS * PIECES),
            inline: cells(SLOTS * ranks),
            deposits: cells(AREAS * ranks * PIECES),
            accumulators: cells(AREAS * PIECES),
            version: AtomicU64::new(0),
            parked: StdUsize::new(0),
            lock: Mutex::new(()),
            changed: Condvar::new(),
            gone: (0..ranks).map(|_| StdBool::new(false)).collect(),
        }))
    }

    /// A copy to move into another thread.
    pub fn share(&self) -> Self {
        Group(self.0.clone())
    }

    /// The board of `rank`, which dies on reaching `dies.0` for the `dies.1`-th time (from 1).
    pub fn board(&self, rank: usize, dies: Option<(Step, usize)>) -> Heap {
        Heap { shared: self.0.clone(), rank, dies, reached: Default::default() }
    }

    /// The first details that `reporter` left about an error.
    pub fn details(&self, reporter: usize) -> [u64; 5] {
        std::array::from_fn(|i| self.0.details[reporter][i].load(Ordering::Relaxed))
    }

    /// The rank is dead from now on: every sleeper looks up, as after a time-out.
    pub fn bury(&self, rank: usize) {
        self.0.gone[rank].store(true, SeqCst);
        let _guard = self.0.lock.lock().unwrap();
        self.0.changed.notify_all();
    }
}

impl Heap {
    fn cell(&self, at: Place) -> &Cell {
        let s = &*self.shared;
        match at {
            Place::Inline { slot, rank } => &s.inline[slot * s.ranks + rank],
            Place::Deposit { area, rank, piece, .. } => &s.deposits[(area * s.ranks + rank) * PIECES + piece],
            Place::Accumulator { area, chunk, .. } => &s.accumulators[area * PIECES + chunk],
        }
    }

    fn somebody_died(&self) -> bool {
        self.shared.gone.iter().any(|g| g.load(SeqCst))
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
    fn left(&self, rank: usize) -> &AtomicU64 {
        &self.shared.left[rank].0
    }
    fn details(&self, rank: usize) -> &[AtomicU64; DETAILS] {
        &self.shared.details[rank]
    }
    fn arrival(&self, slot: usize) -> &AtomicU64 {
        &self.shared.arrivals[slot].0
    }
    fn event(&self, slot: usize) -> &EventLine {
        &self.shared.events[slot]
    }
    fn line(&self, slot: usize, rank: usize) -> &RankLine {
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
    fn reserve(&self, _area: usize, _need: Need) -> Result<(), Error> {
        Ok(())
    }

    fn futex_wait(&self, word: &AtomicU32, expected: u32, _timeout_ns: u64) {
        let guard = self.shared.lock.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected && !self.somebody_died() {
            drop(self.shared.changed.wait(guard).unwrap());
        }
    }
    fn futex_wake(&self, _word: &AtomicU32) {
        let _guard = self.shared.lock.lock().unwrap();
        self.shared.changed.notify_all();
    }
    fn changed(&self) {
        // Release only: a rank that announces a change learns nothing from it.
        self.shared.version.fetch_add(1, Ordering::Release);
        if self.shared.parked.load(SeqCst) > 0 {
            let _guard = self.shared.lock.lock().unwrap();
            self.shared.changed.notify_all();
        }
    }
    fn park_until_changed(&self, look: &mut dyn FnMut() -> bool) {
        let guard = self.shared.lock.lock().unwrap();
        self.shared.parked.fetch_add(1, SeqCst);
        // Everything announced so far is visible from here on, as it would be after a while on a machine.
        self.shared.version.fetch_add(0, Ordering::Acquire);
        let guard = if look() || self.somebody_died() || self.shared.poison.0.load(Ordering::Relaxed) != 0 {
            guard
        } else {
            self.shared.changed.wait(guard).unwrap()
        };
        self.shared.parked.fetch_sub(1, SeqCst);
        drop(guard);
    }
    fn inspects(&self) -> bool {
        self.shared.inspects
    }

    fn is_gone(&self, rank: usize) -> bool {
        self.shared.gone[rank].load(SeqCst)
    }
    fn is_held(&self, _rank: usize) -> bool {
        false
    }
    fn warn_late(&self, _operation: u64, _waited_s: u64, _missing: &[usize]) {}
    fn now_ns(&self) -> u64 {
        0
    }
    fn cpu(&self) -> u32 {
        0
    }
    fn prepare_line(&self, _slot: usize) {}
    fn hand_on(&self, _at: Place, _bytes: usize) {}
    fn give_way(&self) {}
    fn nap(&self, _ns: u64) {}
    fn step(&self, step: Step) {
        if let Some((fatal, at)) = self.dies
            && step == fatal
        {
            self.reached.set(self.reached.get() + 1);
            if self.reached.get() == at {
                std::panic::panic_any(Died);
            }
        }
    }
}
