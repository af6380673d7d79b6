//! The ticketless lane made straight: `flat` for a payload that fits in a line or in one piece of a deposit, and exchanges that fit in
//! lines, by a rank that has nothing else to see to.
//!
//! A program calls small collectives between its own work, so it finds their code cold: the time of such a call grows with
//! the instructions on its way. This is the way of [`Member::run`] and [`super::flat`] without the turnings that such a call
//! never takes. The words, their order and their sync points are the same, so ranks on this way meet ranks on the
//! general one; a rank takes it only when nothing is pending, the group is well, the memory is known to be free and every
//! rank has a CPU of its own.

use super::algorithm::flat;
use super::board::{AREAS, Board, Need, Place, SLOTS};
use super::call::Call;
use super::deposit::has_deposited;
use super::event;
use super::lines::{INLINE_BYTES, RankLine};
use super::member::{Member, mix};
use super::operation::{Report, Stop};
use super::payload::{BoundExchange, BoundPayload};
use super::step::Step;
use super::wait;
use super::word;
use crate::config::Algorithm;
use crate::sync::SyncPoint;

impl<B: Board> Member<B> {
    /// Runs one operation whose payload is few; `None`, with nothing done, where [`Member::run`] must be asked.
    #[inline(always)]
    pub fn run_fast(&mut self, few: &BoundPayload<'_>) -> Option<Result<Report, Stop>> {
        let slot = self.straight_slot()?;
        let bytes = few.bytes();
        let folded = match bytes <= INLINE_BYTES {
            true => self.in_lines(few, bytes, slot),
            false => self.in_deposits(few, slot)?,
        };
        if let Err(stop) = folded {
            return Some(Err(stop));
        }
        event::wake(&self.board, slot);
        Some(Ok(self.leave(few.hash(), true)))
    }

    /// Runs one exchange whose deposits lie beside the marks, in the same way and under the same conditions. Every rank takes
    /// what is for it as the marks come, in the order of the ranks.
    #[inline(always)]
    pub fn run_fast_exchange(&mut self, few: &BoundExchange<'_>) -> Option<Result<Report, Stop>> {
        let slot = self.straight_slot()?;
        let mark = self.begin(few.hash(), |line| few.describe(line), slot);
        let (board, bytes) = (&self.board, few.bytes());
        let me = board.rank();
        let place = |rank| Place::Inline { slot, rank, bytes };
        if few.gives() {
            board.write(place(me), |place| few.give(place));
        }
        board.line(slot, me).entered.store(mark, SyncPoint::DepositRelease.order());
        board.step(Step::Entered);
        event::wake(board, slot);
        few.keep_own();
        let mut taken = 0;
        for rank in few.sources() {
            let theirs = self.board.line(slot, rank);
            let there = || theirs.entered.load(SyncPoint::DepositAcquire.order()) == mark;
            if !wait::spin(there, || ())
                && let Err(stop) = self.await_mark(&few.call(), rank, mark)
            {
                return Some(Err(stop));
            }
            self.board.read(place(rank), |place| few.take(place, rank));
            taken += 1;
        }
        let heard_all = taken + 1 == self.board.ranks();
        Some(Ok(self.leave(few.hash(), heard_all)))
    }

    /// The slot of the next operation, where it may go this way.
    #[inline(always)]
    fn straight_slot(&self) -> Option<usize> {
        let (board, epoch) = (&self.board, self.epoch + 1);
        if self.patience.oversubscribed
            || self.all_left + (SLOTS as u64) < epoch
            || !self.pending.is_empty()
            || board.poison().load(SyncPoint::PoisonAcquire.order()) != board.healthy()
        {
            return None;
        }
        let slot = (epoch % SLOTS as u64) as usize;
        board.prefetch(slot);
        Some(slot)
    }

    /// Begins the next operation; the mark of its entry.
    #[inline(always)]
    fn begin(&mut self, hash: u32, describe: impl FnOnce(&RankLine), slot: usize) -> u64 {
        self.epoch += 1;
        self.board.step(Step::Begin);
        describe(self.board.line(slot, self.board.rank()));
        word::entered(self.epoch, hash ^ self.history)
    }

    /// Leaves the operation, in which this rank has had something from every other one if it has `heard_all`.
    #[inline(always)]
    fn leave(&mut self, hash: u32, heard_all: bool) -> Report {
        let (board, epoch) = (&self.board, self.epoch);
        board.step(Step::Copied);
        board.left(board.rank()).store(epoch, SyncPoint::LeftRelease.order());
        board.step(Step::Left);
        self.history = mix(hash ^ self.history);
        if heard_all {
            self.heard_all(epoch);
        }
        self.board.prepare_line(((epoch + 1) % SLOTS as u64) as usize);
        Report::ticketless(epoch, Algorithm::Flat)
    }

    /// The payload, `bytes` bytes, travels beside the mark.
    #[inline(always)]
    fn in_lines(&mut self, few: &BoundPayload<'_>, bytes: usize, slot: usize) -> Result<(), Stop> {
        let mark = self.begin(few.hash(), |line| few.describe(line), slot);
        let board = &self.board;
        let (me, ranks) = (board.rank(), board.ranks());
        board.write(Place::Inline { slot, rank: me, bytes }, |place| few.give(place));
        board.line(slot, me).entered.store(mark, SyncPoint::DepositRelease.order());
        board.step(Step::Entered);
        for rank in (0..ranks).filter(|rank| *rank != me) {
            let theirs = self.board.line(slot, rank);
            let there = || theirs.entered.load(SyncPoint::DepositAcquire.order()) == mark;
            if !wait::spin(there, || few.prefetch()) {
                self.await_mark(&few.call(), rank, mark)?;
            }
        }
        flat::fold_lines(&self.board, few, bytes, slot, me, ranks);
        Ok(())
    }

    /// The payload travels through deposits, each announced as a whole; `None`, with nothing done, where their memory is not
    /// known to be free and there.
    #[inline(never)]
    fn in_deposits(&mut self, few: &BoundPayload<'_>, slot: usize) -> Option<Result<(), Stop>> {
        let area = ((self.epoch + 1) % AREAS as u64) as usize;
        let is_free = self.all_left + AREAS as u64 > self.epoch;
        match self.board.reserve(area, Need::of_all(0, few.bytes())) {
            Ok(()) if is_free => {}
            _ => return None,
        }
        let mark = self.begin(few.hash(), |line| few.describe(line), slot);
        let (board, epoch, hash, pieces) = (&self.board, self.epoch, few.hash() ^ self.history, few.pieces());
        let (me, ranks) = (board.rank(), board.ranks());
        let deposit = |rank, piece, offset, bytes| Place::Deposit { area, rank, piece, offset, bytes };
        let line = board.line(slot, me);
        line.entered.store(mark, SyncPoint::CallRelease.order());
        board.step(Step::Entered);
        for piece in 0..pieces {
            let (offset, part) = few.piece(piece);
            board.write(deposit(me, piece, offset, part.bytes()), |place| part.give_many(place));
        }
        line.deposited.store(word::deposited(epoch, hash, pieces), SyncPoint::DepositRelease.order());
        board.step(Step::Deposited);
        for rank in (0..ranks).filter(|rank| *rank != me) {
            let there = || has_deposited(&self.board, slot, rank, epoch, hash, pieces);
            let meanwhile = || {
                few.prefetch();
                // A rank is still away, so there is time: see `chain`.
                for piece in 0..pieces {
                    let (offset, part) = few.piece(piece);
                    self.board.demote(deposit(me, piece, offset, part.bytes()));
                }
            };
            if !wait::spin(there, meanwhile)
                && let Err(stop) = self.await_deposit(few, rank)
            {
                return Some(Err(stop));
            }
        }
        for piece in 0..pieces {
            let (offset, part) = few.piece(piece);
            flat::fold_places(&self.board, &part, |rank| deposit(rank, piece, offset, part.bytes()), me, ranks);
        }
        Some(Ok(()))
    }

    /// Waits for the mark of `rank`, which is late or another one.
    #[cold]
    #[inline(never)]
    fn await_mark(&mut self, call: &Call<'_>, rank: usize, mark: u64) -> Result<(), Stop> {
        let (mut operation, _) = self.operation(call);
        flat::await_mark(&mut operation, rank, mark)
    }

    /// Waits for the deposit of `rank`, which is late or one for another call.
    #[cold]
    #[inline(never)]
    fn await_deposit(&mut self, few: &BoundPayload<'_>, rank: usize) -> Result<(), Stop> {
        let call = few.call();
        let (mut operation, _) = self.operation(&call);
        operation.until_deposited(rank, few.pieces())
    }
}
