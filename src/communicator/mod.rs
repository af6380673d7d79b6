//! The handle a user holds: joining a job, and its collectives under the names rsmpi users know.

mod across;
mod builder;
mod comm_plans;
mod data_movement;
mod execute;
mod explain;
mod messages;
mod owners_counts;
mod plan_calls;
mod point_to_point;
mod prepared_call;
mod reductions;
mod request;
mod root;
mod settings;
mod shared;
mod shrink;
mod split;
#[cfg(test)]
#[path = "../../hier/tests/common/threads.rs"]
mod threads;
mod traced;
mod transfers;

pub use builder::CommunicatorBuilder;
pub use explain::{Alternative, Explanation, JobShape, NodeStep, explain};
pub use point_to_point::PointToPoint;
pub use request::{Persistent, Request, progress, wait_all};
pub use root::Root;
pub use transfers::{Delivery, Transfer};

use crate::hierarchy::{Hierarchy, MultiNodeComm};
use crate::trace::CallTrace;
use crate::{Choice, Config, Error, FoldOrder, Identity};
use comm_plans::CommPlans;
use earlybird_shm::engine::Handle;
use earlybird_shm::{NodeComm, Progress};
use settings::Settings;
use std::sync::{Arc, Mutex};

/// The processes of one job, or some of them ([`Communicator::split`]).
///
/// All ranks make the same calls in the same order. The handle is `Send` and `Sync`, but threads call one at a time:
/// a second thread inside a call gets [`Error::Usage`]. Dropping the handle leaves the job; do it on every rank after
/// the last call.
///
/// ```
/// // Started by `earlybird run`, mpirun, srun or torchrun this joins the others; here it is a job of one.
/// let comm = earlybird::Communicator::from_env()?;
/// let mut gradient = [1.0f32, 2.0];
/// comm.all_reduce_in_place(&mut gradient, earlybird::Op::Sum)?;
/// assert_eq!(gradient, [1.0, 2.0]);
/// # Ok::<(), earlybird::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropping the communicator leaves the job"]
#[repr(C)]
pub struct Communicator {
    /// The group of this node's ranks. A small call reads this field and the next one only.
    node: Handle<NodeComm>,
    settings: Settings,
    /// The other nodes.
    between: Option<Handle<MultiNodeComm>>,
    rank: usize,
    size: usize,
    /// The number in the job by rank, where the node's group does not have it.
    job_ranks: Option<Vec<usize>>,
    identity: Identity,
    plans: CommPlans,
    /// The progress function of the library itself in waits, besides the user's.
    drives: Option<Progress>,
    /// The settings of joining, for communicators of survivors.
    joining: Arc<Config>,
    /// Completed rounds of agreement on the survivors.
    rounds: Mutex<u64>,
    /// Point-to-point messages, once they are used.
    messages: Mutex<Option<Arc<PointToPoint>>>,
    /// Memory of grouped calls, reused by the next one.
    grouped: Mutex<Vec<u64>>,
    /// The recorder of calls, if they are recorded.
    trace: Option<Box<CallTrace>>,
}

/// A report of a completed call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallReport {
    /// Number of the operation in this communicator, from 1; 0 in a job of one rank, which shares nothing.
    pub operation: u64,
    /// The algorithm that ran: never `Auto`.
    pub algorithm: Choice,
    /// This rank's place in the arrival order, from 0; `None` where the algorithm takes none.
    pub place: Option<usize>,
}

impl Communicator {
    /// Joins the job that this process was started in, as the environment says.
    ///
    /// Returns when all ranks have joined: some milliseconds after the last one came.
    ///
    /// # Errors
    /// The errors of [`CommunicatorBuilder::connect`].
    pub fn from_env() -> Result<Communicator, Error> {
        Communicator::builder().connect()
    }

    /// The same communicator, with a progress function of the library itself.
    #[cfg(feature = "mpi")]
    pub(crate) fn driving(mut self, progress: Progress) -> Result<Communicator, Error> {
        self.drives = Some(progress);
        self.set_progress(None)?;
        Ok(self)
    }

    /// Leaves the communicator as dropping it does, and says if something was wrong: an earlier call's error, or calls that
    /// differed from another rank's without any later operation to show it, as when two ranks each take themselves for the
    /// root of the last broadcast. Whoever ends after the other one can tell; a drop only warns, and only where both have made as
    /// many calls. Waits for nobody but for what was started and not waited for. On several nodes calls are compared between
    /// all ranks; where the nodes share no memory, between the ranks of each.
    ///
    /// # Errors
    /// [`Error::Mismatch`] as said; otherwise the communicator's one error.
    pub fn close(self) -> Result<(), Error> {
        self.between.as_ref().map_or_else(|| self.node.end(), |between| between.block(Hierarchy::close))
    }

    /// This process's number in this communicator, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks in this communicator.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Nodes, real or virtual. Between nodes calls are carried out by plans and packets of their leaders.
    pub fn nodes(&self) -> usize {
        self.between.as_ref().map_or(1, |between| between.topology().nodes())
    }

    /// This process's number among the ranks of its node, from 0, by which a rank picks its GPU. The one with 0 leads the node.
    pub fn local_rank(&self) -> usize {
        self.between.as_ref().map_or(self.rank, |between| between.topology().local())
    }

    /// Ranks on this process's node.
    pub fn local_size(&self) -> usize {
        self.between.as_ref().map_or(self.size, |between| between.topology().here().len())
    }

    /// Ranks of each node that exchange large messages with the other nodes, a part each
    /// ([`Config::endpoints`](crate::Config)); 1 on one node.
    pub fn endpoints(&self) -> usize {
        self.between.as_ref().map_or(1, |between| between.topology().endpoints())
    }

    /// The identity of this process in its job.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// CPUs that the ranks of the job together may use. With more ranks than that, a waiting rank never spins, in
    /// whatever communicator: all ranks of a job run at the same time.
    pub fn allowed_cpus(&self) -> usize {
        self.node.allowed_cpus()
    }

    /// Chooses the algorithm of all later calls, of any size: an [`Algorithm`](crate::Algorithm), or a plan by the name of its
    /// schedule (`"plan:ring".parse::<Choice>()`). `Algorithm::Auto` hands the choice back to the library. An operation
    /// that does not have the algorithm is left to the library: [`Communicator::last_call`] says what ran. All ranks must
    /// choose the same, or their next call is a [`Error::Mismatch`].
    ///
    /// # Errors
    /// None today; a `Result` because later algorithms have restrictions.
    pub fn set_algorithm(&self, choice: impl Into<Choice>) -> Result<(), Error> {
        self.settings.choose(choice.into());
        Ok(())
    }

    /// Chooses the order of folding of the calls that follow, the same on all ranks.
    ///
    /// # Errors
    /// As [`Communicator::set_algorithm`].
    pub fn set_order(&self, order: FoldOrder) -> Result<(), Error> {
        self.settings.choose_order(order);
        Ok(())
    }

    /// Sets the progress function that is called while this rank waits in later calls; communicators that are split from this one later
    /// inherit it. Every rank decides for itself.
    ///
    /// ```
    /// # let comm = earlybird::Communicator::from_env()?;
    /// # fn poll_the_other_library() {}
    /// let every = std::time::Duration::from_micros(200);
    /// comm.set_progress(Some(earlybird::Progress::new(every, poll_the_other_library)?))?;
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub fn set_progress(&self, progress: Option<Progress>) -> Result<(), Error> {
        let progress = match (self.drives.clone(), progress) {
            (Some(ours), Some(theirs)) => Some(ours.and(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        self.drive(progress)
    }

    /// Calls this progress function, and no other one, in the waits of later calls.
    fn drive(&self, progress: Option<Progress>) -> Result<(), Error> {
        self.plans.set_progress(progress.clone())?;
        if let Some(between) = &self.between {
            between.set_progress(progress.clone())?;
        }
        self.node.set_progress(progress)
    }

    /// The number under which the records of this communicator stand in the trace, if its calls are recorded.
    pub fn traced_as(&self) -> Option<u64> {
        self.trace.as_ref().map(|trace| trace.communicator())
    }

    /// A report of the last operation that this rank completed.
    #[inline]
    pub fn last_call(&self) -> Option<CallReport> {
        if let Some(across) = self.across() {
            return across.last();
        }
        if let Some((operation, plan)) = self.plans.last() {
            return Some(CallReport { operation, algorithm: Choice::Plan(plan), place: None });
        }
        self.node.last_call().map(|report| CallReport {
            operation: report.epoch,
            algorithm: report.algorithm.into(),
            place: report.place,
        })
    }
}
