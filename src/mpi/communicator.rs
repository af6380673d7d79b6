//! A communicator of the ranks of an MPI communicator: on one node, or on several.

use super::nodes;
use super::raw::Comm;
use crate::trace::{Recorder, TracedProcess};
use crate::{Communicator, CommunicatorBuilder, Config, Error, Identity, Launcher, Progress};
use earlybird_hier::exec::Failure;
use earlybird_shm::NodeComm;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator as MpiCommunicator;
use std::sync::Mutex;
use std::time::Duration;

/// A rank that waits drives MPI's progress at least this often.
const DRIVE_EVERY: Duration = Duration::from_micros(200);

impl Communicator {
    /// Joins the ranks of an MPI communicator, with the settings of the environment. Collective over `comm`.
    ///
    /// Ranks are numbered as in `comm`. Those that share memory are one node, found out by MPI and by looking; inside a node
    /// calls go through shared memory, between nodes through MPI's point-to-point messages of the nodes' first ranks.
    /// `EARLYBIRD_RANKS_PER_NODE` makes virtual nodes of contiguous ranks.
    ///
    /// **Threads.** At `MPI_THREAD_SERIALIZED` and above any thread may call, one at a time, and no other thread may be inside
    /// MPI meanwhile unless the level is `MPI_THREAD_MULTIPLE`: calls here call MPI. Below, only the thread that called this,
    /// which must be the main thread under `MPI_THREAD_FUNNELED`; others get [`Error::Usage`] on several nodes.
    ///
    /// **Progress.** A rank that waits here drives MPI at least every 200 microseconds, so messages that the program has under
    /// way go on, and programs that are right with MPI's own collectives are right with these.
    ///
    /// **Ends.** Drop it before `MPI_Finalize`, on all ranks. The death of a process is MPI's to notice where it is on another
    /// node: it ends the job. A failure that a rank reports reaches all others.
    ///
    /// # Errors
    /// The errors of [`CommunicatorBuilder::connect`]; what one rank refuses, all do.
    pub fn from_mpi<C: MpiCommunicator>(comm: &C) -> Result<Communicator, Error> {
        Communicator::builder().connect_mpi(comm)
    }
}

impl CommunicatorBuilder {
    /// Joins the ranks of an MPI communicator as [`Communicator::from_mpi`] does, with this configuration, the same on all
    /// ranks.
    ///
    /// # Errors
    /// The errors of [`Communicator::from_mpi`], and [`Error::Usage`] if an identity or messages were given: both are MPI's.
    pub fn connect_mpi<C: MpiCommunicator>(self, comm: &C) -> Result<Communicator, Error> {
        let world = comm.duplicate();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        let mut config = nodes::agree(&world, self.only_config())?;
        let virtual_node = config.ranks_per_node.as_ref().map_or(Ok(0), |each| each.node_of(rank, size));
        let virtual_node = nodes::agree(&world, virtual_node)?;
        config.traced_process = Some(process_in_the_world(&config)?);
        let [a, b] = nodes::common_nonce(&world);
        let key = format!("mpi-{a:016x}{b:016x}");
        let identity = Identity { rank, size, key, launcher: Launcher::Mpi };
        let recorder = nodes::agree(&world, Recorder::open(&config, &identity))?;
        let layout = nodes::find(&world, virtual_node);
        let driver = nodes::agree(&world, driver(&world))?;
        let joined = match layout.nodes.len() {
            1 => {
                let node = NodeComm::join(&config.joining(&identity))?;
                Communicator::assemble(config, identity, node.into(), recorder)
            }
            _ => {
                let messages = nodes::agree(&world, Comm::duplicate(&world).map_err(failed))?;
                let builder = Communicator::builder().config(config).identity(identity);
                builder.messages(layout, messages).connect()?
            }
        };
        joined.driving(driver)
    }
}

/// The progress that a waiting rank makes for MPI, on a communicator of its own on which nothing is ever sent.
fn driver(world: &SimpleCommunicator) -> Result<Progress, Error> {
    let comm = Mutex::new(Comm::duplicate(world).map_err(failed)?);
    Progress::new(DRIVE_EVERY, move || {
        if let Ok(comm) = comm.try_lock() {
            // A thread that may not call MPI does nothing; other errors return in the next call.
            let _ = comm.drive();
        }
    })
}

/// This process among all of the MPI job, of which the communicator may have some.
fn process_in_the_world(config: &Config) -> Result<TracedProcess, Error> {
    let world = SimpleCommunicator::world();
    let (rank, size) = (world.rank() as usize, world.size() as usize);
    let node = config.ranks_per_node.as_ref().filter(|each| each.sizes(size).is_ok());
    let node = node.map_or(Ok(0), |each| each.node_of(rank, size))?;
    Ok(TracedProcess { rank, size, virtual_node: node as u32 })
}

fn failed(failure: Failure) -> Error {
    Error::system("joining the ranks of an MPI communicator", failure)
}
