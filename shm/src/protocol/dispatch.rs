//! Running an operation: the order of its steps, and the dispatch to its lane and algorithm.

use super::algorithm::{
    announced, announced_gather, announced_scatter, chain, exchange, flat, leader, registered, shared_result,
    single_copy, slices, static_leader,
};
use super::arrive::Arrival;
use super::board::{AREAS, Board, SLOTS};
use super::call::{Arithmetic, Call, Lane};
use super::collective::Collective;
use super::fault;
use super::member::{Member, mix};
use super::operation::{Operation, Report, Stop};
use super::payload::{BlockSizes, PreparedExchange};
use super::step::Step;
use super::word::ArrivalWord;
use crate::config::Algorithm;
use crate::sync::SyncPoint;
use std::panic::{AssertUnwindSafe, catch_unwind};

impl<B: Board> Member<B> {
    /// Runs one operation: arrive, decide, fold, publish, leave.
    pub fn run(&mut self, call: &Call<'_>) -> Result<Report, Stop> {
        if let Some(payload) = call.small_payload()
            && let Some(done) = self.run_fast(payload)
        {
            return done;
        }
        if let Some((exchange, blocks)) = call.small_exchange(self.board.rank())
            && let Some(done) = match blocks.are_equal() {
                true => exchange.with(call.prepared, &blocks).and_then(|exchange| self.run_small(exchange)),
                false => exchange.with_unequal(call.prepared, &blocks).and_then(|exchange| self.run_small(exchange)),
            }
        {
            return done;
        }
        if let Some(gather) = call.small_gather(self.board.rank())
            && let Some(done) = self.run_fast_gather(gather)
        {
            return done;
        }
        if let Some(scatter) = call.announced_scatter(self.board.rank())
            && let Some(done) = self.run_fast_scatter(scatter)
        {
            return done;
        }
        if let Some(pairs) = call.small_pairs(self.board.rank())
            && let Some(done) = self.run_fast_pairs(pairs)
        {
            return done;
        }
        self.run_general(call)
    }

    /// The same for a small exchange, on the fast path; `None`, with nothing done, where that cannot be. A panic in a user's operator
    /// fails the group.
    pub fn run_small<S: BlockSizes>(&mut self, exchange: PreparedExchange<'_, S>) -> Option<Result<Report, Stop>> {
        if !exchange.is_by_user() {
            return self.run_fast_exchange(exchange);
        }
        match catch_unwind(AssertUnwindSafe(|| self.run_fast_exchange(exchange))) {
            Ok(done) => done,
            Err(panic) => {
                let call = exchange.call();
                let (mut operation, _) = self.operation(&call);
                Some(Err(operation.operator_panicked(&*panic)))
            }
        }
    }

    /// The same, never on the fast path.
    pub fn run_general(&mut self, call: &Call<'_>) -> Result<Report, Stop> {
        self.epoch += 1;
        if !self.pending.is_empty() {
            self.counts.moved();
            self.progress_before(self.epoch);
        }
        let epoch = self.epoch;
        let (mut op, arrival) = self.operation(call);
        let board = op.board;
        // If the group has failed in a later operation, this one may be complete for this rank: its waits find out.
        if let Some(stop) = fault::failed(board).filter(|stop| stop.0.epoch() <= epoch) {
            return Err(stop);
        }
        board.step(Step::Begin);
        op.until_all_left(SLOTS)?;
        op.describe();
        let mut report = Report::ticketless(epoch, Algorithm::Flat);
        let received_from_all = match call.prepared.arithmetic {
            Arithmetic::User(_) => op.run_guarded(arrival, &mut report)?,
            _ => op.run(arrival, &mut report)?,
        };
        board.step(Step::Copied);
        // This rank touches no memory of this operation any more; `left` moves on once all earlier ones are left too.
        self.history = mix(op.hash);
        self.board.left(self.board.rank()).store(self.pending.prefix(epoch + 1), SyncPoint::LeftRelease.order());
        self.board.step(Step::Left);
        if received_from_all {
            self.record_received_from_all(epoch);
        }
        self.board.prepare_line(((epoch + 1) % SLOTS as u64) as usize);
        Ok(report)
    }
}

impl<B: Board> Operation<'_, B> {
    /// Runs the call in its lane; returns whether this rank has received something from every other one.
    #[inline(always)]
    fn run(&mut self, previous: &mut ArrivalWord, report: &mut Report) -> Result<bool, Stop> {
        match self.call.prepared.lane {
            Lane::Flat => flat::run(self).map(|()| true),
            Lane::Exchange => {
                let window = self.call.window.expect("an exchange runs window by window");
                if window.announces() {
                    *report = announced::run(self, window, *report)?;
                    return Ok(true);
                }
                if let Some(scatter) = self.call.announced_scatter(self.me) {
                    report.announced = announced_scatter::run(self, &scatter)?;
                    return Ok(scatter.receives_from_all());
                }
                if window.exchange.owners_announce {
                    report.announced = announced_gather::run(self, window)?;
                    return Ok(window.exchange.readers.has(self.me));
                }
                exchange::run(self, window)
            }
            Lane::SingleCopy { trusted } => {
                let window = self.call.window.expect("an exchange is one window");
                let outcome = single_copy::run(self, window, trusted)?;
                (report.algorithm, report.is_done) = (Algorithm::SingleCopy, outcome.is_done);
                Ok(outcome.received_from_all)
            }
            Lane::Ticketed => self.ticketed(previous, report),
        }
    }

    /// Runs the call by a user's operator; a panic in it fails the group. A fold word that this rank holds stays busy then, and
    /// the ranks that wait for it find the poison.
    #[cold]
    fn run_guarded(&mut self, previous: &mut ArrivalWord, report: &mut Report) -> Result<bool, Stop> {
        match catch_unwind(AssertUnwindSafe(|| self.run(previous, report))) {
            Ok(result) => result,
            Err(panic) => Err(self.operator_panicked(&*panic)),
        }
    }

    /// Runs the algorithm that the first arriver chose; returns whether this rank has received something from every other one.
    fn ticketed(&mut self, previous: &mut ArrivalWord, report: &mut Report) -> Result<bool, Stop> {
        let (board, call) = (self.board, self.call);
        self.enter();
        let Arrival { place, plan } = self.arrive(previous)?;
        (report.algorithm, report.place) = (plan, Some(place));
        board.step(Step::Arrived);
        self.until_all_left(AREAS)?;
        let collective = call.prepared.collective;
        if !collective.traits().algorithms.contains(&plan) {
            return Err(self.corrupt());
        }
        match plan {
            Algorithm::Chain if collective == Collective::Broadcast => chain::broadcast(self)?,
            Algorithm::Chain => chain::run(self, place)?,
            Algorithm::Leader => leader::run(self, place)?,
            Algorithm::Slices => match (call.registered, call.shared) {
                (Some(names), _) => registered::run(self, names)?,
                (None, Some((shared, _))) => shared_result::run(self, shared)?,
                (None, None) => slices::run(self)?,
            },
            Algorithm::StaticLeader => static_leader::run(self, false)?,
            Algorithm::StaticLeaderEarly => static_leader::run(self, true)?,
            Algorithm::Auto | Algorithm::Flat | Algorithm::SingleCopy => return Err(self.corrupt()),
        }
        Ok(match collective {
            Collective::Broadcast => false,
            // A rank without a result leaves a chain once its own part is folded, and slices once that is deposited, before later
            // ranks have come.
            _ => call.has_result(self.me) || !matches!(plan, Algorithm::Chain | Algorithm::Slices),
        })
    }
}
