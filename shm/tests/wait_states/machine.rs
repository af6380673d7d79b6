//! The steps that ranks can take, and what may never be.

use super::world::{At, Erased, Phase, Rank, State};
use crate::states::{self, Step};
use earlybird_shm::protocol::stuck::HAS_LEFT;
use std::fmt::{Display, Formatter};

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
    /// A rank finds a started operation complete, and leaves it, without counting that.
    UncountedEnd,
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

/// A rank, what it does, and the operation or the other rank with which it does that.
pub struct StepName(usize, &'static str, usize);

impl Display for StepName {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} {} {}", self.0, self.1, self.2)
    }
}

/// Rounds of looks after which some rank has found that nothing can change any more. A rank may test its operations in turn, and
/// has a proof for each.
const ROUNDS: u8 = 4;

impl states::Model for Model {
    type State = State;
    type Name = StepName;

    fn first(&self) -> State {
        let mut state = State::new(self.ranks.len(), self.operations.len());
        if self.broken == Broken::FormerWord {
            (0..self.ranks.len()).for_each(|r| state.rank(r).former = vec![(0, 0); self.operations.len()]);
        }
        state
    }

    fn steps(&self, state: &State) -> Vec<Step<StepName, State>> {
        let mut steps: Vec<_> = (0..self.ranks.len()).flat_map(|rank| self.steps_of(state, rank)).collect();
        if self.damage && state.erased.is_none() {
            for (rank, operation) in (0..self.ranks.len()).flat_map(|r| (0..self.operations.len()).map(move |o| (r, o)))
            {
                for phase in [Phase::Deposited, Phase::Folded] {
                    if state.ranks[rank].phases[operation] >= phase {
                        let erased = Some(Erased { operation, rank, phase });
                        let next = self.counted(State { erased, ..state.clone() }, None);
                        let what = if phase == Phase::Folded {
                            "is not seen to have folded"
                        } else {
                            "is not seen to have deposited"
                        };
                        steps.push((StepName(rank, what, operation), Ok(next)));
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
    fn steps_of(&self, state: &State, r: usize) -> Vec<Step<StepName, State>> {
        if state.concluded.is_some() {
            return Vec::new();
        }
        let mut steps = Vec::new();
        let rank = &state.ranks[r];
        let mut step = |what: &'static str, with: usize, looked: bool, change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            next.rank(r).settle();
            steps.push((StepName(r, what, with), Ok(self.counted(next, looked.then_some(r)))));
        };
        match rank.at {
            // Nobody sees the choice, so it is one step with what follows.
            At::User => {
                let mut begin = |what: &'static str, with: usize, change: &dyn Fn(&mut Rank)| {
                    let mut begun = state.clone();
                    change(begun.rank(r));
                    begun.rank(r).settle();
                    let then = self.steps_of(&begun, r).into_iter();
                    steps.extend(then.map(|(_, next)| (StepName(r, what, with), next)));
                };
                match rank.next() {
                    Some(next) if self.operations[next].blocks => begin("runs", next, &|rank| rank.run(next)),
                    Some(next) => begin("starts", next, &|rank| rank.start(next)),
                    None => {}
                }
                for of in (0..self.operations.len()).filter(|i| rank.is_active(*i)) {
                    for act in self.ranks[r] {
                        let blocks = *act == Act::Wait;
                        let at = At::Progress { of: Some(of), blocks, next: 0 };
                        begin(if blocks { "waits for" } else { "tests" }, of, &|rank| self.ask(rank, of, at));
                    }
                }
            }
            At::Progress { of, blocks, next } => {
                step("makes progress in", next, false, &|s| {
                    let after = At::Progress { of, blocks, next: next + 1 };
                    let last = At::Progress { of, blocks, next: self.operations.len() };
                    self.go_on(s, r, next, [after, last]);
                });
            }
            At::Own { of, blocks, waits } => step("looks at", of, false, &|s| match s.next_phase(r, of, self) {
                Some(_) => {
                    let at = At::Own { of, blocks, waits: false };
                    self.go_on(s, r, of, [at; 2]);
                    s.rank(r).at = if s.ranks[r].is_active(of) { at } else { At::User };
                }
                None if !blocks => s.rank(r).at = At::Vain { of, blocks },
                None => {
                    let rank = s.rank(r);
                    if !waits && self.broken != Broken::UncountedWait {
                        rank.counts.moved();
                    }
                    if !waits {
                        rank.proofs[of] = Default::default();
                    }
                    rank.at = At::Others { of, next: 0 };
                }
            }),
            At::Others { of, next } => step("makes progress, waiting, in", next, false, &|s| {
                let [after, last] = [next + 1, self.operations.len()].map(|next| At::Others { of, next });
                self.go_on(s, r, next, [after, last]);
            }),
            At::Vain { of, blocks } => {
                // Former words only grow, so the walk would not end by itself: it looks at the first three looks.
                if rank.former.get(of).is_none_or(|(_, looks)| *looks < 3) {
                    step("publishes its wait for", of, false, &|s| {
                        self.publish(s.rank(r), of);
                        let next = usize::from(r == 0);
                        s.rank(r).at = At::Reads { of, blocks, next, there: false };
                    });
                }
                if !blocks {
                    step("inspects nobody in", of, false, &|s| s.rank(r).at = At::User);
                }
            }
            At::Reads { of, blocks, next, there: false } if !state.has_left(next, of) => {
                step("does not see the leave of", next, false, &|s| {
                    s.rank(r).at = At::Reads { of, blocks, next, there: true };
                });
            }
            At::Reads { of, blocks, next, there } => {
                let word = if there { state.ranks[next].word } else { HAS_LEFT };
                let following = (next + 1..self.ranks.len()).find(|other| *other != r);
                step("reads the word of", next, following.is_none(), &|s| {
                    s.rank(r).reads.push(word);
                    match following {
                        Some(next) => s.rank(r).at = At::Reads { of, blocks, next, there: false },
                        None if self.is_complete(s.rank(r), of) => s.concluded = Some((r, of)),
                        None if blocks => s.rank(r).at = At::Own { of, blocks, waits: true },
                        None => s.rank(r).at = At::User,
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
        let rank = s.rank(r);
        match next {
            Some(phase) => {
                rank.phases[operation] = phase;
                // Only started operations count their changes: whoever runs one counts the next wait.
                let is_counted = match self.broken {
                    Broken::UncountedChange => false,
                    Broken::UncountedEnd => phase != Phase::Complete,
                    _ => true,
                };
                if is_counted && rank.runs != Some(operation) {
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
        if state.concluded.is_some() || self.can_change(&state) || state.ranks.iter().all(|rank| is_over(rank)) {
            return state;
        }
        if let Some(rank) = looked {
            state.rank(rank).has_looked = true;
        }
        if state.ranks.iter().all(|rank| rank.has_looked || is_over(rank)) {
            state.rounds += 1;
            (0..self.ranks.len()).for_each(|rank| state.rank(rank).has_looked = false);
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
        (0..self.ranks.len()).any(goes_on) || state.ranks.iter().any(|rank| begins(rank))
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
