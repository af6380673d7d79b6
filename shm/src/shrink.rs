//! Shrinking: the survivors of a group form a new group, in new memory. They agree on the survivors, join, and agree that all
//! have joined. When a rank dies or fails to join in between, they begin again with the remaining ones.
//!
//! **All return the same.** Both agreements are decisions of [`Segment::agree_on_survivors`], which are equal on all ranks
//! that read them. A rank returns success only after a decision that every member of the new group has joined, and a decision
//! needs the vote of every old member that lives and has not left. So all living ranks succeed or none does, also when ranks
//! die while they join; a rank that dies after the decision dies in the new group, as in any group. An error that another
//! attempt would not remove (no memory) is voted for too, and becomes the error of all ranks.
//!
//! **No rank waits for ever.** A wait for votes ends by the death or leave of the awaited rank. A rank stops joining when another
//! survivor has died, left, or voted that it did not join.

use std::sync::Arc;
use std::time::Duration;

use crate::Error;
use crate::error_codec::{ERROR_WORDS, from_words, to_words};
use crate::memory::{Absent, Decision, Segment, SurvivorsCall, Vote};
use crate::progress::Progress;
use crate::protocol::step::Step;

/// Attempts of joining that may fail while no rank dies, before the reason is every rank's error.
const MOST_FAILED_ATTEMPTS: usize = 8;

/// The ranks of a group, as the segment knows them.
#[derive(Debug, Clone)]
pub struct Membership {
    segment: Arc<Segment>,
    /// Names the group in the segment.
    group: u64,
    /// By rank: the rank in the segment.
    members: Arc<[usize]>,
}

/// Options of a shrink call.
#[derive(Clone, Copy)]
pub struct ShrinkOptions<'a> {
    /// True if a rank has left the group, although its process lives.
    pub has_left: &'a dyn Fn(usize) -> bool,
    /// Deadline of one wait for living ranks.
    pub timeout: Option<Duration>,
    /// Progress function to call while waiting.
    pub progress: Option<&'a Progress>,
}

/// Ranks that are to form a group.
#[derive(Clone, Copy)]
pub struct Survivors<'a> {
    /// By rank in the new group: the rank in the old one.
    pub ranks: &'a [usize],
    /// This process's rank in the new group.
    pub rank: usize,
    /// Distinguishes this attempt from all others of the old group, equal on all survivors.
    pub attempt: u64,
    /// Names a rank of the new group that will not join.
    pub absent: Absent<'a>,
}

impl Membership {
    /// Creates the membership of the named group with these ranks of the segment.
    pub(crate) fn new(segment: Arc<Segment>, group: u64, members: Arc<[usize]>) -> Membership {
        Membership { segment, group, members }
    }

    /// Ranks of the segment that live, whatever groups they are in.
    pub fn living(&self) -> usize {
        (0..self.segment.size()).filter(|rank| self.segment.is_alive(*rank)).count()
    }

    /// Returns what `join` has made of the survivors, by their ranks in this group, when all of them have joined. `rounds`
    /// counts what this rank has seen decided in the group, from 0.
    ///
    /// # Errors
    /// [`Error::Timeout`] when a deadline was set and living ranks are missing; the rank may call again. What `join` returns
    /// otherwise, but for deaths; then on all ranks. [`Error::Poisoned`] as [`Segment::agree_on_survivors`].
    pub fn shrink<T>(
        &self,
        options: ShrinkOptions<'_>,
        rounds: &mut u64,
        mut join: impl FnMut(&Survivors<'_>) -> Result<T, Error>,
    ) -> Result<(Vec<usize>, T), Error> {
        #[cfg(feature = "fault")]
        let fault = crate::fault_injection::InjectedFaults::from_env(self.segment.rank())?;
        let step = |step: Step| {
            #[cfg(feature = "fault")]
            fault.iter().for_each(|fault| fault.reached(step));
            #[cfg(not(feature = "fault"))]
            let _ = step;
        };
        if self.segment.is_forked_child() {
            return Err(Error::Forked);
        }
        let (mut members, mut vote, mut made, mut failed_attempts) = (self.members.to_vec(), Vote::Retry, None, 0);
        loop {
            let decision = self.agree(options, &members, *rounds, vote)?;
            *rounds = rounds.wrapping_add(1);
            let ranks = self.ranks_of(&decision.survivors);
            failed_attempts += usize::from(made.is_some());
            // a rank that has not joined cannot have the decision "joined"
            match (decision.outcome, made.take()) {
                _ if decision.survivors != members => failed_attempts = 0,
                (Vote::Joined, Some(Ok(made))) => return Ok((ranks, made)),
                (Vote::Failed(reason), Some(joined)) => {
                    let own = joined.err().filter(|error| !is_anothers(error));
                    return Err(own.unwrap_or_else(|| error_of_group(&reason)));
                }
                _ => {}
            }
            members = decision.survivors;
            step(Step::Agreed);
            let joined = self.join(options, &ranks, *rounds, &mut join);
            step(Step::Rejoined);
            vote = match &joined {
                Ok(_) => Vote::Joined,
                // the others get the same, or miss this rank's vote
                Err(Error::Timeout { .. }) => return joined.map(|made| (ranks, made)),
                Err(error) if is_anothers(error) && failed_attempts < MOST_FAILED_ATTEMPTS => Vote::Retry,
                Err(error) => Vote::Failed(Box::new(to_words(error))),
            };
            made = Some(joined);
        }
    }

    fn agree(&self, options: ShrinkOptions<'_>, members: &[usize], round: u64, vote: Vote) -> Result<Decision, Error> {
        let call = SurvivorsCall {
            group: self.group,
            members,
            round,
            vote,
            has_left: &|rank| self.rank_of(rank).is_none_or(options.has_left),
            timeout: options.timeout,
            progress: options.progress,
        };
        self.segment.agree_on_survivors(&call).map_err(|error| match error {
            Error::Timeout { missing, after, during } => {
                Error::Timeout { missing: self.ranks_of(&missing), after, during }
            }
            other => other,
        })
    }

    fn join<T>(
        &self,
        options: ShrinkOptions<'_>,
        ranks: &[usize],
        round: u64,
        join: &mut impl FnMut(&Survivors<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let me = self.segment.rank();
        let will_not_join = |&rank: &usize| {
            let member = self.members[rank];
            let is_gone = || !self.segment.is_alive(member) || (options.has_left)(rank);
            member != me && (self.segment.has_not_joined(self.group, round, member) || is_gone())
        };
        let absent = || ranks.iter().position(will_not_join);
        let rank = ranks.iter().position(|rank| self.members[*rank] == me);
        let rank = rank.ok_or_else(|| Error::Poisoned { cause: "the survivors do not include this rank".into() })?;
        join(&Survivors { ranks, rank, attempt: round, absent: &absent }).map_err(|error| match error {
            Error::Timeout { missing, after, .. } => {
                let missing = missing.into_iter().filter_map(|rank| ranks.get(rank).copied()).collect();
                Error::Timeout { missing, after, during: "shrink".into() }
            }
            other => other,
        })
    }

    fn rank_of(&self, member: usize) -> Option<usize> {
        // the group of all ranks has its members in order
        let in_order = self.members.get(member) == Some(&member);
        if in_order { Some(member) } else { self.members.iter().position(|other| *other == member) }
    }

    fn ranks_of(&self, members: &[usize]) -> Vec<usize> {
        members.iter().filter_map(|member| self.rank_of(*member)).collect()
    }
}

/// Returns whether joining failed because another rank died or gave up, so that it may be tried again.
fn is_anothers(error: &Error) -> bool {
    matches!(error, Error::PeerDied { .. } | Error::Poisoned { .. })
}

/// Another rank's reason, in its words.
fn error_of_group(reason: &[u64; ERROR_WORDS]) -> Error {
    let context = "another survivor could not join the new communicator";
    match from_words(reason) {
        Some(error @ (Error::NoSpace { .. } | Error::Timeout { .. })) => error,
        Some(error) => Error::system(context, error),
        None => Error::Poisoned { cause: context.into() },
    }
}
