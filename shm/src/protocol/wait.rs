//! Waiting: look at completion first, at the poison word second, at the peers when it takes long.
//!
//! Ranks that have a CPU each spin, then yield, then sleep. Where ranks outnumber CPUs nobody spins: they yield for a
//! bounded time that follows from their own recent waits, then sleep on the slot's event word. Sleeping and waking are
//! an event count: the publisher pays one fence and one load when nobody sleeps.

use super::board::Board;
#[cfg(earlybird_loom)]
use super::board::Watch;
use super::fault;
use super::operation::{Operation, Stop};
use crate::config::WaitPreset;
use crate::sync::{Ordering, SyncPoint};

/// Whether somebody is obliged to announce the change that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The changer calls `wake`: the waiter may sleep on the slot's event word.
    Event,
    /// Nobody announces it, because it follows soon from what has begun: the waiter polls, napping when it takes long.
    Poll,
}

/// How a rank waits, and what it has learnt about its waits.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The preset in force.
    pub preset: WaitPreset,
    /// Whether ranks outnumber the CPUs they may use.
    pub oversubscribed: bool,
    /// Deadline of one wait; `None` waits for ever (deaths are noticed all the same).
    pub timeout_ns: Option<u64>,
    /// Running mean of this rank's own long waits.
    pub mean_wait_ns: u64,
}

/// A sleeper looks up at least this often, so that deaths and stops are noticed.
#[cfg(not(earlybird_loom))]
const SLEEP_NS: u64 = 50_000_000;

#[cfg(not(earlybird_loom))]
mod pace {
    use super::{Patience, Wake};

    /// Looks without any pause, then with one, while every rank has a CPU of its own: about 2 and 60 us.
    pub const TIGHT_LOOKS: u32 = 400;
    pub const PAUSED_LOOKS: u32 = 1500;
    /// First inspection of the peers, and the longest interval between two.
    pub const INSPECT_FIRST_NS: u64 = 1_000_000;
    pub const INSPECT_MOST_NS: u64 = 100_000_000;

    /// What to do next in a wait that lasts.
    pub enum Next {
        Yield,
        Sleep,
    }

    impl Patience {
        pub(super) fn next(&self, waited_ns: u64) -> Next {
            let yields = waited_ns < self.preset.yield_ns(self.oversubscribed, self.mean_wait_ns);
            if yields { Next::Yield } else { Next::Sleep }
        }

        /// Naps of a poll that takes long: an eighth of the wait so far, from 50 us to 1 ms.
        pub(super) fn backoff_ns(waited_ns: u64) -> u64 {
            (waited_ns / 8).clamp(50_000, 1_000_000)
        }

        pub(super) fn learn(&mut self, wake: Wake, waited_ns: u64) {
            if wake == Wake::Event {
                self.mean_wait_ns = (7 * self.mean_wait_ns + waited_ns) / 8;
            }
        }
    }
}

impl<B: Board> Operation<'_, B> {
    /// Waits until `look` finds what it wants.
    ///
    /// `look` may be called any number of times; it is asked once more after the group has failed, so an operation
    /// that did complete is reported as complete.
    #[inline]
    pub(super) fn wait<T>(&mut self, wake: Wake, mut look: impl FnMut(&B) -> Option<T>) -> Result<T, Stop> {
        #[cfg(not(earlybird_loom))]
        if let Some(found) = look(self.board) {
            return Ok(found);
        }
        self.wait_on(wake, &mut look)
    }

    #[cfg(not(earlybird_loom))]
    fn wait_on<T>(&mut self, wake: Wake, look: &mut impl FnMut(&B) -> Option<T>) -> Result<T, Stop> {
        if !self.patience.oversubscribed && self.pending.is_empty() {
            for round in 0..pace::TIGHT_LOOKS + pace::PAUSED_LOOKS {
                if round > pace::TIGHT_LOOKS {
                    core::hint::spin_loop();
                }
                if let Some(found) = look(self.board) {
                    return Ok(found);
                }
            }
        }
        self.wait_long(wake, look)
    }

    #[cfg(not(earlybird_loom))]
    #[cold]
    fn wait_long<T>(&mut self, wake: Wake, look: &mut impl FnMut(&B) -> Option<T>) -> Result<T, Stop> {
        let board = self.board;
        let begun_ns = board.now_ns();
        let mut watch = super::fault::PeerInspection::default();
        let mut proof = super::stuck::Proof::default();
        let mut inspect_ns = pace::INSPECT_FIRST_NS;
        let result = loop {
            if let Some(found) = look(board) {
                break Ok(found);
            }
            if let Some(stop) = self.poisoned() {
                break look(board).ok_or(stop);
            }
            let now_ns = board.now_ns();
            board.drive(now_ns);
            let waited_ns = now_ns - begun_ns;
            match self.patience.next(waited_ns) {
                _ if self.carry_on_pending() => {}
                pace::Next::Yield => board.yield_now(),
                // What is pending proceeds by changes in other slots, which wake nobody here.
                pace::Next::Sleep if wake == Wake::Event && self.pending.is_empty() => {
                    if let Some(found) = self.sleep(look) {
                        break Ok(found);
                    }
                }
                pace::Next::Sleep => board.backoff(board.sleep_ns(Patience::backoff_ns(waited_ns))),
            }
            if waited_ns >= inspect_ns {
                inspect_ns = waited_ns + (waited_ns / 2).clamp(pace::INSPECT_FIRST_NS, pace::INSPECT_MOST_NS);
                let inspected = match self.inspect(&mut watch, begun_ns) {
                    Ok(()) if self.cannot_end(&mut proof, begun_ns) => Err(self.corrupt()),
                    inspected => inspected,
                };
                if let Err(stop) = inspected {
                    break look(board).ok_or(stop);
                }
            }
        };
        self.patience.learn(wake, board.now_ns() - begun_ns);
        result
    }

    /// The modelled wait blocks at once: loom's scheduler can neither spin nor tell time.
    #[cfg(earlybird_loom)]
    fn wait_on<T>(&mut self, wake: Wake, look: &mut impl FnMut(&B) -> Option<T>) -> Result<T, Stop> {
        let result = self.wait_watching(wake, look);
        self.board.watch(Watch::Stop);
        result
    }

    #[cfg(earlybird_loom)]
    fn wait_watching<T>(&mut self, wake: Wake, look: &mut impl FnMut(&B) -> Option<T>) -> Result<T, Stop> {
        let board = self.board;
        let mut watch = super::fault::PeerInspection::default();
        loop {
            let wake = if self.pending.is_empty() { wake } else { Wake::Poll };
            if wake == Wake::Poll {
                board.watch(Watch::Start);
            }
            if self.carry_on_pending() {
                board.watch(Watch::Stop);
                continue;
            }
            if let Some(found) = look(board) {
                return Ok(found);
            }
            if let Some(stop) = self.poisoned() {
                return look(board).ok_or(stop);
            }
            if board.inspects() {
                // A sleeper looks up now and then: what it inspects the peers for wakes it, what it waits for must not.
                if wake == Wake::Event {
                    board.watch(Watch::Start);
                }
                board.watch(Watch::Inspect);
                if let Err(stop) = self.inspect(&mut watch, 0) {
                    return look(board).ok_or(stop);
                }
            }
            match wake {
                Wake::Event => {
                    board.watch(Watch::Hold);
                    if let Some(found) = self.sleep(look) {
                        return Ok(found);
                    }
                }
                Wake::Poll => board.park(),
            }
        }
    }

    /// Carries on with what else this rank has under way; whether something came of it.
    #[inline]
    fn carry_on_pending(&mut self) -> bool {
        !self.pending.is_empty() && self.pending.carry_on(self.board, self.patience, self.all_left, self.epoch)
    }

    pub(super) fn poisoned(&self) -> Option<Stop> {
        fault::failed(self.board)
    }

    /// Sleeps once on the slot's event word, unless `look` succeeds after this rank was counted as a sleeper.
    fn sleep<T>(&mut self, look: &mut impl FnMut(&B) -> Option<T>) -> Option<T> {
        #[cfg(earlybird_loom)]
        let most_ns = 0;
        #[cfg(not(earlybird_loom))]
        let most_ns = self.board.sleep_ns(SLEEP_NS);
        let line = self.board.event(self.slot);
        let seen = line.event.load(Ordering::Relaxed);
        line.sleepers.fetch_add(1, Ordering::Relaxed);
        // Pairs with PublisherFence: either the publisher sees this sleeper, or this look sees what it published.
        SyncPoint::SleeperFence.fence();
        let mut found = look(self.board);
        if found.is_none() && self.poisoned().is_none() {
            self.board.futex_wait(&line.event, seen, most_ns);
            found = look(self.board);
        }
        line.sleepers.fetch_sub(1, Ordering::Relaxed);
        found
    }

    /// Wakes whoever sleeps in this operation; called after the change they wait for was stored.
    #[inline]
    pub(super) fn wake(&self) {
        wake(self.board, self.slot);
    }
}

/// Wakes whoever sleeps in `slot`; called after the change they wait for was stored.
#[inline]
pub(super) fn wake<B: Board>(board: &B, slot: usize) {
    if sleepers(board, slot) {
        wake_all(board, slot);
    }
}

/// Whether somebody sleeps in `slot`, as seen after everything stored before.
#[inline]
pub(super) fn sleepers<B: Board>(board: &B, slot: usize) -> bool {
    SyncPoint::PublisherFence.fence();
    board.event(slot).sleepers.load(Ordering::Relaxed) > 0
}

/// Wakes the sleepers of `slot`.
#[cold]
pub(super) fn wake_all<B: Board>(board: &B, slot: usize) {
    let line = board.event(slot);
    line.event.fetch_add(1, Ordering::Relaxed);
    board.futex_wake(&line.event);
}

/// Whether what is waited for comes within the first looks of a rank that has a CPU of its own; `meanwhile` is done where it is
/// not there yet. A model has no time to spin: there the wait itself looks first.
#[inline(always)]
pub(super) fn spin(there: impl Fn() -> bool, meanwhile: impl FnOnce()) -> bool {
    #[cfg(not(earlybird_loom))]
    if there() {
        return true;
    } else {
        meanwhile();
        for _ in 0..pace::TIGHT_LOOKS {
            if there() {
                return true;
            }
        }
    }
    #[cfg(earlybird_loom)]
    let _ = (there, meanwhile);
    false
}
