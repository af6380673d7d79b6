//! Communicators of some of the ranks, and second communicators of the same ones.

use super::Communicator;
use super::comm_plans::CommPlans;
use crate::Error;
use crate::hierarchy::{Groups, MultiNodeComm, Part};
use crate::trace::NewRecord;
use earlybird_shm::engine::Handle;
use earlybird_shm::{Collective, NodeComm};
use std::sync::Mutex;

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
    /// Dropping the last handle gives it back. Costs a few small reductions and mapping a region; no
    /// memory beyond its first lines (`docs/internals/memory.md` has a table) until it is used.
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
        self.traced(NewRecord::without_data(Collective::Split), || {
            if let Some(across) = self.across() {
                return Ok(across.split(Collective::Split, color, key)?.map(|part| self.with_part(part)));
            }
            self.plans.begin_other_call();
            Ok(self.done(self.node.split(color, key))?.map(|node| self.with(node)))
        })
    }

    /// A second communicator of the same ranks in the same order, for example for another thread. All ranks call it.
    ///
    /// # Errors
    /// As [`Communicator::split`].
    pub fn duplicate(&self) -> Result<Communicator, Error> {
        self.traced(NewRecord::without_data(Collective::Duplicate), || {
            if let Some(across) = self.across() {
                let part = across.split(Collective::Duplicate, Some(0), self.rank as i64)?;
                let part = part.ok_or_else(|| Error::Poisoned { cause: "a duplicate without its own rank".into() })?;
                return Ok(self.with_part(part));
            }
            self.plans.begin_other_call();
            Ok(self.with(self.done(self.node.duplicate())?))
        })
    }

    /// A communicator of these ranks of this one, numbered in this order. Only they call it: they tell each other words by `exchange`,
    /// which sums each word over them. No call of this communicator runs, so its other ranks, and other threads, may go on with theirs.
    /// `serial` is equal on the ranks that form a communicator, and different for any other one.
    ///
    /// # Errors
    /// The errors of [`Communicator::split`], and that of `exchange`, after which the others may have no communicator. [`Error::Usage`] for
    /// ranks that are not here, are named twice or do not include this one, and for a communicator of several nodes.
    #[doc(hidden)]
    pub fn form(
        &self,
        ranks: &[usize],
        serial: u64,
        exchange: &mut dyn FnMut(&mut [u64]) -> Result<(), Error>,
    ) -> Result<Communicator, Error> {
        match self.between {
            Some(_) => {
                Err(Error::usage("ranks of a communicator of several nodes form none without the others; split it"))
            }
            None => Ok(self.with(self.node.form(ranks, serial, exchange)?)),
        }
    }

    /// The ranks of this communicator in order, each by its number in the job.
    pub fn job_ranks(&self) -> &[usize] {
        self.job_ranks.as_deref().unwrap_or_else(|| self.node.members())
    }

    /// Bytes of shared memory that this communicator may take at most: its part of the budget, in all its ranks together.
    pub fn budget_bytes(&self) -> u64 {
        self.node.budget_bytes()
    }

    /// Bytes of shared memory that all communicators of this node take now, payload and lines.
    pub fn shared_memory_bytes(&self) -> u64 {
        self.node.shared_memory_bytes()
    }

    fn with_part(&self, part: Part) -> Communicator {
        let Part { groups, rank, ranks, label } = part;
        let plans = self.plans.for_group(&label, rank, ranks.len());
        let job_ranks = ranks.iter().map(|rank| self.job_ranks()[*rank]).collect();
        self.made(groups, plans, rank, Some(job_ranks))
    }

    fn with(&self, node: NodeComm) -> Communicator {
        let (rank, size) = (node.rank(), node.size());
        let plans = self.plans.for_group(&node.group().to_string(), rank, size);
        // Of a node's group the numbers are the node's.
        let place = |member: &usize| self.node.members().iter().position(|other| other == member);
        let job_ranks = self.job_ranks.as_ref().map(|ranks| node.members().iter().filter_map(place).map(|p| ranks[p]));
        let job_ranks = job_ranks.map(Iterator::collect);
        self.made(node.into(), plans, rank, job_ranks)
    }

    /// A communicator with the settings of this one.
    pub(super) fn made(
        &self,
        Groups { node, between }: Groups,
        plans: CommPlans,
        rank: usize,
        job_ranks: Option<Vec<usize>>,
    ) -> Communicator {
        let settings = self.settings.another(between.is_none().then_some(node.size()));
        let size = job_ranks.as_ref().map_or(node.size(), Vec::len);
        let trace = self.trace.as_ref().map(|trace| Box::new(trace.another(plans.name(), size)));
        if trace.is_some() {
            settings.trace();
        }
        Communicator {
            size,
            node: Handle::new(node),
            between: between.map(|hierarchy| Handle::new(MultiNodeComm::new(hierarchy))),
            rank,
            job_ranks,
            identity: self.identity.clone(),
            settings,
            plans,
            drives: self.drives.clone(),
            joining: self.joining.clone(),
            rounds: Mutex::default(),
            messages: Mutex::default(),
            grouped: Mutex::default(),
            trace,
        }
    }
}
