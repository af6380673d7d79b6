//! One operation of one rank: the context every step works in, and the order of the steps.

use super::board::{AREAS, Board, Need, SLOTS};
use super::call::Call;
use super::step::Step;
use super::wait::{Patience, Wake};
use super::word::{self, ArrivalWord, PoisonWord};
use super::{chain, flat, leader, static_leader};
use crate::config::Algorithm;
use crate::sync::{Ordering, SyncPoint};

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
pub struct Member<B> {
    /// The shared state.
    pub board: B,
    /// How this rank waits.
    pub patience: Patience,
    epoch: u64,
    /// Every rank is known to have left every operation up to this one.
    all_left: u64,
    /// Final value of each slot's arrival word at its last ticketed use.
    arrivals: [ArrivalWord; SLOTS],
    ready: Vec<usize>,
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
    pub(super) patience: &'a mut Patience,
    all_left: &'a mut u64,
    /// Scratch of the folders: no allocation in the steady state.
    pub(super) ready: &'a mut Vec<usize>,
}

impl<B: Board> Member<B> {
    /// A rank that has just joined.
    pub fn new(board: B, patience: Patience) -> Self {
        let ready = Vec::with_capacity(board.ranks());
        Member { board, patience, epoch: 0, all_left: 0, arrivals: [ArrivalWord(0); SLOTS], ready }
    }

    /// Operations begun so far.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Runs one operation: arrive, decide, fold, publish, leave.
    pub fn run(&mut self, call: &Call<'_>) -> Result<Report, Stop> {
        self.epoch += 1;
        let (board, epoch) = (&self.board, self.epoch);
        let slot = (epoch % SLOTS as u64) as usize;
        let mut op = Operation {
            board,
            call,
            epoch,
            slot,
            area: (epoch % AREAS as u64) as usize,
            me: board.rank(),
            ranks: board.ranks(),
            patience: &mut self.patience,
            all_left: &mut self.all_left,
            ready: &mut self.ready,
        };
        let poison = board.poison().load(SyncPoint::PoisonAcquire.order());
        if poison != 0 {
            return Err(Stop(PoisonWord(poison)));
        }
        board.step(Step::Begin);
        op.until_all_left(SLOTS)?;
        let line = board.line(slot, op.me);
        line.call[0].store(call.prepared.signature.kind, Ordering::Relaxed);
        line.call[1].store(call.prepared.signature.count, Ordering::Relaxed);
        let mut report = Report { epoch, algorithm: Algorithm::Flat, place: None };
        if call.prepared.algorithm == Algorithm::Flat {
            flat::run(&mut op)?;
        } else {
            line.arrived_ns.store(board.now_ns(), Ordering::Relaxed);
            line.entered.store(word::entered(epoch, call.hash()), SyncPoint::CallRelease.order());
            board.step(Step::Entered);
            let arrival = op.arrive(&mut self.arrivals[slot])?;
            (report.algorithm, report.place) = (arrival.plan, Some(arrival.place));
            line.place.store(arrival.place as u32, Ordering::Relaxed);
            board.step(Step::Arrived);
            op.until_all_left(AREAS)?;
            match arrival.plan {
                Algorithm::Leader => leader::run(&mut op, arrival.place)?,
                Algorithm::Chain => chain::run(&mut op, arrival.place)?,
                Algorithm::StaticLeader => static_leader::run(&mut op, false)?,
                Algorithm::StaticLeaderEarly => static_leader::run(&mut op, true)?,
                Algorithm::Auto | Algorithm::Flat => return Err(op.corrupt()),
            }
        }
        board.step(Step::Copied);
        op.leave();
        // Everybody contributed to this operation, so everybody had left the one before.
        self.all_left = self.all_left.max(epoch - 1);
        board.prepare_line(((epoch + 1) % SLOTS as u64) as usize);
        Ok(report)
    }
}

impl<B: Board> Operation<'_, B> {
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
        *self.all_left = least;
        Ok(())
    }

    /// Reserves what the operation needs in its area, or fails the group before anything is touched.
    pub(super) fn reserve(&mut self, need: Need) -> Result<(), Stop> {
        match self.board.reserve(self.area, need) {
            Ok(()) => Ok(()),
            Err(crate::Error::NoSpace { needed, free, .. }) => Err(self.no_space(needed, free)),
            Err(_) => Err(self.no_space((need.accumulator + need.deposit) as u64, 0)),
        }
    }

    /// Marks the operation as left: this rank touches nothing of it any more. Then, where ranks outnumber CPUs and a
    /// waiter sits on this one, gives the CPU away once.
    fn leave(&mut self) {
        let line = self.board.line(self.slot, self.me);
        if self.call.prepared.algorithm != Algorithm::Flat {
            line.left_ns.store(self.board.now_ns(), Ordering::Relaxed);
        }
        let yields = self.patience.oversubscribed && self.somebody_waits_here();
        self.board.left(self.me).store(self.epoch, SyncPoint::LeftRelease.order());
        self.board.step(Step::Left);
        if yields {
            self.board.give_way();
        }
    }

    fn somebody_waits_here(&self) -> bool {
        let here = self.board.cpu() + 1;
        (0..self.ranks).any(|r| r != self.me && self.board.line(self.slot, r).waiting.load(Ordering::Relaxed) == here)
    }
}
