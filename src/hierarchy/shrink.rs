//! The survivors of a communicator of several nodes that share memory.

use super::leader_channel::LeaderTransport;
use super::split::nodes_of;
use super::{Hierarchy, Topology};
use crate::{Config, Error, Identity};
use earlybird_shm::channel::Rings;
use earlybird_shm::shrink::{Membership, Survivors};

impl Hierarchy {
    /// The ranks of all nodes.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where they reach each other by messages.
    pub(crate) fn membership(&self) -> Result<&Membership, Error> {
        self.membership.as_ref().ok_or_else(|| Error::Unsupported {
            what: "shrink of a communicator whose nodes reach each other by messages of MPI".into(),
            hint:
                "an MPI library does not survive the failure of a process: save the state of the program now and then \
                   and start the job again from there"
                    .into(),
        })
    }

    /// The nodes of these ranks in the arrangement that they have here.
    ///
    /// # Errors
    /// The errors of [`Topology::new`].
    pub(crate) fn topology_of(&self, survivors: &Survivors<'_>) -> Result<Topology, Error> {
        Topology::new(nodes_of(survivors.ranks, &self.topology), survivors.rank)
    }

    /// Joins the survivors as the nodes of `topology`, of which there are several: first all ranks, then those of each node. Returns
    /// when all have joined both.
    ///
    /// # Errors
    /// The errors of [`crate::CommunicatorBuilder::connect`].
    pub(crate) fn rejoin(
        config: &Config,
        identity: &Identity,
        topology: Topology,
        survivors: &Survivors<'_>,
        oversubscribed: bool,
    ) -> Result<Self, Error> {
        let rings = Rings::join_within(&config.rings(identity, "nodes"), survivors.absent)?;
        let oversubscribed = oversubscribed || rings.is_oversubscribed();
        Self::join(config, identity, topology, LeaderTransport::Rings(Box::new(rings)), oversubscribed)
    }
}
