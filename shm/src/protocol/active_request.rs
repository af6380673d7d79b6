//! A non-blocking call: its arguments and buffers, and how its operations make progress while the caller computes.
//!
//! A started call owns its buffers. Its operation is *queued* until the memory of its slot and area is known to be left, then
//! *deposited*: this rank's contribution lies where the others find it and nothing further is needed from this rank. A rank
//! that is inside any call of the group makes progress in everything it has pending. Calls larger than the windows run segment
//! by segment, each an operation, the next one beginning when the one before is complete; their numbers are taken when the
//! call is started, so that operations have one order on all ranks.
//!
//! `request_queue.rs` keeps them in order.

use super::algorithm::{exchange, registered, slices};
use super::board::{AREAS, Board, SLOTS};
use super::call::Arithmetic;
use super::call::Prepared;
use super::collective::Collective;
use super::fault;
use super::geometry::{Exchange, Lens};
use super::operation::{Operation, RankContext, Report, Stop};
use super::patience::Patience;
use super::publish::Done;
use super::request_buffers::OwnedBuffers;
use super::scratch::{Scratch, Source};
use super::step::Step;
use crate::config::Algorithm;
use crate::user_op::ReduceFn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Bytes of the windows that a call runs in.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Of an accumulator.
    pub accumulator: usize,
    /// Of a deposit.
    pub deposit: usize,
}

impl Room {
    /// Of a call that needs none: it is one operation.
    pub const NONE_NEEDED: Room = Room { accumulator: usize::MAX, deposit: usize::MAX };
}

/// Elements of the blocks, which a started call keeps.
#[derive(Debug, Clone)]
pub enum Blocks {
    /// Every block has this many.
    Equal(usize),
    /// The number of each block, and the sums as in [`Lens::Each`].
    Each(Vec<usize>, Vec<usize>),
}

impl Blocks {
    /// The same for an exchange.
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
    /// Its memory is not known to be free.
    Queued,
    /// By `slices`: the contribution is deposited; which chunks of the result are here, and how many are not.
    Folding { copied: Done, left: usize },
    /// On registered buffers: these are named, and reduced where they lie.
    Reducing(registered::ChunkProgress),
    /// By the exchange: what others need is deposited; whether the fold begins with what comes next.
    Collecting { starts: bool },
}

/// A call that is, or can be, started: its arguments, what follows from them, and its buffers.
#[derive(Debug)]
pub struct ActiveRequest {
    pub(super) held: OwnedBuffers,
    pub(super) prepared: Prepared<'static>,
    /// The operator, if that is a user's.
    operator: Option<Arc<dyn ReduceFn + Send>>,
    root: usize,
    blocks: Blocks,
    /// Elements of the largest block.
    block: usize,
    room: Room,
    /// Elements given and got.
    lengths: [usize; 2],
    pub(super) segments: u64,
    scratch: Scratch,
    // What follows is of one start.
    pub(super) id: u64,
    /// Number of the current segment.
    pub(super) epoch: u64,
    segment: u64,
    /// The call history hash when it was started.
    history: u32,
    pub(super) state: State,
    pub(super) failed: Option<Stop>,
    /// Its caller does not wait for it any more.
    pub(super) detached: bool,
    glances: Glances,
}

/// The times at which a caller that tests again and again began to test, and inspects its peers next.
#[derive(Debug, Default)]
struct Glances {
    begun_ns: Option<u64>,
    next_ns: u64,
    watch: fault::PeerInspection,
    #[cfg(not(earlybird_loom))]
    proof: super::stuck::Proof,
}

/// Interval between two inspections of the peers by a caller that tests again and again.
const GLANCE_NS: u64 = 1_000_000;

/// The work that is done for an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effort {
    /// All that can be done at once.
    Now,
    /// That, and a look at the peers now and then.
    Glance,
    /// Everything, however long it takes.
    Wait,
}

impl ActiveRequest {
    /// A call of `prepared` on `held`, whose lengths fit these blocks. `root` is 0 where there is none.
    pub fn new(prepared: Prepared<'static>, held: OwnedBuffers, root: usize, blocks: Blocks, room: Room) -> Self {
        let prepared = prepared.started();
        let block = Exchange::new(prepared.collective, root, prepared.ranks, blocks.lens()).most();
        let mut request = ActiveRequest {
            held,
            prepared,
            operator: None,
            root,
            blocks,
            block,
            room,
            lengths: [0; 2],
            segments: 1,
            scratch: Scratch::default(),
            id: 0,
            epoch: 0,
            segment: 0,
            history: 0,
            state: State::Queued,
            failed: None,
            detached: false,
            glances: Glances::default(),
        };
        request.lengths = request.lengths_now();
        request.segments = match prepared.exchanges() {
            true => request.exchange().windows(request.element_bytes(), room.deposit).count(),
            false => block.div_ceil(request.part()).max(1),
        } as u64;
        request
    }

    fn lengths_now(&mut self) -> [usize; 2] {
        let buffers = self.held.as_buffers();
        [buffers.send_count(), buffers.recv_count()]
    }

    /// Whether its buffers are as long as when it was made: what their lengths allow was checked then.
    pub fn has_its_lengths(&mut self) -> bool {
        self.lengths_now() == self.lengths
    }

    /// The same call, which this operator folds.
    pub fn folded_by(self, operator: Arc<dyn ReduceFn + Send>) -> Self {
        ActiveRequest { operator: Some(operator), ..self }
    }

    /// Makes it a part of a larger operation with this number.
    pub fn be_within(&mut self, number: u16) {
        self.prepared.signature = self.prepared.signature.within(number);
        self.prepared.hash = self.prepared.signature.hash();
    }

    /// The buffers, for their owner: only an operation that is not pending can be had.
    pub fn held(&mut self) -> &mut OwnedBuffers {
        &mut self.held
    }

    /// The buffers.
    pub fn into_held(self: Box<Self>) -> OwnedBuffers {
        self.held
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

    /// Makes the result of a group of one.
    pub(super) fn copy(&mut self) {
        let exchange = Exchange::new(self.collective(), self.root, self.prepared.ranks, self.blocks.lens());
        self.held.as_buffers().copy(&exchange);
    }

    /// The algorithm that ran, and the number of its last operation.
    pub(super) fn report(&self) -> Report {
        let algorithm = if self.prepared.exchanges() { Algorithm::Flat } else { Algorithm::Slices };
        Report::ticketless(self.epoch, algorithm)
    }

    /// Ready for the next start, whose first operation is `epoch`.
    pub(super) fn begin(&mut self, epoch: u64, history: u32) {
        (self.id, self.epoch, self.segment, self.history) = (epoch, epoch, 0, history);
        (self.state, self.failed, self.detached) = (State::Queued, None, false);
        self.glances = Glances::default();
    }

    /// Ends it, complete, for a caller who does not wait for it any more.
    pub(super) fn release(&mut self) {
        if self.failed.is_none() {
            // An error that shows only at the end is told to nobody.
            let _ = self.held.end(Ok(()));
        }
    }

    /// Makes progress in the current segment as far as that is possible without waiting; returns whether it is complete. Adds
    /// to `moves` what it changes.
    pub(super) fn progress_alone<B: Board>(
        &mut self,
        board: &B,
        mut patience: Patience,
        all_left: &mut u64,
        moves: &mut u32,
    ) -> bool {
        let around = RankContext { board, patience: &mut patience, all_left, moves, pending: None };
        let result = self.progress(around, Effort::Now);
        self.failed = result.err();
        result == Ok(true)
    }

    /// Returns whether the segment that is complete was followed by another one, which is the current one now.
    pub(super) fn next_segment(&mut self) -> bool {
        if self.segment + 1 == self.segments {
            return false;
        }
        (self.segment, self.epoch, self.state) = (self.segment + 1, self.epoch + 1, State::Queued);
        true
    }

    /// Makes progress in the current segment; returns whether it is complete.
    pub(super) fn progress<B: Board>(&mut self, around: RankContext<'_, B>, effort: Effort) -> Result<bool, Stop> {
        let (part, element_bytes, segment) = (self.part(), self.element_bytes(), self.segment as usize);
        let ActiveRequest { held, prepared, operator, root, blocks, state, scratch, glances, .. } = self;
        let exchange = Exchange::new(prepared.collective, *root, prepared.ranks, blocks.lens());
        let folding;
        let prepared = match operator {
            Some(operator) => {
                folding = Prepared { arithmetic: Arithmetic::User(&**operator), ..*prepared };
                &folding
            }
            None => &*prepared,
        };
        let mut sources = std::mem::take(&mut scratch.sources);
        let buffers = held.as_buffers().own_parts(&exchange, around.board.rank());
        let window = match prepared.exchanges() {
            true => exchange.windows(element_bytes, self.room.deposit).nth(segment),
            false => None,
        };
        let call = match &window {
            Some(window) => buffers.window(window, prepared),
            None => buffers.call(segment * part..(segment * part + part).min(self.block), prepared),
        };
        let mut op = Operation::new(around, &call, self.epoch, self.history, scratch);
        if call.registered.is_some() {
            op.fold_by_slot();
        }
        let result = match prepared.arithmetic {
            Arithmetic::User(_) => {
                let carried = catch_unwind(AssertUnwindSafe(|| op.progress(state, glances, effort, &mut sources)));
                carried.unwrap_or_else(|panic| Err(op.operator_panicked(&*panic)))
            }
            _ => op.progress(state, glances, effort, &mut sources),
        };
        self.scratch.sources = sources;
        result
    }
}

impl<B: Board> Operation<'_, B> {
    fn progress(
        &mut self,
        state: &mut State,
        glances: &mut Glances,
        effort: Effort,
        sources: &mut Vec<Source>,
    ) -> Result<bool, Stop> {
        loop {
            let (moved, complete) = self.try_to(state, effort, sources)?;
            *self.moves = self.moves.wrapping_add(u32::from(moved));
            if complete {
                return Ok(true);
            }
            match effort {
                // A rank that does not wait for it folds for one turn, however large it is.
                Effort::Now | Effort::Glance if moved && self.call.registered.is_some() => return Ok(false),
                _ if moved => {}
                Effort::Now => return Ok(false),
                Effort::Glance => return self.glance(glances).map(|()| false),
                Effort::Wait => self.until_more(state, sources)?,
            }
        }
    }

    /// Does what can be done; returns whether that was something, and whether the operation is complete.
    fn try_to(&mut self, state: &mut State, effort: Effort, sources: &mut Vec<Source>) -> Result<(bool, bool), Stop> {
        let call = self.call;
        match (state, call.window) {
            (state @ State::Queued, window) => {
                // A deposit that fits beside the mark or lies in buffers of its own needs no area.
                let needs_none = window.is_some_and(|w| w.inline) || call.registered.is_some();
                let back = if needs_none { SLOTS } else { AREAS };
                if effort == Effort::Wait {
                    self.until_all_left(back)?;
                } else if !self.have_all_left(back) {
                    return Ok((false, false));
                }
                *state = self.enter_and_deposit(sources)?;
                Ok((true, false))
            }
            (State::Folding { copied, left }, _) => {
                let moved = slices::sweep(self, &slices::pieces(self), copied, left);
                Ok((moved, *left == 0))
            }
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
            (State::Collecting { .. }, None) => unreachable!("an exchange has a window"),
        }
    }

    /// Makes the contribution available to the others. Its memory is free.
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
            (None, None) => {
                slices::enter_and_deposit(self)?;
                State::Folding { copied: Done::default(), left: slices::pieces(self).number }
            }
        })
    }

    /// Waits until more can be done for an operation whose contribution is deposited.
    fn until_more(&mut self, state: &mut State, sources: &[Source]) -> Result<(), Stop> {
        match (state, self.call.window) {
            // It waits for its memory itself.
            (State::Queued, _) => Ok(()),
            (State::Folding { copied, .. }, _) => slices::until_more(self, &slices::pieces(self), copied),
            (State::Reducing(progress), _) => registered::until_more(self, progress),
            (State::Collecting { .. }, window) => {
                exchange::until_more(self, window.expect("an exchange has a window"), sources)
            }
        }
    }

    /// The group's error, if there is one by now; the peers are inspected now and then.
    fn glance(&mut self, glances: &mut Glances) -> Result<(), Stop> {
        if let Some(stop) = self.poisoned() {
            return Err(stop);
        }
        let now_ns = self.board.now_ns();
        let begun_ns = *glances.begun_ns.get_or_insert(now_ns);
        if now_ns - begun_ns < glances.next_ns.max(GLANCE_NS) {
            return Ok(());
        }
        glances.next_ns = now_ns - begun_ns + GLANCE_NS;
        self.inspect(&mut glances.watch, begun_ns)?;
        #[cfg(not(earlybird_loom))]
        if self.cannot_end(&mut glances.proof, begun_ns) {
            return Err(self.corrupt());
        }
        Ok(())
    }
}
