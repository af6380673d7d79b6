//! Liveness of ranks: a word per rank that the kernel marks when the rank's process dies or executes another program.
//!
//! A parked thread of every rank owns the rank's word ([`super::owner_thread`]), so a check of another rank is one load.
//! Unlike a record lock, the word does not depend on descriptors: a program may open and close the arena through `/proc`, or
//! close all its descriptors.
//!
//! No single witness decides. The second one is the rank's record lock on the arena, which the kernel drops when the *last*
//! thread of the process is gone; the third is the process itself, where it is visible. The word suffices to report a death.
//! Memory is reused only after all threads have ended, because a killed process was seen writing into shared memory for
//! seconds while one of its threads was inside a system call.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::arena::Arena;
use super::control::{Control, Identity};
use super::liveness_word::LivenessState;
use super::{owner_thread, process, record_lock};

/// Interval at which a process compares one rank's word with the other witnesses.
const CONFIRM_EVERY_NS: u64 = 1_000_000_000;

/// Evidence about a rank besides its word. `None` where this process cannot tell: its descriptor was closed, the rank is in
/// another pid namespace, or permission is missing.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Evidence {
    /// True if the rank's record lock is held.
    pub locked: Option<bool>,
    /// True if the owner thread exists.
    pub owner_runs: Option<bool>,
    /// True if a thread of the process exists.
    pub process_runs: Option<bool>,
    /// True if one of its threads has the node's memory mapped; false in a process that has executed another program.
    pub maps_memory: Option<bool>,
}

/// Returns whether the rank may be reported as dead.
pub(super) fn is_dead(mark: LivenessState, evidence: Evidence) -> bool {
    let Evidence { locked, owner_runs, process_runs, .. } = evidence;
    match mark {
        LivenessState::Owned => false,
        LivenessState::Left => true,
        // without other evidence the kernel's mark counts
        LivenessState::OwnerDied => locked != Some(true) || owner_runs == Some(false),
        // a free lock may have been lost by a process that lives on: its descriptor was closed
        LivenessState::Unclaimed | LivenessState::Ownerless => {
            locked == Some(false) || (locked.is_none() && process_runs == Some(false))
        }
    }
}

/// Returns whether no thread of the rank's process can touch shared memory any more.
pub(super) fn has_ended(mark: LivenessState, evidence: Evidence) -> bool {
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

/// Applies `judge` to a rank: to its word alone if that is "alive" or "left", otherwise to all evidence.
pub(super) fn concludes(
    control: &Control,
    arena: &Arena,
    me: &Identity,
    rank: usize,
    judge: fn(LivenessState, Evidence) -> bool,
) -> bool {
    match control.living[rank].state() {
        mark @ (LivenessState::Owned | LivenessState::Left) => judge(mark, Evidence::default()),
        mark => judge(mark, evidence(control, arena, me, rank)),
    }
}

/// Collects the evidence about a rank that the process `me` can see.
pub(super) fn evidence(control: &Control, arena: &Arena, me: &Identity, rank: usize) -> Evidence {
    let entry = &control.entries[rank];
    let (identity, owner) = (entry.identity(), entry.owner.load(Relaxed) as u32);
    // an error means that this process has lost its descriptor, and nothing about the rank
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

/// The schedule by which this process compares words that say "alive" with the other witnesses: the last time, the next rank.
#[derive(Debug, Default)]
pub(super) struct ConfirmationRounds {
    last: AtomicU64,
    next: AtomicUsize,
}

impl ConfirmationRounds {
    /// The rank to confirm now, if one is due: every rank in turn, beginning with the one after `rank`.
    pub fn due(&self, now_ns: u64, rank: usize, size: usize) -> Option<usize> {
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
    fn every_rank_is_confirmed_in_turn_and_not_too_often() {
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
}
