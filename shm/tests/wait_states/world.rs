//! The state of a model: what each rank has done, what it has published, where it is in its test or wait, and its proof.

use super::machine::Model;
use earlybird_shm::protocol::stuck::{HAS_LEFT, LOOKS, Proof, wait_of};
use earlybird_shm::protocol::wait_counts::WaitCounts;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

/// Progress of a rank in an operation. A rank leaves operations in their order, however they become complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    Away,
    /// Its memory is not known to be free.
    Queued,
    Deposited,
    /// It has folded its chunk, or has the root's result.
    Folded,
    Complete,
}

/// Place of a rank in its program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum At {
    /// In the user's code.
    User,
    /// Makes progress in the started operations from `next` on, before it tests or waits for `of`, if for any.
    Progress { of: Option<usize>, blocks: bool, next: usize },
    /// Looks at `of`; `waits` once it is in a wait.
    Own { of: usize, blocks: bool, waits: bool },
    /// In a wait for `of`, makes progress in the other started operations from `next` on.
    Others { of: usize, next: usize },
    /// Has looked in vain.
    Vain { of: usize, blocks: bool },
    /// Has published its word and reads that of `next`; `there` if that rank was not seen to have left.
    Reads { of: usize, blocks: bool, next: usize, there: bool },
}

#[derive(Debug, Clone)]
pub struct Rank {
    pub phases: Vec<Phase>,
    /// The operation that blocks, if it is in one.
    pub runs: Option<usize>,
    pub at: At,
    pub counts: WaitCounts,
    /// The published word.
    pub word: u64,
    /// One for each operation.
    pub proofs: Vec<Proof>,
    /// The words of the others, as far as they are read.
    pub reads: Vec<u64>,
    /// True if it has looked in this round, once nothing can change any more.
    pub has_looked: bool,
    /// For the former word: when it began to ask for each operation, and its looks in each.
    pub former: Vec<(u32, u32)>,
}

/// A word that was written over: the trace of what `rank` did in `operation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Erased {
    pub operation: usize,
    pub rank: usize,
    pub phase: Phase,
}

#[derive(Debug, Clone)]
pub struct State {
    pub ranks: Vec<Rc<Rank>>,
    pub erased: Option<Erased>,
    /// The rank that has found its wait for an operation to be endless.
    pub concluded: Option<(usize, usize)>,
    /// Rounds in which every rank has looked since nothing can change any more.
    pub rounds: u8,
}

impl State {
    pub fn new(ranks: usize, operations: usize) -> State {
        // As if each had waited before.
        let mut counts = WaitCounts::default();
        counts.moved();
        let word = counts.looked();
        let rank = Rank {
            phases: vec![Phase::Away; operations],
            runs: None,
            at: At::User,
            counts,
            word,
            proofs: vec![Proof::default(); operations],
            reads: Vec::new(),
            has_looked: false,
            former: Vec::new(),
        };
        State { ranks: (0..ranks).map(|_| Rc::new(rank.clone())).collect(), erased: None, concluded: None, rounds: 0 }
    }

    /// A rank, to change it.
    pub fn rank(&mut self, rank: usize) -> &mut Rank {
        Rc::make_mut(&mut self.ranks[rank])
    }

    /// Returns whether others see that `rank` has come to `phase` of the operation.
    fn shows(&self, rank: usize, operation: usize, phase: Phase) -> bool {
        self.erased != Some(Erased { operation, rank, phase }) && self.ranks[rank].phases[operation] >= phase
    }

    /// Returns whether `rank` has left the operation and all before it.
    pub fn has_left(&self, rank: usize, operation: usize) -> bool {
        self.ranks[rank].phases[..=operation].iter().all(|phase| *phase == Phase::Complete)
    }

    /// The next phase of `rank` in the operation, if it can go on.
    pub fn next_phase(&self, rank: usize, operation: usize, model: &Model) -> Option<Phase> {
        let mut all = 0..self.ranks.len();
        let (may, next) = match self.ranks[rank].phases[operation] {
            Phase::Queued => {
                let before = operation.checked_sub(model.areas);
                (before.is_none_or(|before| all.all(|other| self.has_left(other, before))), Phase::Deposited)
            }
            Phase::Deposited => match model.operations[operation].root {
                Some(root) if root != rank => (self.shows(root, operation, Phase::Folded), Phase::Folded),
                _ => (all.all(|other| self.shows(other, operation, Phase::Deposited)), Phase::Folded),
            },
            Phase::Folded => (all.all(|other| self.shows(other, operation, Phase::Folded)), Phase::Complete),
            Phase::Away | Phase::Complete => return None,
        };
        may.then_some(next)
    }
}

impl Rank {
    /// The first operation that it has not begun.
    pub fn next(&self) -> Option<usize> {
        self.phases.iter().position(|phase| *phase == Phase::Away)
    }

    /// Returns whether the operation is under way.
    pub fn is_active(&self, operation: usize) -> bool {
        !matches!(self.phases[operation], Phase::Away | Phase::Complete)
    }

    /// The first started operation under way from `from` on, other than `but`.
    pub fn pending(&self, from: usize, but: Option<usize>) -> Option<usize> {
        (from..self.phases.len()).find(|i| self.is_active(*i) && self.runs != Some(*i) && but != Some(*i))
    }
}

/// Only what later steps depend on: of counts whether they are equal, of looks how many more there are, up to those that are asked for.
/// Numbers that only grow would make the states endless.
impl Hash for State {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        (self.erased, self.concluded, self.rounds).hash(hasher);
        for (r, rank) in self.ranks.iter().enumerate() {
            (&rank.phases, rank.runs, rank.at, rank.has_looked).hash(hasher);
            (rank.counts.moves() == wait_of(rank.word)).hash(hasher);
            if !rank.former.is_empty() {
                // Its words mean nothing but themselves.
                (&rank.former, rank.word, &rank.reads).hash(hasher);
                rank.proofs.iter().for_each(|proof| (&proof.base, proof.looks, proof.moves).hash(hasher));
            }
            let of = match rank.at {
                At::Reads { of, .. } => Some(of),
                _ => None,
            };
            for (operation, proof) in rank.proofs.iter().enumerate().filter(|(i, _)| rank.is_active(*i)) {
                let reads: &[u64] = if of == Some(operation) { &rank.reads } else { &[] };
                let base = proof.base.as_ref().filter(|_| proof.moves == rank.counts.moves());
                (base.is_some(), reads.len()).hash(hasher);
                if base.is_some() {
                    proof.looks.min(LOOKS).hash(hasher);
                }
                for (i, other) in (0..self.ranks.len()).filter(|other| *other != r).enumerate() {
                    let newest = self.ranks[other].word;
                    let age = |word: u64| match word {
                        HAS_LEFT => 3,
                        _ if wait_of(word) == self.ranks[other].counts.moves() => 2,
                        _ => u8::from(wait_of(word) == wait_of(newest)),
                    };
                    let since = |then: u64, now: u64| match wait_of(then) == wait_of(now) {
                        true => (now as u32).wrapping_sub(then as u32).min(LOOKS),
                        false => LOOKS + 1,
                    };
                    let read = reads.get(i).copied();
                    if let Some(read) = read {
                        (age(read), since(read, newest)).hash(hasher);
                    }
                    if let Some(base) = base {
                        (age(base[i]), since(base[i], read.unwrap_or(newest))).hash(hasher);
                    }
                }
            }
        }
    }
}
