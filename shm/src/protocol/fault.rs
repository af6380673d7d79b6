//! The group's one error: the first poison value never changes, and every rank reads its error from it.

use super::board::{Board, SLOTS};
use super::event;
use super::lines::DETAILS;
use super::operation::{Operation, Stop};
use super::word::{self, Cause, PoisonWord};
use crate::sync::{Ordering, SyncPoint};
use crate::text;
use std::any::Any;

/// Duration of a wait after which living late ranks are named in a warning.
pub const WARN_AFTER_NS: u64 = 10_000_000_000;

/// Ranks that have a bit in the details of an expired deadline, set if they were missing; the first missing one is always named.
pub const NAMED_MOST: usize = 64 * (DETAILS - 2);

/// The most time that counts against a deadline between two inspections, which are at most 150 ms apart while this rank runs. A
/// longer gap means that this rank itself was stopped, and nothing about the others.
const COUNTED_MOST_NS: u64 = 250_000_000;

/// The state of a wait from one inspection of the peers to the next.
#[derive(Debug, Default)]
pub struct PeerInspection {
    /// Time of the last inspection.
    inspected_ns: u64,
    /// Time that counts against the deadline.
    waited_ns: u64,
    warned: bool,
}

impl<B: Board> Operation<'_, B> {
    /// Inspects every rank that has not left this operation, for a different call, a death, an expired deadline, lateness.
    #[cold]
    pub(super) fn inspect(&mut self, wait: &mut PeerInspection, begun_ns: u64) -> Result<(), Stop> {
        let now_ns = self.board.now_ns();
        let since_ns = (now_ns - wait.inspected_ns.max(begun_ns)).min(COUNTED_MOST_NS);
        wait.inspected_ns = now_ns;
        let (mut missing, mut lingers, mut held) = (Vec::new(), None, false);
        for rank in (0..self.ranks).filter(|r| *r != self.me) {
            let entered = self.board.line(self.slot, rank).entered.load(SyncPoint::CallAcquire.order());
            let here = word::has_entered(entered, self.epoch);
            // Also for a rank that has left: a root needs no other rank, and would be waited for without end.
            if here && self.has_entered_myself() && entered != word::entered(self.epoch, self.hash) {
                return Err(self.mismatch(rank));
            }
            let left = self.board.left(rank).load(SyncPoint::LeftAcquire.order());
            // `left` never decreases, and no rank can leave the next user of this slot before this rank leaves this operation.
            if left < *self.all_left || left >= self.epoch + SLOTS as u64 {
                return Err(self.corrupt());
            }
            if left >= self.epoch {
                continue;
            }
            // Read again after the death is seen: a dead rank writes nothing more, so `left` is final.
            if self.board.is_gone(rank) && !self.has_left(rank) {
                return Err(self.raise(Cause::PeerDied, &[rank as u64]));
            }
            // A rank that has arrived can be stopped too, in the middle of its work.
            held |= self.patience.timeout_ns.is_some() && self.board.is_held(rank);
            match here {
                true => lingers = lingers.or(Some(rank)),
                false => missing.push(rank),
            }
        }
        if let Some(timeout_ns) = self.patience.timeout_ns {
            wait.waited_ns += if held { 0 } else { since_ns };
            if wait.waited_ns > timeout_ns {
                let first = missing.first().copied().or(lingers).unwrap_or(self.me);
                let mut details = [0u64; DETAILS];
                details[..2].copy_from_slice(&[first as u64, timeout_ns]);
                for rank in missing.iter().copied().filter(|rank| *rank < NAMED_MOST) {
                    details[2 + rank / 64] |= 1 << (rank % 64);
                }
                return Err(self.raise(Cause::Timeout, &details));
            }
        }
        if !wait.warned && now_ns - begun_ns > WARN_AFTER_NS {
            wait.warned = true;
            // One warning is enough: that of the lowest waiting rank.
            let waits = |rank: &usize| !missing.contains(rank) && !self.has_left(*rank) && !self.board.is_held(*rank);
            if (0..self.me).any(|rank| waits(&rank)) {
                return Ok(());
            }
            self.board.warn_late(self.epoch, (now_ns - begun_ns) / 1_000_000_000, &missing);
        }
        Ok(())
    }

    /// The group's error, if it has failed.
    pub(super) fn poisoned(&self) -> Option<Stop> {
        failed(self.board)
    }

    pub(super) fn has_left(&self, rank: usize) -> bool {
        self.board.left(rank).load(SyncPoint::LeftAcquire.order()) >= self.epoch
    }

    fn has_entered_myself(&self) -> bool {
        let mine = self.board.line(self.slot, self.me).entered.load(Ordering::Relaxed);
        word::has_entered(mine, self.epoch)
    }

    /// Fails the group because `other`, which has entered this operation, made another call.
    #[cold]
    pub(super) fn mismatch(&mut self, other: usize) -> Stop {
        // The call was described before the mark of entry, which an Acquire load has seen.
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

    /// Fails the group because the system refused `bytes` bytes, for this group or for a buffer that `owner` has registered.
    #[cold]
    pub(super) fn refused(&mut self, errno: Option<i32>, bytes: usize, owner: Option<usize>) -> Stop {
        let details = [errno.unwrap_or(0) as u64, bytes as u64, owner.map_or(0, |rank| rank as u64 + 1)];
        self.raise(Cause::System, &details)
    }

    /// Fails the group because this rank cannot map a buffer that `rank` has registered.
    #[cold]
    pub(super) fn cannot_open(&mut self, rank: usize, error: &crate::Error) -> Stop {
        match error {
            crate::Error::NoSpace { needed, free, .. } => self.no_space(*needed, *free),
            crate::Error::System { errno, .. } => self.refused(*errno, self.call.bytes(), Some(rank)),
            _ => self.corrupt(),
        }
    }

    /// Fails the group because this rank's progress function interrupts the call.
    #[cold]
    pub(super) fn interrupted(&mut self) -> Stop {
        self.raise(Cause::Interrupted, &[])
    }

    /// Fails the group because the user's operator panicked here with `panic`.
    #[cold]
    pub(super) fn operator_panicked(&mut self, panic: &(dyn Any + Send)) -> Stop {
        let text = text::panic_text(panic).unwrap_or("(not a text)");
        let mut details = [0u64; DETAILS];
        details[0] = text::pack(text, &mut details[1..]) as u64;
        self.raise(Cause::OperatorPanicked, &details)
    }

    #[cold]
    pub(super) fn raise(&mut self, cause: Cause, details: &[u64]) -> Stop {
        raise(self.board, self.epoch, cause, details)
    }
}

/// The group's one error, if it has failed, or if its memory has become another group's.
#[inline(always)]
pub(super) fn failed<B: Board>(board: &B) -> Option<Stop> {
    let poison = board.poison().load(SyncPoint::PoisonAcquire.order());
    if poison == board.healthy() { None } else { Some(error_in(board, poison)) }
}

/// The error in a poison word that is not the healthy one.
#[cold]
fn error_in<B: Board>(board: &B, poison: u64) -> Stop {
    match PoisonWord(poison).is_error() && board.is_ours() {
        true => Stop(PoisonWord(poison)),
        false => Stop(PoisonWord::new(Cause::Lost, board.rank(), 0)),
    }
}

/// Fails the group in operation `epoch`, unless it has failed already, and wakes every sleeper. Returns the group's error.
#[cold]
pub(super) fn raise<B: Board>(board: &B, epoch: u64, cause: Cause, details: &[u64]) -> Stop {
    // The earlier error may be this rank's own: then others read its details, which must not change.
    if let Some(earlier) = failed(board) {
        return earlier;
    }
    let me = board.rank();
    for (i, word) in board.member(me).details.iter().enumerate() {
        word.store(details.get(i).copied().unwrap_or(0), Ordering::Relaxed);
    }
    let poison = PoisonWord::new(cause, me, epoch);
    let (release, acquire) = (SyncPoint::PoisonRelease.order(), SyncPoint::PoisonAcquire.order());
    let stop = match board.poison().compare_exchange(board.healthy(), poison.0, release, acquire) {
        Ok(_) => Stop(poison),
        Err(earlier) => error_in(board, earlier),
    };
    for slot in 0..SLOTS {
        event::wake(board, slot);
    }
    stop
}
