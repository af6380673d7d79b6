//! The agreement on the survivors of a group: vote, wait for the others, read the decision.

use std::time::Duration;

use super::allocator::{Locked, RELEASE_WITHIN};
use super::deadline::Deadline;
use super::grant::TABLE_BYTES;
use super::shared_words::RegionMemory;
use super::survivors::{self, Decision, RecordError, Records, RoundRecord, Vote};
use super::{PeerState, Segment};
use crate::progress::Progress;
use crate::warn::{self, WARN_AFTER};
use crate::{Error, engine};

/// The first word of the records, behind the table of regions.
const FIRST_WORD: usize = TABLE_BYTES / 8;
/// The shortest and the longest sleep between two looks.
const SHORT_SLEEP: Duration = Duration::from_micros(20);
const LONG_SLEEP: Duration = Duration::from_millis(1);

/// A member's call for a round of an agreement.
pub struct SurvivorsCall<'a> {
    /// Names the group: equal on its members, different for any other group of the segment, not 0.
    pub group: u64,
    /// Its members, or the survivors of the previous round.
    pub members: &'a [usize],
    /// Rounds of this group of which this rank has read the decisions.
    pub round: u64,
    /// This rank's vote.
    pub vote: Vote,
    /// True if a member whose process lives has left the group.
    pub has_left: &'a dyn Fn(usize) -> bool,
    /// Deadline; a death or a leave ends the wait in any case.
    pub timeout: Option<Duration>,
    /// The progress function to call meanwhile.
    pub progress: Option<&'a Progress>,
}

impl Segment {
    /// Votes in a round of a group, waits until each member has voted, is dead or has left, and returns the decision: the same
    /// on all that return. A rank that dies later is among the survivors until the next round.
    ///
    /// # Errors
    /// [`Error::Timeout`] when a deadline was set and living members are missing: this rank's vote is taken back then, and it
    /// can call again. [`Error::NoSpace`] when too many groups agree at once or a page is missing, [`Error::Poisoned`] when
    /// the shared words are damaged or the others have gone on without this rank.
    pub fn agree_on_survivors(&self, call: &SurvivorsCall<'_>) -> Result<Decision, Error> {
        self.reserve_record(0)?;
        let place = {
            let _locked = self.lock_records(call)?;
            let place = self.records().claim(call.group, call.round, |record| self.reserve_record(record))?;
            // decided if an earlier call of this rank ended before it could read
            if !self.records().is_decided(place)? {
                self.records().vote(place, self.rank, &call.vote);
            }
            place
        };
        self.await_decision(call, place)?;
        let decision = self.records().decision(place);
        if let Ok(_locked) = self.lock_allocator(&mut Deadline::new(Some(RELEASE_WITHIN))) {
            self.records().acknowledge(place, self.rank);
        }
        let is_mine = decision.outcome != Vote::Joined || call.vote == Vote::Joined;
        match is_mine && decision.survivors.contains(&self.rank) {
            true => Ok(decision),
            false => Err(Error::Poisoned { cause: "the other survivors have gone on without this rank".into() }),
        }
    }

    /// Returns whether a member has voted, in the round that this rank would call for next, that it did not join the new group.
    pub fn has_not_joined(&self, group: u64, round: u64, rank: usize) -> bool {
        self.records().find(group, round).is_some_and(|place| self.records().has_not_joined(place, rank))
    }

    fn await_decision(&self, call: &SurvivorsCall<'_>, place: RoundRecord) -> Result<(), Error> {
        let is_gone = |rank: usize| rank != self.rank && (!self.is_alive(rank) || (call.has_left)(rank));
        let is_missing = |rank: &usize| !self.records().has_voted(place, *rank) && !is_gone(*rank);
        let mut deadline = Deadline::new(call.timeout);
        let mut sleep = SHORT_SLEEP;
        // those that have never voted: others may have withdrawn their votes, at the same deadline
        let mut never: Vec<usize> = call.members.to_vec();
        while !self.records().is_decided(place)? {
            let missing: Vec<usize> = call.members.iter().copied().filter(is_missing).collect();
            if missing.is_empty() {
                let _locked = self.lock_records(call)?;
                self.records().decide(place, call.members, is_gone)?;
                continue;
            }
            never.retain(|rank| missing.contains(rank));
            // decided between the two checks, or overwritten
            if missing.contains(&self.rank) && !self.records().is_decided(place)? {
                return Err(RecordError::Damaged.into());
            }
            engine::progress();
            call.progress.iter().for_each(|progress| progress.run());
            if deadline.is_over(|| missing.iter().any(|rank| self.is_stopped(*rank))) {
                let _locked = self.lock_records(call)?;
                if !self.records().is_decided(place)? {
                    self.records().withdraw(place, self.rank);
                    let missing = if never.is_empty() { missing } else { never };
                    let after = call.timeout.unwrap_or_default();
                    return Err(Error::Timeout { missing, after, during: "shrink".into() });
                }
            }
            if deadline.is_warning_due() && self.compare_exchange(FIRST_WORD + place.warned(), 0, 1).is_ok() {
                self.warn_of(&missing);
            }
            std::thread::sleep(engine::sleep(sleep));
            sleep = (sleep * 2).min(LONG_SLEEP);
        }
        Ok(())
    }

    fn records(&self) -> Records<'_, Segment> {
        Records { words: self, first_word: FIRST_WORD, ranks: self.size }
    }

    fn reserve_record(&self, record: usize) -> Result<(), Error> {
        let bytes = survivors::bytes_of(record);
        self.allocator.words().reserve(TABLE_BYTES + bytes.start..TABLE_BYTES + bytes.end)
    }

    fn lock_records(&self, call: &SurvivorsCall<'_>) -> Result<Locked<'_>, Error> {
        self.lock_allocator(&mut Deadline::new(call.timeout))
    }

    fn is_stopped(&self, rank: usize) -> bool {
        matches!(self.state(rank), PeerState::Stopped | PeerState::Traced)
    }

    fn warn_of(&self, missing: &[usize]) {
        let name = |rank| format!("process {} ({})", self.peer(rank).pid, self.state(rank));
        warn::warn(format_args!(
            "process {} has waited {} s in shrink for {}",
            self.me.pid,
            WARN_AFTER.as_secs(),
            warn::list_late(missing, name)
        ));
    }
}

impl From<RecordError> for Error {
    fn from(error: RecordError) -> Error {
        match error {
            RecordError::Full => Error::NoSpace {
                needed: 1,
                free: 0,
                hint: "too many communicators of one node shrink at the same time; shrink fewer at once".into(),
            },
            RecordError::Damaged => {
                Error::Poisoned { cause: "the shared words of an agreement on survivors are damaged".into() }
            }
        }
    }
}
