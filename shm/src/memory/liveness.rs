//! Who is alive: a word per rank that the kernel marks when the rank's process dies or executes another program.
//!
//! A parked thread of every rank owns the rank's word ([`super::owner_thread`]), so a look at another rank is one load.
//! Unlike a record lock, the word does not depend on descriptors: a program may open and close the arena through `/proc`, or
//! close all its descriptors.
//!
//! Nothing is concluded from one witness. The second one is the rank's record lock on the arena, which the kernel drops
//! when the *last* thread of the process is gone; the third is the process itself, where it can be seen. The word may
//! blame; only the end of all threads permits to reuse memory, because a killed process was seen writing into shared
//! memory for seconds while one of its threads was inside a system call.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};

use super::arena::Arena;
use super::control::{self, Control};
use super::{Segment, owner_thread, process, record_lock};

/// How often a process compares one rank's word with the other witnesses.
const CONFIRM_EVERY_NS: u64 = 1_000_000_000;

/// The kernel has set this bit: the owner ended without leaving.
const OWNER_DIED: u32 = 0x4000_0000;
const TID_MASK: u32 = 0x3fff_ffff;
/// The rank has left in order, or given up joining. No thread has such a number.
pub(super) const LEFT: u32 = TID_MASK;
/// The rank could not start an owner thread (`ulimit -u`, a system call filter).
pub(super) const OWNERLESS: u32 = TID_MASK - 1;

/// What a rank's word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LivenessState {
    /// Nobody has claimed the rank.
    Unclaimed,
    /// The owner thread lives.
    Owned,
    /// The owner thread ended without leaving: the process is dying, dead, or executing another program.
    OwnerDied,
    /// The rank left in order.
    Left,
    /// The rank has no owner thread; its record lock is the first witness.
    Ownerless,
}

impl LivenessState {
    pub fn of(word: &AtomicU32) -> LivenessState {
        LivenessState::from_word(word.load(Acquire))
    }

    fn from_word(word: u32) -> LivenessState {
        match word & TID_MASK {
            _ if word & OWNER_DIED != 0 => LivenessState::OwnerDied,
            0 => LivenessState::Unclaimed,
            LEFT => LivenessState::Left,
            OWNERLESS => LivenessState::Ownerless,
            _ => LivenessState::Owned,
        }
    }
}

/// What can be learnt about a rank beside its word. `None`: not from here (the descriptor was closed, another pid
/// namespace, no permission).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    /// Whether the rank's record lock is held.
    pub locked: Option<bool>,
    /// Whether the owner thread exists.
    pub owner_runs: Option<bool>,
    /// Whether a thread of the process exists.
    pub process_runs: Option<bool>,
    /// Whether one has the node's memory mapped. Not so in a process that has executed another program.
    pub maps_memory: Option<bool>,
}

/// Whether the others may be told that the rank is dead.
pub(super) fn is_dead(mark: LivenessState, evidence: Evidence) -> bool {
    let Evidence { locked, owner_runs, process_runs, .. } = evidence;
    match mark {
        LivenessState::Owned => false,
        LivenessState::Left => true,
        // where nothing else can be asked the kernel's word stands
        LivenessState::OwnerDied => locked != Some(true) || owner_runs == Some(false),
        // a free lock may have been lost by a process that lives on: its descriptor was closed
        LivenessState::Unclaimed | LivenessState::Ownerless => {
            locked == Some(false) || (locked.is_none() && process_runs == Some(false))
        }
    }
}

/// Whether no thread of the rank's process can touch shared memory any more.
fn has_ended(mark: LivenessState, evidence: Evidence) -> bool {
    let Evidence { locked, process_runs, maps_memory, .. } = evidence;
    match mark {
        LivenessState::Owned => false,
        LivenessState::Left => true,
        LivenessState::OwnerDied | LivenessState::Unclaimed | LivenessState::Ownerless => match process_runs {
            Some(true) => mark == LivenessState::OwnerDied && locked == Some(false) && maps_memory == Some(false),
            Some(false) => locked != Some(true),
            None => locked == Some(false),
        },
    }
}

/// What `verdict` says of a rank by its word, and where that does not say "alive" or "left" by the other witnesses.
pub(super) fn concludes(
    control: &Control,
    arena: &Arena,
    me: &process::Identity,
    rank: usize,
    verdict: fn(LivenessState, Evidence) -> bool,
) -> bool {
    match LivenessState::of(&control.living[rank]) {
        mark @ (LivenessState::Owned | LivenessState::Left) => verdict(mark, Evidence::default()),
        mark => verdict(mark, evidence(control, arena, me, rank)),
    }
}

/// What the process `me` can learn about a rank.
fn evidence(control: &Control, arena: &Arena, me: &process::Identity, rank: usize) -> Evidence {
    let entry = &control.entries[rank];
    let (identity, owner) = (entry.identity(), entry.owner.load(Relaxed) as u32);
    // an error says that the descriptor is gone here, and nothing about the rank
    let asked = arena.checked_fd().ok().and_then(|arena| record_lock::holder(&arena, rank, 1).ok());
    let locked = asked.map(|holder| holder.is_some());
    if identity.pid_namespace != me.pid_namespace {
        return Evidence { locked, ..Evidence::default() };
    }
    let process_runs = process::runs(&identity);
    let owner_runs = if process_runs == Some(false) { Some(false) } else { owner_thread::exists(identity.pid, owner) };
    let executes_another = process_runs == Some(true) && locked == Some(false);
    let maps_memory = executes_another.then(|| arena.is_mapped_by(identity.pid)).flatten();
    Evidence { locked, owner_runs, process_runs, maps_memory }
}

/// When this process last compared a word that says "alive" with the other witnesses, and whose is next.
#[derive(Debug, Default)]
pub(super) struct ConfirmationRounds {
    last: AtomicU64,
    next: AtomicUsize,
}

impl ConfirmationRounds {
    /// The rank to ask about now, if one is due: every rank in turn, beginning with the one after `rank`.
    fn due(&self, now_ns: u64, rank: usize, size: usize) -> Option<usize> {
        let last = self.last.load(Relaxed);
        if now_ns.wrapping_sub(last) < CONFIRM_EVERY_NS
            || self.last.compare_exchange(last, now_ns, Relaxed, Relaxed).is_err()
        {
            return None;
        }
        let after = 1 + self.next.fetch_add(1, Relaxed) % (size - 1).max(1);
        Some((rank + after) % size).filter(|other| *other != rank)
    }
}

impl Segment {
    /// Whether the rank's process lives and has not left: one load as long as it does. A stopped process is alive. That a
    /// rank is not alive permits to report it, not to reuse its memory: see [`Segment::has_ended`].
    pub fn is_alive(&self, rank: usize) -> bool {
        if rank >= self.size {
            return false;
        }
        self.confirm_one();
        rank == self.rank || !self.concludes(rank, is_dead)
    }

    /// Whether no thread of the rank's process can touch the node's memory any more. A killed process may go on writing
    /// for seconds: only this permits to reuse memory that it could reach.
    pub fn has_ended(&self, rank: usize) -> bool {
        rank >= self.size || (rank != self.rank && self.concludes(rank, has_ended))
    }

    /// Whether the rank has left in order; ask this before taking one that is not alive for dead.
    pub fn has_left(&self, rank: usize) -> bool {
        rank < self.size && self.control.state(rank) == control::DETACHED
    }

    fn concludes(&self, rank: usize, verdict: fn(LivenessState, Evidence) -> bool) -> bool {
        concludes(&self.control, &self.arena, &self.me, rank, verdict)
    }

    /// About once a second, asks one rank's other witnesses whether its word missed a death, which happens where something
    /// else has replaced the owner thread's robust list or unmapped the word. Who finds one writes it into the word.
    fn confirm_one(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let now_ns = (now.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec as u64);
        let Some(rank) = self.rounds.due(now_ns, self.rank, self.size) else { return };
        let word = &self.control.living[rank];
        let owned = word.load(Acquire);
        if LivenessState::from_word(owned) == LivenessState::Owned {
            let Evidence { locked, process_runs, .. } = evidence(&self.control, &self.arena, &self.me, rank);
            if locked != Some(true) && process_runs == Some(false) {
                let _ = word.compare_exchange(owned, owned | OWNER_DIED, AcqRel, Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKS: [LivenessState; 5] = [
        LivenessState::Unclaimed,
        LivenessState::Owned,
        LivenessState::OwnerDied,
        LivenessState::Left,
        LivenessState::Ownerless,
    ];
    const ANSWERS: [Option<bool>; 3] = [None, Some(false), Some(true)];

    fn all() -> Vec<(LivenessState, Evidence)> {
        let mut all = Vec::new();
        for mark in MARKS {
            for locked in ANSWERS {
                for owner_runs in ANSWERS {
                    for process_runs in ANSWERS {
                        let with = |maps_memory| Evidence { locked, owner_runs, process_runs, maps_memory };
                        all.extend(ANSWERS.map(|maps_memory| (mark, with(maps_memory))));
                    }
                }
            }
        }
        all
    }

    /// Every combination of witnesses: memory is reused only after all threads are gone, and never while one is seen.
    #[test]
    fn only_the_end_of_all_threads_permits_reuse() {
        for (mark, evidence) in all().into_iter().filter(|(mark, _)| *mark != LivenessState::Left) {
            let ended = has_ended(mark, evidence);
            if ended {
                let without_memory = evidence.maps_memory == Some(false) && evidence.locked == Some(false);
                assert!(evidence.process_runs != Some(true) || without_memory, "{mark:?} {evidence:?}");
                assert_ne!(evidence.locked, Some(true), "{mark:?} {evidence:?}");
                assert!(
                    evidence.locked.is_some() || evidence.process_runs.is_some(),
                    "one witness: {mark:?} {evidence:?}"
                );
            }
            if mark == LivenessState::Owned {
                assert!(!ended && !is_dead(mark, evidence), "{evidence:?}");
            }
        }
    }

    #[test]
    fn a_lost_lock_blames_nobody_who_lives() {
        for owner_runs in ANSWERS {
            let evidence = Evidence { owner_runs, locked: Some(false), process_runs: Some(true), maps_memory: None };
            assert!(!is_dead(LivenessState::Owned, evidence) && !has_ended(LivenessState::Owned, evidence));
        }
    }

    #[test]
    fn a_dying_rank_is_blamed_before_its_memory_is_reused() {
        let dying =
            Evidence { locked: Some(true), owner_runs: Some(false), process_runs: Some(true), maps_memory: Some(true) };
        assert!(is_dead(LivenessState::OwnerDied, dying) && !has_ended(LivenessState::OwnerDied, dying));
        let suspicious = Evidence { owner_runs: None, ..dying };
        assert!(!is_dead(LivenessState::OwnerDied, suspicious));
        let without_lock = Evidence { locked: Some(false), ..dying };
        assert!(
            is_dead(LivenessState::OwnerDied, without_lock) && !has_ended(LivenessState::OwnerDied, without_lock),
            "it lost its lock"
        );
        let elsewhere = Evidence { maps_memory: Some(false), ..without_lock };
        assert!(has_ended(LivenessState::OwnerDied, elsewhere), "it executes another program");
        let over = Evidence { process_runs: Some(false), maps_memory: None, ..without_lock };
        assert!(is_dead(LivenessState::OwnerDied, over) && has_ended(LivenessState::OwnerDied, over));
    }

    #[test]
    fn every_rank_is_confirmed_in_turn_and_not_more_often_than_said() {
        let rounds = ConfirmationRounds::default();
        let mut now = CONFIRM_EVERY_NS;
        let mut asked = Vec::new();
        for _ in 0..3 {
            asked.extend(rounds.due(now, 1, 4));
            assert_eq!(rounds.due(now + CONFIRM_EVERY_NS - 1, 1, 4), None);
            now += CONFIRM_EVERY_NS;
        }
        assert_eq!(asked, [2, 3, 0]);
        assert_eq!(ConfirmationRounds::default().due(now, 0, 1), None);
    }

    #[test]
    fn words_are_read_as_the_kernel_writes_them() {
        let waiters = 0x8000_0000;
        for (word, mark) in [
            (0, LivenessState::Unclaimed),
            (4711, LivenessState::Owned),
            (4711 | waiters, LivenessState::Owned),
            (OWNER_DIED, LivenessState::OwnerDied),
            (OWNER_DIED | waiters, LivenessState::OwnerDied),
            (LEFT, LivenessState::Left),
            (OWNERLESS, LivenessState::Ownerless),
        ] {
            assert_eq!(LivenessState::of(&AtomicU32::new(word)), mark, "{word:#x}");
        }
    }
}
