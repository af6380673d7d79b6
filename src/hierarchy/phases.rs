//! The steps that collectives over several nodes are made of: operations of the node's group, and exchanges between leaders.
//!
//! Each collective is one asynchronous function of these steps. In a blocking call every step waits for its end, so the function
//! is complete at its first poll; in a started call a step makes the progress that is possible whenever it is polled.

use super::call::Call;
use super::leader_channel::LeaderChannel;
use super::operation::{Buf, Bytes, NodePhase, Operation};
use super::scratch::Scratch;
use super::segments::{SEGMENT_BYTES, segment};
use super::started::Steps;
use super::topology::Topology;
use crate::plans::{Plans, Shape};
use crate::{Error, Op};
use earlybird_hier::exec::Parts;
use earlybird_shm::{
    CallBuffers, CallOptions, Collective, CollectiveArgs, Counts, NodeComm, OwnedBytes, ReduceOp, SharedReduceOp,
};
use std::borrow::Cow;

/// A call under way.
pub(super) struct Phases<'a> {
    pub(super) topology: &'a Topology,
    pub(super) call: &'a Call,
    /// The plan between leaders, where they run one.
    pub(super) shape: Option<Shape>,
    /// The operator of the call, as it is carried out.
    pub(super) op: ReduceOp<'a>,
    mode: Mode<'a>,
}

/// The way in which the steps of a call are carried out.
pub(super) enum Mode<'a> {
    Blocking(Blocking<'a>),
    /// With the operator as a started call keeps it.
    Started(&'a Steps, &'a SharedReduceOp),
    Listing(Listing<'a>),
}

/// A call that is explained: operations of the node are listed as a blocking call makes them, and nothing is carried out.
pub(super) struct Listing<'a> {
    pub(super) operations: &'a mut Vec<(NodePhase, Collective, usize)>,
    pub(super) outnumbers_cpus: bool,
}

/// The groups and settings that a blocking call uses.
pub(super) struct Blocking<'a> {
    pub(super) node: &'a NodeComm,
    pub(super) plans: &'a mut Plans<LeaderChannel>,
    pub(super) scratch: &'a Scratch,
    /// The settings of the operations of the node.
    pub(super) options: CallOptions,
    pub(super) outnumbers_cpus: bool,
}

impl<'a> Phases<'a> {
    pub(super) fn new(
        topology: &'a Topology,
        (call, shape): (&'a Call, Option<Shape>),
        op: ReduceOp<'a>,
        mode: Mode<'a>,
    ) -> Self {
        Phases { topology, call, shape, op, mode }
    }

    /// Carries out an operation of the node. Without `send` the contribution lies in `recv`; a rank that is not the root of a
    /// reduction only sends, and its `recv` stays as it is.
    pub(super) async fn on_node(
        &mut self,
        phase: NodePhase,
        operation: Operation<'_>,
        send: Option<Bytes<'_>>,
        recv: &mut Buf<'_>,
    ) -> Result<(), Error> {
        let folds = operation.collective.traits().folds && operation.collective.traits().has_data;
        let only_sends = folds && operation.root.is_some_and(|root| root != self.topology.local());
        let at_once = if folds { self.op } else { ReduceOp::Builtin(Op::Sum) };
        match &mut self.mode {
            Mode::Blocking(blocking) => {
                let args = arguments(operation, only_sends, at_once, send.as_deref(), recv);
                blocking.node.execute(args.options(blocking.options))
            }
            Mode::Listing(listing) => {
                let args = arguments(operation, only_sends, at_once, send.as_deref(), recv);
                let checked = args.check(self.topology.local(), self.topology.here().len())?;
                listing.operations.push((phase, operation.collective, checked.selecting_bytes()));
                Ok(())
            }
            Mode::Started(steps, op) => {
                let op = if folds { op.clone() } else { Op::Sum.into() };
                let is_in_place = only_sends && send.is_none();
                let (send, room) = match only_sends {
                    true => (Some(send.map_or_else(|| recv.take(), Cow::into_owned)), Vec::new()),
                    false => (send.map(Cow::into_owned), recv.take()),
                };
                let bytes = OwnedBytes::new(send, room, operation.datatype);
                let bytes = steps.on_node(phase, operation, op, bytes).await?;
                let mut sent = bytes.send;
                if !only_sends {
                    recv.put(bytes.recv);
                } else if is_in_place && let Some(own) = sent.take() {
                    recv.put(own);
                }
                steps.scratch().give_back(sent.unwrap_or_default());
                Ok(())
            }
        }
    }

    /// A vector of so many bytes, of any value, for what this rank holds for its node.
    pub(super) fn vector(&self, bytes: usize) -> Buf<'a> {
        match &self.mode {
            Mode::Blocking(blocking) => Buf::Scratch(blocking.scratch.vector(bytes)),
            Mode::Started(steps, _) => Buf::Scratch(steps.scratch().vector(bytes)),
            Mode::Listing(_) => Buf::Owned(vec![0; bytes]),
        }
    }

    /// The bytes of a buffer, to be sent: of a started call, which owns what it sends, the vector itself.
    pub(super) fn bytes_of<'b>(&self, buf: &'b mut Buf<'_>) -> Bytes<'b> {
        match &self.mode {
            Mode::Started(..) => Cow::Owned(buf.take()),
            Mode::Blocking(_) | Mode::Listing(_) => Cow::Borrowed(buf),
        }
    }

    /// Ends a call whose leader has nothing to deliver on this node.
    pub(super) async fn skip_delivery(&mut self) {
        if let Mode::Started(steps, _) = &self.mode {
            steps.skip_delivery().await;
        }
    }

    /// Runs a plan on the leader, as the only exchange of the call; nothing elsewhere.
    pub(super) async fn plan(&mut self, shape: Shape, data: &mut [u8]) -> Result<(), Error> {
        if !self.topology.leads() {
            return Ok(());
        }
        match &mut self.mode {
            Mode::Blocking(blocking) => blocking.plans.run(shape, data),
            Mode::Started(steps, _) => steps.plan(shape, data).await,
            Mode::Listing(_) => Ok(()),
        }
    }

    /// Exchanges parts between leaders, one with each node; the last exchange of the call lets the next call exchange.
    pub(super) async fn exchange(&mut self, parts: &mut [Parts<'_>], is_last: bool) -> Result<(), Error> {
        match &mut self.mode {
            Mode::Blocking(blocking) => blocking.plans.exchange(self.call.signature.hash(), parts),
            Mode::Started(steps, _) => {
                steps.exchange(parts).await?;
                if is_last {
                    steps.pass_exchange();
                }
                Ok(())
            }
            Mode::Listing(_) => Ok(()),
        }
    }

    /// Lets the next call exchange: after exchanges of which none was the last.
    pub(super) fn end_exchange(&self) {
        if let Mode::Started(steps, _) = &self.mode {
            steps.pass_exchange();
        }
    }

    /// The bytes of each segment of an allreduce of so many elements of `size` bytes, and the ranks of each node that exchange
    /// them. A started call is not cut.
    pub(super) fn segments(&self, elements: usize, size: usize) -> (usize, usize) {
        match &self.mode {
            Mode::Blocking(Blocking { outnumbers_cpus, .. }) | Mode::Listing(Listing { outnumbers_cpus, .. }) => {
                let endpoints = self.topology.endpoints();
                (size * segment(elements, size, *outnumbers_cpus, endpoints), endpoints)
            }
            Mode::Started(..) => (usize::MAX, 1),
        }
    }

    /// The bytes of each segment of a reduction by an operator of a user's on elements of so many bytes.
    pub(super) fn segment_of_user(&self, element_bytes: usize) -> usize {
        match &self.mode {
            Mode::Blocking(_) | Mode::Listing(_) => (SEGMENT_BYTES / element_bytes).max(1) * element_bytes,
            Mode::Started(..) => usize::MAX,
        }
    }

    /// Makes the plan of a segment ready.
    pub(super) fn prepare(&mut self, shape: Shape) -> Result<(), Error> {
        match &mut self.mode {
            Mode::Blocking(blocking) => blocking.plans.prepare(shape),
            Mode::Started(..) | Mode::Listing(_) => Ok(()),
        }
    }

    /// Starts the plan of a segment, which [`Phases::finish`] completes. The plan of a started call begins there.
    pub(super) fn start(&mut self, shape: Shape, data: &mut [u8]) -> Result<(), Error> {
        match &mut self.mode {
            Mode::Blocking(blocking) => blocking.plans.start(shape, data),
            Mode::Started(..) | Mode::Listing(_) => Ok(()),
        }
    }

    /// Completes the plan of a segment; that of the `next` one advances meanwhile.
    pub(super) async fn finish(
        &mut self,
        shape: Shape,
        data: &mut [u8],
        next: Option<(Shape, &mut [u8])>,
    ) -> Result<(), Error> {
        match &mut self.mode {
            Mode::Blocking(blocking) => blocking.plans.finish(shape, data, next),
            Mode::Started(steps, _) => steps.plan(shape, data).await,
            Mode::Listing(_) => Ok(()),
        }
    }
}

/// The arguments of an operation that is made at once. A rank that `only_sends` has its contribution in `recv` where there is no
/// `send`, and receives nothing.
fn arguments<'b>(
    operation: Operation<'b>,
    only_sends: bool,
    op: ReduceOp<'b>,
    send: Option<&'b [u8]>,
    recv: &'b mut Buf<'_>,
) -> CollectiveArgs<'b> {
    let (send, room) = match only_sends {
        true => (Some(send.unwrap_or(recv)), Default::default()),
        false => (send, &mut **recv),
    };
    let buffers = CallBuffers::of_bytes(send, room, operation.datatype);
    let counts = operation.lens.map_or(Counts::Uniform, Counts::PerRank);
    match operation.collective {
        Collective::Barrier => CollectiveArgs::barrier(),
        collective => CollectiveArgs::describe(collective, operation.root, counts, buffers, op),
    }
}
