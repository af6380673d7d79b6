//! The records alone, and every order in which three ranks can go through rounds of an agreement, with deaths between any two
//! stores, a lock that is taken from the dead, attempts that fail and a deadline.

use super::*;
use std::cell::RefCell;
use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

const RANKS: usize = 3;
const GROUP_NAME: u64 = 7;

/// Words of the head and some records.
struct Memory {
    words: RefCell<Vec<u64>>,
    /// The stores made, in order.
    log: RefCell<Vec<(usize, u64)>>,
    dead: [bool; RANKS],
}

impl Memory {
    fn new(words: Vec<u64>, dead: [bool; RANKS]) -> Memory {
        Memory { words: words.into(), log: RefCell::default(), dead }
    }

    fn records(&self) -> Records<'_, Memory> {
        Records { first_word: 0, words: self, ranks: RANKS }
    }

    fn claim(&self, group: u64, round: u64) -> Result<RoundRecord, RecordError> {
        self.records().claim(group, round, |_| Ok(()))
    }
}

impl SharedWords for Memory {
    fn load(&self, word: usize) -> u64 {
        self.words.borrow()[word]
    }
    fn store(&self, word: usize, value: u64) {
        self.words.borrow_mut()[word] = value;
        self.log.borrow_mut().push((word, value));
    }
    fn has_ended(&self, rank: usize) -> bool {
        self.dead[rank]
    }
}

fn empty(records: usize) -> Memory {
    Memory::new(vec![0; records * RECORD_WORDS], [false; RANKS])
}

#[test]
fn a_round_is_decided_when_all_have_voted_or_are_gone() {
    let memory = empty(2);
    let records = memory.records();
    let first = memory.claim(5, 0).unwrap();
    let gone = |rank| rank == 1;
    records.vote(first, 0, &Vote::Retry);
    records.decide(first, &[0, 1, 2], gone).unwrap();
    assert_eq!(records.is_decided(first), Ok(false), "rank 2 is missing");
    records.vote(first, 2, &Vote::Joined);
    records.decide(first, &[0, 1, 2], gone).unwrap();
    assert_eq!(records.is_decided(first), Ok(true));
    assert_eq!(records.decision(first), Decision { survivors: vec![0, 2], outcome: Vote::Retry });

    // what is decided stays, while the next round begins
    let second = RoundRecord { round: 1, ..first };
    records.acknowledge(first, 0);
    records.vote(second, 0, &Vote::Failed(Box::new([9; ERROR_WORDS])));
    assert!(records.has_not_joined(second, 0) && !records.has_voted(second, 2));
    assert_eq!(records.decision(first).survivors, [0, 2]);
    records.acknowledge(first, 2);
    records.vote(second, 2, &Vote::Joined);
    records.decide(second, &[0, 2], |_| false).unwrap();
    assert_eq!(records.decision(second).outcome, Vote::Failed(Box::new([9; ERROR_WORDS])));
    records.acknowledge(second, 2);
    assert_eq!(memory.claim(5, 2).unwrap().record, first.record, "rank 0 has not read");
    records.acknowledge(second, 0);
    assert_eq!(records.find(5, 2), None, "all have read");
}

#[test]
fn a_vote_that_is_taken_back_was_never_given() {
    let memory = empty(2);
    let records = memory.records();
    let place = memory.claim(5, 4).unwrap();
    records.vote(place, 0, &Vote::Retry);
    records.vote(place, 1, &Vote::Joined);
    records.withdraw(place, 0);
    records.decide(place, &[0, 1], |_| false).unwrap();
    assert_eq!(records.is_decided(place), Ok(false));
    records.withdraw(place, 1);
    assert_eq!(records.find(5, 4), None, "nobody needs it");
}

#[test]
fn groups_have_records_of_their_own_until_there_is_none() {
    let mut memory = empty(RECORDS);
    let places: Vec<_> = (1..RECORDS as u64).map(|group| memory.claim(group, 0).unwrap()).collect();
    assert!(places.iter().map(|place| place.record).eq(1..RECORDS));
    places.iter().for_each(|place| memory.records().vote(*place, 1, &Vote::Retry));
    assert_eq!(memory.claim(9_999, 0), Err(RecordError::Full));
    memory.dead[1] = true;
    assert_eq!(memory.claim(9_999, 0).map(|place| place.record), Ok(1), "what only the dead need is free");
}

#[test]
fn damaged_words_are_an_error_or_a_wrong_set_within_bounds() {
    let memory = empty(2);
    let records = memory.records();
    let place = memory.claim(5, 1).unwrap();
    for round in [0, 3, u64::MAX] {
        memory.store(place.word(ROUND), round);
        assert_eq!(records.is_decided(place), Err(RecordError::Damaged), "{round}");
        assert_eq!(records.decide(place, &[0, 1], |_| true), Err(RecordError::Damaged));
    }
    (place.word(2)..2 * RECORD_WORDS).for_each(|word| memory.store(word, u64::MAX));
    assert!(records.decision(place).survivors.len() <= RANKS);
    memory.store(SEEN, u64::MAX);
    assert_eq!(records.seen(), RECORDS);
}

/// Position of a rank in its call.
#[derive(Clone, Hash, PartialEq, Eq, Debug)]
enum At {
    /// The rank takes the lock next and votes.
    Votes,
    Waits,
    /// The rank makes these stores one by one, under the lock, and is at the given position then.
    Stores(Vec<(usize, u64)>, Box<At>),
    Acknowledges,
    /// The rank has read the decision of its round and joins, or not.
    Joins,
    Done,
    Dead,
}

#[derive(Clone, Hash, PartialEq, Eq, Debug)]
struct Walker {
    at: At,
    round: u64,
    members: Vec<usize>,
    joined: bool,
    /// Decisions read, by round.
    read: Vec<(u64, Vec<usize>, bool)>,
    may_time_out: bool,
}

/// A flaw put into a world, to show that the exploration finds it.
#[derive(Clone, Copy, Hash, PartialEq, Eq)]
enum Flaw {
    None,
    /// The round's number is stored before what was decided.
    RoundFirst,
    /// The votes of the round before the last are left for the next round.
    VotesKept,
}

#[derive(Clone, Hash)]
struct World {
    flaw: Flaw,
    words: Vec<u64>,
    ranks: Vec<Walker>,
    locked: Option<usize>,
    deaths: usize,
}

impl World {
    fn new(deaths: usize, deadlines: &[usize], flaw: Flaw) -> World {
        let walker = |rank| Walker {
            at: At::Votes,
            round: 0,
            members: (0..RANKS).collect(),
            joined: false,
            read: Vec::new(),
            may_time_out: deadlines.contains(&rank),
        };
        World { flaw, words: vec![0; 2 * RECORD_WORDS], ranks: (0..RANKS).map(walker).collect(), locked: None, deaths }
    }

    fn dead(&self) -> [bool; RANKS] {
        std::array::from_fn(|rank| self.ranks[rank].at == At::Dead)
    }

    fn memory(&self) -> Memory {
        Memory::new(self.words.clone(), self.dead())
    }

    /// Records an action under the lock as the stores that change something.
    fn section(&self, rank: usize, then: At, act: impl FnOnce(&Memory)) -> World {
        let memory = self.memory();
        act(&memory);
        let mut now = self.words.clone();
        let changes = |&(word, value): &(usize, u64)| std::mem::replace(&mut now[word], value) != value;
        let mut stores: Vec<_> = memory.log.into_inner().into_iter().filter(changes).collect();
        let is_round = |(word, _): &(usize, u64)| *word == RECORD_WORDS + ROUND;
        let is_decision = stores.iter().any(is_round) && self.words[RECORD_WORDS + GROUP] != 0;
        match self.flaw {
            Flaw::RoundFirst => stores.sort_by_key(|store| !is_round(store)),
            Flaw::VotesKept if is_decision => stores.retain(|store| store.0 < RECORD_WORDS + BANKS[0]),
            _ => {}
        }
        let mut next = self.clone();
        next.locked = Some(rank);
        next.ranks[rank].at = At::Stores(stores, Box::new(then));
        next
    }

    fn place(&self, rank: usize) -> Option<RoundRecord> {
        let memory = self.memory();
        memory.records().find(GROUP_NAME, self.ranks[rank].round)
    }

    /// All that may happen next.
    fn next(&self) -> Vec<World> {
        let mut all = Vec::new();
        for rank in 0..RANKS {
            let walker = &self.ranks[rank];
            if matches!(walker.at, At::Dead | At::Done) {
                continue;
            }
            if self.deaths > 0 {
                let mut next = self.clone();
                next.deaths -= 1;
                next.ranks[rank].at = At::Dead;
                next.locked = self.locked.filter(|holder| *holder != rank);
                all.push(next);
            }
            all.extend(self.steps(rank));
        }
        all
    }

    fn steps(&self, rank: usize) -> Vec<World> {
        let walker = &self.ranks[rank];
        let free = self.locked.is_none();
        let dead = self.dead();
        match &walker.at {
            At::Stores(stores, then) => {
                let mut next = self.clone();
                stores.iter().take(1).for_each(|(word, value)| next.words[*word] = *value);
                match stores.len() > 1 {
                    true => next.ranks[rank].at = At::Stores(stores[1..].to_vec(), then.clone()),
                    false => {
                        next.ranks[rank].at = (**then).clone();
                        next.locked = None;
                    }
                }
                vec![next]
            }
            At::Votes if free => {
                let vote = if walker.joined { Vote::Joined } else { Vote::Retry };
                vec![self.section(rank, At::Waits, |memory| {
                    let place = memory.claim(GROUP_NAME, walker.round).unwrap();
                    if !memory.records().is_decided(place).unwrap() {
                        memory.records().vote(place, rank, &vote);
                    }
                })]
            }
            At::Waits => {
                let place = self.place(rank).expect("a record is there while a rank needs it");
                let memory = self.memory();
                let records = memory.records();
                if records.is_decided(place).unwrap() {
                    let decision = records.decision(place);
                    let mut next = self.clone();
                    let walker = &mut next.ranks[rank];
                    walker.read.push((walker.round, decision.survivors, decision.outcome == Vote::Joined));
                    walker.at = At::Acknowledges;
                    return vec![next];
                }
                let mut all = Vec::new();
                if free && walker.members.iter().all(|other| records.has_voted(place, *other) || dead[*other]) {
                    let decide =
                        |memory: &Memory| memory.records().decide(place, &walker.members, |r| dead[r]).unwrap();
                    all.push(self.section(rank, At::Waits, decide));
                }
                if free && walker.may_time_out {
                    let mut next = self.section(rank, At::Votes, |memory| memory.records().withdraw(place, rank));
                    let walker = &mut next.ranks[rank];
                    (walker.may_time_out, walker.joined, walker.members) = (false, false, (0..RANKS).collect());
                    all.push(next);
                }
                all
            }
            At::Acknowledges if free => {
                let place = self.place(rank).expect("a record is there until all have read");
                vec![self.section(rank, At::Joins, |memory| memory.records().acknowledge(place, rank))]
            }
            At::Joins => {
                let mut next = self.clone();
                let walker = &mut next.ranks[rank];
                let (_, survivors, all_joined) = walker.read.last().cloned().unwrap();
                assert!(survivors.contains(&rank), "a rank that votes and lives is left");
                let unchanged = survivors == walker.members;
                if walker.joined && all_joined && unchanged {
                    walker.at = At::Done;
                    return vec![next];
                }
                assert!(!all_joined || !unchanged || walker.joined, "decided without this rank");
                (walker.members, walker.round, walker.at) = (survivors, walker.round + 1, At::Votes);
                // an attempt may fail, for a while
                let outcomes: &[bool] = if walker.round == 1 { &[true, false] } else { &[true] };
                let with = |outcome: &bool| {
                    let mut next = next.clone();
                    next.ranks[rank].joined = *outcome;
                    next
                };
                outcomes.iter().map(with).collect()
            }
            _ => Vec::new(),
        }
    }

    fn check_end(&self) {
        let living: Vec<&Walker> = self.ranks.iter().filter(|walker| walker.at != At::Dead).collect();
        assert!(living.iter().all(|walker| walker.at == At::Done), "somebody waits in vain: {:?}", self.ranks);
        let memory = self.memory();
        let is_free = |place| memory.records().is_over(place);
        let free = memory.records().find(GROUP_NAME, 0).is_none_or(is_free);
        assert!(free, "nobody needs the record: {:?}", self.ranks);
    }

    /// Checks that all ranks read the same, also those that died later, and that a communicator has all living ranks.
    fn check(&self) {
        for (i, one) in self.ranks.iter().enumerate() {
            for (round, survivors, joined) in &one.read {
                let other = |other: &Walker| {
                    other
                        .read
                        .iter()
                        .find(|read| read.0 == *round)
                        .is_none_or(|read| (&read.1, &read.2) == (survivors, joined))
                };
                assert!(self.ranks.iter().all(other), "{:?}", self.ranks);
            }
            if one.at == At::Done {
                let lives = |rank: &usize| self.ranks[*rank].at != At::Dead;
                assert!((0..RANKS).filter(lives).all(|rank| one.members.contains(&rank)), "rank {i}: {:?}", self.ranks);
            }
        }
    }
}

/// Visits every state; how many there are.
fn explore(deaths: usize, deadlines: &[usize], flaw: Flaw) -> usize {
    let fingerprint = |world: &World| {
        let (mut one, mut other) = (DefaultHasher::new(), DefaultHasher::new());
        world.hash(&mut one);
        (1u8, world).hash(&mut other);
        (one.finish(), other.finish())
    };
    let first = World::new(deaths, deadlines, flaw);
    let mut seen = HashSet::from([fingerprint(&first)]);
    let mut open = vec![first];
    while let Some(world) = open.pop() {
        world.check();
        let next = world.next();
        let acts = |rank: usize| !world.steps(rank).is_empty();
        if !(0..RANKS).any(acts) {
            world.check_end();
        }
        open.extend(next.into_iter().filter(|next| seen.insert(fingerprint(next))));
    }
    seen.len()
}

#[test]
fn three_ranks_agree_in_every_order_with_deaths_anywhere() {
    for (deaths, deadlines) in [(0, &[][..]), (1, &[]), (2, &[]), (1, &[1]), (2, &[0])] {
        let states = explore(deaths, deadlines, Flaw::None);
        println!("{deaths} deaths, deadlines of {deadlines:?}: {states} states");
        assert!(states > 100);
    }
}

#[test]
fn what_is_stored_in_another_order_or_not_cleared_is_found() {
    for flaw in [Flaw::RoundFirst, Flaw::VotesKept] {
        assert!(std::panic::catch_unwind(|| explore(1, &[], flaw)).is_err(), "a flaw was not found");
    }
}
