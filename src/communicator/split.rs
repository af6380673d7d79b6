//! Communicators of some of the ranks, and second communicators of the same ones.

use super::Communicator;
use crate::Error;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};

impl Communicator {
    /// Forms new communicators of the ranks that give the same color. In each, ranks are numbered by `key`, those of
    /// equal keys as here. A rank without a color takes part in the call and gets `None`. All ranks call it.
    ///
    /// A new communicator has the settings that this one has now, and is independent of it from then on: calls in
    /// different ones may run at the same time in different threads, this one may be dropped first, and an error in one
    /// is not the other's, except that the death of a process is seen in every communicator it belongs to. Ranks in
    /// errors are numbered as in the communicator that returns them.
    ///
    /// All communicators of a node share one budget of memory, see [`Config::arena_max_bytes`](crate::Config). The new
    /// ones take a part of what is left of it; a communicator with a small part cuts large calls into more pieces.
    /// Dropping the last handle gives it back. Costs three small reductions and mapping a region; no
    /// memory beyond its first lines (`docs/segment.md` has a table) until it is used.
    ///
    /// # Errors
    /// [`Error::NoSpace`] on all ranks, before anything is used, when even the smallest part is not left; this
    /// communicator goes on. Otherwise as [`Communicator::all_reduce_into`].
    ///
    /// ```
    /// let comm = earlybird::Communicator::from_env()?;
    /// let (row, column) = (comm.rank() / 2, comm.rank() % 2);
    /// let along_the_row = comm.split(Some(row as u32), column as i64)?.expect("a color was given");
    /// along_the_row.barrier()?;
    /// # Ok::<(), earlybird::Error>(())
    /// ```
    pub fn split(&self, color: Option<u32>, key: i64) -> Result<Option<Communicator>, Error> {
        self.one_node("split")?;
        self.plans.begin_other_call();
        Ok(self.done(self.node.split(color, key))?.map(|node| self.with(node)))
    }

    /// A second communicator of the same ranks in the same order, for example for another thread. All ranks call it.
    ///
    /// # Errors
    /// As [`Communicator::split`].
    pub fn duplicate(&self) -> Result<Communicator, Error> {
        self.one_node("duplicate")?;
        self.plans.begin_other_call();
        Ok(self.with(self.done(self.node.duplicate())?))
    }

    /// The ranks of this communicator in order, each by its number in the job.
    pub fn job_ranks(&self) -> &[usize] {
        self.between.as_ref().map_or(self.node.members(), |between| between.topology().everybody())
    }

    /// Bytes of shared memory that this communicator may take at most: its part of the budget, in all its ranks together.
    pub fn budget_bytes(&self) -> u64 {
        self.node.budget_bytes()
    }

    /// Bytes of shared memory that all communicators of this node take now, payload and lines.
    pub fn shared_memory_bytes(&self) -> u64 {
        self.node.shared_memory_bytes()
    }

    fn one_node(&self, what: &str) -> Result<(), Error> {
        match self.between {
            None => Ok(()),
            Some(_) => Err(Error::Unsupported {
                what: format!("{what} of a communicator of several nodes"),
                hint: "use one node (unset EARLYBIRD_RANKS_PER_NODE)".into(),
            }),
        }
    }

    fn with(&self, node: earlybird_shm::NodeComm) -> Communicator {
        let plans = self.plans.for_group(node.group(), node.rank(), node.size());
        Communicator {
            rank: node.rank(),
            size: node.size(),
            between: None,
            node,
            identity: self.identity.clone(),
            tables: self.tables.clone(),
            use_tables: AtomicBool::new(self.use_tables.load(Relaxed)),
            choice: AtomicU8::new(self.choice.load(Relaxed)),
            by_rank: AtomicBool::new(self.by_rank.load(Relaxed)),
            plans,
            drives: self.drives.clone(),
        }
    }
}
