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
    /// Says that this rank lives, and at its end that it has left.
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
    /// [`Error::Usage`] for options that cannot be or disagree with the others', [`Error::PeerDied`] when a rank dies or
    /// gives up meanwhile, [`Error::Timeout`] when one was set, [`Error::NoSpace`] when /dev/shm is full,
    /// [`Error::Unsupported`] and [`Error::System`] when the system refuses. The group cannot be completed then; the
    /// same key can be used again as soon as all have returned.
    pub fn attach(options: &AttachOptions) -> Result<(Arc<Segment>, Region), Error> {
        Segment::attach_within(options, &|| None)
    }

    /// Attaches ranks that are members of another group already: `absent`, asked while this rank waits, names a rank
    /// that will not come, as far as that group knows. It ends the joining as a death does.
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

    /// The shared control words.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// Process of rank `rank`.
    pub fn peer(&self, rank: usize) -> Peer {
        Peer { pid: self.pid(rank), host: self.host.clone() }
    }

    /// Process id of rank `rank` as that sees it itself; 0 for a rank that does not exist.
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

    /// Returns whether the rank's process lives and has not left: one load as long as it does. A stopped process is alive. That a
    /// rank is not alive permits to report it, not to reuse its memory: see [`Segment::has_ended`].
    pub fn is_alive(&self, rank: usize) -> bool {
        if rank >= self.size {
            return false;
        }
        self.confirm_one();
        rank == self.rank || !self.concludes(rank, liveness::is_dead)
    }

    /// Returns whether no thread of the rank's process can touch the node's memory any more. A killed process may go on writing
    /// for seconds: only this permits to reuse memory that it could reach.
    pub fn has_ended(&self, rank: usize) -> bool {
        rank >= self.size || (rank != self.rank && self.concludes(rank, liveness::has_ended))
    }

    /// Returns whether the rank has left in order; ask this before taking one that is not alive for dead.
    pub fn has_left(&self, rank: usize) -> bool {
        rank < self.size && self.control.state(rank) == control::DETACHED
    }

    fn concludes(&self, rank: usize, verdict: fn(LivenessState, Evidence) -> bool) -> bool {
        liveness::concludes(&self.control, &self.arena, &self.me, rank, verdict)
    }

    /// About once a second, asks one rank's other witnesses whether its word missed a death, which happens where something
    /// else has replaced the owner thread's robust list or unmapped the word. The death is then written into the word.
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

    /// Returns whether this is a child made by fork, which is not a member. One load.
    #[inline]
    pub fn is_forked_child(&self) -> bool {
        self.fork.is_child()
    }

    /// The word that is 0 in a forked child; `None` where the system has no such page.
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
