//! Symbolic execution of a plan, round by round.

use super::term::{TermId, Terms, UNDEFINED};
use crate::plan::{Blocks, Collective, MatchedSteps, Plan, Side, Step, StepLocation, Violation};

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
        self.arriving.clear();
        for rank in 0..self.plan.ranks() {
            for (step, timed) in self.this_round(rank, round) {
                let (Step::Receive { from, blocks, .. } | Step::ReceiveReduce { from, blocks, .. }) = &timed.step
                else {
                    continue;
                };
                let (sender, send) = (*from as usize, self.taken[rank][step] as usize);
                let Step::Send { buffer, .. } = &self.plan.programs[sender][send].step else {
                    unreachable!("receives are paired with sends")
                };
                for block in blocks.iter() {
                    let value = self.value(sender, *buffer as usize, block);
                    if value == UNDEFINED {
                        let at = StepLocation { rank: sender, step: send, round };
                        return Err(Violation::Undefined { at, owner: sender, buffer: *buffer as usize, block });
                    }
                    self.arriving.push(value);
                }
            }
        }
        let arriving = std::mem::take(&mut self.arriving);
        let mut next = 0;
        for rank in 0..self.plan.ranks() {
            let mut passed = 0;
            for (step, timed) in self.this_round(rank, round) {
                passed += 1;
                let at = StepLocation { rank, step, round };
                let n = timed.step.blocks().len();
                match &timed.step {
                    Step::Send { .. } => {}
                    Step::Receive { buffer, blocks, .. } => {
                        self.apply(at, *buffer, blocks, None, &arriving[next..next + n])?;
                        next += n;
                    }
                    Step::ReceiveReduce { buffer, blocks, side, .. } => {
                        self.apply(at, *buffer, blocks, Some(*side), &arriving[next..next + n])?;
                        next += n;
                    }
                    Step::Copy { source, target, blocks } => {
                        let incoming = self.read(at, *source, blocks)?;
                        self.apply(at, *target, blocks, None, &incoming)?;
                    }
                    Step::Reduce { source, target, blocks, side } => {
                        let incoming = self.read(at, *source, blocks)?;
                        self.apply(at, *target, blocks, Some(*side), &incoming)?;
                    }
                }
            }
            self.cursor[rank] += passed;
        }
        self.arriving = arriving;
        Ok(())
    }

    fn this_round(
        &self,
        rank: usize,
        round: i32,
    ) -> impl Iterator<Item = (usize, &'a crate::plan::ScheduledStep)> + use<'a> {
        let plan: &'a Plan = self.plan;
        let first = self.cursor[rank];
        let steps = plan.programs[rank][first..].iter().take_while(move |t| t.round == round);
        steps.enumerate().map(move |(i, timed)| (first + i, timed))
    }

    fn read(&self, at: StepLocation, buffer: u32, blocks: &Blocks) -> Result<Vec<TermId>, Violation> {
        let mut values = Vec::with_capacity(blocks.len());
        for block in blocks.iter() {
            let value = self.value(at.rank, buffer as usize, block);
            if value == UNDEFINED {
                return Err(Violation::Undefined { at, owner: at.rank, buffer: buffer as usize, block });
            }
            values.push(value);
        }
        Ok(values)
    }

    fn apply(
        &mut self,
        at: StepLocation,
        buffer: u32,
        blocks: &Blocks,
        side: Option<Side>,
        incoming: &[TermId],
    ) -> Result<(), Violation> {
        let base = self.at(at.rank, buffer as usize, 0);
        for (block, new) in blocks.iter().zip(incoming) {
            let old = self.state[base + block];
            let value = match side {
                None => Ok(*new),
                Some(_) if old == UNDEFINED => {
                    return Err(Violation::Undefined { at, owner: at.rank, buffer: buffer as usize, block });
                }
                Some(Side::Left) => self.terms.combine(*new, old),
                Some(Side::Right) => self.terms.combine(old, *new),
            };
            let twice = |contributor| Violation::Twice { at, block, contributor };
            self.state[base + block] = value.map_err(twice)?;
        }
        Ok(())
    }
}
