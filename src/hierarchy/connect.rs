//! The joining of the ranks of several nodes.

use super::choice::{ExchangeSettings, Exchanges};
use super::config_check;
use super::leader_channel::{LeaderChannel, LeaderTransport};
use super::scratch::Scratch;
use super::split::patient;
use super::turns::Turns;
use super::{Call, Hierarchy, History, State, Topology, errors};
use crate::plans::Plans;
use crate::{Config, Error, Identity};
use earlybird_shm::channel::{RingOptions, Rings};
use earlybird_shm::{CallOptions, Collective, JoinOptions, NodeComm};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};
use std::time::Duration;

impl Hierarchy {
    /// Joins virtual nodes of so many ranks each, all on this machine: first all ranks, then those of each node. Returns when all
    /// ranks have joined both.
    ///
    /// # Errors
    /// The errors of [`crate::CommunicatorBuilder::connect`].
    pub(crate) fn connect(config: &Config, identity: &Identity, sizes: &[usize]) -> Result<Self, Error> {
        let topology = Topology::contiguous(sizes, identity.rank)?;
        let rings = Rings::join(&RingOptions {
            // also the rendezvous of ranks without EARLYBIRD_RANKS_PER_NODE, so that the difference is found there
            key: identity.key.clone(),
            settings: config.rendezvous_settings(identity),
            ..config.rings(identity, "nodes")
        })?;
        let oversubscribed = rings.is_oversubscribed();
        Self::join(config, identity, topology, LeaderTransport::Rings(Box::new(rings)), oversubscribed)
    }

    /// Joins the node's group, and returns when every rank of the job has joined its own.
    pub(crate) fn join(
        config: &Config,
        identity: &Identity,
        topology: Topology,
        transport: LeaderTransport,
        oversubscribed: bool,
    ) -> Result<Self, Error> {
        let channel = RefCell::new(LeaderChannel::new(transport, &topology, config.timeout));
        let absent = || {
            let absent = channel.borrow_mut().absent(topology.here(), None)?;
            topology.here().iter().position(|rank| *rank == absent)
        };
        let joining = JoinOptions {
            rank: topology.local(),
            size: topology.here().len(),
            key: format!("{}-node{}", identity.key, topology.node()),
            timeout: if topology.leads() { config.timeout } else { config.timeout.map(patient) },
            oversubscribed,
            settings: Vec::new(),
            ..config.joining(identity)
        };
        let node = NodeComm::join_within(&joining, &absent);
        let mut channel = channel.into_inner();
        let node = node.and_then(|node| node.duplicate().map(|again| (node, again)));
        let (node, again) = node.map_err(|error| match error {
            // A mistake of this rank alone, or one that all ranks find.
            Error::Usage { .. } | Error::Unsupported { .. } => {
                channel.report(earlybird_shm::channel::Fault::Other("a rank could not join its node".into()));
                error
            }
            other => channel.report(errors::fault_of(&other, &topology, config.timeout)),
        })?;
        channel.set_memory_budget(node.memory_budget());
        let is_oversubscribed = oversubscribed || channel.outnumbers_cpus() || node.size() > node.allowed_cpus();
        let (settings, fitting) =
            (ExchangeSettings::new(config), config_check::fitting_endpoints(is_oversubscribed, channel.is_a_network()));
        let words = config_check::words(config.endpoints, &settings, fitting);
        let exchanges = Exchanges::new(topology.nodes(), channel.is_a_network(), settings);
        let rings = RingOptions { memory_budget: Some(node.memory_budget()), ..config.rings(identity, "nodes") };
        Self::over(channel, topology, (node, again), exchanges, (config.timeout, rings)).agreed(&words)
    }

    /// The nodes of a communicator that has made no call. `deliver` is a second group of the ranks of `node`.
    pub(super) fn over(
        channel: LeaderChannel,
        topology: Topology,
        (node, deliver): (NodeComm, NodeComm),
        exchanges: Exchanges,
        (deadline, rings): (Option<Duration>, RingOptions),
    ) -> Self {
        let (outnumbers_cpus, membership) = (channel.outnumbers_cpus(), channel.membership());
        let state =
            Mutex::new(State { plans: Plans::over(channel), history: History::default(), last: None, progress: None });
        let (turns, scratch) = (Turns::default(), Scratch::default());
        let node = Arc::new(node);
        Hierarchy {
            node,
            topology,
            state,
            deadline,
            exchanges,
            outnumbers_cpus,
            scratch,
            turns,
            deliver,
            rings,
            membership,
        }
    }

    /// Compares the settings of all ranks, which must be equal, and takes the fewest endpoints that fit a rank. Returns when all
    /// ranks have joined.
    fn agreed(mut self, words: &[u64]) -> Result<Self, Error> {
        let call = Call::agreement(Collective::AllGather, CallOptions::default());
        let words = self.all_gather_words(&call, words)?;
        self.topology = self.topology.with_endpoints(config_check::agreed_endpoints(&words)?);
        let mut state = self.lock()?;
        state.plans.transport_mut().set_peers(&self.topology);
        (state.history, state.last) = (History::default(), None);
        state.plans.transport_mut().end_call(0);
        drop(state);
        Ok(self)
    }
}
