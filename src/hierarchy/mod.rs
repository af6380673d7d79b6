//! Communicators over several nodes. Every rank is in the group of its node; the first rank of each, its leader, is in
//! the group of leaders. A call is made of operations of the node and of plans, or plain packets, between leaders; large
//! allreduces go between the first few ranks of each node, a part by each.
//!
//! Only `Communicator` uses this, and only where there is more than one node: what happens inside a node stays in
//! `earlybird-shm`, what happens between leaders in `earlybird-hier`.
//!
//! ```text
//! topology (placement of ranks) · config_check (settings that must be equal) · choice (which plan) · leader_channel (between nodes)
//! call (the description of a call) · phases (the steps that calls are made of) · collectives (every call by its name)
//! reductions · operators (of users) · prefix · data_movement · alltoallv · packing · scratch · lowering (averages, bool) · shared (one result per node)
//! blocking (calls that wait) · started (calls that end later) · turns (their order) · errors (a node's as the job's)
//! connect · by_messages · split · shrink (joining) · explain (the choices of a call)
//! ```
//!
//! **Errors.** A rank that finds its node's group or the leaders' failed reports it to the leader channel, where the first report is
//! the error of the whole job, fails its node's group, and returns that error. So an error travels from a node through its leader, or
//! through any rank that can reach the channel, to the other leaders, and from each to its node.
//!
//! **Deadlines.** The rank that waits for a late one must report it first: a leader waits for its node as long as was set, leaders
//! wait longer for leaders that are in the call, and so do the other ranks for their leader.

mod alltoallv;
mod blocking;
mod by_messages;
mod call;
mod choice;
mod collectives;
mod config_check;
mod connect;
mod data_movement;
mod errors;
mod explain;
mod leader_channel;
mod lowering;
mod operation;
mod operators;
mod packing;
mod phases;
mod prefix;
mod reductions;
mod scratch;
mod segments;
mod shared;
mod shrink;
mod split;
mod started;
mod topology;
mod turns;

use crate::Error;
use crate::plans::{GroupTransport, Plans};
pub(crate) use call::Call;
pub(crate) use choice::ExchangeRule;
use choice::Exchanges;
use earlybird_shm::channel::{Fault, RingOptions};
use earlybird_shm::shrink::Membership;
use earlybird_shm::{NodeComm, Progress, Signature, enter};
pub(crate) use explain::{LeaderChoice, NodeOperation};
pub(crate) use leader_channel::{LeaderChannel, LeaderTransport};
use scratch::Scratch;
pub(crate) use split::Part;
pub(crate) use started::{MultiNodeComm, Prepared};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
pub(crate) use topology::Topology;
use turns::Turns;

/// The nodes of a communicator, as this rank sees them.
#[derive(Debug)]
pub(crate) struct Hierarchy {
    /// The ranks of this node.
    node: Arc<NodeComm>,
    topology: Topology,
    state: Mutex<State>,
    deadline: Option<Duration>,
    exchanges: Exchanges,
    /// The same as [`LeaderChannel::outnumbers_cpus`].
    outnumbers_cpus: bool,
    scratch: Scratch,
    turns: Turns,
    /// A second group of the node's ranks, for the deliveries of started calls.
    deliver: NodeComm,
    /// The options of the rings between the nodes of groups made from this one, if they share memory.
    rings: RingOptions,
    /// All ranks of all nodes, if they share memory.
    membership: Option<Membership>,
}

#[derive(Debug)]
struct State {
    plans: Plans<LeaderChannel>,
    history: History,
    /// Number of the last call that is complete, and what ran between leaders in it.
    last: Option<(u64, &'static str)>,
    /// The progress function of long waits.
    progress: Option<Progress>,
}

/// The calls that this rank has begun, blocking and started ones, in their order, which is the same on all ranks.
#[derive(Debug, Default, Clone, Copy)]
struct History {
    calls: u64,
    /// A hash over their signatures.
    hash: u32,
}

impl History {
    /// Adds a call that begins. Returns its number.
    fn add(&mut self, signature: Signature) -> u64 {
        self.calls += 1;
        self.hash = (self.hash.rotate_left(5) ^ signature.hash()).wrapping_mul(0x9e37_79b1);
        self.calls
    }
}

impl Hierarchy {
    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// A description of the setting that decides the plan between leaders.
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
        self.deliver.set_progress(progress.clone())?;
        state.progress = progress;
        Ok(())
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>, Error> {
        enter(&self.state)
    }

    /// Fails the job with an error of this rank. Returns the first error of the job.
    fn fail(&self, channel: &mut LeaderChannel, signature: Signature, error: &Error) -> Error {
        let first = match channel.error() {
            Some(first) => first.clone(),
            None => {
                let fault = match errors::fault_of(error, &self.topology, self.deadline) {
                    Fault::Mismatch { ranks, .. } => channel.mismatch(ranks, Some(signature)),
                    fault => fault,
                };
                channel.report(fault)
            }
        };
        self.end_node();
        first
    }

    /// Fails the groups of the node, so that its ranks stop waiting for each other; each finds the error of the job by itself.
    fn end_node(&self) {
        let cause = Error::Poisoned { cause: "another node".into() };
        self.node.fail(&cause);
        self.deliver.fail(&cause);
    }
}

/// The groups of a communicator: the ranks of this node, and the nodes where it has several.
pub(crate) struct Groups {
    pub node: Arc<NodeComm>,
    pub between: Option<Hierarchy>,
}

impl From<NodeComm> for Groups {
    fn from(node: NodeComm) -> Self {
        Groups { node: Arc::new(node), between: None }
    }
}

impl From<Hierarchy> for Groups {
    fn from(between: Hierarchy) -> Self {
        Groups { node: between.node.clone(), between: Some(between) }
    }
}
