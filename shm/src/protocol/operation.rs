//! One operation of one rank: the context every step works in, and the order of the steps.

use super::arrive::Arrival;
use super::board::{AREAS, Board, Need, SLOTS};
use super::call::{Arithmetic, Call, Lane};
use super::decide;
use super::exchange::Source;
use super::pending::Pending;
use super::signature::Collective;
use super::step::Step;
use super::wait::{Patience, Wake};
use super::word::{self, ArrivalWord, PoisonWord};
use super::{chain, exchange, fault, flat, leader, lent, shared_result, slices, static_leader};
use crate::config::Algorithm;
use crate::sync::{Rule, SyncPoint};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The group has failed: the operation ends with the error in this word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop(pub PoisonWord);

/// What happened in an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Number of the operation in its group, from 1.
    pub epoch: u64,
    /// The algorithm that ran.
    pub algorithm: Algorithm,
    /// Place in the arrival order; `None` in the ticketless lane.
    pub place: Option<usize>,
}

/// One rank's private memory of its group.
#[derive(Debug)]
#[repr(C)]
pub struct Member<B> {
    pub(super) epoch: u64,
    /// Every rank is known to have left every operation up to this one.
    pub(super) all_left: u64,
    /// What is posted and not complete.
    pub(super) pending: Pending,
    /// How this rank waits.
    pub patience: Patience,
    /// The call history hash: what this rank has called so far. It goes into the signature of every later operation, so
    /// that ranks whose calls differed unseen meet the difference at the latest in their next common operation.
    pub(super) history: u32,
    /// True if this rank's membership has ended.
    pub(super) has_ended: bool,
    /// The shared state.
    pub board: B,
    /// Final value of each slot's arrival word at its last ticketed use.
    arrivals: [ArrivalWord; SLOTS],
    scratch: Scratch,
}

/// Lists that folders and readers keep from one operation to the next: no allocation in the steady state.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// Ranks to fold now.
    pub(super) ready: Vec<usize>,
    /// Ranks to take from.
    pub(super) sources: Vec<Source>,
    /// A private accumulator, where the result cannot be its own.
    accumulator: Vec<u64>,
}

impl Scratch {
    /// A private accumulator of at least `bytes`; its contents stay from one use to the next.
    pub(super) fn accumulator(&mut self, bytes: usize) -> &mut [u64] {
        let words = bytes.div_ceil(8);
        if self.accumulator.len() < words {
            self.accumulator.resize(words, 0);
        }
        &mut self.accumulator[..words]
    }
}

/// One operation in progress.
pub struct Operation<'a, B> {
    pub(super) board: &'a B,
    pub(super) call: &'a Call<'a>,
    pub(super) epoch: u64,
    pub(super) slot: usize,
    pub(super) area: usize,
    pub(super) me: usize,
    pub(super) ranks: usize,
    /// The signature of the call, salted by the call history hash: what marks and words of this operation carry.
    pub(super) hash: u32,
    pub(super) patience: &'a mut Patience,
    pub(super) all_left: &'a mut u64,
    pub(super) scratch: &'a mut Scratch,
    /// What else this rank has under way.
    pub(super) pending: &'a mut Pending,
}

/// The call history hash after a call whose signature, salted by the history before it, is `hash`.
///
/// Equal calls keep a difference for ever, since every step can be undone. One that sixteen bits do not show, because only
/// the upper half of `hash` differs, is in the lower half of what follows: a product carries upwards only.
#[inline(always)]
pub(super) const fn mix(hash: u32) -> u32 {
    hash.wrapping_mul(0x9e37_79b1).rotate_left(16)
}

impl<B: Board> Member<B> {
    /// A rank that has just joined.
    pub fn new(board: B, patience: Patience) -> Self {
        let arrivals = [ArrivalWord(0); SLOTS];
        let (scratch, pending) = (Scratch::default(), Pending::default());
        Member { board, patience, epoch: 0, all_left: 0, arrivals, history: 0, has_ended: false, scratch, pending }
    }

    /// Operations begun so far.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The operation that has begun, and what the arrival word of its slot was last.
    pub(super) fn operation<'a>(&'a mut self, call: &'a Call<'a>) -> (Operation<'a, B>, &'a mut ArrivalWord) {
        let (board, epoch) = (&self.board, self.epoch);
        let slot = (epoch % SLOTS as u64) as usize;
        let operation = Operation {
            board,
            call,
            epoch,
            slot,
            area: (epoch % AREAS as u64) as usize,
            me: board.rank(),
            ranks: board.ranks(),
            hash: call.prepared.hash ^ self.history,
            patience: &mut self.patience,
            all_left: &mut self.all_left,
            scratch: &mut self.scratch,
            pending: &mut self.pending,
        };
        (operation, &mut self.arrivals[slot])
    }

    /// Runs one operation: arrive, decide, fold, publish, leave.
    pub fn run(&mut self, call: &Call<'_>) -> Result<Report, Stop> {
        if let Some(few) = call.small_payload()
            && let Some(done) = self.run_fast(&few)
        {
            return done;
        }
        self.epoch += 1;
        if !self.pending.is_empty() {
            self.carry_on_before(self.epoch);
        }
        let epoch = self.epoch;
        let (mut op, arrival) = self.operation(call);
        let board = op.board;
        // A group that has failed later than this may have completed this operation for this rank: its waits look.
        if let Some(stop) = fault::failed(board).filter(|stop| stop.0.epoch() <= epoch) {
            return Err(stop);
        }
        board.step(Step::Begin);
        op.until_all_left(SLOTS)?;
        op.describe();
        let mut report = Report { epoch, algorithm: Algorithm::Flat, place: None };
        let heard_all = match call.prepared.arithmetic {
            Arithmetic::User(_) => op.run_guarded(arrival, &mut report)?,
            _ => op.run(arrival, &mut report)?,
        };
        board.step(Step::Copied);
        op.leave();
        self.history = mix(op.hash);
        if heard_all {
            self.heard_all(epoch);
        }
        self.board.prepare_line(((epoch + 1) % SLOTS as u64) as usize);
        Ok(report)
    }

    /// Every rank has contributed to operation `epoch`, so every rank had left the one before, unless that was posted.
    #[inline(always)]
    pub(super) fn heard_all(&mut self, epoch: u64) {
        if self.all_left >= self.pending.last || !Rule::PostedIsNotLeft.is_kept() {
            self.all_left = self.all_left.max(epoch - 1);
        }
    }
}

impl<B: Board> Operation<'_, B> {
    /// Runs the call in its lane; whether this rank has had something from every other one.
    #[inline(always)]
    fn run(&mut self, previous: &mut ArrivalWord, report: &mut Report) -> Result<bool, Stop> {
        match self.call.prepared.lane {
            Lane::Flat => flat::run(self).map(|()| true),
            Lane::Exchange => {
                let window = self.call.window.expect("an exchange runs window by window");
                exchange::run(self, window)
            }
            Lane::Ticketed => self.ticketed(previous, report),
        }
    }

    /// As [`Operation::run`], where a user's operator folds: a panic in it fails the group. A fold word that this rank
    /// holds stays busy, and whoever waits for it finds the poison.
    #[cold]
    fn run_guarded(&mut self, previous: &mut ArrivalWord, report: &mut Report) -> Result<bool, Stop> {
        match catch_unwind(AssertUnwindSafe(|| self.run(previous, report))) {
            Ok(result) => result,
            Err(panic) => Err(self.operator_panicked(&*panic)),
        }
    }

    /// Runs the algorithm that the first arriver chose; whether this rank has had something from every other one.
    fn ticketed(&mut self, previous: &mut ArrivalWord, report: &mut Report) -> Result<bool, Stop> {
        let (board, call) = (self.board, self.call);
        let line = board.line(self.slot, self.me);
        line.entered.store(word::entered(self.epoch, self.hash), SyncPoint::CallRelease.order());
        board.step(Step::Entered);
        let Arrival { place, plan } = self.arrive(previous)?;
        (report.algorithm, report.place) = (plan, Some(place));
        board.step(Step::Arrived);
        self.until_all_left(AREAS)?;
        let collective = call.prepared.collective;
        if !decide::algorithms(collective).contains(&plan) {
            return Err(self.corrupt());
        }
        match plan {
            Algorithm::Chain if collective == Collective::Broadcast => chain::broadcast(self)?,
            Algorithm::Chain => chain::run(self, place)?,
            Algorithm::Leader => leader::run(self, place)?,
            Algorithm::Slices => match (call.lent, call.shared) {
                (Some(names), _) => lent::run(self, names)?,
                (None, Some((shared, _))) => shared_result::run(self, shared)?,
                (None, None) => slices::run(self)?,
            },
            Algorithm::StaticLeader => static_leader::run(self, false)?,
            Algorithm::StaticLeaderEarly => static_leader::run(self, true)?,
            Algorithm::Auto | Algorithm::Flat => return Err(self.corrupt()),
        }
        Ok(match collective {
            Collective::Broadcast => false,
            // Who leaves a chain when its own part is folded has not met the ranks after it.
            _ => call.has_result(self.me) || plan != Algorithm::Chain,
        })
    }

    /// Writes the call in full beside the mark of entry that is to come.
    #[inline(always)]
    pub(super) fn describe(&self) {
        self.board.line(self.slot, self.me).describe(self.call.prepared.signature);
    }

    /// Whether every rank has left, as seen now, the operation that used this one's memory `back` operations ago.
    pub(super) fn have_all_left(&mut self, back: usize) -> bool {
        let due = self.epoch.saturating_sub(back as u64);
        if *self.all_left < due {
            let left = |rank| self.board.left(rank).load(SyncPoint::LeftAcquire.order());
            *self.all_left = (0..self.ranks).map(left).min().unwrap_or(0).clamp(*self.all_left, self.epoch);
        }
        *self.all_left >= due
    }

    /// Waits until every rank has left the operation that used this one's memory `back` operations ago.
    pub(super) fn until_all_left(&mut self, back: usize) -> Result<(), Stop> {
        let due = self.epoch.saturating_sub(back as u64);
        if *self.all_left >= due {
            return Ok(());
        }
        let ranks = self.ranks;
        let mut next = 0;
        let mut least = u64::MAX;
        self.wait(Wake::Poll, |board| {
            while next < ranks {
                let left = board.left(next).load(SyncPoint::LeftAcquire.order());
                if left < due {
                    return None;
                }
                least = least.min(left);
                next += 1;
            }
            Some(())
        })?;
        *self.all_left = least.clamp(*self.all_left, self.epoch);
        Ok(())
    }

    /// Reserves what the operation needs in its area, or fails the group before anything is touched.
    pub(super) fn reserve(&mut self, need: Need) -> Result<(), Stop> {
        match self.board.reserve(self.area, need) {
            Ok(()) => Ok(()),
            Err(crate::Error::NoSpace { needed, free, .. }) => Err(self.no_space(needed, free)),
            Err(crate::Error::System { errno, .. }) => Err(self.refused(errno, need.accumulator + need.deposit, None)),
            Err(_) => Err(self.no_space((need.accumulator + need.deposit) as u64, 0)),
        }
    }

    /// Marks the operation as left, once all before it are: this rank touches nothing of them any more.
    fn leave(&mut self) {
        self.board.left(self.me).store(self.pending.prefix(self.epoch + 1), SyncPoint::LeftRelease.order());
        self.board.step(Step::Left);
    }
}

#[cfg(all(test, not(earlybird_loom)))]
mod tests {
    use super::mix;

    /// Two ranks call what sixteen bits do not tell apart, then alike, or again what those bits do not tell apart.
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

    /// The same two calls against each other any number of times: ranks that never wait meet the difference afterwards.
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
