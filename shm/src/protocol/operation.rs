//! One operation of one rank, the context of the algorithms: the call, its number, its slot and area, and the state of waits.

use super::board::{AREAS, Board, DepositsAt, SLOTS};
use super::call::Call;
use super::lengths::Announced;
use super::patience::Patience;
use super::pieces::Pieces;
use super::scratch::Scratch;
use super::step::Step;
use super::wait_counts::WaitCounts;
use super::word::{self, PoisonWord};
use crate::config::Algorithm;
use crate::sync::SyncPoint;

/// The error of a failed group, which ends the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop(pub PoisonWord);

/// The outcome of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Number of the operation in its group, from 1.
    pub epoch: u64,
    /// The algorithm that ran.
    pub algorithm: Algorithm,
    /// Place in the arrival order; `None` in the ticketless lane.
    pub place: Option<usize>,
    /// False if a rank could not read another's memory: then all ranks must repeat the call by another algorithm.
    pub is_done: bool,
    /// What the lengths came to, if they were announced.
    pub announced: Option<Announced>,
}

impl Report {
    /// The report of operation `epoch` in the ticketless lane, by `algorithm`.
    pub(crate) fn ticketless(epoch: u64, algorithm: Algorithm) -> Self {
        Report { epoch, algorithm, place: None, is_done: true, announced: None }
    }
}

/// The other active operations of a rank, in which it makes progress while it waits.
pub(super) trait Pending<B> {
    /// Returns whether all are complete.
    fn is_empty(&self) -> bool;

    /// Makes progress in all of them, in order, without waiting; returns whether there was any. The rank is inside operation
    /// `now`, or has left all before `now` that are not pending. Adds its changes to `counts`.
    fn progress(
        &mut self,
        board: &B,
        patience: &Patience,
        all_left: &mut u64,
        counts: &mut WaitCounts,
        now: u64,
    ) -> bool;
}

/// The part of a rank's membership that an operation needs.
pub(super) struct RankContext<'a, B> {
    pub(super) board: &'a B,
    pub(super) patience: &'a mut Patience,
    /// Every rank is known to have left every operation up to this one.
    pub(super) all_left: &'a mut u64,
    /// The number of changes that this rank's started operations have made, for others may wait for them (`stuck.rs`).
    pub(super) counts: &'a mut WaitCounts,
    /// The other active operations; `None` without any, which lets a wait spin and sleep.
    pub(super) pending: Option<&'a mut (dyn Pending<B> + 'static)>,
}

/// One operation in progress: the context that every algorithm works in.
pub struct Operation<'a, B> {
    pub(super) board: &'a B,
    pub(super) call: &'a Call<'a>,
    pub(super) epoch: u64,
    pub(super) slot: usize,
    pub(super) area: usize,
    pub(super) me: usize,
    pub(super) ranks: usize,
    /// The signature of the call, salted by the call history hash; part of this operation's marks and words.
    pub(super) hash: u32,
    pub(super) patience: &'a mut Patience,
    pub(super) all_left: &'a mut u64,
    pub(super) counts: &'a mut WaitCounts,
    pub(super) scratch: &'a mut Scratch,
    pending: Option<&'a mut (dyn Pending<B> + 'static)>,
}

impl<'a, B: Board> Operation<'a, B> {
    /// Operation `epoch` of its rank, which carries out `call` after calls of this history hash.
    #[inline(always)]
    pub(super) fn new(
        rank: RankContext<'a, B>,
        call: &'a Call<'a>,
        epoch: u64,
        history: u32,
        scratch: &'a mut Scratch,
    ) -> Self {
        let RankContext { board, patience, all_left, counts, pending } = rank;
        Operation {
            board,
            call,
            epoch,
            slot: (epoch % SLOTS as u64) as usize,
            area: (epoch % AREAS as u64) as usize,
            me: board.rank(),
            ranks: board.ranks(),
            hash: call.prepared.hash ^ history,
            patience,
            all_left,
            counts,
            scratch,
            pending,
        }
    }

    /// Writes the whole signature of the call, before the mark of entry.
    #[inline(always)]
    pub(super) fn describe(&self) {
        self.board.line(self.slot, self.me).describe(self.call.prepared.signature);
    }

    /// Marks the entry, for ranks that look for a different call or a late rank.
    #[inline(always)]
    pub(super) fn enter(&self) {
        let mark = word::entered(self.epoch, self.hash);
        self.board.line(self.slot, self.me).entered.store(mark, SyncPoint::CallRelease.order());
        self.board.step(Step::Entered);
    }

    /// Cuts the payload of the call into pieces, at their place in deposits of its area.
    pub(super) fn pieces(&self, target_bytes: usize, most: usize) -> Pieces {
        let at = self.board.deposits_in_area(self.epoch, self.call.bytes());
        Pieces::of(self.call, target_bytes, most).deposited(at)
    }

    /// The place of deposits of at most `bytes` of an exchange.
    pub(super) fn deposits_at(&self, bytes: usize) -> DepositsAt {
        self.board.deposits_at(self.epoch, bytes)
    }

    /// Uses the fold words of the slot instead of those of the area, for an operation without payload in an area. So as many of
    /// them can be active as there are slots.
    pub(super) fn fold_by_slot(&mut self) {
        self.area = AREAS + self.slot;
    }

    /// Returns whether other operations of this rank are pending.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        self.pending.as_ref().is_some_and(|pending| !pending.is_empty())
    }

    /// Makes progress in the other operations of this rank; returns whether there was any.
    #[inline]
    pub(super) fn progress_pending(&mut self) -> bool {
        match &mut self.pending {
            Some(pending) if !pending.is_empty() => {
                pending.progress(self.board, self.patience, self.all_left, self.counts, self.epoch)
            }
            _ => false,
        }
    }
}
