//! The collectives of one node as a caller sees them: checked arguments in, one named error out.

use crate::config::{Algorithm, WaitPreset};
use crate::layout::{Layout, Windows};
use crate::mapped::Mapped;
use crate::op::{DType, Element, FoldOrder, Op};
use crate::protocol::board::Board;
use crate::protocol::call::{Collective, Prepared, Signature};
use crate::protocol::decide::Thresholds;
use crate::protocol::payload::Buffers;
use crate::protocol::word::{Cause, PoisonWord};
use crate::protocol::{Member, Patience, Report, Stop};
use crate::segment::{AttachOptions, Segment};
use crate::sync::Ordering;
use crate::{Error, protocol};
use std::path::PathBuf;
use std::sync::{Mutex, TryLockError};
use std::time::Duration;

/// How to join the ranks of a node.
#[derive(Debug, Clone, Default)]
pub struct JoinOptions {
    /// This process's number on the node, from 0.
    pub rank: usize,
    /// Ranks on the node.
    pub size: usize,
    /// Names the group: equal on its ranks, different for any other group of this user on this node.
    pub key: String,
    /// Where ranks meet; `None` for the default directory in /dev/shm.
    pub dir: Option<PathBuf>,
    /// What a waiting rank does with its CPU.
    pub wait: WaitPreset,
    /// Deadline of one wait; `None` waits for ever. Deaths are noticed all the same.
    pub timeout: Option<Duration>,
    /// Most shared memory the group may use, bytes; rank 0's counts. `None` for the library's cap.
    pub arena_max_bytes: Option<u64>,
}

/// How one call is to be carried out. All ranks must say the same: ranks that differ get [`Error::Mismatch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct How {
    /// The algorithm, or `Auto`.
    pub algorithm: Algorithm,
    /// The order of folding.
    pub order: FoldOrder,
}

/// This process as a member of the group of its node.
///
/// Every rank makes the same calls in the same order. Two threads that call into one group at once get an error, not
/// a race. Dropping it leaves the group: ranks that still call get [`Error::PeerDied`].
#[derive(Debug)]
pub struct NodeComm {
    state: Mutex<State>,
    rank: usize,
    size: usize,
    cpus: usize,
    thresholds: Thresholds,
    windows: Windows,
}

#[derive(Debug)]
struct State {
    member: Member<Mapped>,
    /// The last call's arguments and what follows from them.
    prepared: Option<(Signature, Prepared)>,
    last: Option<Report>,
}

/// Words of the group's policy: rank 0 writes them when the group forms.
const POLICY_VERSION: usize = 0;
const POLICY_WINDOW_ACCUMULATOR: usize = 1;
const POLICY_WINDOW_DEPOSIT: usize = 2;
const POLICY_FLAT_BYTES: usize = 3;
const POLICY_LEADER_BYTES: usize = 4;

impl NodeComm {
    /// Joins and returns when all ranks have.
    ///
    /// # Errors
    /// As [`Segment::attach`]; [`Error::NoSpace`] also when the lines of the group do not fit, [`Error::Usage`] when
    /// rank 0's arena cap is too small for this many ranks.
    pub fn join(options: &JoinOptions) -> Result<NodeComm, Error> {
        let mut policy = [0u64; 32];
        // A cap that is too small is written as windows of zero, so that every rank refuses and none is left waiting.
        if let Some(w) = Windows::within(options.arena_max_bytes, options.size.max(1)) {
            policy[POLICY_WINDOW_ACCUMULATOR] = w.accumulator as u64;
            policy[POLICY_WINDOW_DEPOSIT] = w.deposit as u64;
        }
        let thresholds = Thresholds::default_for(options.size);
        policy[POLICY_VERSION] = 1;
        policy[POLICY_FLAT_BYTES] = thresholds.flat_bytes as u64;
        policy[POLICY_LEADER_BYTES] = thresholds.leader_bytes as u64;
        let segment = Segment::attach(&AttachOptions {
            rank: options.rank,
            size: options.size,
            key: options.key.clone(),
            dir: options.dir.clone(),
            arena_bytes: Layout::new(options.size).bytes(),
            policy,
            timeout: options.timeout,
        })?;
        let policy = segment.policy();
        let (rank, size, cpus) = (segment.rank(), segment.size(), segment.allowed_cpus());
        let windows = Windows {
            accumulator: policy[POLICY_WINDOW_ACCUMULATOR] as usize,
            deposit: policy[POLICY_WINDOW_DEPOSIT] as usize,
        };
        if windows.deposit == 0 {
            return Err(Error::usage(format!(
                "the arena cap of rank 0 (EARLYBIRD_ARENA_MAX) is too small for {size} ranks; set at least {} bytes",
                Windows::least_budget_bytes(size)
            )));
        }
        let thresholds = Thresholds {
            flat_bytes: policy[POLICY_FLAT_BYTES] as usize,
            leader_bytes: policy[POLICY_LEADER_BYTES] as usize,
        };
        let patience = Patience {
            preset: options.wait,
            oversubscribed: size > cpus,
            timeout_ns: options.timeout.map(|t| t.as_nanos() as u64),
            mean_wait_ns: 0,
        };
        let member = Member::new(Mapped::new(segment)?, patience);
        let state = Mutex::new(State { member, prepared: None, last: None });
        Ok(NodeComm { state, rank, size, cpus, thresholds, windows })
    }

    /// This process's number, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks in the group.
    pub fn size(&self) -> usize {
        self.size
    }

    /// CPUs that the ranks together may use; with fewer CPUs than ranks nobody spins.
    pub fn allowed_cpus(&self) -> usize {
        self.cpus
    }

    /// How `auto` chooses in this group, in words.
    pub fn describe_choice(&self) -> String {
        let t = self.thresholds;
        format!(
            "auto: flat to {} B, leader to {} B, then chain (leader where the rank order shows)",
            t.flat_bytes, t.leader_bytes
        )
    }

    /// What ran in the last operation that this rank completed.
    pub fn last_call(&self) -> Option<Report> {
        self.lock().ok().and_then(|state| state.last)
    }

    /// Reduces `send` of all ranks into `recv` of every rank.
    ///
    /// Any count, 0 included; calls larger than the arena's windows run as several operations. Cost on one node: see
    /// the algorithm files in [`crate::protocol`].
    ///
    /// # Errors
    /// [`Error::Usage`] when the lengths differ or another thread is in a call; the group's one error otherwise. After
    /// an error `recv` holds nothing of use.
    pub fn all_reduce_into<T: Element>(&self, send: &[T], recv: &mut [T], op: Op, how: How) -> Result<(), Error> {
        self.reduce(Collective::AllReduce, op, &Buffers::apart(send, recv)?, how)
    }

    /// Reduces `buf` of all ranks into `buf` of every rank. After an error `buf` holds nothing of use.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn all_reduce_in_place<T: Element>(&self, buf: &mut [T], op: Op, how: How) -> Result<(), Error> {
        self.reduce(Collective::AllReduce, op, &Buffers::in_place(buf), how)
    }

    /// Returns when every rank has called it.
    ///
    /// # Errors
    /// As [`NodeComm::all_reduce_into`].
    pub fn barrier(&self, how: How) -> Result<(), Error> {
        self.reduce(Collective::Barrier, Op::Sum, &Buffers::in_place::<u64>(&mut []), how)
    }

    #[inline]
    fn reduce(&self, collective: Collective, op: Op, buffers: &Buffers<'_>, how: How) -> Result<(), Error> {
        let mut state = self.lock()?;
        let asked = Signature::new(collective, buffers.dtype(), op, how.order, how.algorithm, buffers.count());
        if state.prepared.is_none_or(|(last, _)| last != asked) {
            state.prepared = Some((asked, self.prepare(asked, buffers, op, how)));
        }
        let State { member, prepared: Some((_, prepared)), last } = &mut *state else { unreachable!("prepared above") };
        if self.size == 1 {
            buffers.copy();
            *last = Some(Report { epoch: 0, algorithm: Algorithm::Flat, place: None });
            return Ok(());
        }
        match self.run(member, buffers, prepared) {
            Ok(report) => {
                *last = Some(report);
                Ok(())
            }
            Err(stop) => Err(self.error_of(member, stop, collective)),
        }
    }

    /// Works out what follows from the arguments of a call.
    #[cold]
    fn prepare(&self, asked: Signature, buffers: &Buffers<'_>, op: Op, how: How) -> Prepared {
        let (count, dtype) = (buffers.count(), buffers.dtype());
        let exact = !matches!((dtype, op), (DType::F32 | DType::F64, Op::Sum | Op::Product));
        // Every operator here is commutative bit for bit, so two ranks cannot tell the orders apart.
        let by_rank = how.order == FoldOrder::Rank && !exact && self.size > 2;
        let algorithm = self.thresholds.choose(how.algorithm, count * dtype.size(), by_rank);
        Prepared::new(asked.in_lane(algorithm == Algorithm::Flat), dtype, op, by_rank, algorithm)
    }

    /// Runs the call as one operation, or as several where it is larger than the windows of the arena.
    #[inline]
    fn run(&self, member: &mut Member<Mapped>, buffers: &Buffers<'_>, prepared: &Prepared) -> Result<Report, Stop> {
        let (count, element_bytes) = (buffers.count(), buffers.dtype().size());
        let window_bytes = match prepared.algorithm() {
            Algorithm::Chain => self.windows.accumulator,
            _ => self.windows.deposit,
        };
        if count * element_bytes <= window_bytes {
            return member.run(&buffers.call(0..count, prepared));
        }
        let part = window_bytes / element_bytes;
        let mut done = 0;
        loop {
            let until = (done + part).min(count);
            let report = member.run(&buffers.call(done..until, prepared))?;
            if until == count {
                return Ok(report);
            }
            done = until;
        }
    }

    #[inline]
    fn lock(&self) -> Result<std::sync::MutexGuard<'_, State>, Error> {
        let state = match self.state.try_lock() {
            Ok(state) => state,
            Err(TryLockError::WouldBlock) => {
                return Err(Error::usage(
                    "another thread of this process is inside a call of this communicator; \
                     make one call at a time, or give each thread a communicator of its own",
                ));
            }
            // A panic inside a call cannot leave the shared words broken, but this rank's place in the operation is lost.
            Err(TryLockError::Poisoned(_)) => {
                return Err(Error::Poisoned { cause: "an earlier call of this process panicked".into() });
            }
        };
        match state.member.board.segment().is_forked_child() {
            true => Err(Error::Forked),
            false => Ok(state),
        }
    }

    /// The group's one error in words. What the words name is checked: a bad peer can make it wrong, not harmful.
    fn error_of(&self, member: &Member<Mapped>, stop: Stop, collective: Collective) -> Error {
        let (board, poison) = (&member.board, stop.0);
        if poison.reporter() >= self.size {
            return Error::Poisoned { cause: format!("unreadable poison word {:#x}", poison.0) };
        }
        let detail = |i: usize| board.details(poison.reporter())[i].load(Ordering::Relaxed);
        let during = || match member.epoch() == poison.epoch() {
            true => format!("{} {}", name(collective), poison.epoch()),
            false => format!("operation {}", poison.epoch()),
        };
        match poison.cause() {
            Cause::PeerDied => {
                let rank = (detail(0) as usize).min(self.size - 1);
                let peer = board.segment().peer(rank);
                Error::PeerDied { rank, pid: peer.pid, host: peer.host, during: during() }
            }
            Cause::Timeout => Error::Timeout {
                missing: self.missing(member, poison, detail(0) as usize),
                after: Duration::from_nanos(detail(1)),
                during: during(),
            },
            Cause::Mismatch => Error::Mismatch {
                rank_a: poison.reporter(),
                call_a: Signature { kind: detail(3), count: detail(4) }.describe(),
                rank_b: detail(0) as usize,
                call_b: Signature { kind: detail(1), count: detail(2) }.describe(),
            },
            Cause::NoSpace => Error::NoSpace {
                needed: detail(0),
                free: detail(1),
                hint: format!(
                    "rank {} could not reserve it in {}; lower EARLYBIRD_ARENA_MAX or free memory",
                    poison.reporter(),
                    during()
                ),
            },
            Cause::Corrupt => Error::Poisoned {
                cause: format!("rank {} found a damaged shared word in {}", poison.reporter(), during()),
            },
        }
    }

    /// The ranks that had not entered the operation; at least the one the reporter named.
    fn missing(&self, member: &Member<Mapped>, poison: PoisonWord, named: usize) -> Vec<usize> {
        let slot = (poison.epoch() % protocol::board::SLOTS as u64) as usize;
        let entered = |r: usize| member.board.line(slot, r).entered.load(Ordering::Relaxed);
        (0..self.size).filter(|&r| r == named || !protocol::word::has_entered(entered(r), poison.epoch())).collect()
    }
}

fn name(collective: Collective) -> &'static str {
    match collective {
        Collective::AllReduce => "allreduce",
        Collective::Barrier => "barrier",
    }
}
