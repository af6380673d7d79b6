//! A communicator of nodes that reach each other through messages.

use super::line::MessageLine;
use super::transport::{MessageOptions, MessageTransport};
use super::{Failure, Messages};
use crate::hierarchy::{Hierarchy, LeaderTransport, Topology};
use crate::{Communicator, Config, Error, Identity};
use earlybird_shm::channel::Peer;

/// Where the ranks of a job are, as all of them know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The ranks of every node, each rank once. The first of a node leads it.
    pub nodes: Vec<Vec<usize>>,
    /// Process id and host of every rank, for errors.
    pub processes: Vec<(u32, String)>,
    /// Ranks on the machine of this one: more than its node has where nodes are virtual.
    pub here: usize,
}

impl Communicator {
    /// Joins the job `identity` whose nodes reach each other by `messages`: a node's ranks through its shared memory, the
    /// first ranks of the nodes through messages. Collective. `Config::ranks_per_node` is not looked at: `layout` says it.
    ///
    /// # Errors
    /// As [`Communicator::connect`], on every rank when on one; [`Error::Usage`] for a layout that does not name every rank
    /// once.
    pub fn connect_over(
        config: Config,
        identity: Identity,
        layout: Layout,
        messages: Box<dyn Messages>,
    ) -> Result<Communicator, Error> {
        let topology = Topology::new(layout.nodes, identity.rank)?;
        let (ranks, told) = (topology.size(), layout.processes.len());
        if [identity.size, told, messages.size()] != [ranks; 3] || identity.rank != messages.rank() {
            return Err(Error::usage(format!(
                "nodes of {ranks} ranks, {told} processes, and messages of rank {} among {} are not the job of rank {} among \
                 {}; give the same to all",
                messages.rank(),
                messages.size(),
                identity.rank,
                identity.size
            )));
        }
        let peers = layout.processes.into_iter().map(|(pid, host)| Peer { pid, host }).collect();
        let transport = MessageTransport::over(messages, MessageOptions::default()).map_err(failed)?;
        let line = LeaderTransport::Messages(Box::new(MessageLine::new(transport, peers)));
        // Of a real node the group counts its CPUs itself.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let crowded = topology.here().len() < layout.here && layout.here > cpus;
        let (node, between) = Hierarchy::join(&config, &identity, topology, line, crowded)?;
        Ok(Communicator::assemble(config, identity, node, Some(between)))
    }
}

fn failed(failure: Failure) -> Error {
    Error::system("joining ranks of several nodes", failure)
}
