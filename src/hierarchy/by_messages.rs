//! The joining of a job whose nodes reach each other through messages.

use super::{Hierarchy, LeaderTransport, Topology};
use crate::messages::{Failure, JobTransport, Layout, MessageOptions, MessageTransport, Messages};
use crate::{Config, Error, Identity};
use earlybird_shm::channel::Peer;

impl Hierarchy {
    /// Joins the job `identity`: a node's ranks through its shared memory, the first ranks of the nodes through messages.
    /// Collective.
    ///
    /// # Errors
    /// The errors of [`CommunicatorBuilder::connect`](crate::CommunicatorBuilder::connect).
    pub(crate) fn connect_by_messages(
        config: &Config,
        identity: &Identity,
        layout: Layout,
        messages: Box<dyn Messages>,
    ) -> Result<Self, Error> {
        let topology = Topology::new(layout.nodes, identity.rank)?;
        let (ranks, processes) = (topology.size(), layout.processes.len());
        if [identity.size, processes, messages.size()] != [ranks; 3] || identity.rank != messages.rank() {
            return Err(Error::usage(format!(
                "nodes of {ranks} ranks, {processes} processes, and messages of rank {} among {} are not the job of rank {} among \
                 {}; give the same to all",
                messages.rank(),
                messages.size(),
                identity.rank,
                identity.size
            )));
        }
        let peers = layout.processes.into_iter().map(|(pid, host)| Peer { pid, host }).collect();
        let transport = MessageTransport::over(messages, MessageOptions::default()).map_err(failed)?;
        let transport = LeaderTransport::Messages(Box::new(JobTransport::new(transport, peers)));
        // The group of a real node counts its CPUs itself.
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let oversubscribed = config.shares_cpus || (topology.here().len() < layout.here && layout.here > cpus);
        Self::join(config, identity, topology, transport, oversubscribed)
    }
}

fn failed(failure: Failure) -> Error {
    Error::system("joining ranks of several nodes", failure)
}
