//! A process's membership in a group of ranks that share memory on one node.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::allocator_state::Allocator;
use super::arena::Arena;
use super::control::{self, Control, Identity};
use super::control_map::ControlMap;
use super::liveness::{self, ConfirmationRounds, Evidence};
use super::liveness_word::LivenessState;
use super::options::{Absent, AttachOptions};
use super::owner_thread::OwnerThread;
use super::peer::{Peer, PeerState};
use super::record_lock::ForkFlag;
use super::region::Region;
use super::{attach, limits, process};
use crate::{Error, clock};

/// This process's membership in a group. Dropping it tells the others that this rank has left in order.
pub struct Segment {
    pub(super) rank: usize,
    pub(super) size: usize,
    policy: [u64; 32],
    allowed_cpus: usize,
    affine_cpus: usize,
    host: String,
    pub(super) me: Identity,
    fork: ForkFlag,
    pub(super) control: Arc<ControlMap>,
    /// Keeps this rank's word marked as alive, and marks it as left when dropped.
    _owner: Option<OwnerThread>,
    rounds: ConfirmationRounds,
    pub(super) arena: Arc<Arena>,
    pub(super) allocator: Allocator,
}

impl Segment {
    /// Joins the group and returns when all its ranks have, with the region that all of them share. Nothing is left in
    /// the file system then.
    ///
    /// # Errors
    /// [`Error::Usage`] for options that are wrong or differ from the others', [`Error::PeerDied`] when a rank dies or fails to
    /// join, [`Error::Timeout`] when one was set, [`Error::NoSpace`] when memory is short, [`Error::Unsupported`] and
    /// [`Error::System`] when the system refuses. The same key can be used again as soon as all ranks have returned.
    pub fn attach(options: &AttachOptions) -> Result<(Arc<Segment>, Region), Error> {
        Segment::attach_within(options, &|| None)
    }

    /// Attaches ranks that are members of another group already: `absent`, called while this rank waits, names a rank that will
    /// not come, as far as that group knows. Such a rank ends the joining as a death does.
    ///
    /// # Errors
    /// The errors of [`Segment::attach`].
    pub fn attach_within(options: &AttachOptions, absent: Absent<'_>) -> Result<(Arc<Segment>, Region), Error> {
        let fork = ForkFlag::new()?;
        let attach::Attached { control, owner, arena, table, base, regions, me } = attach::attach(options, absent)?;
        let policy = core::array::from_fn(|i| control.policy[i].load(Relaxed));
        let affine_cpus = affine_cpus(&control, options.size);
        let quota = limits::cpu_quota(Path::new("/"));
        let allowed_cpus = quota.map_or(affine_cpus, |quota| affine_cpus.min(quota));
        let allocator = Allocator::new(table, regions, base.len());
        let segment = Segment {
            rank: options.rank,
            size: options.size,
            policy,
            allowed_cpus,
            affine_cpus,
            host: process::host_name(),
            me,
            fork,
            control,
            _owner: owner,
            rounds: ConfirmationRounds::default(),
            arena,
            allocator,
        };
        Ok((Arc::new(segment), base))
    }

    /// This process's number on the node.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks on the node.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Rank 0's settings.
    pub fn policy(&self) -> [u64; 32] {
        self.policy
    }

    /// Process of rank `rank`.
    pub fn peer(&self, rank: usize) -> Peer {
        Peer { pid: self.pid(rank), host: self.host.clone() }
    }

    /// Process id of rank `rank` in its own pid namespace; 0 for a rank that does not exist.
    pub fn pid(&self, rank: usize) -> u32 {
        self.control.entries.get(rank).filter(|_| rank < self.size).map_or(0, |e| e.pid.load(Relaxed) as u32)
    }

    /// State of the rank's process.
    pub fn state(&self, rank: usize) -> PeerState {
        if !self.is_alive(rank) {
            return PeerState::Gone;
        }
        let entry = &self.control.entries[rank];
        if entry.pid_namespace.load(Relaxed) != self.me.pid_namespace {
            return PeerState::Running;
        }
        match process::stat(&entry.pid.load(Relaxed).to_string()) {
            Some((letter, start)) if start == entry.start_ticks.load(Relaxed) => match letter {
                'D' => PeerState::Disk,
                'T' => PeerState::Stopped,
                't' => PeerState::Traced,
                // the first thread of a process that lives on in others is shown as a zombie
                _ if self.is_alive(rank) => PeerState::Running,
                _ => PeerState::Gone,
            },
            // hidden from us, or it died between the two looks
            _ if self.is_alive(rank) => PeerState::Running,
            _ => PeerState::Gone,
        }
    }

    /// Returns whether the rank's process lives and has not left: one load while it does. A stopped process is alive. A rank that
    /// is not alive may be reported, but its memory not be reused: see [`Segment::has_ended`].
    pub fn is_alive(&self, rank: usize) -> bool {
        if rank >= self.size {
            return false;
        }
        self.confirm_one();
        rank == self.rank || !self.concludes(rank, liveness::is_dead)
    }

    /// Returns whether no thread of the rank's process can touch the node's memory any more, so that the memory it could reach may
    /// be reused. A killed process may go on writing for seconds.
    pub fn has_ended(&self, rank: usize) -> bool {
        rank >= self.size || (rank != self.rank && self.concludes(rank, liveness::has_ended))
    }

    /// Returns whether the rank has left in order, which explains why it is not alive.
    pub fn has_left(&self, rank: usize) -> bool {
        rank < self.size && self.control.state(rank) == control::DETACHED
    }

    fn concludes(&self, rank: usize, judge: fn(LivenessState, Evidence) -> bool) -> bool {
        liveness::concludes(&self.control, &self.arena, &self.me, rank, judge)
    }

    /// About once a second, compares one rank's word with the other witnesses, and marks a death that the kernel did not: where
    /// other code has replaced the owner thread's robust list or unmapped the word.
    fn confirm_one(&self) {
        let Some(rank) = self.rounds.due(clock::now_ns(), self.rank, self.size) else { return };
        self.control.living[rank].confirm(|| {
            let Evidence { locked, process_runs, .. } = liveness::evidence(&self.control, &self.arena, &self.me, rank);
            locked != Some(true) && process_runs == Some(false)
        });
    }

    /// CPUs that the ranks together may use: all their affinity masks, not more than the control group's quota grants.
    pub fn allowed_cpus(&self) -> usize {
        self.allowed_cpus
    }

    /// CPUs in all affinity masks together: the same number on all ranks.
    pub fn affine_cpus(&self) -> usize {
        self.affine_cpus
    }

    /// Returns whether this process is a child made by fork, which is not a member. One load.
    #[inline]
    pub fn is_forked_child(&self) -> bool {
        self.fork.is_child()
    }

    /// The word that is 0 in a forked child; `None` if the system cannot zero pages at fork.
    pub fn fork_word(&self) -> Option<&AtomicU64> {
        self.fork.word()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !self.is_forked_child() {
            // before the locks go with the descriptor, so that no rank takes the leave for a death
            self.control.announce(self.rank, control::DETACHED);
        }
    }
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Segment").field("rank", &self.rank).field("size", &self.size).finish_non_exhaustive()
    }
}

fn affine_cpus(control: &Control, size: usize) -> usize {
    let mut union = [0u64; 16];
    for entry in &control.entries[..size] {
        // written before the rendezvous was over
        for (word, mask) in union.iter_mut().zip(&entry.affinity) {
            *word |= mask.load(Relaxed);
        }
    }
    union.iter().map(|word| word.count_ones() as usize).sum::<usize>().max(1)
}

const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Segment>();
};
