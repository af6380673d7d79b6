//! The steps that ranks can take, and what may never be.

use super::world::{Allocation, Broken, Call, Life, Phase, RANKS, Rank, State, Task, View};
use crate::states::{self, Step};
use earlybird_shm::memory::shared_words::SharedWords;
use earlybird_shm::memory::table::{AllocationRequest, LOCK, Table, holder};
use earlybird_shm::memory::{AllocationName, Origin};

/// Bounds of a walk.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// The ranks of each group; each group makes one call on the buffer.
    pub groups: &'static [&'static [usize]],
    /// Whose buffer it is.
    pub owner: usize,
    /// Ranks that may be killed.
    pub kills: u8,
    /// Allocations that may be made besides.
    pub allocations: u8,
    pub broken: Broken,
}

/// Adds a step by its name and what it changes.
type Add<'a> = dyn FnMut(&str, &dyn Fn(&mut State)) + 'a;

const ORIGIN: Origin = Origin { parent: 0, serial: 0 };

impl states::Model for Model {
    type State = State;
    type Name = String;

    /// Every group has its region, the owner its buffer, and nothing else is there to be allocated.
    fn first(&self) -> State {
        let state = State::new(self.groups.len() + 1, Default::default(), self.kills, self.allocations);
        let view = View::new(state, 0, Broken::Nothing, Vec::new(), usize::MAX);
        let allocations = view.run(|table| {
            let hold = table.try_lock(0).unwrap();
            table.open(hold, (1, self.groups[0].len())).unwrap();
            let allocate =
                |holders: &[usize]| table.allocate(0, wanted(holders)).unwrap().map(|grant| (grant.slot, grant.id));
            let mut allocations: Vec<Option<Allocation>> = vec![Some((0, table.id(0)))];
            allocations.extend(self.groups[1..].iter().map(|group| allocate(group)));
            allocations.push(allocate(&[self.owner]));
            table.unlock(hold);
            allocations
        });
        let allocations = allocations.unwrap().unwrap();
        let (mut state, ..) = view.into_parts();
        for (g, group) in self.groups.iter().enumerate() {
            group.iter().for_each(|rank| state.ranks[*rank].groups[g] = allocations[g]);
        }
        state.ranks[self.owner].buffer = allocations[self.groups.len()];
        state
    }

    fn steps(&self, state: &State) -> Vec<Step<String, State>> {
        (0..RANKS).flat_map(|rank| self.steps_of(state, rank)).collect()
    }

    fn complaint(&self, state: &State) -> Option<String> {
        let at_the_table = |rank: &&Rank| rank.call.as_ref().is_some_and(|call| call.inside);
        if state.ranks.iter().filter(at_the_table).count() > 1 {
            return Some("two ranks are in the table at the same time".into());
        }
        let view = View::new(state.clone(), 0, Broken::Nothing, Vec::new(), usize::MAX);
        let table = view.table();
        for (r, rank) in state.ranks.iter().enumerate() {
            for allocation in rank.groups.iter().chain([&rank.buffer, &rank.more]).flatten() {
                if table.id(allocation.0) != allocation.1 {
                    return Some(format!(
                        "region {} is not allocated as {} while rank {r} holds it",
                        allocation.0, allocation.1
                    ));
                }
            }
            let buffer = (self.groups.len(), self.buffer_id());
            if matches!(rank.operation, Some((_, Phase::Writing))) && table.id(buffer.0) != buffer.1 {
                let now = table.id(buffer.0);
                return Some(format!(
                    "rank {r} writes to region {}, which is allocated as {now} and not as {}",
                    buffer.0, buffer.1
                ));
            }
        }
        let over = |rank: &Rank| {
            let holds = rank.groups.iter().chain([&rank.buffer, &rank.more]).any(Option::is_some);
            rank.life != Life::Dying && !holds && rank.call.is_none() && rank.operation.is_none()
        };
        let left = || table.used();
        match state.ranks.iter().position(|rank| rank.life == Life::Alive) {
            Some(survivor) if state.ranks.iter().all(over) => {
                if state.kills == self.kills && left() != 0 {
                    return Some(format!("{} regions stay allocated although nobody has died", left()));
                }
                let after = View::new(state.clone(), survivor, self.broken, Vec::new(), usize::MAX);
                let swept = after.run(|table| perform(table, survivor, Task::Sweep));
                let (allocated, lock) = (after.table().used(), holder(after.load(LOCK)));
                (swept.is_err() || allocated != 0 || lock.is_some())
                    .then(|| format!("{allocated} regions stay allocated after a sweep: {swept:?}, locked by {lock:?}"))
            }
            _ => None,
        }
    }
}

impl Model {
    fn steps_of(&self, state: &State, r: usize) -> Vec<Step<String, State>> {
        let rank = &state.ranks[r];
        let mut steps = Vec::new();
        let mut step = |what: &str, change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            steps.push((format!("rank {r}: {what}"), Ok(next)));
        };
        match rank.life {
            Life::Ended => return steps,
            Life::Dying => step("has ended", &|s| s.ranks[r] = Rank { life: Life::Ended, ..Rank::default() }),
            Life::Alive if state.kills > 0 => step("is killed", &|s| {
                s.kills -= 1;
                s.ranks[r].life = Life::Dying;
                // one that is at nothing goes on with nothing
                if s.ranks[r].call.is_none() && s.ranks[r].operation.is_none() {
                    s.ranks[r] = Rank { life: Life::Ended, ..Rank::default() };
                }
            }),
            Life::Alive => {}
        }
        if rank.call.is_some() {
            steps.push(self.go_on(state, r));
            return steps;
        }
        if let Some((g, phase)) = rank.operation {
            self.steps_in(state, r, g, phase, &mut step);
            return steps;
        }
        if rank.life == Life::Dying {
            return steps;
        }
        let mut begin = |what: &str, task: Task, forget: &dyn Fn(&mut Rank)| {
            step(what, &|s| {
                forget(&mut s.ranks[r]);
                s.allocations -= u8::from(task == Task::Allocate);
                s.ranks[r].call = Some(Call { task, read: Vec::new(), inside: false });
            });
        };
        for (g, allocation) in rank.groups.iter().enumerate() {
            if let Some(allocation) = *allocation {
                begin("leaves a group", Task::Release(allocation), &|rank| rank.groups[g] = None);
            }
        }
        if let Some(allocation) = rank.buffer {
            begin("drops its buffer", Task::Release(allocation), &|rank| rank.buffer = None);
        }
        match rank.more {
            Some(allocation) => begin("drops what it was given", Task::Release(allocation), &|rank| rank.more = None),
            None if state.allocations > 0 => begin("borrows", Task::Allocate, &|_| {}),
            None => {}
        }
        for g in
            (0..self.groups.len()).filter(|g| rank.groups[*g].is_some() && state.operations[*g].begun >> r & 1 == 0)
        {
            if r != self.owner {
                step("calls", &|s| {
                    s.operations[g].begun |= 1 << r;
                    s.operations[g].deposited |= 1 << r;
                    s.ranks[r].operation = Some((g, Phase::Deposited));
                });
            } else if rank.buffer.is_some() {
                step("calls with its buffer", &|s| self.enter(s, g));
            }
        }
        steps
    }

    /// The owner says that its buffer lies in the operation: no other rank changes what it looks at.
    fn enter(&self, state: &mut State, g: usize) {
        let (owner, slot) = (self.owner, state.owner_buffer(self.owner).unwrap().0);
        let (group, id) = state.ranks[owner].groups[g].unwrap();
        let view = View::new(state.clone(), owner, self.broken, Vec::new(), usize::MAX);
        let word =
            view.run(|table| table.begin_use(slot, AllocationName { slot: group, id }).unwrap()).unwrap().unwrap();
        *state = view.into_parts().0;
        state.operations[g].begun |= 1 << owner;
        state.ranks[owner].operation = Some((g, Phase::BufferUse));
        state.ranks[owner].word = word;
    }

    fn steps_in(&self, state: &State, r: usize, g: usize, phase: Phase, step: &mut Add<'_>) {
        let operation = &state.operations[g];
        let everybody = self.groups[g].iter().fold(0, |all, rank| all | 1 << rank);
        let is_complete = operation.deposited == everybody;
        let phase_is = |phase| move |s: &mut State| s.ranks[r].operation = Some((g, phase));
        match phase {
            Phase::BufferUse => step("deposits", &|s| {
                s.operations[g].deposited |= 1 << r;
                phase_is(Phase::Deposited)(s);
            }),
            // it finds the buffer by its name while it has the chunk
            Phase::Deposited if is_complete && !operation.claimed && r != self.owner => step("claims a chunk", &|s| {
                s.operations[g].claimed = true;
                phase_is(Phase::Writing)(s);
            }),
            Phase::Deposited if operation.folded => step("returns in order", &|s| {
                if let Some(word) = s.ranks[r].word.take() {
                    let view = View::new(s.clone(), r, self.broken, Vec::new(), usize::MAX);
                    view.run(|table| table.end_use(word)).unwrap();
                    *s = view.into_parts().0;
                }
                s.ranks[r].operation = None;
            }),
            Phase::Writing => {
                step("has folded its chunk", &|s| {
                    s.operations[g].folded = true;
                    phase_is(Phase::Deposited)(s);
                });
                // it looks at nothing else before
                return;
            }
            _ => {}
        }
        step("returns an error", &|s| {
            s.ranks[r].operation = None;
            s.ranks[r].word = None;
        });
    }

    /// One access more of a rank that is at the table.
    fn go_on(&self, state: &State, r: usize) -> Step<String, State> {
        let mut state = state.clone();
        let Call { task, read, .. } = state.ranks[r].call.take().unwrap();
        let at = read.len();
        let view = View::new(state, r, self.broken, read, 1);
        let outcome = view.run(|table| perform(table, r, task));
        let (mut state, read, inside) = view.into_parts();
        let what = format!("rank {r}: {task:?}, access {at} to {}", read.len());
        match outcome {
            Err(wrong) => return (what, Err(wrong)),
            Ok(None) => state.ranks[r].call = Some(Call { task, read, inside }),
            // somebody has the lock: tried again from the beginning
            Ok(Some(Outcome::Busy)) => state.ranks[r].call = Some(Call { task, read: Vec::new(), inside: false }),
            Ok(Some(Outcome::Done(allocated))) if task == Task::Allocate => {
                state.ranks[r].more = allocated;
            }
            Ok(Some(Outcome::Done(_))) => {}
        }
        (what, Ok(state))
    }

    /// The number of the buffer's allocation: that of the group of all ranks is 1.
    fn buffer_id(&self) -> u64 {
        self.groups.len() as u64 + 1
    }
}

fn wanted(holders: &[usize]) -> AllocationRequest<'_> {
    AllocationRequest { cost: 1, lines: 0, origin: ORIGIN, holders }
}

/// End of a task.
#[derive(Debug)]
enum Outcome {
    Busy,
    Done(Option<Allocation>),
}

/// A task as the segment carries it out: under the lock, after what is due.
fn perform(table: &Table<'_, View>, me: usize, task: Task) -> Outcome {
    let Ok(hold) = table.try_lock(me) else { return Outcome::Busy };
    table.open(hold, (1, RANKS)).unwrap();
    let allocate = || table.allocate(0, wanted(&[me])).unwrap().map(|grant| (grant.slot, grant.id));
    let allocated = match task {
        Task::Release((slot, id)) => {
            table.release(slot, id, me);
            None
        }
        Task::Sweep => {
            table.sweep();
            None
        }
        Task::Allocate => allocate().or_else(|| (table.sweep() > 0).then(allocate).flatten()),
    };
    table.unlock(hold);
    Outcome::Done(allocated)
}
