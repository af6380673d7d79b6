//! The joining of a job whose nodes reach each other through messages.

use super::line::MessageLine;
use super::transport::{MessageOptions, MessageTransport};
use super::{Failure, Messages};
use crate::hierarchy::{Hierarchy, LeaderTransport, Topology};
use crate::{Config, Error, Identity};
use earlybird_shm::NodeComm;
use earlybird_shm::channel::Peer;

/// The placement of a job's ranks, known to all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The ranks of every node, each rank once. The first of a node leads it.
    pub nodes: Vec<Vec<usize>>,
    /// Process id and host of every rank, for errors.
    pub processes: Vec<(u32, String)>,
    /// Ranks on the machine of this one: more than its node has where nodes are virtual.
    pub here: usize,
}

/// Joins the job `identity`: a node's ranks through its shared memory, the first ranks of the nodes through messages.
/// Collective.
///
/// # Errors
/// The errors of [`CommunicatorBuilder::connect`](crate::CommunicatorBuilder::connect).
pub(crate) fn join(
    config: &Config,
    identity: &Identity,
    layout: Layout,
    messages: Box<dyn Messages>,
) -> Result<(NodeComm, Hierarchy), Error> {
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
    Hierarchy::join(config, identity, topology, line, crowded)
}

fn failed(failure: Failure) -> Error {
    Error::system("joining ranks of several nodes", failure)
}
