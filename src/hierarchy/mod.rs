//! Communicators over several nodes. Every rank is in the group of its node; the first rank of each, its leader, is in
//! the group of leaders. A call is made of operations of the node and of plans, or plain packets, between leaders; large
//! allreduces go between the first few ranks of each node, a part by each.
//!
//! Only `Communicator` uses this, and only where there is more than one node: what happens inside a node stays in
//! `earlybird-shm`, what happens between leaders in `earlybird-hier`.
//!
//! ```text
//! choice (which plan) · topology (who is where) · alike (what all ranks must have alike; how many of a node exchange)
//! wire (between nodes; the job's one error) · errors (a node's as the job's)
//! reductions (the three phases, segment by segment) · shared (with one result per node) · operators, callers (those of callers)
//! moves (data as it is) · pairs (in blocks that differ for every pair)
//! ```
//!
//! **Errors.** A rank that finds its node's group or the leaders' failed reports it to the wire, where the first report
//! stands for the whole job, fails its node's group, and returns what stands. So the news goes from a node through its
//! leader, or through any rank that can reach the wire, to the other leaders, and from each to its node.
//!
//! **Deadlines.** Whoever waits for the rank that is really late must be the first to say so: a leader waits for its node
//! as long as was set, leaders wait for leaders that are in the call longer, and so do the others for their leader.

mod alltoallv;
mod bools;
mod choice;
mod config_check;
mod connect;
mod errors;
mod leader_channel;
mod moves;
mod operators;
mod packing;
mod posted;
mod reductions;
mod shared;
mod shrink;
mod split;
mod topology;
mod user_ops;

use crate::Error;
use crate::plans::{Plans, Shape};
pub(crate) use alltoallv::PairCounts;
pub(crate) use bools::{of_bytes, put_truth};
use choice::Exchanges;
use earlybird_hier::OpTraits;
use earlybird_hier::exec::Transport;
use earlybird_shm::Signature;
use earlybird_shm::channel::{Fault, RingOptions};
use earlybird_shm::op::Datatype;
use earlybird_shm::shrink::Membership;
use earlybird_shm::{
    CallBuffers, CallOptions, Collective, CollectiveArgs, Counts, NodeComm, Progress, ReduceOp, enter,
};
use leader_channel::LeaderChannel;
pub(crate) use leader_channel::LeaderTransport;
use posted::Postings;
pub(crate) use posted::{MultiNodeComm, OwnedPairCounts, Prepared, StartedArgs};
pub(crate) use split::Part;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
pub(crate) use topology::Topology;
pub(crate) use user_ops::{OwnedUserOp, UserReduction};

/// The nodes of a communicator, as this rank sees them.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    topology: Topology,
    state: Mutex<State>,
    deadline: Option<Duration>,
    exchanges: Exchanges,
    /// The same as [`LeaderTransport::is_crowded`].
    is_crowded: bool,
    postings: Postings,
    /// Where the leaders of groups made from this one meet, if they share memory.
    meeting: RingOptions,
    /// All ranks of all nodes, if they share memory.
    membership: Option<Membership>,
}

#[derive(Debug)]
struct State {
    plans: Plans<LeaderChannel>,
    /// Calls begun.
    calls: u64,
    /// A hash over the signatures of those that block, in order.
    history: u32,
    /// Number of the last call that is complete, and what ran between leaders in it.
    last: Option<(u64, &'static str)>,
    /// What to drive in long waits.
    progress: Option<Progress>,
}

/// A call as its communicator makes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call<'a> {
    pub node: &'a NodeComm,
    pub collective: Collective,
    pub options: CallOptions,
    pub signature: Signature,
    /// The plan between leaders, where one was chosen for this call.
    pub exchange: Option<&'static str>,
}

/// The elements and the operator of a reduction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fold<'a> {
    pub datatype: Datatype,
    pub op: ReduceOp<'a>,
}

/// A call under way.
struct Phases<'a> {
    node: &'a NodeComm,
    topology: &'a Topology,
    plans: &'a mut Plans<LeaderChannel>,
    /// The settings of the operations of the node.
    options: CallOptions,
    /// Tells this call from others, between leaders.
    call: u32,
    is_crowded: bool,
}

impl Phases<'_> {
    /// Carries out an operation of the node.
    fn on_node(&self, args: CollectiveArgs<'_>) -> Result<(), Error> {
        self.node.execute(args.options(self.options))
    }

    /// Copies `buf` of `root` to the other ranks of the node.
    fn broadcast_on_node(&self, buf: &mut [u8], root: usize) -> Result<(), Error> {
        self.on_node(CollectiveArgs::broadcast(root, buf))
    }

    /// Sends parts of these lengths to rank `root` of the node, which receives them in rank order.
    fn gather_on_node(&self, send: &[u8], recv: &mut [u8], lens: &[usize], root: usize) -> Result<(), Error> {
        self.on_node(CollectiveArgs::gather(root, (send, recv)).counts(Counts::PerRank(lens)))
    }

    /// Reduces `send` of the node's ranks, or what lies in `recv`, into `recv` of `root`; no other rank's is touched.
    fn reduce_on_node(&self, root: usize, send: Option<&[u8]>, recv: &mut [u8], fold: Fold<'_>) -> Result<(), Error> {
        let buffers = match self.topology.local() == root {
            true => CallBuffers::of_bytes(send, recv, fold.datatype),
            false => CallBuffers::of_bytes(Some(send.unwrap_or(recv)), &mut [], fold.datatype),
        };
        self.on_node(CollectiveArgs::reduce(root, buffers, fold.op))
    }
}

impl Hierarchy {
    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What chooses the plan between leaders, in words.
    pub(crate) fn chooses(&self) -> &'static str {
        self.exchanges.chooses()
    }

    /// Number of the last call, and what ran between the leaders in it.
    pub(crate) fn last(&self) -> Option<(u64, &'static str)> {
        self.lock().ok()?.last
    }

    pub(crate) fn set_progress(&self, progress: Option<Progress>) -> Result<(), Error> {
        let mut state = self.lock()?;
        state.plans.transport_mut().set_progress(progress.clone());
        self.postings.set_progress(progress.clone())?;
        state.progress = progress;
        Ok(())
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        enter(&self.state)
    }

    /// The plan between leaders for a vector of `bytes`, of which `chosen` was chosen for this call.
    fn exchange_for(&self, chosen: Option<&'static str>, bytes: usize, op: OpTraits) -> Result<&'static str, Error> {
        chosen.map_or_else(|| self.exchanges.plan_for(bytes, op), Ok)
    }

    /// Carries out a call whose arguments were checked. `shape` is the plan between leaders, if it is one: refused, where
    /// it must be, by all ranks before anything is shared. `name` is what runs between leaders.
    fn carry_out<R>(
        &self,
        call: &Call<'_>,
        name: &'static str,
        shape: Option<Shape>,
        body: impl FnOnce(&mut Phases<'_>) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let _alone = self.settle()?;
        let mut state = self.lock()?;
        let State { plans, calls, history, last, .. } = &mut *state;
        if let Some(error) = plans.failed() {
            return Err(error.clone());
        }
        plans.transport_mut().may_call()?;
        if plans.transport_mut().progress().is_err() {
            // Others have given up what this rank only comes to.
            let unheard = Error::Poisoned { cause: "the nodes cannot reach each other any more".into() };
            return Err(self.fail(plans.transport_mut(), call, &unheard));
        }
        if let Some(shape) = shape {
            plans.admit(shape)?;
        }
        *calls += 1;
        plans.transport_mut().begin_call(call.collective, *calls, call.signature);
        let hash = call.signature.hash();
        *history = (history.rotate_left(5) ^ hash).wrapping_mul(0x9e37_79b1);
        let options = CallOptions { within: hash as u16, ..call.options };
        let (topology, is_crowded) = (&self.topology, self.is_crowded);
        let mut phases = Phases { node: call.node, topology, plans, options, call: hash, is_crowded };
        match body(&mut phases) {
            Ok(done) => {
                plans.transport_mut().complete_call();
                plans.transport_mut().end_call(*calls);
                *last = Some((*calls, name));
                Ok(done)
            }
            // No member of anything: nothing of the job's is touched.
            Err(Error::Forked) => Err(Error::Forked),
            Err(error) => Err(self.fail(plans.transport_mut(), call, &error)),
        }
    }

    /// The end of the membership, as `NodeComm::end`, for the ranks of all nodes that share memory; otherwise for those of this node.
    pub(crate) fn close(&self, node: &NodeComm) -> Result<(), Error> {
        let _alone = self.settle()?;
        let mut state = self.lock()?;
        let State { plans, calls, history, .. } = &mut *state;
        if let Some(error) = plans.failed() {
            return Err(error.clone());
        }
        let wire = plans.transport_mut();
        let closed = match wire.close(*calls, *history) {
            Ok(()) => node.end().map_err(|error| wire.report(errors::fault_of(&error, &self.topology, self.deadline))),
            Err(stands) => Err(stands),
        };
        closed.inspect_err(|_| self.end_node(node))
    }

    /// Fails the job for what a posted call found; what stands for everybody.
    fn fail_posted(&self, node: &NodeComm, signature: Signature, error: &Error) -> Error {
        match self.lock() {
            Ok(mut state) => self.fail_for(state.plans.transport_mut(), node, signature, error),
            Err(busy) => busy,
        }
    }

    /// Fails the job for what this rank found; what stands for everybody.
    fn fail(&self, wire: &mut LeaderChannel, call: &Call<'_>, error: &Error) -> Error {
        self.fail_for(wire, call.node, call.signature, error)
    }

    fn fail_for(&self, wire: &mut LeaderChannel, node: &NodeComm, signature: Signature, error: &Error) -> Error {
        let stands = match wire.failed() {
            Some(stands) => stands.clone(),
            None => {
                let fault = match errors::fault_of(error, &self.topology, self.deadline) {
                    Fault::Mismatch { ranks, .. } => wire.mismatch(ranks, Some(signature)),
                    fault => fault,
                };
                wire.report(fault)
            }
        };
        self.end_node(node);
        stands
    }

    /// Ends the waits of the node's ranks for each other: they find what stands by themselves.
    fn end_node(&self, node: &NodeComm) {
        let cause = Error::Poisoned { cause: "another node".into() };
        node.fail(&cause);
        self.postings.fail(&cause);
    }
}
