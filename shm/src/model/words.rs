//! The atomics of a model: loom's, and a way to block on them.
//!
//! Loom's scheduler can neither spin nor tell time, so a modelled wait has to block. Blocking through a lock would
//! order memory that a machine leaves unordered, and would make every wake-up a choice to explore. Instead each word
//! remembers its newest value where loom does not look. A rank *watches* the words it reads; it blocks only if all it
//! read was the newest there is and none of it has changed since, and a change of one of them wakes it. Nothing is
//! added to the accesses of the protocol itself.
//!
//! A rank that read something old does not block: "a store becomes visible after a while" is modelled by reading
//! again, this time the newest values. So every wait still meets every outdated value once.
//!
//! A limit: loom's wake-up makes all writes of the waker visible to the woken rank. For every such run there is one in which
//! the waiter came later, did not block, and had only the protocol's own orderings; loom explores that one too.

use loom::sync::atomic as looms;
use loom::thread::Thread;
use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

/// No word of the protocol ever holds this.
const NEVER: u64 = u64::MAX;

/// The words that one rank reads while it waits.
struct Watch {
    thread: Thread,
    /// Addresses of the words read.
    words: Vec<usize>,
    /// True if reads are added to `words`.
    recording: bool,
    /// True if a value read was old, or has changed since.
    touched: bool,
    /// True if recorded reads return the newest value.
    newest: bool,
    /// True if the next watch reads newest values from its start.
    again: bool,
    /// Blocked: `Some(true)` where a futex wake-up also wakes.
    blocked: Option<bool>,
}

// All ranks of a model run on the operating system thread of its test, one at a time.
thread_local! {
    static WATCHES: RefCell<Vec<Option<Watch>>> = const { RefCell::new(Vec::new()) };
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

fn with<R>(rank: usize, f: impl FnOnce(&mut Watch) -> R) -> Option<R> {
    WATCHES.with_borrow_mut(|all| all.get_mut(rank).and_then(Option::as_mut).map(f))
}

/// Forgets the ranks of the previous execution.
pub fn reset(ranks: usize) {
    WATCHES.with_borrow_mut(|all| {
        all.clear();
        all.resize_with(ranks, || None);
    });
}

/// The calling thread is `rank` from here on.
pub fn enter(rank: usize) {
    RUNNING.set(rank);
    let thread = loom::thread::current();
    WATCHES.with_borrow_mut(|all| {
        all[rank] = Some(Watch {
            thread,
            words: Vec::new(),
            recording: false,
            touched: false,
            newest: false,
            again: false,
            blocked: None,
        });
    });
}

/// Begins to watch: what `rank` reads from now on wakes it.
pub fn start(rank: usize) {
    with(rank, |w| {
        w.words.clear();
        (w.recording, w.touched, w.newest, w.again) = (true, false, w.again, false);
    });
}

/// Reads newest values from here on.
pub fn inspect(rank: usize) {
    with(rank, |w| w.newest = true);
}

/// Adds no more words to the watch.
pub fn hold(rank: usize) {
    with(rank, |w| w.recording = false);
}

/// Ends the watch.
pub fn stop(rank: usize) {
    with(rank, |w| {
        w.words.clear();
        (w.recording, w.touched, w.newest, w.again) = (false, false, false, false);
    });
}

/// Blocks `rank` until a watched word changes, or, if `futex`, until [`wake`]. Returns at once if something that was
/// read while watching is not the newest value; the next watch then reads newest values.
pub fn block(rank: usize, futex: bool) {
    let blocks = with(rank, |w| {
        w.recording = false;
        w.again = w.touched;
        w.blocked = (!w.touched).then_some(futex);
        !w.touched
    });
    if blocks == Some(true) {
        while with(rank, |w| w.blocked.is_some()) == Some(true) {
            loom::thread::park();
        }
        RUNNING.set(rank);
    }
}

/// Looks until something is found, and blocks while nothing that was read changes.
pub fn poll<T>(mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        start(running());
        if let Some(found) = look() {
            stop(running());
            return found;
        }
        block(running(), false);
    }
}

/// Sleep of the rank that runs: the check of the word and the blocking in one step.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, _: std::time::Duration) {
    if word.load_newest(Ordering::Relaxed) == expected {
        block(running(), true);
    }
}

/// Wakes every rank that sleeps.
pub(crate) fn futex_wake_all(_: &AtomicU32) {
    wake();
}

/// The rank that runs.
fn running() -> usize {
    RUNNING.get()
}

/// Wakes every rank that sleeps on a futex.
fn wake() {
    WATCHES.with_borrow_mut(|all| {
        for w in all.iter_mut().flatten().filter(|w| w.blocked == Some(true)) {
            w.blocked = None;
            w.thread.unpark();
        }
    });
}

/// `address` was read: whether the newest value is asked for.
fn reads_newest() -> bool {
    with(RUNNING.get(), |w| w.recording && w.newest).unwrap_or(false)
}

fn has_read(address: usize, old: bool) {
    with(RUNNING.get(), |w| {
        if w.recording {
            w.words.push(address);
            w.touched |= old;
        }
    });
}

fn has_changed(address: usize) {
    WATCHES.with_borrow_mut(|all| {
        for w in all.iter_mut().flatten().filter(|w| w.words.contains(&address)) {
            w.touched = true;
            if w.blocked.take().is_some() {
                w.thread.unpark();
            }
        }
    });
}

/// Runs an access at which loom may switch to another rank and back.
fn switching<R>(access: impl FnOnce() -> R) -> R {
    let rank = RUNNING.get();
    let result = access();
    RUNNING.set(rank);
    result
}

macro_rules! word {
    ($name:ident, $int:ty) => {
        /// An atomic word that a rank can block on.
        #[derive(Debug)]
        pub struct $name {
            word: looms::$name,
            newest: Cell<$int>,
            polled: bool,
        }

        #[allow(missing_docs)]
        impl $name {
            pub fn new(value: $int) -> Self {
                $name { word: looms::$name::new(value), newest: Cell::new(value), polled: true }
            }

            /// A word that nobody waits for: it is read once another word has promised it. It is never read anew, so
            /// a promise that orders nothing shows.
            pub fn promised(value: $int) -> Self {
                $name { polled: false, ..$name::new(value) }
            }

            fn address(&self) -> usize {
                std::ptr::from_ref(self).addr()
            }

            fn becomes(&self, value: $int) {
                self.newest.set(value);
                has_changed(self.address());
            }

            /// The newest value, ordered like a load with `order`.
            pub fn load_newest(&self, order: Ordering) -> $int {
                let never = NEVER as $int;
                switching(|| self.word.compare_exchange(never, never, Ordering::Relaxed, order))
                    .expect_err("a word holds the value that none may hold")
            }

            pub fn load(&self, order: Ordering) -> $int {
                if !self.polled {
                    return switching(|| self.word.load(order));
                }
                let value = if reads_newest() { self.load_newest(order) } else { switching(|| self.word.load(order)) };
                has_read(self.address(), value != self.newest.get());
                value
            }

            pub fn store(&self, value: $int, order: Ordering) {
                switching(|| self.word.store(value, order));
                self.becomes(value);
            }

            pub fn fetch_add(&self, value: $int, order: Ordering) -> $int {
                let before = switching(|| self.word.fetch_add(value, order));
                self.becomes(before.wrapping_add(value));
                before
            }

            pub fn fetch_sub(&self, value: $int, order: Ordering) -> $int {
                let before = switching(|| self.word.fetch_sub(value, order));
                self.becomes(before.wrapping_sub(value));
                before
            }

            pub fn compare_exchange(
                &self,
                current: $int,
                new: $int,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$int, $int> {
                let result = switching(|| self.word.compare_exchange(current, new, success, failure));
                if result.is_ok() {
                    self.becomes(new);
                }
                result
            }
        }
    };
}

word!(AtomicU32, u32);
word!(AtomicU64, u64);
