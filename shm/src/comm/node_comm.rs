//! The group of a node's ranks as its members hold it: joining, what it is, and the lock that a call takes.

use super::call_cache::CallCache;
use super::dropped_calls::DroppedCalls;
use super::send_memory::SendMemory;
use super::shared_results;
use crate::Error;
use crate::config::WaitPreset;
use crate::engine;
use crate::kernels;
use crate::layout::{Layout, Windows};
use crate::mapped::{GroupInfo, Mapped};
use crate::memory::{Absent, AttachOptions, BudgetLimits, Grant, MemoryBudget, Segment};
use crate::progress::Progress;
use crate::protocol::board::{AREAS, Board};
use crate::protocol::decide::Thresholds;
use crate::protocol::rotation::Rotation;
use crate::protocol::{Member, Patience, Report};
use spin::mutex::{SpinMutex, SpinMutexGuard};
use std::ops::{Deref, DerefMut};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The options with which a process joins the ranks of a node.
#[derive(Debug, Clone, Default)]
pub struct JoinOptions {
    /// This process's number on the node, from 0.
    pub rank: usize,
    /// Ranks on the node.
    pub size: usize,
    /// Names the group: equal on its ranks, different for any other group of this user on this node.
    pub key: String,
    /// Directory of the rendezvous for ranks that share no network namespace (`EARLYBIRD_DIR`).
    pub dir: Option<PathBuf>,
    /// The preset of waits: the use of the CPU by a waiting rank.
    pub wait: WaitPreset,
    /// Deadline of one wait; `None` waits for ever. Deaths are noticed all the same.
    pub timeout: Option<Duration>,
    /// Deadline of joining; `None` for `timeout`.
    pub join_timeout: Option<Duration>,
    /// Most shared memory that the ranks may use, bytes, all communicators together; rank 0's counts. `None` for
    /// [`Windows::default_budget_bytes`].
    pub arena_max_bytes: Option<u64>,
    /// True if ranks of other groups share the CPUs: then none may spin, even if this group alone has a CPU for each rank.
    pub oversubscribed: bool,
    /// Names and values of settings that must be equal on all ranks.
    pub settings: Vec<(String, String)>,
}

/// This process as a member of the group of its node.
///
/// Every rank makes the same calls in the same order. Two threads that call into one group at once get an error, not
/// a race. Dropping it leaves the group: ranks that still call get [`Error::PeerDied`].
#[derive(Debug)]
#[repr(C, align(64))]
pub struct NodeComm {
    /// Taken by `try_lock` only, so that unlocking is a plain store; a lock with waiters would need an exchange.
    pub(super) state: SpinMutex<NodeState>,
    /// Numbers of started calls that were released.
    pub(super) dropped: DroppedCalls,
    pub(super) rank: usize,
    pub(super) size: usize,
    pub(super) cpus: usize,
    pub(super) thresholds: Thresholds,
    pub(super) windows: Windows,
    pub(super) group_info: GroupInfo,
    pub(super) budget_bytes: u64,
    /// The settings of waits as this group began with them.
    pub(super) patience: Patience,
    /// Dropped after `state`: the board releases its region before the segment is left.
    pub(super) segment: Arc<Segment>,
}

/// Whether ranks could read the private memory of others, in calls in which all waited for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PeerReads {
    /// No call has tried.
    Untried,
    /// Every rank that tried could.
    Work,
    /// Some rank could not, and none tries again.
    Refused,
}

/// The state of the group that calls change. The fields that a small call reads come first, since it finds them cold.
#[derive(Debug)]
#[repr(C)]
pub(super) struct NodeState {
    /// True if a call panicked.
    pub(super) broken: bool,
    pub(super) last: Option<Report>,
    pub(super) peer_reads: PeerReads,
    pub(super) member: Member<Mapped>,
    pub(super) calls: CallCache,
    /// The outcome of the first operation of a call that the fast path has begun, and the address by which that call is known when it goes on:
    /// `CheckedArgs::address`.
    pub(super) begun: Option<(Report, usize)>,
    /// The memory of shared results.
    pub(super) results: shared_results::Results,
    /// The memory that started alltoalls of unequal blocks are sent from, once there is such a call.
    pub(super) send_memory: Option<Arc<Mutex<SendMemory>>>,
}

impl NodeState {
    /// Fails the group, because this thread unwinds out of a call; nothing more can be called here.
    #[cold]
    pub(super) fn fail_unwinding(&mut self) {
        self.broken = true;
        self.member.panicked();
    }

    pub(super) fn timeout(&self) -> Option<Duration> {
        self.member.patience.timeout_ns.map(Duration::from_nanos)
    }
}

impl NodeComm {
    /// Joins and returns when all ranks have.
    ///
    /// # Errors
    /// The errors of [`Segment::attach`]; [`Error::NoSpace`] also when the lines of the group do not fit, [`Error::Usage`] when
    /// rank 0's arena cap is too small for this many ranks.
    pub fn join(options: &JoinOptions) -> Result<NodeComm, Error> {
        NodeComm::join_within(options, &|| None)
    }

    /// Joins ranks that are members of another group already; `absent` names one that will not come, as far as that group knows.
    ///
    /// # Errors
    /// The errors of [`NodeComm::join`] and [`Segment::attach_within`].
    pub fn join_within(options: &JoinOptions, absent: Absent<'_>) -> Result<NodeComm, Error> {
        let ranks = options.size.max(1);
        let total = options.arena_max_bytes.unwrap_or_else(|| Windows::default_budget_bytes(ranks));
        let base = Windows::base_bytes(total, ranks);
        // A cap that is too small is written as windows of zero, so that every rank refuses and none is left waiting.
        let (accumulator, deposit) = Windows::within(base, ranks).map_or((0, 0), |w| (w.accumulator, w.deposit));
        // Rank 0's words count for all; they are read back below in this order, after their version.
        let rotated = Rotation::decide(ranks, AREAS, deposit, kernels::taking_lines_is_slow());
        let words = [1, accumulator as u64, deposit as u64, total, base, rotated as u64];
        let mut policy = [0; 32];
        policy[..words.len()].copy_from_slice(&words);
        let attach = AttachOptions {
            rank: options.rank,
            size: options.size,
            key: options.key.clone(),
            dir: options.dir.clone(),
            region_bytes: Layout::new(options.size).bytes(),
            policy,
            timeout: options.join_timeout.or(options.timeout),
            settings: options.settings.clone(),
        };
        let (segment, region) = Segment::attach_within(&attach, absent)?;
        let [_, accumulator, deposit, total, base, rotated, ..] = segment.policy();
        let (rank, size, cpus) = (segment.rank(), segment.size(), segment.allowed_cpus());
        let windows = Windows::from_words(accumulator, deposit).ok_or_else(|| {
            Error::usage(format!(
                "the arena cap of rank 0 (EARLYBIRD_ARENA_MAX) is too small for {size} ranks; set at least {} bytes",
                Windows::least_budget_bytes(size)
            ))
        })?;
        let rotated = usize::try_from(rotated).unwrap_or(usize::MAX).min(windows.deposit);
        let rotation = Rotation::of(rotated, windows.have_small());
        let thresholds = Thresholds::of_this_machine(size, segment.affine_cpus());
        let oversubscribed = options.oversubscribed || size > cpus;
        let patience = Patience::new(options.wait, oversubscribed, options.timeout.map(crate::nanoseconds));
        segment.set_budget(BudgetLimits { total, base });
        let group_info =
            GroupInfo { members: (0..size).collect(), me: rank, allocation: (size > 1).then_some((0, Grant::BASE)) };
        let member = Member::new(Mapped::new(segment, group_info, region, rotation)?, patience);
        Ok(NodeComm::of_member(member, cpus, thresholds, windows, base))
    }

    /// The handle of a group that this process has joined.
    pub(super) fn of_member(
        member: Member<Mapped>,
        cpus: usize,
        thresholds: Thresholds,
        windows: Windows,
        budget_bytes: u64,
    ) -> NodeComm {
        let (rank, size) = (member.board.rank(), member.board.ranks());
        let (group_info, segment) = (member.board.group_info().clone(), member.board.segment().clone());
        let results = shared_results::Results::new(segment.clone(), group_info.allocation.map_or(0, |(_, id)| id));
        let patience = member.patience;
        let state = SpinMutex::new(NodeState {
            broken: false,
            member,
            calls: CallCache::default(),
            last: None,
            peer_reads: PeerReads::Untried,
            begun: None,
            results,
            send_memory: None,
        });
        NodeComm {
            state,
            dropped: DroppedCalls::default(),
            rank,
            size,
            cpus,
            thresholds,
            windows,
            group_info,
            budget_bytes,
            patience,
            segment,
        }
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks in the group.
    pub fn size(&self) -> usize {
        self.size
    }

    /// CPUs that the ranks together may use; with fewer CPUs than ranks none spins.
    pub fn allowed_cpus(&self) -> usize {
        self.cpus
    }

    /// CPUs in the affinity masks of all ranks together.
    pub fn affine_cpus(&self) -> usize {
        self.segment.affine_cpus()
    }

    /// The ranks of the group in order, each by its number in the job.
    pub fn members(&self) -> &[usize] {
        &self.group_info.members
    }

    /// A number that no other group of the job ever has; 0 for groups of one, which share nothing.
    pub fn group(&self) -> u64 {
        self.group_info.allocation.map_or(0, |(_, id)| id)
    }

    /// Bytes of shared memory that the group may take at most; 0 for a group of one, which shares nothing.
    pub fn budget_bytes(&self) -> u64 {
        self.group_info.allocation.map_or(0, |_| self.budget_bytes)
    }

    /// The budget of shared memory that lies outside the node's arena.
    pub fn memory_budget(&self) -> MemoryBudget {
        MemoryBudget::new(self.segment.clone(), self.lock().ok().and_then(|state| state.timeout()))
    }

    /// Bytes of shared memory in use by all groups of the node.
    pub fn shared_memory_bytes(&self) -> u64 {
        self.segment.taken_bytes()
    }

    /// The limits by which algorithms are chosen.
    pub fn thresholds(&self) -> Thresholds {
        match self.state.try_lock() {
            Some(state) if state.peer_reads == PeerReads::Refused => self.thresholds.without_single_copy(),
            _ => self.thresholds,
        }
    }

    /// A description of how `auto` selects in this group.
    pub fn describe_choice(&self) -> String {
        let t = self.thresholds;
        let leader = match t.leader_bytes > t.flat_bytes {
            true => format!("leader to {} B, ", t.leader_bytes),
            false => String::new(),
        };
        format!(
            "auto: flat to {} B, {leader}then chain (leader, from {} B slices, where the rank order shows)",
            t.flat_bytes, t.slices_bytes
        )
    }

    /// Sets the progress function to call in long waits from now on; groups made from this one later inherit it.
    ///
    /// # Errors
    /// [`Error::Usage`] while another thread is inside a call.
    pub fn set_progress(&self, progress: Option<Progress>) -> Result<(), Error> {
        self.lock()?.member.board.set_progress(progress);
        Ok(())
    }

    /// Returns whether this process is a child made by fork, which is not a member.
    #[inline]
    pub fn is_forked(&self) -> bool {
        self.segment.is_forked_child()
    }

    /// The report of the last operation that this rank completed.
    #[inline]
    pub fn last_call(&self) -> Option<Report> {
        self.locked_state().ok()?.last
    }

    /// The error of calls after one that panicked here: the group's one error, which the other ranks get too.
    #[cold]
    pub(super) fn why_broken(&self, member: &Member<Mapped>) -> Error {
        member.failure().map_or_else(engine::panicked, |stop| self.error_of(member, stop))
    }

    /// Locks the state once the progress engine, which may hold the lock, is paused.
    #[cold]
    fn lock_paused(&self) -> Result<SpinMutexGuard<'_, NodeState>, Error> {
        let _paused = engine::pause();
        self.state.try_lock().ok_or_else(engine::occupied)
    }

    /// Locks the state, whatever has become of the group.
    #[inline]
    fn locked_state(&self) -> Result<SpinMutexGuard<'_, NodeState>, Error> {
        match self.state.try_lock() {
            Some(state) => Ok(state),
            None => self.lock_paused(),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> Result<Inside<'_>, Error> {
        self.inside(self.locked_state()?)
    }

    #[inline]
    pub(super) fn inside<'a>(&self, state: SpinMutexGuard<'a, NodeState>) -> Result<Inside<'a>, Error> {
        match () {
            () if state.broken => Err(self.why_broken(&state.member)),
            () if state.member.board.is_forked_child() => Err(Error::Forked),
            () => Ok(Inside { state, unwinding: std::thread::panicking() }),
        }
    }
}

/// A call that has begun: no other thread is inside one.
pub(super) struct Inside<'a> {
    state: SpinMutexGuard<'a, NodeState>,
    /// True if the calling thread was panicking already.
    unwinding: bool,
}

impl Deref for Inside<'_> {
    type Target = NodeState;
    fn deref(&self) -> &NodeState {
        &self.state
    }
}

impl DerefMut for Inside<'_> {
    fn deref_mut(&mut self) -> &mut NodeState {
        &mut self.state
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.unwinding {
            self.state.fail_unwinding();
        }
    }
}
