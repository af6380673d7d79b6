//! The records of an agreement on survivors, in words that all ranks of the node share.
//!
//! A group has a record while its ranks agree. The record holds the votes of the open round and the decision of the round
//! before. A rank votes under the lock of the allocator, then waits until every member has voted, is dead or has left; the
//! first rank that sees this decides under the lock. The decision is one store of the round's number, so a rank that dies
//! anywhere has decided or has not, and all ranks read the same. Votes of ranks that died before the decision do not count.
//!
//! Two banks of votes take turns, and a decision clears the bank of the following round before it is made. So votes of one
//! round are never taken for those of another. The decision of a round stays readable until the next one is made: that needs
//! the vote of every living rank, and no rank votes before it has read.
//!
//! No value found here is used as an address, or unchecked as an index: a damaged word gives an error or a wrong set.

use super::control::MAX_RANKS;
use super::grant::RECORDS_BYTES;
use super::shared_words::SharedWords;
use crate::error_codec::ERROR_WORDS;

const RECORD_WORDS: usize = 256;
/// Records there are. The first one's place holds the head of the area.
const RECORDS: usize = RECORDS_BYTES / (RECORD_WORDS * 8);

const SET_WORDS: usize = 16;

// the word of the head
/// Records that were ever used lie below this one.
const SEEN: usize = 0;

// words of a record
/// 0 for a record that no group has.
const GROUP: usize = 0;
/// The open round: the one before is decided.
const ROUND: usize = 1;
const OUTCOME: usize = 2;
/// True if a rank has named the late ones of the open round.
const WARNED: usize = 3;
/// The survivors of the decided round, and those of them that have read it.
const DECIDED: usize = 16;
const READ: usize = DECIDED + SET_WORDS;
/// The votes of the open round: who has voted, and among them who did not join and who could not.
const BANKS: [usize; 2] = [READ + SET_WORDS, READ + SET_WORDS + BANK_WORDS];
const BANK_WORDS: usize = 3 * SET_WORDS + 1 + ERROR_WORDS;
const VOTED: usize = 0;
const RETRY: usize = SET_WORDS;
const FAILED: usize = 2 * SET_WORDS;
/// The rank whose reason stands in the words that follow, plus 1.
const REASON_OF: usize = 3 * SET_WORDS;

const _: () = assert!(BANKS[1] + BANK_WORDS <= RECORD_WORDS && RECORDS > MAX_RANKS);
const _: () = assert!(MAX_RANKS <= SET_WORDS * 64);

/// The vote of a rank in a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Vote {
    /// The rank has joined no new group and asks who is left.
    Retry,
    /// The rank has joined the new group of the previous round's survivors.
    Joined,
    /// The rank could not join that group, for a reason that another attempt would not remove.
    Failed(Box<[u64; ERROR_WORDS]>),
}

/// The decision of a round, the same on all ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The members that had voted and lived, ascending.
    pub survivors: Vec<usize>,
    /// The reason of one of them that could not join; else [`Vote::Retry`] if one has not; else [`Vote::Joined`].
    pub outcome: Vote,
}

/// The reason for which a record cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecordError {
    /// All records are in use.
    Full,
    /// The words do not say what the ranks of a job write.
    Damaged,
}

/// The records, as one rank sees them. Methods that change them are called under the lock.
#[derive(Debug, Clone, Copy)]
pub struct Records<'a, W> {
    /// The words among which they lie.
    pub words: &'a W,
    /// The first of their words.
    pub first_word: usize,
    /// Number of ranks.
    pub ranks: usize,
}

/// A round of a group, in a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundRecord {
    /// The record's number.
    pub record: usize,
    /// The group.
    pub group: u64,
    /// The round.
    pub round: u64,
}

impl RoundRecord {
    fn word(&self, word: usize) -> usize {
        self.record % RECORDS * RECORD_WORDS + word
    }

    fn bank(&self, round: u64) -> usize {
        self.word(BANKS[(round % 2) as usize])
    }

    /// The word that is 1 once a rank has warned about the late ones.
    pub fn warned(&self) -> usize {
        self.word(WARNED)
    }
}

/// The bytes of a record, to reserve them.
pub fn bytes_of(record: usize) -> std::ops::Range<usize> {
    record * RECORD_WORDS * 8..(record + 1) * RECORD_WORDS * 8
}

impl<W: SharedWords> Records<'_, W> {
    fn get(&self, word: usize) -> u64 {
        self.words.load(self.first_word + word)
    }

    fn set(&self, word: usize, value: u64) {
        self.words.store(self.first_word + word, value);
    }

    fn has(&self, set: usize, rank: usize) -> bool {
        self.get(set + rank / 64) >> (rank % 64) & 1 == 1
    }

    fn put(&self, set: usize, rank: usize, is_in: bool) {
        let (word, bit) = (set + rank / 64, 1 << (rank % 64));
        let before = self.get(word);
        self.set(word, if is_in { before | bit } else { before & !bit });
    }

    fn clear(&self, first: usize, words: usize) {
        (first..first + words).for_each(|word| self.set(word, 0));
    }

    fn seen(&self) -> usize {
        (self.get(SEEN) as usize).clamp(1, RECORDS)
    }

    /// The record of a group, if it has one.
    pub fn find(&self, group: u64, round: u64) -> Option<RoundRecord> {
        let places = (1..self.seen()).map(|record| RoundRecord { record, group, round });
        places.into_iter().find(|place| self.get(place.word(GROUP)) == group)
    }

    /// The record of a group for its open round; a new one is made present by `prepare`.
    ///
    /// # Errors
    /// [`RecordError::Full`]; the error of `prepare`.
    pub fn claim<E: From<RecordError>>(
        &self,
        group: u64,
        round: u64,
        prepare: impl FnOnce(usize) -> Result<(), E>,
    ) -> Result<RoundRecord, E> {
        if let Some(place) = self.find(group, round) {
            return Ok(place);
        }
        let seen = self.seen();
        let at = |record| RoundRecord { record, group, round };
        let free = |record: &usize| self.get(at(*record).word(GROUP)) == 0;
        let unused = |record: &usize| self.is_over(at(*record));
        let record = (1..seen).find(free).or_else(|| Some(seen).filter(|seen| *seen < RECORDS));
        let record = record.or_else(|| (1..seen).find(unused)).ok_or(RecordError::Full)?;
        prepare(record)?;
        let place = at(record);
        self.set(place.word(GROUP), 0);
        self.clear(place.word(ROUND), RECORD_WORDS - 1);
        self.set(place.word(ROUND), round);
        self.set(place.word(GROUP), group);
        if record >= seen {
            self.set(SEEN, record as u64 + 1);
        }
        Ok(place)
    }

    /// Returns whether the round is decided.
    ///
    /// # Errors
    /// [`RecordError::Damaged`] when the record is another group's, or another round is open than a member's vote permits.
    pub fn is_decided(&self, place: RoundRecord) -> Result<bool, RecordError> {
        let open = self.get(place.word(ROUND));
        match self.get(place.word(GROUP)) == place.group {
            true if open == place.round => Ok(false),
            true if open == place.round.wrapping_add(1) => Ok(true),
            _ => Err(RecordError::Damaged),
        }
    }

    /// Votes. The votes of a rank that dies meanwhile do not count.
    pub fn vote(&self, place: RoundRecord, me: usize, vote: &Vote) {
        let bank = place.bank(place.round);
        self.put(bank + RETRY, me, *vote == Vote::Retry);
        if let Vote::Failed(reason) = vote {
            reason.iter().enumerate().for_each(|(i, word)| self.set(bank + REASON_OF + 1 + i, *word));
            self.set(bank + REASON_OF, me as u64 + 1);
        }
        self.put(bank + FAILED, me, matches!(vote, Vote::Failed(_)));
        self.put(bank + VOTED, me, true);
    }

    /// Withdraws the vote.
    pub fn withdraw(&self, place: RoundRecord, me: usize) {
        [VOTED, RETRY, FAILED].iter().for_each(|set| self.put(place.bank(place.round) + set, me, false));
        self.release(place);
    }

    /// Returns whether a rank has voted in the open round. Needs no lock.
    pub fn has_voted(&self, place: RoundRecord, rank: usize) -> bool {
        self.has(place.bank(place.round) + VOTED, rank)
    }

    /// Returns whether a rank has voted in the open round that it did not join. Needs no lock.
    pub fn has_not_joined(&self, place: RoundRecord, rank: usize) -> bool {
        let bank = place.bank(place.round);
        self.is_decided(place) == Ok(false) && (self.has(bank + RETRY, rank) || self.has(bank + FAILED, rank))
    }

    /// Decides the round if each of `members` has voted or `is_gone`, unless it is decided.
    ///
    /// # Errors
    /// The errors of [`Records::is_decided`].
    pub fn decide(
        &self,
        place: RoundRecord,
        members: &[usize],
        is_gone: impl Fn(usize) -> bool,
    ) -> Result<(), RecordError> {
        let bank = place.bank(place.round);
        let (mut set, mut outcome) = ([0u64; SET_WORDS], Vote::Joined);
        if self.is_decided(place)? {
            return Ok(());
        }
        for &rank in members {
            match (is_gone(rank), self.has(bank + VOTED, rank)) {
                (true, _) => continue,
                (false, false) => return Ok(()),
                (false, true) => set[rank / 64] |= 1 << (rank % 64),
            }
            if self.has(bank + FAILED, rank) {
                outcome = self.reason(bank);
            } else if self.has(bank + RETRY, rank) && outcome == Vote::Joined {
                outcome = Vote::Retry;
            }
        }
        set.iter().enumerate().for_each(|(i, bits)| self.set(place.word(DECIDED + i), *bits));
        let code = [Vote::Joined, Vote::Retry].iter().position(|vote| *vote == outcome).unwrap_or(2);
        self.set(place.word(OUTCOME), code as u64);
        self.clear(place.word(READ), SET_WORDS);
        self.clear(place.bank(place.round.wrapping_add(1)), BANK_WORDS);
        self.set(place.word(WARNED), 0);
        self.set(place.word(ROUND), place.round.wrapping_add(1));
        Ok(())
    }

    /// The decision of a round that is decided. Needs no lock: it stays until this rank votes again.
    pub fn decision(&self, place: RoundRecord) -> Decision {
        let survivors = (0..self.ranks).filter(|rank| self.has(place.word(DECIDED), *rank)).collect();
        let outcome = match self.get(place.word(OUTCOME)) {
            0 => Vote::Joined,
            1 => Vote::Retry,
            _ => self.reason(place.bank(place.round)),
        };
        Decision { survivors, outcome }
    }

    fn reason(&self, bank: usize) -> Vote {
        Vote::Failed(Box::new(std::array::from_fn(|i| self.get(bank + REASON_OF + 1 + i))))
    }

    /// Marks the decision as read by rank `me`, which does not need it any more.
    pub fn acknowledge(&self, place: RoundRecord, me: usize) {
        if self.is_decided(place) == Ok(true) {
            self.put(place.word(READ), me, true);
            self.release(RoundRecord { round: place.round.wrapping_add(1), ..place });
        }
    }

    /// Frees the record unless a rank needs it.
    fn release(&self, place: RoundRecord) {
        if self.is_over(place) {
            self.set(place.word(GROUP), 0);
        }
    }

    /// Returns whether no living rank has a vote in the open round or an unread decision of the last.
    fn is_over(&self, place: RoundRecord) -> bool {
        let bank = place.bank(self.get(place.word(ROUND)));
        let needs = |rank: &usize| {
            let decided = self.has(place.word(DECIDED), *rank) && !self.has(place.word(READ), *rank);
            decided || self.has(bank + VOTED, *rank)
        };
        !(0..self.ranks).filter(needs).any(|rank| !self.words.has_ended(rank))
    }
}

#[cfg(test)]
mod tests;
