//! A non-blocking call: its arguments and buffers, and how its operations make progress while the caller computes.
//!
//! A started call owns its buffers. Its operation is *queued* until all ranks have left the previous user of its slot and
//! area, then *deposited*: this rank's contribution is in shared memory and nothing further is needed from this rank, unless `chain` could not fold
//! a part of it. A rank inside any call of the group makes progress in all its pending operations. Calls larger than the windows run segment by
//! segment. Each segment is an operation and begins when the one before is complete. Their numbers are taken when the call is
//! started, so that operations have one order on all ranks.
//!
//! `request_queue.rs` keeps them in order.

use super::algorithm::{chain, exchange, registered, slices};
use super::board::{AREAS, Board, SLOTS};
use super::call::{Arithmetic, Prepared};
use super::collective::Collective;
use super::fault;
use super::geometry::{Exchange, Lens};
use super::operation::{Operation, RankContext, Report, Stop};
use super::patience::Patience;
use super::payload::SmallBlocks;
use super::polling::Polling;
use super::publish::Done;
use super::request_buffers::OwnedBuffers;
use super::reuse::left_by_all;
use super::scratch::{Scratch, Source};
use super::step::Step;
use super::wait_counts::WaitCounts;
use crate::config::Algorithm;
use crate::user_op::ReduceFn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The size of the windows that a call runs in.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Bytes of an accumulator.
    pub accumulator: usize,
    /// Bytes of a deposit.
    pub deposit: usize,
}

impl Room {
    /// The size for a call without windows, which is one operation.
    pub const NONE_NEEDED: Room = Room { accumulator: usize::MAX, deposit: usize::MAX };
}

/// The block lengths that a started call owns, in elements.
#[derive(Debug, Clone)]
pub enum Blocks {
    /// One length for all blocks.
    Equal(usize),
    /// The length of each block, and the sums as in [`Lens::Each`].
    Each(Vec<usize>, Vec<usize>),
}

impl Blocks {
    /// The lengths, borrowed for an exchange.
    pub fn lens(&self) -> Lens<'_> {
        match self {
            Blocks::Equal(len) => Lens::Equal(*len),
            Blocks::Each(lens, starts) => Lens::Each(lens, starts),
        }
    }
}

/// The progress of the current segment.
#[derive(Debug)]
pub(super) enum State {
    /// Not deposited, since its memory is not known to be free.
    Queued,
    /// Deposited on the fast path: nothing has been received yet.
    Deposited,
    /// Deposited, folding by `slices`: the chunks of the result that are copied out, and the number of the others.
    Folding { copied: Done, left: usize },
    /// Folded by `chain`, but for chunks that others held.
    Chaining(chain::ChunksLeft),
    /// On registered buffers: their names are published, and they are reduced where they lie.
    Reducing(registered::ChunkProgress),
    /// Deposited, collecting by the exchange; `starts` is true until the first contribution is folded.
    Collecting { starts: bool },
}

/// A call that is, or can be, started: its prepared state and its buffers.
#[derive(Debug)]
pub struct ActiveRequest {
    pub(super) buffers: OwnedBuffers,
    pub(super) prepared: Prepared<'static>,
    /// The user's operator, if it folds by one.
    operator: Option<Arc<dyn ReduceFn + Send>>,
    pub(super) root: usize,
    pub(super) blocks: Blocks,
    /// Elements of the largest block.
    block: usize,
    pub(super) room: Room,
    /// Its blocks, if it can be started on the fast path.
    pub(super) small: Option<SmallBlocks>,
    /// Elements of the send and the receive buffer when it was prepared.
    lengths: [usize; 2],
    pub(super) segments: u64,
    scratch: Scratch,
    // Set anew at each start.
    /// True once its buffers have prepared what is sent.
    is_ready: bool,
    pub(super) id: u64,
    /// Number of the current segment.
    pub(super) epoch: u64,
    segment: u64,
    /// The call history hash at the start.
    pub(super) history: u32,
    pub(super) state: State,
    pub(super) failed: Option<Stop>,
    /// True if the request was released: no caller completes it.
    pub(super) detached: bool,
    polling: Polling,
}

/// The work to do for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// Progress without waiting.
    Now,
    /// Progress without waiting, and an inspection of the peers if one is due.
    Poll,
    /// Progress until the operation is complete.
    Wait,
}

impl ActiveRequest {
    /// A call of `prepared` by rank `me` on `buffers`, whose lengths fit these blocks. `root` is 0 for a collective without a root.
    pub fn new(
        prepared: Prepared<'static>,
        buffers: OwnedBuffers,
        (me, root): (usize, usize),
        blocks: Blocks,
        room: Room,
    ) -> Self {
        let prepared = prepared.started();
        let block = Exchange::new(prepared.collective, root, prepared.ranks, blocks.lens()).most();
        let mut request = ActiveRequest {
            buffers,
            prepared,
            operator: None,
            root,
            blocks,
            block,
            room,
            small: None,
            lengths: [0; 2],
            segments: 1,
            scratch: Scratch::default(),
            is_ready: false,
            id: 0,
            epoch: 0,
            segment: 0,
            history: 0,
            state: State::Queued,
            failed: None,
            detached: false,
            polling: Polling::default(),
        };
        request.lengths = request.lengths_now();
        request.segments = match prepared.exchanges() {
            true => request.exchange().windows(request.element_bytes(), room.deposit).count(),
            false => block.div_ceil(request.part()).max(1),
        } as u64;
        request.small = request.small_blocks(me);
        request
    }

    fn lengths_now(&mut self) -> [usize; 2] {
        let buffers = self.buffers.as_buffers();
        [buffers.send_count(), buffers.recv_count()]
    }

    /// Returns whether its buffers are as long as when it was prepared, since they were checked only then.
    pub fn has_prepared_lengths(&mut self) -> bool {
        self.lengths_now() == self.lengths
    }

    /// Sets a user's operator to fold by.
    pub fn folded_by(self, operator: Arc<dyn ReduceFn + Send>) -> Self {
        ActiveRequest { operator: Some(operator), ..self }
    }

    /// Makes it a part of a larger operation with this number.
    pub fn be_within(&mut self, number: u16) {
        self.prepared.signature = self.prepared.signature.within(number);
        self.prepared.hash = self.prepared.signature.hash();
    }

    /// The buffers. Callers reach them only while no operation is pending: the queue owns an active request.
    pub fn buffers(&mut self) -> &mut OwnedBuffers {
        &mut self.buffers
    }

    /// Returns the buffers and drops the call.
    pub fn into_buffers(self: Box<Self>) -> OwnedBuffers {
        self.buffers
    }

    /// The collective.
    pub fn collective(&self) -> Collective {
        self.prepared.collective
    }

    fn element_bytes(&self) -> usize {
        self.prepared.datatype.size()
    }

    fn exchange(&self) -> Exchange<'_> {
        Exchange::new(self.collective(), self.root, self.prepared.ranks, self.blocks.lens())
    }

    /// Elements of a segment of a reduction.
    fn part(&self) -> usize {
        (self.room.accumulator / self.prepared.accumulator_bytes).min(self.room.deposit / self.element_bytes()).max(1)
    }

    /// Copies the contribution to the result, in a group of one.
    pub(super) fn copy(&mut self) {
        let exchange = Exchange::new(self.collective(), self.root, self.prepared.ranks, self.blocks.lens());
        self.buffers.as_buffers().copy(&exchange);
        self.buffers.leaving();
    }

    /// The algorithm that ran, and the number of its last operation.
    pub(super) fn report(&self) -> Report {
        let algorithm = if self.prepared.exchanges() { Algorithm::Flat } else { self.prepared.algorithm() };
        Report::ticketless(self.epoch, algorithm)
    }

    /// Resets the state for the next start, whose first operation is `epoch`.
    pub(super) fn begin(&mut self, epoch: u64, history: u32) {
        (self.id, self.epoch, self.segment, self.history) = (epoch, epoch, 0, history);
        (self.state, self.failed, self.detached) = (State::Queued, None, false);
        self.polling = Polling::default();
    }

    /// Lets its buffers prepare what is sent; returns whether they have.
    #[inline(always)]
    pub(super) fn make_ready<B: Board>(&mut self, board: &B) -> bool {
        let operations = self.id..=self.id + self.segments - 1;
        self.is_ready = self.buffers.entering(operations, || left_by_all(board));
        self.is_ready
    }

    /// Ends a complete call that was detached.
    pub(super) fn release(&mut self) {
        if self.failed.is_none() {
            // No caller is left to return an error to.
            let _ = self.buffers.end(Ok(()));
        }
    }

    /// Makes progress in the current segment without waiting; returns whether it is complete. Adds its changes to `counts`.
    pub(super) fn progress_now<B: Board>(
        &mut self,
        board: &B,
        mut patience: Patience,
        all_left: &mut u64,
        counts: &mut WaitCounts,
    ) -> bool {
        if matches!(self.state, State::Deposited) {
            let is_complete = self.receive_small(board);
            if is_complete {
                counts.moved();
            }
            return is_complete;
        }
        let context = RankContext { board, patience: &mut patience, all_left, counts, pending: None };
        let result = self.progress(context, Effort::Now);
        self.failed = result.err();
        result == Ok(true)
    }

    /// Returns whether a caller that polls has more to do than to make progress: the group has failed, or an inspection is due.
    pub(super) fn is_to_be_inspected<B: Board>(&mut self, board: &B) -> bool {
        fault::failed(board).is_some() || self.polling.is_due(board.now_ns())
    }

    /// Advances from a complete segment, which this rank has not left, to the next one; returns false if it was the last.
    pub(super) fn next_segment(&mut self) -> bool {
        if self.segment + 1 == self.segments {
            self.buffers.leaving();
            return false;
        }
        (self.segment, self.epoch, self.state) = (self.segment + 1, self.epoch + 1, State::Queued);
        true
    }

    /// Makes progress in the current segment; returns whether it is complete. One that is not although this rank waits has been made ready, or
    /// can be.
    pub(super) fn progress<B: Board>(&mut self, context: RankContext<'_, B>, effort: Effort) -> Result<bool, Stop> {
        if !self.is_ready && left_by_all(context.board) + 1 >= self.id {
            self.make_ready(context.board);
        }
        let is_ready = self.is_ready;
        let (part, element_bytes, segment) = (self.part(), self.element_bytes(), self.segment as usize);
        let ActiveRequest { buffers, prepared, operator, root, blocks, state, scratch, polling, .. } = self;
        let exchange = Exchange::new(prepared.collective, *root, prepared.ranks, blocks.lens());
        let folding;
        let prepared = match operator {
            Some(operator) => {
                folding = prepared.by_user(&**operator);
                &folding
            }
            None => &*prepared,
        };
        let mut sources = std::mem::take(&mut scratch.sources);
        let buffers = buffers.as_buffers().own_parts(&exchange, context.board.rank());
        let window = match prepared.exchanges() {
            true => exchange.whole().nth_part(segment, element_bytes, self.room.deposit),
            false => None,
        };
        let call = match &window {
            Some(window) => buffers.window(window, prepared),
            None => buffers.call(segment * part..(segment * part + part).min(self.block), prepared),
        };
        let mut op = Operation::new(context, &call, self.epoch, self.history, scratch);
        if call.registered.is_some() {
            op.fold_by_slot();
        }
        let result = match prepared.arithmetic {
            _ if !is_ready => op.await_earlier(polling, effort).map(|()| false),
            Arithmetic::User(_) => {
                let caught = catch_unwind(AssertUnwindSafe(|| op.progress(state, polling, effort, &mut sources)));
                caught.unwrap_or_else(|panic| Err(op.operator_panicked(&*panic)))
            }
            _ => op.progress(state, polling, effort, &mut sources),
        };
        self.scratch.sources = sources;
        result
    }
}

impl<B: Board> Operation<'_, B> {
    /// Waits, if that is the effort, until every rank has left the operation before.
    fn await_earlier(&mut self, polling: &mut Polling, effort: Effort) -> Result<(), Stop> {
        match effort {
            Effort::Now => Ok(()),
            Effort::Poll => self.check_peers(polling),
            Effort::Wait => self.until_all_left(1),
        }
    }

    fn progress(
        &mut self,
        state: &mut State,
        polling: &mut Polling,
        effort: Effort,
        sources: &mut Vec<Source>,
    ) -> Result<bool, Stop> {
        loop {
            let (moved, complete) = self.advance(state, effort, sources)?;
            // Whoever waits for this rank to leave the operation waits for its end, which another rank's last step can bring about.
            if moved || complete {
                self.counts.moved();
            }
            if complete {
                return Ok(true);
            }
            match effort {
                // A rank that does not wait folds one turn at a time, however large the operation is.
                Effort::Now | Effort::Poll if moved && self.call.registered.is_some() => return Ok(false),
                _ if moved => {}
                Effort::Now => return Ok(false),
                Effort::Poll => return self.check_peers(polling).map(|()| false),
                Effort::Wait => self.until_more(state, sources)?,
            }
        }
    }

    /// Does the work that is possible now; returns whether there was any, and whether the operation is complete.
    fn advance(&mut self, state: &mut State, effort: Effort, sources: &mut Vec<Source>) -> Result<(bool, bool), Stop> {
        let call = self.call;
        match (state, call.window) {
            (state @ State::Queued, window) => {
                let turns = match window {
                    Some(window) if !window.inline => exchange::deposits_at(self, window).turns(),
                    None if call.registered.is_none() => AREAS,
                    // Beside the mark, or in buffers of its own.
                    _ => SLOTS,
                };
                if effort == Effort::Wait {
                    self.until_all_left(turns)?;
                } else if !self.have_all_left(turns) {
                    return Ok((false, false));
                }
                *state = self.enter_and_deposit(sources)?;
                Ok((true, false))
            }
            (state @ State::Deposited, Some(window)) => {
                *state = State::Collecting { starts: exchange::begin(self, window, sources).starts };
                Ok((true, false))
            }
            (State::Folding { copied, left }, _) => {
                let moved = slices::sweep(self, &slices::pieces(self), copied, left);
                Ok((moved, *left == 0))
            }
            (State::Chaining(left), _) => Ok((chain::sweep(self, left)?, left.is_complete())),
            (State::Reducing(progress), _) => {
                let moved = registered::sweep(self, progress)?;
                Ok((moved, registered::is_complete(self, progress)?))
            }
            (State::Collecting { starts }, Some(window)) => {
                let moved = exchange::receive_ready(self, window, sources, starts)?;
                if sources.is_empty() {
                    exchange::finish(self, window);
                }
                Ok((moved, sources.is_empty()))
            }
            (State::Deposited | State::Collecting { .. }, None) => unreachable!("an exchange has a window"),
        }
    }

    /// Makes the contribution available to the other ranks, in memory that is known to be free.
    fn enter_and_deposit(&mut self, sources: &mut Vec<Source>) -> Result<State, Stop> {
        self.board.step(Step::Begin);
        self.describe();
        Ok(match (self.call.window, self.call.registered) {
            (Some(window), _) => {
                exchange::enter_and_deposit(self, window)?;
                State::Collecting { starts: exchange::begin(self, window, sources).starts }
            }
            (None, Some(names)) => {
                self.enter();
                registered::deposit(self, names);
                State::Reducing(registered::ChunkProgress::default())
            }
            (None, None) if self.call.prepared.algorithm() == Algorithm::Chain => State::Chaining(chain::start(self)?),
            (None, None) => {
                slices::enter_and_deposit(self)?;
                State::Folding { copied: Done::default(), left: slices::pieces(self).number }
            }
        })
    }

    /// Waits until more can be done for an operation whose contribution is deposited.
    fn until_more(&mut self, state: &mut State, sources: &[Source]) -> Result<(), Stop> {
        match (state, self.call.window) {
            // `advance` waits for the memory, or needs no wait.
            (State::Queued | State::Deposited, _) => Ok(()),
            (State::Folding { copied, .. }, _) => slices::until_more(self, &slices::pieces(self), copied),
            (State::Chaining(left), _) => chain::until_more(self, left),
            (State::Reducing(progress), _) => registered::until_more(self, progress),
            (State::Collecting { .. }, window) => {
                exchange::until_more(self, window.expect("an exchange has a window"), sources)
            }
        }
    }
}
