//! How the processes of one node meet, share memory and see each other die.
//!
//! [`Segment::attach`] brings the ranks of a job together. What they share afterwards are a small control segment
//! ([`Control`]: who is here) and one arena, a large sparse file of regions: the first belongs to all ranks, the others
//! are lent to groups of them ([`Segment::allocate`]).
//! `docs/memory.md` tells the life cycle and what is left where when somebody is killed.

mod agreement;
mod allocation;
mod allocator;
mod announcement;
mod arena;
mod attach;
mod budget;
mod control;
mod control_map;
mod deadline;
mod fd_server;
mod limits;
mod liveness;
mod messages;
mod owner_thread;
mod process;
mod record_lock;
mod region;
mod rendezvous;
mod survivors;
#[doc(hidden)]
pub mod table;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::time::Duration;

pub use agreement::SurvivorsCall;
pub use allocation::{Allocation, AllocationName, BufferUse, MemoryBudget, Reservation};
use allocator::Allocator;
pub use allocator::{BudgetLimits, Claim, Grant, MAX_REGIONS, Origin, POOL_BYTES};
pub use announcement::{announce_end, forget_job, refuse};
pub use control::{CONTROL_BYTES, Control, MAX_RANKS};
pub use region::Region;
pub use rendezvous::sweep;
pub use survivors::{Decision, REASON_WORDS, Vote};

use crate::Error;
use arena::Arena;
use control_map::ControlMap;
use liveness::ConfirmationRounds;
use owner_thread::OwnerThread;
use record_lock::ForkFlag;

/// What a process says to join a group.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// This process's number on the node, from 0.
    pub rank: usize,
    /// Number of ranks on the node, 1 to [`MAX_RANKS`].
    pub size: usize,
    /// Names the group: equal on its ranks, different for any other group of this user on this node.
    pub key: String,
    /// Where ranks that share no network namespace meet (`EARLYBIRD_DIR`): mode 0700, created if absent, and left.
    pub dir: Option<PathBuf>,
    /// Bytes of address range of each region, rounded up to whole pages; equal on all ranks. Takes no memory until
    /// reserved. The arena holds [`MAX_REGIONS`] of them.
    pub region_bytes: usize,
    /// Settings that must be equal on all ranks; those of rank 0 are everybody's.
    pub policy: [u64; 32],
    /// How long to wait for the others; `None` for ever (a death ends the wait in any case).
    pub timeout: Option<Duration>,
    /// Names and values of settings that must be alike on all ranks; the first that is not is everybody's error.
    pub settings: Vec<(String, String)>,
}

/// Names a rank that will not join, where another group of the same ranks knows of one.
pub type Absent<'a> = &'a dyn Fn() -> Option<usize>;

/// Another rank's process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its process id as it sees it itself; 0 for a rank that does not exist.
    pub pid: u32,
    /// The node.
    pub host: String,
}

/// What a rank's process is doing, as far as the operating system shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerState {
    /// Running, runnable or asleep; also when its state cannot be seen from here (another container).
    Running,
    /// In a system call that cannot be interrupted, usually for a disk or a network file system.
    Disk,
    /// Stopped by a signal (SIGSTOP, SIGTSTP).
    Stopped,
    /// Held by a debugger.
    Traced,
    /// Dead, executing another program, or not a member any more.
    Gone,
}

impl std::fmt::Display for PeerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            PeerState::Running => "running",
            PeerState::Disk => "waiting for a disk",
            PeerState::Stopped => "stopped",
            PeerState::Traced => "held by a debugger",
            PeerState::Gone => "gone",
        })
    }
}

/// This process's membership in a group. Dropping it says good-bye to the others.
pub struct Segment {
    rank: usize,
    size: usize,
    policy: [u64; 32],
    allowed_cpus: usize,
    affine_cpus: usize,
    host: String,
    me: process::Identity,
    fork: ForkFlag,
    control: Arc<ControlMap>,
    /// Says that this rank lives, and at its end that it has left.
    _owner: Option<OwnerThread>,
    rounds: ConfirmationRounds,
    arena: Arc<Arena>,
    pool: Allocator,
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

    /// The same for ranks that are members of another group already: `absent`, asked while this rank waits, names a rank
    /// that will not come, as far as that group knows. It ends the joining as a death does.
    ///
    /// # Errors
    /// As [`Segment::attach`].
    pub fn attach_within(options: &AttachOptions, absent: Absent<'_>) -> Result<(Arc<Segment>, Region), Error> {
        let fork = ForkFlag::new()?;
        let attach::Attached { control, owner, arena, table, base, regions, me } = attach::attach(options, absent)?;
        let policy = core::array::from_fn(|i| control.policy[i].load(Relaxed));
        let affine_cpus = affine_cpus(&control, options.size);
        let quota = limits::cpu_quota(Path::new("/"));
        let allowed_cpus = quota.map_or(affine_cpus, |quota| affine_cpus.min(quota));
        let pool = Allocator::new(table, regions, base.len());
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
            pool,
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

    /// Bytes of memory that the arena takes now, on all ranks together.
    pub fn taken_bytes(&self) -> u64 {
        self.give_back_what_is_due();
        self.arena.taken_bytes()
    }

    /// Who rank `rank` is.
    pub fn peer(&self, rank: usize) -> Peer {
        let pid = self.control.entries.get(rank).filter(|_| rank < self.size).map_or(0, |e| e.pid.load(Relaxed) as u32);
        Peer { pid, host: self.host.clone() }
    }

    /// What the rank's process is doing.
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

    /// Bytes of the largest [`Allocation`].
    pub fn max_allocation_bytes(&self) -> usize {
        self.pool.region_bytes()
    }

    /// CPUs that the ranks together may use: all their affinity masks, not more than the control group's quota grants.
    pub fn allowed_cpus(&self) -> usize {
        self.allowed_cpus
    }

    /// The same by the affinity masks alone: all ranks read the same ones.
    pub fn affine_cpus(&self) -> usize {
        self.affine_cpus
    }

    /// Whether this is a child made by fork, which is not a member. One load.
    #[inline]
    pub fn is_forked_child(&self) -> bool {
        self.fork.is_child()
    }

    /// The word that says so: 0 in a child. Where the system has no such page the pid tells.
    pub fn fork_word(&self) -> Option<&AtomicU64> {
        self.fork.word()
    }
}

impl Drop for Segment {
    fn drop(&mut self) {
        if !self.is_forked_child() {
            // before the locks go with the descriptor, so that nobody takes the leave for a death
            self.control.entries[self.rank].state.store(control::DETACHED, Release);
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
        // every state was read with Acquire when the group was seen complete; the masks were written before
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
