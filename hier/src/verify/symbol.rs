//! Symbolic execution of a plan, round by round.

use super::term::{TermId, Terms, UNDEFINED};
use crate::plan::{Action, Collective, MatchedSteps, Plan, Side, Step, StepKind, StepLocation, Violation};

/// The symbolic state of all ranks.
#[derive(Debug)]
pub struct SymbolicState<'a> {
    plan: &'a Plan,
    terms: Terms,
    // [rank][buffer][block]
    state: Vec<TermId>,
    // for each rank and step: the program index of the send a receive takes
    taken: Vec<Vec<u32>>,
    cursor: Vec<usize>,
    arriving: Vec<TermId>,
}

impl<'a> SymbolicState<'a> {
    /// The state before round -1, as the collective defines it.
    pub fn new(plan: &'a Plan, pairs: &[MatchedSteps]) -> Self {
        let (ranks, blocks) = (plan.ranks(), plan.blocks);
        let mut state = vec![UNDEFINED; ranks * plan.buffers * blocks];
        for rank in 0..ranks {
            let input = match plan.collective {
                Collective::Allreduce | Collective::Reduce | Collective::ReduceScatter | Collective::Barrier => {
                    0..blocks
                }
                Collective::Broadcast if rank == plan.root => 0..blocks,
                Collective::Broadcast => 0..0,
                Collective::Allgather => plan.own_blocks(rank),
            };
            let first = rank * plan.buffers * blocks;
            state[first + input.start..first + input.end].fill(rank as TermId);
        }
        let mut taken: Vec<Vec<u32>> = plan.programs.iter().map(|p| vec![u32::MAX; p.len()]).collect();
        for p in pairs {
            taken[p.receive.0][p.receive.1] = p.send.1 as u32;
        }
        let terms = Terms::new(ranks, plan.collective == Collective::Barrier);
        Self { plan, terms, state, taken, cursor: vec![0; ranks], arriving: Vec::new() }
    }

    fn at(&self, rank: usize, buffer: usize, block: usize) -> usize {
        (rank * self.plan.buffers + buffer) * self.plan.blocks + block
    }

    pub(crate) fn value(&self, rank: usize, buffer: usize, block: usize) -> TermId {
        self.state[self.at(rank, buffer, block)]
    }

    pub(crate) fn terms(&self) -> &Terms {
        &self.terms
    }

    /// The ranks whose input is in a block, ascending; none if it is undefined.
    pub fn contributors(&self, rank: usize, buffer: usize, block: usize) -> Vec<usize> {
        match self.value(rank, buffer, block) {
            UNDEFINED => Vec::new(),
            id => self.terms.contributors(id),
        }
    }

    /// Applies one round; rounds must be run in order from -1.
    pub fn run_round(&mut self, round: i32) -> Result<(), Violation> {
        // first everything that is sent is read, then all of it is applied: messages see the start of the round
        let mut arriving = std::mem::take(&mut self.arriving);
        arriving.clear();
        for rank in 0..self.plan.ranks() {
            for (number, step) in self.this_round(rank, round) {
                let StepKind::Receive { from, .. } = step.kind else { continue };
                let (sender, send) = (from as usize, self.taken[rank][number] as usize);
                let at = StepLocation { rank: sender, step: send, round };
                for value in self.read(at, self.plan.programs[sender][send].buffer, step) {
                    arriving.push(value?);
                }
            }
        }
        let mut next = 0;
        for rank in 0..self.plan.ranks() {
            let mut passed = 0;
            for (number, step) in self.this_round(rank, round) {
                passed += 1;
                let at = StepLocation { rank, step: number, round };
                match step.kind {
                    StepKind::Send { .. } => {}
                    StepKind::Receive { action, .. } => {
                        let n = step.blocks.len();
                        self.apply(at, step, action, &arriving[next..next + n])?;
                        next += n;
                    }
                    StepKind::Local { source, action } => {
                        let incoming: Vec<TermId> = self.read(at, source, step).collect::<Result<_, _>>()?;
                        self.apply(at, step, action, &incoming)?;
                    }
                }
            }
            self.cursor[rank] += passed;
        }
        self.arriving = arriving;
        Ok(())
    }

    fn this_round(&self, rank: usize, round: i32) -> impl Iterator<Item = (usize, &'a Step)> + use<'a> {
        let plan: &'a Plan = self.plan;
        let first = self.cursor[rank];
        let steps = plan.programs[rank][first..].iter().take_while(move |step| step.round == round);
        steps.enumerate().map(move |(i, step)| (first + i, step))
    }

    /// The contents of the blocks of `step` in a buffer of the rank at `at`.
    fn read(&self, at: StepLocation, buffer: u32, step: &Step) -> impl Iterator<Item = Result<TermId, Violation>> {
        let buffer = buffer as usize;
        step.blocks.iter().map(move |block| match self.value(at.rank, buffer, block) {
            UNDEFINED => Err(Violation::Undefined { at, owner: at.rank, buffer, block }),
            value => Ok(value),
        })
    }

    fn apply(&mut self, at: StepLocation, step: &Step, action: Action, incoming: &[TermId]) -> Result<(), Violation> {
        let buffer = step.buffer as usize;
        let base = self.at(at.rank, buffer, 0);
        for (block, new) in step.blocks.iter().zip(incoming) {
            let old = self.state[base + block];
            let value = match action {
                Action::Copy => Ok(*new),
                Action::Reduce(_) if old == UNDEFINED => {
                    return Err(Violation::Undefined { at, owner: at.rank, buffer, block });
                }
                Action::Reduce(Side::Left) => self.terms.combine(*new, old),
                Action::Reduce(Side::Right) => self.terms.combine(old, *new),
            };
            let twice = |contributor| Violation::Twice { at, block, contributor };
            self.state[base + block] = value.map_err(twice)?;
        }
        Ok(())
    }
}
