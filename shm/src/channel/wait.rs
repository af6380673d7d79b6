//! Waiting on rings, as the operations of the node wait: spin where every rank has a CPU, then yield, then sleep; check the
//! group's error each time and the peers when the wait takes long.

use super::fault::Fault;
use super::ring;
use super::rings::Rings;
use super::wait_state::{WaitState, differs, has_passed};
use crate::memory::PeerState;
use crate::protocol::stuck::HAS_LEFT;
use crate::sync::Ordering;
use crate::warn::{self, WARN_AFTER};
use crate::{Error, clock};

/// Passes of a caller that finds nothing before it yields, where every rank has a CPU of its own.
const SPUN_PASSES: u32 = 2000;
/// First inspection of the peers, and the longest interval between two.
const INSPECT_FIRST_NS: u64 = 1_000_000;
const INSPECT_MOST_NS: u64 = 100_000_000;
/// The most that counts against a deadline between two inspections: after a longer gap this rank was itself stopped.
const COUNTED_MOST_NS: u64 = 250_000_000;

impl Rings {
    /// Called when nothing moved in `passes` passes, this one included: spins, yields or sleeps until something may
    /// have changed, at most 50 ms.
    ///
    /// # Errors
    /// The group's one error.
    pub fn idle(&mut self, passes: u32) -> Result<(), Error> {
        if !self.oversubscribed && passes < SPUN_PASSES {
            core::hint::spin_loop();
            return Ok(());
        }
        self.idle_long(passes)
    }

    /// Checks the group's error and, now and then, the peers, for a caller that yields or sleeps by itself.
    ///
    /// # Errors
    /// The group's one error.
    pub fn look(&mut self, passes: u32) -> Result<(), Error> {
        self.watch_long(passes, false)
    }

    #[cold]
    fn idle_long(&mut self, passes: u32) -> Result<(), Error> {
        self.watch_long(passes, true)
    }

    fn watch_long(&mut self, passes: u32, rests: bool) -> Result<(), Error> {
        self.healthy()?;
        let now = clock::now_ns();
        if self.board.driver.drive(now) {
            return Err(self.raise(Fault::Other("interrupted".into())));
        }
        if passes <= self.wait_state.passes || self.wait_state.begun_ns == 0 {
            let mean_ns = (7 * self.wait_state.mean_ns
                + self.wait_state.inspected_ns.saturating_sub(self.wait_state.begun_ns))
                / 8;
            self.counts.moved();
            self.wait_state = WaitState {
                begun_ns: now,
                inspect_at_ns: now + INSPECT_FIRST_NS,
                inspected_ns: now,
                mean_ns,
                ..WaitState::default()
            };
        }
        self.wait_state.passes = passes;
        let waited_ns = now - self.wait_state.begun_ns;
        match waited_ns < self.wait.yield_ns(self.oversubscribed, self.wait_state.mean_ns) {
            _ if !rests => {}
            true => rustix::thread::sched_yield(),
            false => ring::sleep(&self.board, self.rank, || self.something_changed() || self.healthy().is_err()),
        }
        if now >= self.wait_state.inspect_at_ns {
            self.inspect(now)?;
            if rests && self.cannot_end() {
                return Err(self.raise(Fault::Corrupt));
            }
            let pause_ns = (waited_ns / 2).clamp(INSPECT_FIRST_NS, INSPECT_MOST_NS);
            self.wait_state.inspect_at_ns = now + pause_ns;
        }
        self.without_packet.fill(false);
        self.without_room.fill(false);
        Ok(())
    }

    /// Looks at every rank that has not completed what this one is in: one that is gone, one that makes other calls, one
    /// that is late.
    fn inspect(&mut self, now: u64) -> Result<(), Error> {
        let current = self.completed + 1;
        let since_ns = (now - self.wait_state.inspected_ns).min(COUNTED_MOST_NS);
        self.wait_state.inspected_ns = now;
        let segment = self.board.segment();
        let (mut late, mut held) = (Vec::new(), false);
        // A late one that is not even in the call.
        let mut away = None;
        let suspected = self.wait_state.suspect.take();
        for &rank in self.partners.iter().filter(|r| **r != self.rank) {
            // A rank leaves before its process ends, so whether it has left is read after its end was seen.
            let (ended, left) = (!segment.is_alive(rank), segment.has_left(rank));
            let gone = if self.may_leave.contains(&rank) { ended && !left } else { ended || left };
            // A dead rank writes nothing more: its last completed call is read after its death was seen.
            let state = self.board.state(rank);
            if state.completed.load(Ordering::Relaxed) >= current {
                continue;
            }
            // In an exchange every rank is needed; otherwise those whose packets or room this rank waits for. What the dead
            // left in the rings is looked at first.
            if gone
                && (self.exchanging || self.without_packet[rank] || self.without_room[rank])
                && !self.something_changed()
            {
                return Err(self.raise(Fault::PeerDied { rank }));
            }
            let begun = state.begun.load(Ordering::Relaxed);
            // Seen twice: a call that is refused on its own rank is counted for a moment.
            if self.exchanging && differs(self.begun, begun) {
                if suspected == Some(rank) {
                    return Err(self.raise(self.mismatch([self.rank, rank])));
                }
                self.wait_state.suspect.get_or_insert(rank);
            }
            held |= self.timeout_ns.is_some() && matches!(segment.state(rank), PeerState::Stopped | PeerState::Traced);
            if begun != self.begun {
                away = away.or(Some(rank));
            }
            late.push(rank);
        }
        if let Some(rank) = self.lost_in_call() {
            return Err(self.raise(Fault::PeerDied { rank }));
        }
        if let Some(after_ns) = self.timeout_ns {
            self.wait_state.counted_ns += if held { 0 } else { since_ns };
            // A rank that is in the call may be waiting for some that take no part here, under a deadline of its own.
            let limit_ns = if self.is_partial && away.is_none() { after_ns.saturating_mul(3) } else { after_ns };
            if self.wait_state.counted_ns > limit_ns {
                // The one whose packet is missing, rather than one that waits like this rank.
                let silent = self.partners.iter().copied().find(|r| self.without_packet[*r]);
                let missing =
                    away.filter(|_| self.is_partial).or(silent).or(late.first().copied()).unwrap_or(self.rank);
                return Err(self.raise(Fault::Timeout { missing, after_ns }));
            }
        }
        let waited_ns = now - self.wait_state.begun_ns;
        if !self.wait_state.warned && waited_ns > WARN_AFTER.as_nanos() as u64 {
            self.wait_state.warned = true;
            self.warn_late(waited_ns / 1_000_000_000, &late);
        }
        Ok(())
    }

    /// Returns whether the wait for an exchange cannot end any more: every rank that takes part in it, and has not completed it,
    /// waits as well. Called after a vain look, where this rank does nothing else meanwhile. That a rank has completed it is told by
    /// two words, of which another process may have overwritten one.
    fn cannot_end(&mut self) -> bool {
        let current = self.completed + 1;
        let proof = &mut self.wait_state.proof;
        self.board.state(self.rank).waits.store(proof.look(&mut self.counts), Ordering::Relaxed);
        let word = |rank: &usize| {
            let state = self.board.state(*rank);
            let is_complete = state.completed.load(Ordering::Relaxed) >= current
                || has_passed(self.begun, state.begun.load(Ordering::Relaxed));
            if is_complete { HAS_LEFT } else { state.waits.load(Ordering::Relaxed) }
        };
        let others = self.partners.iter().filter(|rank| **rank != self.rank);
        self.exchanging && proof.is_complete(others.map(word).collect())
    }

    /// Returns a rank that is gone and exchanges nothing with this one, but has not completed the call of this exchange.
    fn lost_in_call(&self) -> Option<usize> {
        let (segment, call) = (self.board.segment(), self.call_name >> 8);
        let others = (0..self.size).filter(|rank| self.is_partial && self.exchanging && !self.partners.contains(rank));
        // A dead rank's last completed call is read after its death was seen.
        let is_lost = |rank: &usize| {
            (!segment.is_alive(*rank) || segment.has_left(*rank))
                && self.board.state(*rank).ended.load(Ordering::Relaxed) < call
        };
        others.into_iter().find(is_lost)
    }

    fn warn_late(&self, waited_s: u64, late: &[usize]) {
        let segment = self.board.segment();
        let name = |r| format!("rank {r} (pid {}, {})", segment.peer(r).pid, segment.state(r));
        warn::warn(format_args!(
            "rank {} has waited {waited_s} s in exchange {} for {}",
            self.rank,
            self.completed + 1,
            warn::list_late(late, name)
        ));
    }
}
