//! A rank's membership of its group: its private state from one operation to the next.

use super::board::{Board, SLOTS};
use super::call::Call;
use super::fault;
use super::operation::{Operation, Pending, RankContext, Stop};
use super::patience::Patience;
use super::request_queue::RequestQueue;
use super::scratch::Scratch;
use super::wait_counts::WaitCounts;
use super::word::{ArrivalWord, Cause};
use crate::sync::{Ordering, Rule};

/// One rank's private state in its group.
#[derive(Debug)]
#[repr(C)]
pub struct Member<B> {
    pub(super) epoch: u64,
    /// Every rank is known to have left every operation up to this one.
    pub(super) all_left: u64,
    /// The started operations that are not complete, or not yet collected.
    pub(super) pending: RequestQueue,
    /// The settings of this rank's waits.
    pub patience: Patience,
    /// The waits that this rank has begun, and the changes that its started operations have made (`stuck.rs`).
    pub(super) counts: WaitCounts,
    /// The hash of all calls of this rank so far. It is part of the signature of every later operation, so a difference between
    /// the calls of two ranks is found at the latest in their next common operation.
    pub(super) history: u32,
    /// True if this rank's membership has ended.
    pub(super) has_ended: bool,
    /// The shared state.
    pub board: B,
    /// Final value of each slot's arrival word at its last ticketed use.
    arrivals: [ArrivalWord; SLOTS],
    pub(super) scratch: Scratch,
}

/// The call history hash after a call whose signature, salted by the history before it, is `hash`.
///
/// Every step is invertible, so equal later calls never cancel a difference. A difference in the upper half of `hash` alone,
/// which words with sixteen bits of it do not show, moves to the lower half of the new history, since a product carries
/// upwards only.
#[inline(always)]
pub(super) const fn mix(hash: u32) -> u32 {
    hash.wrapping_mul(0x9e37_79b1).rotate_left(16)
}

impl<B: Board> Member<B> {
    /// The state of a rank that has just joined.
    pub fn new(board: B, patience: Patience) -> Self {
        let arrivals = [ArrivalWord(0); SLOTS];
        let (scratch, pending) = (Scratch::default(), RequestQueue::default());
        Member {
            board,
            patience,
            counts: WaitCounts::default(),
            epoch: 0,
            all_left: 0,
            arrivals,
            history: 0,
            has_ended: false,
            scratch,
            pending,
        }
    }

    /// The elements of each rank's block that the root of a scatter has told; none where it could not.
    pub fn lengths(&self) -> &[usize] {
        &self.scratch.lengths
    }

    /// The same, once.
    pub fn take_lengths(&mut self) -> Vec<usize> {
        std::mem::take(&mut self.scratch.lengths)
    }

    /// Operations begun so far.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The current operation, and the last value of its slot's arrival word.
    pub(super) fn operation<'a>(&'a mut self, call: &'a Call<'a>) -> (Operation<'a, B>, &'a mut ArrivalWord) {
        let Member { board, patience, all_left, counts, pending, scratch, arrivals, epoch, history, .. } = self;
        let pending = pending.as_pending();
        let operation =
            Operation::new(RankContext { board, patience, all_left, counts, pending }, call, *epoch, *history, scratch);
        let arrival = &mut arrivals[operation.slot];
        (operation, arrival)
    }

    /// Records that every rank has contributed to operation `epoch`: so all have left the one before, unless that was a
    /// non-blocking call.
    #[inline(always)]
    pub(super) fn record_received_from_all(&mut self, epoch: u64) {
        if self.all_left >= self.pending.last || !Rule::StartedIsNotLeft.is_kept() {
            self.all_left = self.all_left.max(epoch - 1);
        }
    }

    /// Makes progress in all started calls, without waiting.
    pub fn progress(&mut self) {
        self.progress_before(self.epoch + 1);
    }

    /// Makes progress in all started calls before this rank enters operation `next`.
    #[cold]
    pub(super) fn progress_before(&mut self, next: u64) {
        let Member { board, patience, all_left, counts, pending, .. } = self;
        pending.progress(board, patience, all_left, counts, next);
    }

    /// Fails the group for a reason found outside its operations, unless it has failed already. The others get the error in
    /// their current or next operation.
    #[cold]
    pub fn fail(&mut self, cause: Cause, details: &[u64]) -> Stop {
        fault::raise(&self.board, self.epoch + 1, cause, details)
    }

    /// Fails the group because this rank unwinds out of a call: the process lives, but makes no call any more.
    #[cold]
    pub fn panicked(&mut self) {
        if self.board.ranks() > 1 {
            let has_left = self.board.left(self.board.rank()).load(Ordering::Relaxed) >= self.epoch;
            fault::raise(&self.board, self.epoch + u64::from(has_left), Cause::Panicked, &[]);
        }
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::mix;

    /// Two ranks make calls that differ in the upper sixteen bits only, then equal calls, or again such different ones.
    #[test]
    fn a_difference_that_sixteen_bits_do_not_show_is_shown_by_the_next_operation() {
        let (mut history, call) = (0u32, 0x1234_5678u32);
        for upper in 1..=0xffffu32 {
            let [one, other] = [mix(history ^ call), mix(history ^ call ^ upper << 16)];
            assert_ne!(one as u16, other as u16);
            assert_ne!((one ^ call) as u16, (other ^ call ^ upper << 16) as u16);
            history = one;
        }
    }

    /// Two ranks make the same two different calls any number of times without waiting: the difference stays visible.
    #[test]
    fn a_difference_that_repeats_does_not_cancel_itself() {
        for upper in [0, 1, 0x8000, 0xffff] {
            for lower in [1u32, 2, 0x00ff, 0x8000] {
                let different = upper << 16 | lower;
                let mut two = [0u32; 2];
                for _ in 0..1000 {
                    two = [mix(two[0] ^ 0x9abc_def0), mix(two[1] ^ 0x9abc_def0 ^ different)];
                    assert_ne!(two[0], two[1], "{different:#x}");
                }
            }
        }
    }
}
