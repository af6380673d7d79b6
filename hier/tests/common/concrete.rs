//! A second, independent reading of a plan: runs the ranks' programs on lists of contributors, with queues for
//! messages and no notion of matching, terms or hazards. Used to judge what the verifier accepts.

use earlybird_hier::plan::{Action, Collective, Order, Plan, Side, StepKind};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

/// The operands in order, and a hash of the expression tree that ignores which operand of an ⊕ came first.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Value {
    operands: Vec<usize>,
    tree: u64,
}

fn hash(x: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    x.hash(&mut hasher);
    hasher.finish()
}

fn combine(left: &Value, right: &Value) -> Value {
    let (a, b) = (left.tree.min(right.tree), left.tree.max(right.tree));
    Value { operands: [&left.operands[..], &right.operands].concat(), tree: hash((a, b)) }
}

type Cell = Option<Value>;

fn joined(incoming: &Value, old: &Cell, side: Side) -> Option<Value> {
    let old = old.as_ref()?;
    Some(match side {
        Side::Left => combine(incoming, old),
        Side::Right => combine(old, incoming),
    })
}

/// Runs the plan; nothing if a message never comes or an undefined block is read.
fn run(plan: &Plan) -> Option<Vec<Vec<Vec<Cell>>>> {
    let ranks = plan.ranks();
    let mut state: Vec<Vec<Vec<Cell>>> = vec![vec![vec![None; plan.blocks]; plan.buffers]; ranks];
    for (rank, buffers) in state.iter_mut().enumerate() {
        let input = Value { operands: vec![rank], tree: hash(rank) };
        for (block, cell) in buffers[0].iter_mut().enumerate() {
            let has = match plan.collective {
                Collective::Broadcast => rank == plan.root,
                Collective::Allgather => block / (plan.blocks / ranks) == rank,
                _ => true,
            };
            *cell = Some(input.clone()).filter(|_| has);
        }
    }
    let mut wires: BTreeMap<(usize, usize), VecDeque<Vec<Value>>> = BTreeMap::new();
    for round in -1..plan.rounds as i32 {
        let now = |rank: usize| plan.programs[rank].iter().filter(move |step| step.round == round);
        for (rank, buffers) in state.iter().enumerate() {
            for step in now(rank) {
                if let StepKind::Send { to } = step.kind {
                    let from = &buffers[step.buffer as usize];
                    let data: Option<Vec<Value>> = step.blocks.iter().map(|b| from[b].clone()).collect();
                    wires.entry((rank, to as usize)).or_default().push_back(data?);
                }
            }
        }
        for (rank, buffers) in state.iter_mut().enumerate() {
            for step in now(rank) {
                let (incoming, action) = match step.kind {
                    StepKind::Send { .. } => continue,
                    StepKind::Receive { from, action } => (wires.get_mut(&(from as usize, rank))?.pop_front()?, action),
                    StepKind::Local { source, action } => {
                        let read = |block: usize| buffers[source as usize][block].clone();
                        (step.blocks.iter().map(read).collect::<Option<Vec<_>>>()?, action)
                    }
                };
                for (block, value) in step.blocks.iter().zip(incoming) {
                    let cell = &mut buffers[step.buffer as usize][block];
                    *cell = match action {
                        Action::Copy => Some(value),
                        Action::Reduce(side) => Some(joined(&value, cell, side)?),
                    };
                }
            }
        }
    }
    wires.values().all(VecDeque::is_empty).then_some(state)
}

/// Per rank and block, the contributors in the order in which they are combined in the result; nothing if the plan
/// cannot be run, or for a block that is undefined.
#[allow(dead_code)]
pub fn results(plan: &Plan) -> Option<Vec<Vec<Option<Vec<usize>>>>> {
    let of_rank =
        |buffers: Vec<Vec<Cell>>| buffers[plan.result].iter().map(|c| Some(c.as_ref()?.operands.clone())).collect();
    Some(run(plan)?.into_iter().map(of_rank).collect())
}

/// True if the plan, run here, keeps its collective and its claims.
pub fn keeps_its_promises(plan: &Plan) -> bool {
    let Some(state) = run(plan) else { return false };
    let ranks = plan.ranks();
    for block in 0..plan.blocks {
        let mut trees = Vec::new();
        for (rank, buffers) in state.iter().enumerate() {
            let owner = block / (plan.blocks / ranks).max(1);
            let promised = match plan.collective {
                Collective::Reduce => rank == plan.root,
                Collective::ReduceScatter => rank == owner,
                _ => true,
            };
            if !promised {
                continue;
            }
            let Some(value) = &buffers[plan.result][block] else { return false };
            let expected = match plan.collective {
                Collective::Broadcast => vec![plan.root],
                Collective::Allgather => vec![owner],
                _ => (0..ranks).collect(),
            };
            let mut sorted = value.operands.clone();
            sorted.sort_unstable();
            if plan.collective == Collective::Barrier {
                sorted.dedup();
            }
            let turned =
                (0..value.operands.len() - 1).all(|i| value.operands[i + 1] == (value.operands[i] + 1) % ranks);
            let in_order = match plan.order {
                Order::Ordered => value.operands == expected,
                Order::Rotated => turned || value.operands == expected,
                Order::Commutative => true,
            };
            if sorted != expected || !in_order {
                return false;
            }
            trees.push(value.tree);
        }
        trees.dedup();
        if plan.consistent && trees.len() > 1 && plan.collective != Collective::Barrier {
            return false;
        }
    }
    true
}
