//! The arrival board by itself, for code of users: a party learns its place in the order of arrival, the first party, and
//! the choice of the first party, all in one word.
//!
//! The code that takes the place is that of the node's operations (`protocol/arrive.rs`). The word carries nothing but
//! itself: it is relaxed, so an arrival does not order what a party wrote before. Order that with flags of your own;
//! `docs/internals/models.md` describes how to model-check them, and `shm/examples/last_arriver.rs` does it.

use crate::protocol::take_place;
use crate::protocol::word::{ArrivalWord, MAX_RANKS};
use crate::sync::{AtomicU64, Ordering};

/// Board on which the parties of a computation arrive, round by round.
///
/// Arriving is wait-free: at most two atomic operations on one word.
///
/// ```
/// use earlybird_shm::arrivals::ArrivalBoard;
/// let board = ArrivalBoard::new(2);
/// let (mut one, mut other) = (board.participant(0), board.participant(1));
/// let second = other.arrive(&board, 7).unwrap();
/// let first = one.arrive(&board, 9).unwrap();
/// assert_eq!((second.place, first.place, first.choice, first.first), (0, 1, 7, 1));
/// // The next round begins when this one is complete.
/// assert!(one.arrive(&board, 1).is_some() && one.arrive(&board, 1).is_none());
/// ```
#[derive(Debug)]
pub struct ArrivalBoard {
    word: AtomicU64,
    parties: usize,
}

/// A party's private state on the board.
#[derive(Debug)]
pub struct Participant {
    party: usize,
    round: u64,
    previous: ArrivalWord,
}

/// Result of an arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrived {
    /// Its place in the order of arrival, from 0.
    pub place: usize,
    /// Choice of the first party to arrive, the same for all.
    pub choice: u8,
    /// The first party to arrive.
    pub first: usize,
}

impl ArrivalBoard {
    /// A board for `parties` parties, 1 to 1023.
    ///
    /// # Panics
    /// For any other number.
    pub fn new(parties: usize) -> ArrivalBoard {
        assert!((1..=MAX_RANKS).contains(&parties), "{parties} parties; a board has 1 to {MAX_RANKS}");
        ArrivalBoard { word: AtomicU64::new(0), parties }
    }

    /// State of `party`. Each party creates one and keeps it from round to round.
    ///
    /// # Panics
    /// For a party that does not exist.
    pub fn participant(&self, party: usize) -> Participant {
        assert!(party < self.parties, "party {party} of {}", self.parties);
        Participant { party, round: 0, previous: ArrivalWord(0) }
    }

    /// Parties that have arrived in the round that was begun last. A hint: nothing is ordered by it.
    pub fn arrived(&self) -> usize {
        ArrivalWord(self.word.load(Ordering::Relaxed)).count()
    }
}

impl Participant {
    /// Takes a place in the next round of `board`, whose seat this is. `choice` counts if this party is the first. `None`
    /// while the round before is not complete; nothing has happened then.
    pub fn arrive(&mut self, board: &ArrivalBoard, choice: u8) -> Option<Arrived> {
        let first = ArrivalWord::first(self.round + 1, 0, choice, self.party);
        let is_ours = |found: ArrivalWord| found.is_of(self.round + 1) && found.count() < board.parties;
        let before = take_place(&board.word, &mut self.previous, first, board.parties, is_ours).ok()?;
        self.round += 1;
        Some(Arrived { place: before.count(), choice: before.plan(), first: before.leader() })
    }
}
