//! The steps that posted calls are made of, as futures that do what can be done whenever they are polled.

use super::{Outcome, Prepared, Turns};
use crate::Error;
use crate::hierarchy::wire::Wire;
use crate::hierarchy::{Hierarchy, Topology};
use crate::plans::{Apart, Plans, Shape};
use earlybird_hier::exec::Parts;
use earlybird_shm::{Collective, Element, NodeComm, Op, Owned, Ready, Signature};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The most that counts against a deadline between two polls: the caller may have been elsewhere.
const COUNTED_MOST: Duration = Duration::from_millis(250);

/// An operation of a node.
pub(super) struct Operation {
    pub(super) collective: Collective,
    pub(super) op: Op,
    pub(super) root: Option<usize>,
    /// Elements of each block, where they are not all of one length.
    lens: Option<Vec<usize>>,
}

impl Operation {
    pub(super) fn new(collective: Collective, op: Op, root: Option<usize>) -> Self {
        Operation { collective, op, root, lens: None }
    }

    /// Data of these lengths to the leader, or from it.
    pub(super) fn of_parts(collective: Collective, lens: Vec<usize>) -> Self {
        let is_equal = lens.iter().all(|len| *len == lens[0]);
        Operation { collective, op: Op::Sum, root: Some(0), lens: (!is_equal).then_some(lens) }
    }

    fn ready<T: Element>(self, node: &NodeComm, owned: Owned<T>) -> Result<Ready, Error> {
        match self.lens {
            Some(lens) => node.ready_varcount(self.collective, self.op, self.root, &lens, owned),
            None => node.ready(self.collective, self.op, self.root, owned),
        }
    }
}

/// One posted call on its way.
pub(super) struct Steps {
    pub(super) between: Arc<Hierarchy>,
    node: Arc<NodeComm>,
    number: u64,
    /// Its number among all calls of the communicator.
    call: u64,
    collective: Collective,
    pub(super) signature: Signature,
}

/// Whether an error only says that another thread looks at something right now.
fn is_busy(error: &Error) -> bool {
    matches!(error, Error::Usage { .. })
}

/// Gives the operation to the node, and the buffer of what this rank gets when it has ended.
async fn on<T: Send + 'static>(node: &NodeComm, mut ready: Ready, posted: impl FnOnce()) -> Result<Vec<T>, Error> {
    let number = loop {
        match node.post(ready) {
            Ok(number) => break number,
            // Operations have one order, so this one cannot be posted later.
            Err((back, error)) if is_busy(&error) => ready = back,
            Err((_, error)) => return Err(error),
        }
        std::thread::yield_now();
    };
    posted();
    let ended = poll_fn(|_| match node.ask(number) {
        Ok(Some(ended)) => Poll::Ready(Ok(ended)),
        Ok(None) => Poll::Pending,
        Err(error) if is_busy(&error) => Poll::Pending,
        Err(error) => Poll::Ready(Err(error)),
    });
    let (ready, result) = ended.await?;
    result?;
    Ok(ready.into_buffers::<T>().expect("the type it was made with").recv)
}

impl Steps {
    pub(super) fn new(
        between: &Arc<Hierarchy>,
        node: &Arc<NodeComm>,
        prepared: &Prepared,
        (number, call): (u64, u64),
    ) -> Self {
        let Prepared { collective, signature, .. } = *prepared;
        Steps { between: between.clone(), node: node.clone(), number, call, collective, signature }
    }

    pub(super) fn topology(&self) -> &Topology {
        &self.between.topology
    }

    fn within(&self) -> u16 {
        self.signature.hash() as u16
    }

    /// The operation of the node that gives; the first step of a call, if it has one.
    pub(super) async fn give<T: Element>(&self, operation: Operation, owned: Owned<T>) -> Result<Vec<T>, Error> {
        self.give_ready(operation.ready(&self.node, owned)?).await
    }

    /// The same with an operation that was made for [`Steps::node`].
    pub(super) async fn give_ready<T: Send + 'static>(&self, ready: Ready) -> Result<Vec<T>, Error> {
        on(&self.node, ready.within(self.within()), || ()).await
    }

    /// The group of what a call gives.
    pub(super) fn node(&self) -> &NodeComm {
        &self.node
    }

    /// An operation before the one that takes, in the same group.
    pub(super) async fn take_first<T: Element>(&self, operation: Operation, owned: Owned<T>) -> Result<Vec<T>, Error> {
        let deliver = &self.between.postings.deliver;
        self.turn(|turns| Turns::is(&turns.deliver, self.number)).await;
        on(deliver, operation.ready(deliver, owned)?.within(self.within()), || ()).await
    }

    /// The operation of the node that takes; the last step of a call, which makes it where it has one and passes it where not.
    pub(super) async fn take<T: Element>(&self, operation: Option<(Operation, Owned<T>)>) -> Result<Vec<T>, Error> {
        let postings = &self.between.postings;
        self.turn(|turns| Turns::is(&turns.deliver, self.number)).await;
        let pass_on = || Turns::pass_on(&postings.turns.deliver);
        match operation {
            Some((operation, owned)) => {
                let ready = operation.ready(&postings.deliver, owned)?;
                on(&postings.deliver, ready.within(self.within()), pass_on).await
            }
            None => {
                pass_on();
                Ok(Vec::new())
            }
        }
    }

    async fn turn(&self, is_mine: impl Fn(&Turns) -> bool) {
        poll_fn(|_| if is_mine(&self.between.postings.turns) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    /// What leaders do between the nodes, one call at a time: until [`Steps::pass_exchange`] no other one does.
    async fn between_nodes<S>(
        &self,
        start: impl FnOnce(&mut Plans<Wire>) -> Result<S, Error>,
        mut poll: impl FnMut(&mut Plans<Wire>, &mut S) -> Result<Option<usize>, Error>,
    ) -> Result<(), Error> {
        self.turn(|turns| Turns::is(&turns.exchange, self.number)).await;
        let (mut start, mut state) = (Some(start), None);
        let (mut polled, mut waited) = (Instant::now(), Duration::ZERO);
        poll_fn(|_| {
            let Ok(mut between) = self.between.lock() else { return Poll::Pending };
            let plans = &mut between.plans;
            let step = match start.take() {
                Some(start) => {
                    self.begin(plans);
                    start(plans).map(|started| state = Some(started))
                }
                None => Ok(()),
            };
            let awaited = step.and_then(|()| match &mut state {
                Some(state) => poll(plans, state),
                None => Ok(None),
            });
            match awaited {
                Ok(Some(awaited)) => {
                    waited += polled.elapsed().min(COUNTED_MOST);
                    polled = Instant::now();
                    match plans.give_up(awaited, waited) {
                        Some(error) => Poll::Ready(Err(error)),
                        None => Poll::Pending,
                    }
                }
                Ok(None) => {
                    plans.transport_mut().complete_call();
                    Poll::Ready(Ok(()))
                }
                Err(error) => Poll::Ready(Err(error)),
            }
        })
        .await
    }

    /// This call exchanges no more.
    pub(super) fn pass_exchange(&self) {
        if self.topology().leads() {
            Turns::pass_on(&self.between.postings.turns.exchange);
        }
    }

    fn begin(&self, plans: &mut Plans<Wire>) {
        plans.transport_mut().begin_call(self.collective, self.call, self.signature);
    }

    /// Runs a plan on the leader; nothing elsewhere.
    pub(super) async fn plan(&self, shape: Shape, data: &mut [u8]) -> Result<(), Error> {
        if !self.topology().leads() {
            return Ok(());
        }
        let poll = |plans: &mut Plans<_>, apart: &mut Apart| plans.poll_apart(apart, data);
        self.between_nodes(|plans| plans.start_apart(shape), poll).await?;
        self.pass_exchange();
        Ok(())
    }

    /// Exchanges parts on the leader, as the last exchange of the call.
    pub(super) async fn swap(&self, parts: &mut [Parts<'_>]) -> Result<(), Error> {
        self.swap_first(parts).await?;
        self.pass_exchange();
        Ok(())
    }

    /// The same where another one follows, or [`Steps::pass_exchange`].
    pub(super) async fn swap_first(&self, parts: &mut [Parts<'_>]) -> Result<(), Error> {
        let call = self.signature.hash();
        self.between_nodes(|plans| plans.start_parts(call), |plans, under_way| plans.poll_parts(under_way, parts)).await
    }

    /// The end of the call: fails the job if it has failed here.
    pub(super) fn end(&self, outcome: Outcome) -> Outcome {
        outcome.map_err(|error| match error {
            Error::Forked => error,
            _ => self.between.fail_posted(&self.node, self.signature, &error),
        })
    }
}
