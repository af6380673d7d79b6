//! The fast path: `flat` and the exchanges of small payloads, by a rank that has nothing else to see to.
//!
//! A program calls small collectives between its own work, so it finds their code cold: the time of such a call grows with
//! the instructions on its way. This is [`Member::run`] with [`super::algorithm`]'s `flat` and `exchange`, without the branches that
//! such a call never takes. The words, their order and their sync points are the same, so ranks on the fast path meet ranks on
//! the general one; a rank takes it only when nothing is pending, the group is well and the memory is known to be free.

use super::algorithm::flat;
use super::board::{Board, DepositsAt, Need, Place, SLOTS};
use super::call::Call;
use super::deposit::has_deposited;
use super::event;
use super::geometry::Who;
use super::lines::INLINE_BYTES;
use super::member::{Member, mix};
use super::operation::{Report, Stop};
use super::payload::{BlockSizes, PreparedExchange, PreparedPayload};
use super::reuse::left_by_all;
use super::step::Step;
use super::store_pace::Stores;
use super::wait;
use super::word;
use crate::config::Algorithm;
use crate::sync::{Ordering, SyncPoint};

impl<B: Board> Member<B> {
    /// Runs one operation on a small payload by `flat`; `None`, with nothing done, where [`Member::run`] must be asked.
    #[inline(always)]
    pub fn run_fast(&mut self, payload: PreparedPayload<'_>) -> Option<Result<Report, Stop>> {
        let slot = self.fast_path_slot()?;
        let folded = match payload.bytes() <= INLINE_BYTES {
            true => self.fold_lines(payload, slot),
            false => self.fold_deposits(payload, slot)?,
        };
        if let Err(stop) = folded {
            return Some(Err(stop));
        }
        event::wake(&self.board, slot);
        Some(Ok(self.leave(payload.hash(), true)))
    }

    /// Runs one small exchange in the same way and under the same conditions. Every rank deposits what others need, and
    /// receives the blocks for it, or folds them in the order of the ranks; one that receives nothing leaves at once.
    #[inline(always)]
    pub fn run_fast_exchange<S: BlockSizes>(
        &mut self,
        exchange: PreparedExchange<'_, S>,
    ) -> Option<Result<Report, Stop>> {
        let slot = self.fast_path_slot()?;
        let exchanged = match exchange.is_inline() {
            true => self.exchange_lines(exchange, slot),
            false => self.exchange_deposits(exchange, slot)?,
        };
        if let Err(stop) = exchanged {
            return Some(Err(stop));
        }
        Some(Ok(self.leave(exchange.hash(), exchange.receives_from_all())))
    }

    /// The slot of the next operation, where that may take the fast path.
    #[inline(always)]
    pub(super) fn fast_path_slot(&mut self) -> Option<usize> {
        let board = &self.board;
        if !self.pending.is_empty()
            || board.poison().load(SyncPoint::PoisonAcquire.order()) != board.healthy()
            || !self.is_free(SLOTS)
        {
            return None;
        }
        let slot = ((self.epoch + 1) % SLOTS as u64) as usize;
        self.board.prefetch(slot);
        Some(slot)
    }

    /// The place of the deposits of the next exchange, if that memory is known to be free and there.
    #[inline(always)]
    pub(super) fn fast_path_deposits(&mut self, need: Need) -> Option<DepositsAt> {
        match self.board.small_deposits_at(self.epoch + 1, need.deposit) {
            Some(at) => self.if_free(at, need),
            None => self.deposits_in_area(need),
        }
    }

    /// The same of larger deposits.
    #[inline(never)]
    fn deposits_in_area(&mut self, need: Need) -> Option<DepositsAt> {
        let at = self.board.deposits_in_area(self.epoch + 1, need.deposit);
        self.if_free(at, self.board.with_all_places(need))
    }

    #[inline(always)]
    fn if_free(&mut self, at: DepositsAt, need: Need) -> Option<DepositsAt> {
        let is_there = |member: &Self| member.board.has_reserved(at.area, need) || member.can_reserve(at.area, need);
        (self.is_free(at.turns()) && is_there(self)).then_some(at)
    }

    #[cold]
    fn can_reserve(&self, area: usize, need: Need) -> bool {
        self.board.reserve(area, need).is_ok()
    }

    /// Returns whether every rank has left the operation `back` before the next, whose memory that one uses.
    #[inline(always)]
    fn is_free(&mut self, back: usize) -> bool {
        self.all_left + back as u64 > self.epoch || self.is_free_by_now(back)
    }

    /// Looks who has left: a rank that needs nobody, as one that is not the root of a reduce, learns of the others in no other way.
    #[cold]
    #[inline(never)]
    fn is_free_by_now(&mut self, back: usize) -> bool {
        self.all_left = left_by_all(&self.board).clamp(self.all_left, self.epoch);
        self.all_left + back as u64 > self.epoch
    }

    /// Begins the next operation; the mark of its entry.
    #[inline(always)]
    pub(super) fn begin(&mut self, hash: u32) -> u64 {
        self.epoch += 1;
        self.board.step(Step::Begin);
        word::entered(self.epoch, hash ^ self.history)
    }

    /// Leaves the operation, in which this rank has had something from every other one if it has `received_from_all`.
    #[inline(always)]
    pub(super) fn leave(&mut self, hash: u32, received_from_all: bool) -> Report {
        let (board, epoch) = (&self.board, self.epoch);
        board.step(Step::Copied);
        board.left(board.rank()).store(epoch, SyncPoint::LeftRelease.order());
        board.step(Step::Left);
        self.history = mix(hash ^ self.history);
        if received_from_all {
            self.record_received_from_all(epoch);
        }
        self.board.prepare_line(((epoch + 1) % SLOTS as u64) as usize);
        Report::ticketless(epoch, Algorithm::Flat)
    }

    /// Folds a payload that travels beside the marks.
    #[inline(always)]
    fn fold_lines(&mut self, payload: PreparedPayload<'_>, slot: usize) -> Result<(), Stop> {
        let mark = self.begin(payload.hash());
        let board = &self.board;
        let (me, ranks, bytes) = (board.rank(), board.ranks(), payload.bytes());
        let line = board.line(slot, me);
        payload.describe(line);
        board.write(Place::Inline { slot, rank: me, bytes }, |place| payload.send_inline(place));
        line.entered.store(mark, SyncPoint::DepositRelease.order());
        board.step(Step::Entered);
        for rank in (0..ranks).filter(|rank| *rank != me) {
            let theirs = self.board.line(slot, rank);
            let there = || theirs.entered.load(SyncPoint::DepositAcquire.order()) == mark;
            if !wait::spin(&self.patience, there, || payload.prefetch()) {
                self.await_mark(&payload.call(), rank, mark)?;
            }
        }
        flat::fold_lines(&self.board, &payload, slot, me, ranks);
        Ok(())
    }

    /// Exchanges deposits that travel beside the marks.
    #[inline(always)]
    fn exchange_lines<S: BlockSizes>(&mut self, exchange: PreparedExchange<'_, S>, slot: usize) -> Result<(), Stop> {
        let mark = self.deposit_line(&exchange, slot);
        exchange.keep_own();
        for rank in exchange.sources() {
            let theirs = self.board.line(slot, rank);
            let there = || theirs.entered.load(SyncPoint::DepositAcquire.order()) == mark;
            if !wait::spin(&self.patience, there, || exchange.prefetch()) {
                self.await_mark(&exchange.call(), rank, mark)?;
            }
            self.board.read(exchange.line(slot, rank), |deposit| exchange.receive(deposit, rank, 0));
        }
        Ok(())
    }

    /// Begins the next operation with a deposit that travels beside its mark, which is returned.
    #[inline(always)]
    pub(super) fn deposit_line<S: BlockSizes>(&mut self, exchange: &PreparedExchange<'_, S>, slot: usize) -> u64 {
        let mark = self.begin(exchange.hash());
        let board = &self.board;
        let (rank, line) = (board.rank(), board.line(slot, board.rank()));
        exchange.describe(line);
        if exchange.deposits() {
            board.write(exchange.line(slot, rank), |deposit| exchange.deposit(deposit, 0, Stores::Ordinary));
        }
        line.entered.store(mark, SyncPoint::DepositRelease.order());
        board.step(Step::Entered);
        event::wake(board, slot);
        mark
    }

    /// Exchanges deposits that are announced piece by piece; `None`, with nothing done, where their memory is not known to be free
    /// and there.
    #[inline(never)]
    fn exchange_deposits<S: BlockSizes>(
        &mut self,
        exchange: PreparedExchange<'_, S>,
        slot: usize,
    ) -> Option<Result<(), Stop>> {
        let at = self.begin_deposited(&exchange, slot)?;
        exchange.keep_own();
        Some(match exchange.is_in_order() {
            true => exchange.sources().try_for_each(|rank| self.receive_deposit(&exchange, slot, at, rank)),
            false => self.receive_as_they_come(&exchange, slot, at),
        })
    }

    /// Receives what is there first: a rank that is late holds up no block of another.
    #[inline(never)]
    fn receive_as_they_come<S: BlockSizes>(
        &mut self,
        exchange: &PreparedExchange<'_, S>,
        slot: usize,
        at: DepositsAt,
    ) -> Result<(), Stop> {
        let (epoch, hash) = (self.epoch, exchange.hash() ^ self.history);
        let mut late = std::mem::take(&mut self.scratch.ready);
        late.clear();
        for rank in exchange.sources() {
            match has_deposited(&self.board, slot, rank, epoch, hash, exchange.pieces_from(rank).end) {
                true => self.receive_deposit(exchange, slot, at, rank)?,
                false => late.push(rank),
            }
        }
        late.iter().try_for_each(|rank| self.receive_deposit(exchange, slot, at, *rank))?;
        self.scratch.ready = late;
        Ok(())
    }

    /// Receives what `rank` has deposited for this one, piece by piece as it comes.
    #[inline(always)]
    fn receive_deposit<S: BlockSizes>(
        &mut self,
        exchange: &PreparedExchange<'_, S>,
        slot: usize,
        at: DepositsAt,
        rank: usize,
    ) -> Result<(), Stop> {
        let (epoch, hash) = (self.epoch, exchange.hash() ^ self.history);
        for piece in exchange.pieces_from(rank) {
            let there = || has_deposited(&self.board, slot, rank, epoch, hash, piece + 1);
            if !wait::spin(&self.patience, there, || exchange.prefetch()) {
                self.await_deposit(&exchange.call(), rank, piece + 1)?;
            }
            self.board.read(exchange.place(at, rank, piece), |from| exchange.receive(from, rank, piece));
        }
        Ok(())
    }

    /// Begins the next operation with a deposit that is announced piece by piece; where deposits lie. `None`, with nothing done, where that
    /// memory is not known to be free and there.
    #[inline(always)]
    pub(super) fn begin_deposited<S: BlockSizes>(
        &mut self,
        exchange: &PreparedExchange<'_, S>,
        slot: usize,
    ) -> Option<DepositsAt> {
        let at = self.fast_path_deposits(exchange.need())?;
        let mark = self.begin(exchange.hash());
        let board = &self.board;
        let line = board.line(slot, board.rank());
        exchange.describe(line);
        line.entered.store(mark, SyncPoint::CallRelease.order());
        board.step(Step::Entered);
        if exchange.deposits() {
            match exchange.is_one_piece() {
                true => self.deposit_piece(exchange, 0, slot, at, Stores::Ordinary),
                false => self.deposit_pieces(exchange, slot, at),
            }
            self.board.step(Step::Deposited);
        }
        Some(at)
    }

    /// Deposits a piece and announces it.
    #[inline(always)]
    fn deposit_piece<S: BlockSizes>(
        &self,
        exchange: &PreparedExchange<'_, S>,
        piece: usize,
        slot: usize,
        at: DepositsAt,
        stores: Stores,
    ) {
        let (board, hash) = (&self.board, exchange.hash() ^ self.history);
        let place = exchange.place(at, board.rank(), piece);
        board.write(place, |to| exchange.deposit(to, piece, stores));
        let mark = word::deposited(self.epoch, hash, piece + 1);
        board.line(slot, board.rank()).deposited.store(mark, SyncPoint::DepositRelease.order());
        event::wake(board, slot);
    }

    /// Deposits several pieces, one after the other.
    #[inline(never)]
    fn deposit_pieces<S: BlockSizes>(&mut self, exchange: &PreparedExchange<'_, S>, slot: usize, at: DepositsAt) {
        let stores = self.scratch.stores.begin(exchange.deposit_bytes(self.board.rank()));
        (0..exchange.pieces()).for_each(|piece| self.deposit_piece(exchange, piece, slot, at, stores));
        self.scratch.stores.end(stores, exchange.written_bytes());
    }

    /// Deposits `bytes` bytes as this rank has announced: beside its mark, or as one piece there.
    #[inline(always)]
    pub(super) fn deposit_announced(
        &self,
        (slot, at, bytes): (usize, Option<DepositsAt>, usize),
        (mark, hash): (u64, u32),
        write: impl FnOnce(*mut u8),
    ) {
        let board = &self.board;
        let (rank, line) = (board.rank(), board.line(slot, board.rank()));
        match at {
            None => {
                if bytes > 0 {
                    board.write(Place::Inline { slot, rank, bytes }, write);
                }
                line.entered.store(mark, SyncPoint::DepositRelease.order());
                board.step(Step::Entered);
            }
            Some(DepositsAt { area, base: offset }) => {
                line.entered.store(mark, SyncPoint::CallRelease.order());
                board.step(Step::Entered);
                board.write(Place::Deposit { area, rank, piece: 0, offset, bytes }, write);
                let deposited = word::deposited(self.epoch, hash ^ self.history, 1);
                line.deposited.store(deposited, SyncPoint::DepositRelease.order());
                board.step(Step::Deposited);
            }
        }
        event::wake(board, slot);
    }

    /// Waits for the mark of `rank`; the word that it has announced beside it.
    #[inline(always)]
    pub(super) fn await_announced<'c>(
        &mut self,
        (slot, rank): (usize, usize),
        mark: u64,
        call: impl Fn() -> Call<'c>,
    ) -> Result<u64, Stop> {
        let theirs = self.board.line(slot, rank);
        let there = || theirs.entered.load(SyncPoint::DepositAcquire.order()) == mark;
        if !wait::spin(&self.patience, there, || {}) {
            self.await_mark(&call(), rank, mark)?;
        }
        Ok(self.board.line(slot, rank).call[1].load(Ordering::Relaxed))
    }

    /// Calls `receive` with the deposit of `rank`, of so many bytes and one piece, once that is there; false where its memory is not there.
    #[inline(never)]
    pub(super) fn receive_piece<'c>(
        &mut self,
        (slot, rank, bytes): (usize, usize, usize),
        hash: u32,
        call: impl Fn() -> Call<'c>,
        receive: impl FnOnce(*const u8),
    ) -> Result<bool, Stop> {
        let (board, epoch, hash) = (&self.board, self.epoch, hash ^ self.history);
        let DepositsAt { area, base: offset } = board.deposits_at(epoch, bytes);
        let need = Need { accumulator: 0, deposit: bytes, whose: Who::Only(rank) };
        if board.reserve(area, board.with_all_places(need)).is_err() {
            return Ok(false);
        }
        let there = || has_deposited(&self.board, slot, rank, epoch, hash, 1);
        if !wait::spin(&self.patience, there, || {}) {
            self.await_deposit(&call(), rank, 1)?;
        }
        self.board.read(Place::Deposit { area, rank, piece: 0, offset, bytes }, receive);
        Ok(true)
    }

    /// Folds a payload that travels through deposits of one piece; `None`, with nothing done, where their memory is not known to
    /// be free and there.
    #[inline(never)]
    fn fold_deposits(&mut self, payload: PreparedPayload<'_>, slot: usize) -> Option<Result<(), Stop>> {
        let bytes = payload.bytes();
        let at = self.board.deposits_in_area(self.epoch + 1, bytes);
        let DepositsAt { area, base: offset } = self.if_free(at, Need::of_all(0, bytes))?;
        let mark = self.begin(payload.hash());
        let (board, epoch, hash) = (&self.board, self.epoch, payload.hash() ^ self.history);
        let (me, ranks) = (board.rank(), board.ranks());
        let place = |rank| Place::Deposit { area, rank, piece: 0, offset, bytes };
        let line = board.line(slot, me);
        payload.describe(line);
        line.entered.store(mark, SyncPoint::CallRelease.order());
        board.step(Step::Entered);
        board.write(place(me), |deposit| payload.send(deposit));
        line.deposited.store(word::deposited(epoch, hash, 1), SyncPoint::DepositRelease.order());
        board.step(Step::Deposited);
        for rank in (0..ranks).filter(|rank| *rank != me) {
            let there = || has_deposited(&self.board, slot, rank, epoch, hash, 1);
            let meanwhile = || {
                payload.prefetch();
                if !self.patience.oversubscribed {
                    // A rank is still away, so there is time: see `chain`.
                    self.board.demote(place(me));
                }
            };
            if !wait::spin(&self.patience, there, meanwhile)
                && let Err(stop) = self.await_deposit(&payload.call(), rank, 1)
            {
                return Some(Err(stop));
            }
        }
        flat::fold_places(&self.board, &payload, place, me, ranks);
        Some(Ok(()))
    }

    /// Waits for the mark of `rank`, which is late or another one.
    #[cold]
    #[inline(never)]
    pub(super) fn await_mark(&mut self, call: &Call<'_>, rank: usize, mark: u64) -> Result<(), Stop> {
        let (mut operation, _) = self.operation(call);
        flat::await_mark(&mut operation, rank, mark)
    }

    /// Waits for `pieces` pieces of the deposit of `rank`, which is late or one for another call.
    #[cold]
    #[inline(never)]
    pub(super) fn await_deposit(&mut self, call: &Call<'_>, rank: usize, pieces: usize) -> Result<(), Stop> {
        let (mut operation, _) = self.operation(call);
        operation.until_deposited(rank, pieces)
    }
}
