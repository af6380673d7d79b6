//! The steps that ranks can take, and what may never be.

use super::world::{At, Erased, Phase, Rank, State};
use crate::states::{self, Step};
use earlybird_shm::protocol::stuck::HAS_LEFT;

/// What a rank's program does with its started operations, at any time and in any order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Test,
    Wait,
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// True if its call blocks, and does not only start it.
    pub blocks: bool,
    /// The rank that alone needs the contributions of all; the others need its result.
    pub root: Option<usize>,
}

/// The rule that is broken on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    Nothing,
    /// The word is made of the time at which the rank began to ask for this operation and twice its changes, and of the looks in it.
    FormerWord,
    /// What a rank does in a started operation is not counted.
    UncountedChange,
    /// A wait begins without being counted.
    UncountedWait,
    /// One more look of the others is enough.
    OneLook,
    /// Looks count from the first reading of the words.
    OneReading,
    /// Every test counts as a new wait.
    CountedTest,
}

/// Bounds of a walk.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// The operations, which all ranks begin in this order.
    pub operations: &'static [Kind],
    /// Every operation reuses the memory of the one so many before.
    pub areas: usize,
    /// What the program of each rank does.
    pub ranks: &'static [&'static [Act]],
    /// True if one word may be written over.
    pub damage: bool,
    pub broken: Broken,
}

/// Rounds of looks after which some rank has found that nothing can change any more. A rank may test its operations in turn, and
/// has a proof for each.
const ROUNDS: u8 = 4;

impl states::Model for Model {
    type State = State;

    fn first(&self) -> State {
        let mut state = State::new(self.ranks.len(), self.operations.len());
        if self.broken == Broken::FormerWord {
            state.ranks.iter_mut().for_each(|rank| rank.former = vec![(0, 0); self.operations.len()]);
        }
        state
    }

    fn steps(&self, state: &State) -> Vec<Step<State>> {
        let mut steps: Vec<_> = (0..self.ranks.len()).flat_map(|rank| self.steps_of(state, rank)).collect();
        if self.damage && state.erased.is_none() {
            for (rank, operation) in (0..self.ranks.len()).flat_map(|r| (0..self.operations.len()).map(move |o| (r, o))) {
                for phase in [Phase::Deposited, Phase::Folded] {
                    if state.ranks[rank].phases[operation] >= phase {
                        let erased = Some(Erased { operation, rank, phase });
                        let next = self.counted(State { erased, ..state.clone() }, None);
                        steps.push((format!("rank {rank} has {phase:?} {operation}: written over"), Ok(next)));
                    }
                }
            }
        }
        steps
    }

    fn complaint(&self, state: &State) -> Option<String> {
        if let (Some((rank, operation)), None) = (state.concluded, state.erased) {
            return Some(format!("rank {rank} takes its wait for operation {operation} for endless"));
        }
        let rounds = ROUNDS * self.operations.len() as u8;
        (state.rounds >= rounds).then(|| format!("an endless wait: {rounds} looks of all ranks show nothing"))
    }
}

impl Model {
    fn steps_of(&self, state: &State, r: usize) -> Vec<Step<State>> {
        if state.concluded.is_some() {
            return Vec::new();
        }
        let mut steps = Vec::new();
        let mut step = |what: String, looked: bool, change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            next.ranks[r].settle();
            steps.push((format!("rank {r}: {what}"), Ok(self.counted(next, looked.then_some(r)))));
        };
        let rank = &state.ranks[r];
        match rank.at {
            At::User => {
                match rank.next() {
                    Some(next) if self.operations[next].blocks => {
                        step(format!("runs {next}"), false, &|s| s.ranks[r].run(next));
                    }
                    Some(next) => step(format!("starts {next}"), false, &|s| s.ranks[r].start(next)),
                    None => {}
                }
                for of in (0..self.operations.len()).filter(|i| rank.is_active(*i)) {
                    for (act, blocks) in [(Act::Test, false), (Act::Wait, true)] {
                        let at = At::Progress { of: Some(of), blocks, next: 0 };
                        if self.ranks[r].contains(&act) {
                            step(format!("{act:?}s {of}"), false, &|s| self.ask(&mut s.ranks[r], of, at));
                        }
                    }
                }
            }
            At::Progress { of, blocks, next } => {
                step(format!("progress in {next}"), false, &|s| {
                    let after = At::Progress { of, blocks, next: next + 1 };
                    let last = At::Progress { of, blocks, next: self.operations.len() };
                    self.go_on(s, r, next, [after, last]);
                });
            }
            At::Own { of, blocks, waits } => step(format!("looks at {of}"), false, &|s| match s.next_phase(r, of, self) {
                Some(_) => {
                    let at = At::Own { of, blocks, waits: false };
                    self.go_on(s, r, of, [at; 2]);
                    s.ranks[r].at = if s.ranks[r].is_active(of) { at } else { At::User };
                }
                None if !blocks => s.ranks[r].at = At::Vain { of, blocks },
                None if waits => s.ranks[r].at = At::Others { of, next: 0 },
                None => {
                    let rank = &mut s.ranks[r];
                    if self.broken != Broken::UncountedWait {
                        rank.counts.moved();
                    }
                    rank.proofs[of] = Default::default();
                    rank.at = At::Own { of, blocks, waits: true };
                }
            }),
            At::Others { of, next } => step(format!("progress in {next}, waiting for {of}"), false, &|s| {
                let [after, last] = [next + 1, self.operations.len()].map(|next| At::Others { of, next });
                self.go_on(s, r, next, [after, last]);
            }),
            At::Vain { of, blocks } => {
                step("publishes its wait".into(), false, &|s| {
                    self.publish(&mut s.ranks[r], of);
                    let next = usize::from(r == 0);
                    s.ranks[r].at = At::Reads { of, blocks, next, there: false };
                });
                if !blocks {
                    step("goes on without an inspection".into(), false, &|s| s.ranks[r].at = At::User);
                }
            }
            At::Reads { of, blocks, next, there: false } if !state.has_left(next, of) => {
                step(format!("{next} has not left {of}"), false, &|s| {
                    s.ranks[r].at = At::Reads { of, blocks, next, there: true };
                });
            }
            At::Reads { of, blocks, next, there } => {
                let word = if there { state.ranks[next].word } else { HAS_LEFT };
                let following = (next + 1..self.ranks.len()).find(|other| *other != r);
                step(format!("reads {word:#x} of {next}"), following.is_none(), &|s| {
                    s.ranks[r].reads.push(word);
                    match following {
                        Some(next) => s.ranks[r].at = At::Reads { of, blocks, next, there: false },
                        None if self.is_complete(&mut s.ranks[r], of) => s.concluded = Some((r, of)),
                        None if blocks => s.ranks[r].at = At::Own { of, blocks, waits: true },
                        None => s.ranks[r].at = At::User,
                    }
                });
            }
        }
        steps
    }

    /// Takes the next step of `r` in the operation, if there is one; otherwise goes to the first of `after`, or to the second where the
    /// operation is queued: the memory of later ones becomes free no earlier.
    fn go_on(&self, s: &mut State, r: usize, operation: usize, after: [At; 2]) {
        let next = s.next_phase(r, operation, self);
        let rank = &mut s.ranks[r];
        match next {
            Some(phase) => {
                rank.phases[operation] = phase;
                // Only started operations count their changes: whoever runs one counts the next wait.
                if rank.runs != Some(operation) && self.broken != Broken::UncountedChange {
                    rank.counts.moved();
                }
                if phase == Phase::Complete && rank.runs == Some(operation) {
                    rank.runs = None;
                }
            }
            None => rank.at = after[usize::from(rank.phases[operation] == Phase::Queued)],
        }
    }

    fn ask(&self, rank: &mut Rank, of: usize, at: At) {
        rank.at = at;
        if self.broken == Broken::CountedTest {
            rank.counts.moved();
        }
        let begun = rank.former.iter().filter(|(begun, _)| *begun > 0).count() as u32 + 1;
        if let Some((first, _)) = rank.former.get_mut(of)
            && *first == 0
        {
            *first = begun;
        }
    }

    fn publish(&self, rank: &mut Rank, of: usize) {
        rank.reads.clear();
        rank.word = rank.proofs[of].look(&mut rank.counts);
        if let Some((begun, looks)) = rank.former.get_mut(of) {
            *looks += 1;
            let wait = (2 * *begun + 2 * rank.counts.moves()) | 1;
            rank.word = u64::from(wait) << 32 | u64::from(*looks);
        }
    }

    fn is_complete(&self, rank: &mut Rank, of: usize) -> bool {
        let (proof, now) = (&mut rank.proofs[of], std::mem::take(&mut rank.reads));
        let (looks, base) = (proof.looks, proof.base.clone());
        if self.broken == Broken::OneLook && looks > 1 {
            proof.base.iter_mut().flatten().for_each(|word| *word = word.saturating_sub(u64::from(*word != HAS_LEFT)));
        }
        let complete = proof.is_complete(now);
        if self.broken == Broken::OneLook && proof.looks == looks {
            proof.base = base;
        }
        if self.broken == Broken::OneReading && proof.looks == 0 {
            proof.looks = 1;
        }
        complete
    }

    /// Counts the rounds in which every rank that is not through has looked, while nothing can change. `looked` has just looked.
    fn counted(&self, mut state: State, looked: Option<usize>) -> State {
        let is_over = |rank: &Rank| rank.phases.iter().all(|phase| *phase == Phase::Complete);
        if state.concluded.is_some() || self.can_change(&state) || state.ranks.iter().all(is_over) {
            return state;
        }
        if let Some(rank) = looked {
            state.ranks[rank].has_looked = true;
        }
        if state.ranks.iter().all(|rank| rank.has_looked || is_over(rank)) {
            state.rounds += 1;
            state.ranks.iter_mut().for_each(|rank| rank.has_looked = false);
        }
        state
    }

    /// Returns whether some rank can go on in an operation, or begin one.
    fn can_change(&self, state: &State) -> bool {
        let goes_on = |r: usize| (0..self.operations.len()).any(|i| state.next_phase(r, i, self).is_some());
        let begins = |rank: &Rank| {
            let blocks = match rank.at {
                At::Own { blocks, .. } | At::Vain { blocks, .. } | At::Reads { blocks, .. } => blocks,
                At::Progress { of, blocks, .. } => of.is_some() && blocks,
                At::Others { .. } => true,
                At::User => false,
            };
            !blocks && rank.next().is_some()
        };
        (0..self.ranks.len()).any(goes_on) || state.ranks.iter().any(begins)
    }
}

impl Rank {
    fn start(&mut self, operation: usize) {
        self.counts.moved();
        self.phases[operation] = Phase::Queued;
        self.at = At::Progress { of: None, blocks: false, next: 0 };
    }

    fn run(&mut self, operation: usize) {
        if self.pending(0, None).is_some() {
            self.counts.moved();
        }
        self.phases[operation] = Phase::Queued;
        self.runs = Some(operation);
        self.at = At::Progress { of: Some(operation), blocks: true, next: 0 };
    }

    /// Passes over operations that it has not started or that are complete.
    fn settle(&mut self) {
        match self.at {
            At::Progress { of, blocks, next } => {
                self.at = match (self.pending(next, of), of) {
                    (Some(next), _) => At::Progress { of, blocks, next },
                    (None, Some(of)) if self.is_active(of) => At::Own { of, blocks, waits: false },
                    _ => At::User,
                }
            }
            At::Others { of, next } => {
                self.at = match self.pending(next, Some(of)) {
                    Some(next) => At::Others { of, next },
                    None => At::Vain { of, blocks: true },
                }
            }
            _ => {}
        }
    }
}
