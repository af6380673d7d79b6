//! The proof that a wait cannot end: every rank that could still end it waits as well, and has looked again without success.
//!
//! Healthy words never lead to this, but another process of the same user may have overwritten them: a chunk that no rank holds
//! is busy, or a mark is not the one that its rank stored. The proof does not need to recognize a damaged word. At every
//! inspection of a long wait, each rank publishes which wait it is in and how often it has looked. If all ranks that have not
//! left the operation stay in one wait each from some moment on, no word changes after that moment. If each has also looked
//! again since then, none will find what it waits for.
//!
//! The moment is the end of a reading of all words, one after the other, in which a rank whose word was read first may have looked
//! before another made a change. So the looks count from the next reading (`shm/tests/wait_states.rs` explores all this).
//!
//! A waiting rank also makes progress in its started operations, which may change what others wait for: each such change counts
//! as a new wait. The published wait is for the operation that the rank needs next, which ranks that have left cannot change. A
//! rank that tests several started operations looks at all of them in each test, so it has one count for all of them.
//!
//! Waits on rings are proved endless in the same way (`channel/wait.rs`).

use super::board::Board;
use super::operation::Operation;
use super::wait_counts::WaitCounts;
use crate::sync::Ordering;

/// A waiting rank's record of the other ranks' waits.
#[derive(Debug, Clone, Default)]
pub struct Proof {
    /// The counts of this rank's waits and changes at its last look.
    pub moves: u32,
    /// The others' words at the base, with which later words are compared: as first read, then as read once more.
    pub base: Option<Vec<u64>>,
    /// This rank's looks since the words of the base were first read.
    pub looks: u32,
}

/// The value in place of the word of a rank that has left the operation and changes nothing in it any more.
pub const HAS_LEFT: u64 = u64::MAX;

/// The number of the wait in a published word; 0 before a rank's first one.
pub fn wait_of(word: u64) -> u32 {
    (word >> 32) as u32
}

/// The number of looks of which the last certainly began after the words were read; the first may have begun before.
pub const LOOKS: u32 = 2;

impl<B: Board> Operation<'_, B> {
    /// Returns whether this wait cannot end any more. Called after an unsuccessful look.
    pub(super) fn cannot_end(&mut self, proof: &mut Proof) -> bool {
        self.board.member(self.me).waits.store(proof.look(self.counts), Ordering::Relaxed);
        let word = |rank: usize| match self.has_left(rank) {
            true => HAS_LEFT,
            false => self.board.member(rank).waits.load(Ordering::Relaxed),
        };
        proof.is_complete((0..self.ranks).filter(|rank| *rank != self.me).map(word).collect())
    }
}

impl Proof {
    /// Counts an unsuccessful look of a rank with these counts. Returns the word to publish.
    pub fn look(&mut self, counts: &mut WaitCounts) -> u64 {
        if std::mem::replace(&mut self.moves, counts.moves()) != counts.moves() {
            self.base = None;
        }
        self.looks += 1;
        counts.looked()
    }

    /// Returns whether every other rank still is in the wait of the base and has looked again. If one is in another wait, `now`
    /// becomes a new base. Called after [`Proof::look`], with the words of the others, or [`HAS_LEFT`].
    pub fn is_complete(&mut self, now: Vec<u64>) -> bool {
        let same = |(then, now): (&u64, &u64)| wait_of(*then) == wait_of(*now);
        let Some(base) = self.base.as_ref().filter(|base| base.iter().zip(&now).all(same)) else {
            (self.base, self.looks) = (Some(now), 0);
            return false;
        };
        if self.looks < LOOKS {
            self.base = Some(now);
            return false;
        }
        let looked = |(then, now): (&u64, &u64)| {
            *now == HAS_LEFT || (wait_of(*now) != 0 && (*now as u32).wrapping_sub(*then as u32) >= LOOKS)
        };
        base.iter().zip(&now).all(looked)
    }
}

#[cfg(test)]
mod tests {
    use super::{HAS_LEFT, Proof, WaitCounts};

    fn at(wait: u32, looks: u32) -> u64 {
        u64::from(wait) << 32 | u64::from(looks)
    }

    fn after(looks: &[[u64; 2]]) -> Vec<bool> {
        let mut proof = Proof::default();
        let mut once = |words: &[u64; 2]| {
            proof.looks += 1;
            proof.is_complete(words.to_vec())
        };
        looks.iter().map(&mut once).collect()
    }

    #[test]
    fn no_two_waits_have_one_word() {
        let (mut counts, mut first, mut second) = (WaitCounts::default(), Proof::default(), Proof::default());
        counts.moved();
        let words = [first.look(&mut counts), second.look(&mut counts), first.look(&mut counts)];
        assert_eq!(words, [at(1, 1), at(1, 2), at(1, 3)], "two operations that are tested in turn count together");
        counts.moved();
        assert_eq!([second.look(&mut counts), first.look(&mut counts)], [at(2, 4), at(2, 5)]);
        // What an observer sees of these two never looks like one wait with fewer looks than before.
        let mut observer = Proof::default();
        let mut sees = |word: u64| {
            observer.look(&mut WaitCounts::default());
            observer.is_complete(vec![word])
        };
        assert_eq!(
            [at(1, 2), at(1, 3), at(2, 4), at(2, 5), at(2, 6), at(2, 7)].map(&mut sees),
            [false, false, false, false, false, true]
        );
    }

    #[test]
    fn a_change_of_its_own_begins_a_new_proof() {
        let (mut counts, mut proof) = (WaitCounts::default(), Proof::default());
        let mut look = |moves: bool| {
            if moves {
                counts.moved();
            }
            proof.look(&mut counts);
            proof.is_complete(vec![HAS_LEFT])
        };
        assert_eq!([true, false, true, false, false].map(&mut look), [false, false, false, false, true]);
    }

    #[test]
    fn nothing_is_proven_while_a_rank_may_act() {
        assert_eq!(after(&[[HAS_LEFT; 2]; 3]), [false, false, true], "no rank is left, and this one has looked again");
        let waits = |n| [at(7, n), at(9, n + 3)];
        assert_eq!(after(&[1, 2, 3, 4].map(waits)), [false, false, false, true]);
        assert_eq!(after(&[1, 9, 10].map(waits)), [false; 3], "looks before the second reading show nothing");
        assert!(!after(&[[at(7, 1), 0], [at(7, 2), 0], [at(7, 9), 0]]).contains(&true), "one never waited");
        assert!(
            !after(&[[at(7, 1), at(9, 4)], [at(7, 2), at(9, 4)], [at(7, 9), at(9, 4)]]).contains(&true),
            "one is away"
        );
        let goes_on = [[at(7, 1), at(9, 4)], [at(8, 2), at(9, 5)], [at(8, 3), at(9, 6)], [at(8, 4), at(9, 6)]];
        assert_eq!(after(&goes_on), [false, false, false, false], "from a new wait on all is compared anew");
        let leaves = [[at(7, 1), at(9, 4)], [HAS_LEFT, at(9, 6)], [HAS_LEFT, at(9, 7)], [HAS_LEFT, at(9, 9)]];
        assert_eq!(after(&leaves), [false, false, false, true], "a rank that left may have changed something before");
    }
}
