//! Going on without the dead: a new communicator of the ranks that are left.

use super::Communicator;
use crate::hierarchy::{Groups, Hierarchy};
use crate::identity::fingerprint;
use crate::{Error, Identity};
use earlybird_shm::shrink::{Membership, ShrinkOptions, Survivors};
use earlybird_shm::{NodeComm, enter};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Groups of one that this process has formed.
static ALONE: AtomicU64 = AtomicU64::new(0);

impl Communicator {
    /// Forms a new communicator of the ranks that are left, in new memory, after a death or any other failure; of all ranks
    /// where nobody has died. All ranks call it that live and have not dropped this communicator; it returns when each of
    /// them has called it or is gone, and all that are left have joined the new one. Ranks keep their order;
    /// [`Communicator::job_ranks`] tells who they were. The meaning is that of `MPIX_Comm_shrink` of MPI's User Level
    /// Failure Mitigation (ULFM).
    ///
    /// A rank that dies meanwhile is left out too: the others agree again. A rank that dies after that is missed in a call of the new
    /// communicator, which then returns [`Error::PeerDied`]; shrink that one again. Of the ranks that live either all get a
    /// communicator or none does.
    ///
    /// The new communicator has the settings that this one has now, and virtual nodes in the arrangement that they had here;
    /// a node whose ranks have all died is gone. Calls, requests and buffers in shared memory belong to this communicator
    /// as before: it stays failed, and can be dropped at any time. Communicators that were split from it are to be shrunk on
    /// their own, or made anew by splitting the new one. The memory is new and not part of the old budget: until all handles
    /// of the old job are dropped, both are there.
    ///
    /// A call of this communicator that has not failed on some rank must end there first: ranks that wait in one do not
    /// shrink. Costs some milliseconds (`docs/internals/memory.md` has a table).
    ///
    /// # Errors
    /// [`Error::Timeout`] when a deadline was set and living ranks have not called; a rank may call again.
    /// [`Error::NoSpace`] and [`Error::System`] on all ranks when one of them could not join.
    /// [`Error::Unsupported`] on several nodes over MPI, whose library does not survive the failure of a process.
    /// [`Error::Usage`] while another thread shrinks this communicator.
    ///
    /// ```
    /// use earlybird::{Communicator, Error, Op};
    /// # fn step(_: &Communicator) -> Result<(), Error> { Ok(()) }
    /// # fn restore_the_last_step() {}
    /// let mut comm = Communicator::from_env()?;
    /// for _ in 0..10 {
    ///     while let Err(Error::PeerDied { .. }) = step(&comm) {
    ///         comm = comm.shrink()?;
    ///         restore_the_last_step();
    ///     }
    /// }
    /// # comm.shrink()?.all_reduce_in_place(&mut [1.0], Op::Sum)?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn shrink(&self) -> Result<Communicator, Error> {
        if self.node.is_forked() {
            return Err(Error::Forked);
        }
        let mut rounds = enter(&self.rounds)?;
        let membership = match &self.between {
            Some(between) => Some(between.membership()?.clone()),
            None => self.node.membership(),
        };
        let Some(membership) = membership else {
            // a group of one has nobody to agree with, and may have its name in common with others of this rank
            let attempt = ALONE.fetch_add(1, Relaxed);
            let alone = Survivors { ranks: &[0], rank: 0, attempt, absent: &|| None };
            let joined = self.join_survivors(&alone, None)?;
            return self.of_survivors(&[0], attempt, joined);
        };
        let progress = self.plans.progress();
        let options = ShrinkOptions {
            // where there are several nodes, a rank leaves with the memory that all share
            has_left: &|rank| self.between.is_none() && self.node.has_left(rank),
            timeout: self.joining.timeout,
            progress: progress.as_ref(),
        };
        let mut attempt = 0;
        let (ranks, joined) = membership.shrink(options, &mut rounds, |survivors| {
            attempt = survivors.attempt;
            self.join_survivors(survivors, Some(&membership))
        })?;
        self.of_survivors(&ranks, attempt, joined)
    }

    /// The identity of this process among the survivors, and their rendezvous: a key that no other group of the job has had.
    fn identity_among(&self, rank: usize, ranks: &[usize], attempt: u64) -> Identity {
        let first = self.job_ranks().first().copied().unwrap_or(0);
        let name = format!("{} of {first}, attempt {attempt}", self.plans.name());
        let key = format!("{}-left-{:016x}", self.identity.key, fingerprint(&name));
        Identity { rank, size: ranks.len(), key, launcher: self.identity.launcher }
    }

    fn join_survivors(&self, survivors: &Survivors<'_>, old: Option<&Membership>) -> Result<Groups, Error> {
        let identity = self.identity_among(survivors.rank, survivors.ranks, survivors.attempt);
        let config = &*self.joining;
        let outnumber_cpus = old.is_some_and(|old| old.living() > self.node.allowed_cpus());
        let oversubscribed = outnumber_cpus || self.node.is_oversubscribed_by_others();
        if let Some(between) = &self.between {
            let topology = between.topology_of(survivors)?;
            if topology.nodes() > 1 {
                return Ok(Hierarchy::rejoin(config, &identity, topology, survivors, oversubscribed)?.into());
            }
        }
        let mut joining = config.joining(&identity);
        joining.oversubscribed = oversubscribed;
        Ok(NodeComm::join_within(&joining, survivors.absent)?.into())
    }

    fn of_survivors(&self, ranks: &[usize], attempt: u64, groups: Groups) -> Result<Communicator, Error> {
        let rank = groups.between.as_ref().map_or(groups.node.rank(), |between| between.topology().rank());
        let key = format!("{}-rings", self.identity_among(rank, ranks, attempt).key);
        let plans = self.plans.for_survivors(key, rank, ranks.len(), groups.node.memory_budget());
        let job_ranks = ranks.iter().map(|rank| self.job_ranks()[*rank]).collect();
        let made = self.made(groups, plans, rank, Some(job_ranks));
        made.drive(self.plans.progress())?;
        Ok(made)
    }
}
