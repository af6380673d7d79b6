//! The steps that started calls are made of, as futures that do what can be done whenever they are polled.

use crate::Error;
use crate::hierarchy::leader_channel::LeaderChannel;
use crate::hierarchy::operation::{NodePhase, Operation};
use crate::hierarchy::scratch::Scratch;
use crate::hierarchy::turns::Turns;
use crate::hierarchy::{Hierarchy, Topology};
use crate::plans::{OwnedPlan, Plans, Shape};
use earlybird_hier::exec::{Parts, Running};
use earlybird_shm::engine;
use earlybird_shm::{
    Collective, Completion, Counts, InactiveRequest, NodeComm, OwnedBuffers, OwnedBytes, OwnedCall, SharedReduceOp,
    Signature,
};
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::task::Poll;
use std::time::{Duration, Instant};

/// Most time between two polls that counts against a deadline: the caller may have been elsewhere.
const COUNTED_MOST: Duration = Duration::from_millis(250);

/// The state of one started call that its steps share.
pub(in crate::hierarchy) struct Steps {
    between: Arc<Hierarchy>,
    number: u64,
    /// The number of the call among all calls of the communicator.
    call: u64,
    collective: Collective,
    signature: Signature,
    /// True once the other leaders know that this one has begun to exchange.
    begun: AtomicBool,
}

/// The time that a call has waited for other leaders, as far as that counts against a deadline.
#[derive(Debug, Clone, Copy)]
pub(super) struct Waited {
    polled: Instant,
    counted: Duration,
}

impl Default for Waited {
    fn default() -> Self {
        Waited { polled: Instant::now(), counted: Duration::ZERO }
    }
}

impl Waited {
    /// Fails the group if `awaited` was waited for too long.
    fn give_up(&mut self, plans: &mut Plans<LeaderChannel>, awaited: usize) -> Result<(), Error> {
        // A call that only the progress engine polls is not waited for.
        self.counted += if engine::is_driving() { Duration::ZERO } else { self.polled.elapsed().min(COUNTED_MOST) };
        self.polled = Instant::now();
        plans.give_up(awaited, self.counted).map_or(Ok(()), Err)
    }
}

/// Returns whether an error only says that another thread holds a lock at the moment.
pub(super) fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Usage { .. })
}

/// Returns control to the caller once, and continues in the next poll.
async fn yield_once() {
    let mut polled = false;
    poll_fn(|_| if std::mem::replace(&mut polled, true) { Poll::Ready(()) } else { Poll::Pending }).await;
}

impl Steps {
    pub(super) fn new(
        between: &Arc<Hierarchy>,
        (collective, signature): (Collective, Signature),
        (number, call): (u64, u64),
    ) -> Self {
        Steps { between: between.clone(), number, call, collective, signature, begun: AtomicBool::new(false) }
    }

    /// The numbers of the next start.
    pub(super) fn count(&mut self, number: u64, call: u64) {
        (self.number, self.call) = (number, call);
    }

    pub(in crate::hierarchy) fn topology(&self) -> &Topology {
        &self.between.topology
    }

    pub(in crate::hierarchy) fn scratch(&self) -> &Scratch {
        &self.between.scratch
    }

    fn within(&self) -> u16 {
        self.signature.hash() as u16
    }

    /// Returns whether this poll may wait for other ranks.
    fn waits(&self) -> bool {
        self.between.turns.waits.load(Relaxed)
    }

    /// The group in which leaders collect.
    pub(super) fn node(&self) -> &NodeComm {
        &self.between.node
    }

    /// The group in which leaders deliver.
    pub(super) fn deliver(&self) -> &NodeComm {
        &self.between.deliver
    }

    /// An operation of this call on these buffers, for [`Steps::node`] or [`Steps::deliver`].
    pub(super) fn prepare(
        &self,
        node: &NodeComm,
        operation: Operation<'_>,
        op: SharedReduceOp,
        buffers: OwnedBuffers,
    ) -> Result<InactiveRequest, Error> {
        let unequal = operation.lens.filter(|lens| lens.iter().any(|len| *len != lens[0]));
        let counts = unequal.map_or(Counts::Uniform, Counts::PerRank);
        let call = OwnedCall::new(operation.collective, op, operation.root, counts, buffers);
        Ok(node.prepare(call)?.within(self.within()))
    }

    /// Returns whether the calls before have started their deliveries.
    pub(super) fn may_deliver(&self) -> bool {
        Turns::is(&self.between.turns.deliver, self.number)
    }

    /// Lets the next call deliver: this one has started its delivery.
    pub(super) fn pass_delivery(&self) {
        Turns::pass_on(&self.between.turns.deliver);
    }

    /// The operation that was started under this number in [`Steps::node`] or [`Steps::deliver`], if it has ended.
    pub(super) fn ended(&self, node: &NodeComm, number: u64) -> Result<Option<Completion>, Error> {
        let ended = match self.waits() {
            true => {
                // The collected data is exchanged next.
                if std::ptr::eq(node, self.node()) {
                    self.announce_exchange();
                }
                node.finish(number).map(Some)
            }
            false => node.ask(number),
        };
        ended.or_else(|error| if is_busy(&error) { Ok(None) } else { Err(error) })
    }

    /// Carries out an operation of the node, and returns its buffers.
    pub(in crate::hierarchy) async fn on_node(
        &self,
        phase: NodePhase,
        operation: Operation<'_>,
        op: SharedReduceOp,
        bytes: OwnedBytes,
    ) -> Result<OwnedBytes, Error> {
        let node = match phase {
            NodePhase::Collect => self.node(),
            NodePhase::BeforeDelivery | NodePhase::Deliver => {
                self.turn(&self.between.turns.deliver).await;
                self.deliver()
            }
        };
        let mut ready = self.prepare(node, operation, op, bytes.into())?;
        let number = loop {
            match node.start(ready) {
                Ok(number) => break number,
                // Operations have one order, so this one cannot be started later.
                Err((back, error)) if is_busy(&error) => ready = back,
                Err((_, error)) => return Err(error),
            }
            // The first operation of a call is started by the call itself; the others have their turn as long as it takes.
            if engine::is_driving() { yield_once().await } else { std::thread::yield_now() }
        };
        if phase == NodePhase::Deliver {
            self.pass_delivery();
        }
        let ended = || self.ended(node, number).transpose().map_or(Poll::Pending, Poll::Ready);
        let (ready, result) = poll_fn(|_| ended()).await?;
        result?;
        Ok(ready.into_buffers::<OwnedBytes>().expect("the type it was made with"))
    }

    /// Lets the next call deliver, where this one has nothing to deliver.
    pub(in crate::hierarchy) async fn skip_delivery(&self) {
        self.turn(&self.between.turns.deliver).await;
        self.pass_delivery();
    }

    /// Waits for the turn of this call.
    async fn turn(&self, turn: &AtomicU64) {
        poll_fn(|_| if Turns::is(turn, self.number) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// Runs an exchange between leaders, one call at a time: until [`Steps::pass_exchange`] no other call exchanges.
    async fn between_nodes<D: ?Sized, R: Running<D>>(
        &self,
        start: impl FnOnce(&mut Plans<LeaderChannel>) -> Result<R, Error>,
        data: &mut D,
    ) -> Result<(), Error> {
        self.turn(&self.between.turns.exchange).await;
        let (mut start, mut running) = (Some(start), None);
        let mut waited = Waited::default();
        poll_fn(|_| {
            let Ok(mut between) = self.between.lock() else { return Poll::Pending };
            let plans = &mut between.plans;
            if let Some(start) = start.take() {
                self.begin(plans);
                running = Some(start(plans)?);
            }
            let ended = self.step(plans, running.as_mut().expect("started above"), data, &mut waited)?;
            if ended { Poll::Ready(Ok(())) } else { Poll::Pending }
        })
        .await
    }

    /// Makes progress in an exchange between leaders. Returns whether it has ended.
    fn step<D: ?Sized>(
        &self,
        plans: &mut Plans<LeaderChannel>,
        running: &mut impl Running<D>,
        data: &mut D,
        waited: &mut Waited,
    ) -> Result<bool, Error> {
        if self.waits() {
            plans.wait(running, data)?;
        } else if let Some(awaited) = plans.poll(running, data)? {
            return waited.give_up(plans, awaited).map(|()| false);
        }
        self.complete(plans);
        Ok(true)
    }

    /// Lets the next call exchange: this one exchanges no more.
    pub(in crate::hierarchy) fn pass_exchange(&self) {
        if self.topology().leads() {
            Turns::pass_on(&self.between.turns.exchange);
        }
    }

    fn begin(&self, plans: &mut Plans<LeaderChannel>) {
        if !self.begun.swap(true, Relaxed) {
            plans.transport_mut().begin_call(self.collective, self.call, self.signature);
        }
    }

    fn complete(&self, plans: &mut Plans<LeaderChannel>) {
        plans.transport_mut().complete_call();
        self.begun.store(false, Relaxed);
    }

    /// Tells the other leaders that this one is in the call while it waits for its node: they then wait longer than it does.
    fn announce_exchange(&self) {
        if self.topology().leads()
            && Turns::is(&self.between.turns.exchange, self.number)
            && let Ok(mut between) = self.between.lock()
        {
            self.begin(&mut between.plans);
        }
    }

    /// Starts the leader's plan if it is this call's turn. Returns whether it was.
    pub(super) fn start(&self, plan: &mut OwnedPlan) -> Result<bool, Error> {
        if !Turns::is(&self.between.turns.exchange, self.number) {
            return Ok(false);
        }
        let Ok(mut between) = self.between.lock() else { return Ok(false) };
        self.begin(&mut between.plans);
        between.plans.restart(plan).map(|()| true)
    }

    /// Makes progress in the leader's plan. Returns whether it has ended.
    pub(super) fn progress(&self, plan: &mut OwnedPlan, data: &mut [u8], waited: &mut Waited) -> Result<bool, Error> {
        let Ok(mut between) = self.between.lock() else { return Ok(false) };
        self.step(&mut between.plans, plan, data, waited)
    }

    /// Runs a plan between leaders, as the only exchange of the call.
    pub(in crate::hierarchy) async fn plan(&self, shape: Shape, data: &mut [u8]) -> Result<(), Error> {
        self.between_nodes(|plans| plans.start_owned(shape), data).await?;
        self.pass_exchange();
        Ok(())
    }

    /// Exchanges parts between leaders; another exchange follows, or [`Steps::pass_exchange`].
    pub(in crate::hierarchy) async fn exchange(&self, parts: &mut [Parts<'_>]) -> Result<(), Error> {
        let call = self.signature.hash();
        self.between_nodes(|plans| plans.start_parts(call), parts).await
    }

    /// Fails the job with an error of this call. Returns the error that counts on all ranks.
    pub(super) fn failed(&self, error: Error) -> Error {
        match error {
            Error::Forked => error,
            _ => match self.between.lock() {
                Ok(mut state) => self.between.fail(state.plans.transport_mut(), self.signature, &error),
                Err(busy) => busy,
            },
        }
    }
}
