//! Waiting: a rank checks for completion first, then the poison word, and inspects its peers in a long wait.
//!
//! Ranks that have a CPU each spin, then yield, then sleep; they are awake again when the end of the wait is expected (`patience.rs`).
//! Oversubscribed ranks never spin: they yield, hardly at all where their recent waits were long, then sleep on the slot's event word.

use super::board::{Board, Watch};
use super::fault::PeerInspection;
use super::operation::{Operation, Stop};
use super::patience::{Patience, pace};
use crate::sync::{Ordering, SyncPoint, futex};
use core::time::Duration;

/// The notification of the awaited change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// The rank that makes the change calls `wake`: the waiter may sleep on the slot's event word.
    Event,
    /// No notification, because the change will follow soon: the waiter polls, and backs off in a long wait.
    Poll,
}

/// Longest sleep, so that deaths and stops are noticed.
const SLEEP_NS: u64 = 50_000_000;

impl<B: Board> Operation<'_, B> {
    /// Waits until `look` returns a value.
    ///
    /// `look` may be called any number of times. It is called once more after the group has failed, so an operation that did
    /// complete is reported as complete.
    #[inline]
    pub(super) fn wait<T>(&mut self, wake: Wake, mut look: impl FnMut(&B) -> Option<T>) -> Result<T, Stop> {
        if self.patience.looks()[0] > 0
            && let Some(found) = look(self.board)
        {
            return Ok(found);
        }
        self.wait_on(wake, &mut look)
    }

    fn wait_on<T>(&mut self, wake: Wake, look: &mut impl FnMut(&B) -> Option<T>) -> Result<T, Stop> {
        if let Some(found) = self.poll(self.patience.looks(), look) {
            return Ok(found);
        }
        self.wait_long(wake, look)
    }

    /// Looks some times without a pause and then some with one, if this rank has nothing else to see to.
    fn poll<T>(&mut self, [tight, paused]: [u32; 2], look: &mut impl FnMut(&B) -> Option<T>) -> Option<T> {
        if self.has_pending() {
            return None;
        }
        (0..tight + paused).find_map(|round| {
            if round > tight {
                core::hint::spin_loop();
            }
            look(self.board)
        })
    }

    #[cold]
    fn wait_long<T>(&mut self, wake: Wake, look: &mut impl FnMut(&B) -> Option<T>) -> Result<T, Stop> {
        let board = self.board;
        let begun_ns = board.now_ns();
        self.patience.learn();
        self.counts.moved();
        let mut inspection = PeerInspection::default();
        #[cfg(not(earlybird_loom))]
        let mut proof = super::stuck::Proof::default();
        let mut inspect_ns = pace::INSPECT_FIRST_NS;
        // The last reading of the clock, where this rank has done nothing but look for microseconds since then.
        let mut seen_ns = None;
        let result = loop {
            // Pending operations depend on changes in other slots, which do not wake the sleepers of this one.
            let sleeps = wake == Wake::Event && !self.has_pending();
            if !sleeps {
                board.watch(Watch::Start);
            }
            if let Some(found) = look(board) {
                break Ok(found);
            }
            if let Some(stop) = self.poisoned() {
                break look(board).ok_or(stop);
            }
            let now_ns = board.now_ns();
            if board.drive(now_ns) {
                break look(board).ok_or_else(|| self.interrupted());
            }
            let waited_ns = now_ns - begun_ns;
            let moved = self.progress_pending();
            if moved {
                // The words read before are looked at again.
                board.watch(Watch::Stop);
            }
            if waited_ns >= inspect_ns && board.inspects() {
                inspect_ns = waited_ns + (waited_ns / 2).clamp(pace::INSPECT_FIRST_NS, pace::INSPECT_MOST_NS);
                // For models: a change of the words inspected here wakes a sleeper, a change of the awaited word must not.
                if sleeps {
                    board.watch(Watch::Start);
                }
                board.watch(Watch::Inspect);
                let inspected = match self.inspect(&mut inspection, begun_ns) {
                    #[cfg(not(earlybird_loom))]
                    Ok(()) if self.cannot_end(&mut proof) => Err(self.corrupt()),
                    inspected => inspected,
                };
                if let Err(stop) = inspected {
                    break look(board).ok_or(stop);
                }
            }
            match self.patience.next(waited_ns) {
                _ if moved => {}
                pace::Next::Yield => {
                    board.yield_now();
                    if let Some(found) = self.poll(self.patience.looks_after_yield(), look) {
                        seen_ns = Some(now_ns);
                        break Ok(found);
                    }
                }
                pace::Next::Sleep { most_ns } if sleeps => {
                    board.watch(Watch::Hold);
                    if let Some(found) = self.sleep(most_ns.min(SLEEP_NS), look) {
                        break Ok(found);
                    }
                }
                pace::Next::Sleep { most_ns } => {
                    board.backoff(board.sleep_ns(most_ns.min(Patience::backoff_ns(waited_ns))));
                }
            }
        };
        board.watch(Watch::Stop);
        if wake == Wake::Event {
            self.patience.keep(seen_ns.unwrap_or_else(|| board.now_ns()) - begun_ns);
        }
        result
    }

    /// Sleeps once on the slot's event word, at most `most_ns`, unless `look` succeeds after this rank was counted as a sleeper.
    fn sleep<T>(&mut self, most_ns: u64, look: &mut impl FnMut(&B) -> Option<T>) -> Option<T> {
        let most_ns = self.board.sleep_ns(most_ns);
        let line = self.board.event(self.slot);
        let seen = line.event.load(Ordering::Relaxed);
        line.sleepers.fetch_add(1, Ordering::Relaxed);
        // Pairs with PublisherFence: either the publisher sees this sleeper, or this look sees what it published.
        SyncPoint::SleeperFence.fence();
        let mut found = look(self.board);
        if found.is_none() && self.poisoned().is_none() {
            futex::wait(&line.event, seen, Duration::from_nanos(most_ns));
            found = look(self.board);
        }
        line.sleepers.fetch_sub(1, Ordering::Relaxed);
        found
    }
}

/// Looks once, and then as often as `patience` allows without a pause; returns whether `there` became true. `meanwhile` is called after
/// the first look has failed. Without looks nothing is called.
#[inline(always)]
pub(super) fn spin(patience: &Patience, there: impl Fn() -> bool, meanwhile: impl FnOnce()) -> bool {
    let [looks, _] = patience.looks();
    if looks == 0 {
        return false;
    }
    if there() {
        return true;
    }
    meanwhile();
    (0..looks).any(|_| there())
}
