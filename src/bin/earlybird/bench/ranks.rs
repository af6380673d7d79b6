//! The ranks of a command that measures: those that this program started, or those of MPI.

use super::mpi::Mpi;
use crate::arguments::parse_nodes;
use earlybird::{Communicator, Config, Error, Identity};

/// This rank's part in joining the others. Communicators have to be dropped before this is, because MPI ends with it.
pub enum Ranks {
    Started(Identity),
    Mpi(Mpi),
}

impl Ranks {
    /// Finds out this process's rank.
    ///
    /// # Errors
    /// The errors of [`Identity::detect`], and those of a program without MPI.
    pub fn detect(by_mpi: bool) -> Result<Ranks, Error> {
        if by_mpi { Mpi::start().map(Ranks::Mpi) } else { Identity::detect().map(Ranks::Started) }
    }

    /// The configuration with the nodes of `--nodes`, if given.
    ///
    /// # Errors
    /// [`Error::Usage`] for nodes that do not fit the ranks, and for a `--ranks` that differs from the number of started ranks.
    pub fn placed(&self, mut config: Config, ranks: Option<usize>, nodes: Option<&str>) -> Result<Config, Error> {
        let size = match self {
            Ranks::Started(identity) => identity.size,
            Ranks::Mpi(mpi) => mpi.size(),
        };
        if let Some(ranks) = ranks.filter(|ranks| *ranks != size) {
            return Err(Error::usage(format!("--ranks {ranks}: {size} ranks were started; give that or leave it out")));
        }
        if let Some(nodes) = nodes {
            config.ranks_per_node = Some(parse_nodes(nodes, size)?);
        }
        Ok(config)
    }

    /// Joins all ranks to the communicator of this name. Collective.
    ///
    /// # Errors
    /// The errors of joining.
    pub fn join(&self, config: Config, name: &str) -> Result<Communicator, Error> {
        match self {
            Ranks::Started(identity) => {
                let key = format!("{}{name}", identity.key);
                let identity = Identity { key, ..identity.clone() };
                Communicator::builder().config(config).identity(identity).connect()
            }
            Ranks::Mpi(mpi) => mpi.join(config),
        }
    }
}
