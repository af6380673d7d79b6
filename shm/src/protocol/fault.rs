//! The group's one error: the first poison value stands for ever, and every rank reads its error from it.

use super::board::{Board, SLOTS};
use super::lines::DETAILS;
use super::operation::{Operation, Stop};
use super::wait;
use super::word::{self, Cause, PoisonWord};
use crate::sync::{Ordering, SyncPoint};
use std::any::Any;

/// After this long in one wait, living late ranks are named in a warning.
pub const WARN_AFTER_NS: u64 = 10_000_000_000;

/// The most that counts against a deadline between two inspections, which are at most 150 ms apart while this rank runs:
/// after a longer gap this rank was itself stopped, and learns nothing from the clock about the others.
const COUNTED_MOST_NS: u64 = 250_000_000;

/// What a wait remembers between two inspections of the peers.
#[derive(Debug, Default)]
pub struct Watch {
    /// When the peers were inspected last.
    inspected_ns: u64,
    /// Time that counts against the deadline.
    waited_ns: u64,
    warned: bool,
}

impl<B: Board> Operation<'_, B> {
    /// Looks at every rank that has not left this operation: a different call, a death, a deadline, a late rank.
    #[cold]
    pub(super) fn inspect(&mut self, watch: &mut Watch, begun_ns: u64) -> Result<(), Stop> {
        let now_ns = self.board.now_ns();
        let since_ns = (now_ns - watch.inspected_ns.max(begun_ns)).min(COUNTED_MOST_NS);
        watch.inspected_ns = now_ns;
        let (mut missing, mut lingers, mut held) = (Vec::new(), None, false);
        for rank in (0..self.ranks).filter(|r| *r != self.me) {
            let entered = self.board.line(self.slot, rank).entered.load(SyncPoint::CallAcquire.order());
            let here = word::has_entered(entered, self.epoch);
            // Also of a rank that has left: as a root it may have needed nobody, and is waited for in vain.
            if here && self.has_entered_myself() && entered != word::entered(self.epoch, self.hash) {
                return Err(self.mismatch(rank));
            }
            if self.has_left(rank) {
                continue;
            }
            // A dead rank writes nothing more: what it had left is read after its death was seen.
            if self.board.is_gone(rank) && !self.has_left(rank) {
                return Err(self.raise(Cause::PeerDied, &[rank as u64]));
            }
            // Also one that has arrived can be stopped, with a part of the work in its hands.
            held |= self.patience.timeout_ns.is_some() && self.board.is_held(rank);
            match here {
                true => lingers = lingers.or(Some(rank)),
                false => missing.push(rank),
            }
        }
        if let Some(timeout_ns) = self.patience.timeout_ns {
            watch.waited_ns += if held { 0 } else { since_ns };
            if watch.waited_ns > timeout_ns {
                let first = missing.first().copied().or(lingers).unwrap_or(self.me);
                return Err(self.raise(Cause::Timeout, &[first as u64, timeout_ns]));
            }
        }
        if !watch.warned && now_ns - begun_ns > WARN_AFTER_NS {
            watch.warned = true;
            self.board.warn_late(self.epoch, (now_ns - begun_ns) / 1_000_000_000, &missing);
        }
        Ok(())
    }

    fn has_left(&self, rank: usize) -> bool {
        self.board.left(rank).load(SyncPoint::LeftAcquire.order()) >= self.epoch
    }

    fn has_entered_myself(&self) -> bool {
        let mine = self.board.line(self.slot, self.me).entered.load(Ordering::Relaxed);
        word::has_entered(mine, self.epoch)
    }

    /// Fails the group because `other`, which has entered this operation, made another call.
    #[cold]
    pub(super) fn mismatch(&mut self, other: usize) -> Stop {
        // Its description was stored before its mark of entry, which an Acquire load has seen.
        let theirs = &self.board.line(self.slot, other).call;
        let (kind, count) = (theirs[0].load(Ordering::Relaxed), theirs[1].load(Ordering::Relaxed));
        let mine = self.call.prepared.signature;
        self.raise(Cause::Mismatch, &[other as u64, kind, count, mine.kind, mine.count])
    }

    #[cold]
    pub(super) fn no_space(&mut self, needed: u64, free: u64) -> Stop {
        self.raise(Cause::NoSpace, &[needed, free])
    }

    #[cold]
    pub(super) fn corrupt(&mut self) -> Stop {
        self.raise(Cause::Corrupt, &[])
    }

    /// Fails the group because the system refused `bytes` bytes: of this group, or of what `lender` lends.
    #[cold]
    pub(super) fn refused(&mut self, errno: Option<i32>, bytes: usize, lender: Option<usize>) -> Stop {
        let details = [errno.unwrap_or(0) as u64, bytes as u64, lender.map_or(0, |rank| rank as u64 + 1)];
        self.raise(Cause::System, &details)
    }

    /// Fails the group because what `rank` lends cannot be reached from here.
    #[cold]
    pub(super) fn cannot_open(&mut self, rank: usize, error: &crate::Error) -> Stop {
        match error {
            crate::Error::NoSpace { needed, free, .. } => self.no_space(*needed, *free),
            crate::Error::System { errno, .. } => self.refused(*errno, self.call.bytes(), Some(rank)),
            _ => self.corrupt(),
        }
    }

    /// Fails the group because the user's operator panicked here with `panic`.
    #[cold]
    pub(super) fn operator_panicked(&mut self, panic: &(dyn Any + Send)) -> Stop {
        let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        let text = text.unwrap_or("(not a text)").as_bytes();
        let mut details = [0u64; DETAILS];
        details[0] = text.len().min(8 * (DETAILS - 1)) as u64;
        for (word, bytes) in details[1..].iter_mut().zip(text.chunks(8)) {
            let mut padded = [0; 8];
            padded[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_le_bytes(padded);
        }
        self.raise(Cause::OperatorPanicked, &details)
    }

    /// Fails the group, unless it has failed already, and returns the error that stands. Wakes every sleeper.
    #[cold]
    pub(super) fn raise(&mut self, cause: Cause, details: &[u64]) -> Stop {
        let board = self.board;
        let earlier = board.poison().load(SyncPoint::PoisonAcquire.order());
        if earlier != 0 {
            // The error may be this rank's own, found twice: its details are being read and must not change.
            return Stop(PoisonWord(earlier));
        }
        for (word, value) in board.details(self.me).iter().zip(details) {
            word.store(*value, Ordering::Relaxed);
        }
        let poison = PoisonWord::new(cause, self.me, self.epoch);
        let stands = match board.poison().compare_exchange(
            0,
            poison.0,
            SyncPoint::PoisonRelease.order(),
            SyncPoint::PoisonAcquire.order(),
        ) {
            Ok(_) => poison,
            Err(earlier) => PoisonWord(earlier),
        };
        for slot in 0..SLOTS {
            wait::wake(self.board, slot);
        }
        Stop(stands)
    }
}
