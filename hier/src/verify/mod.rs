//! Reads a plan and says why it may be run, or which step of which rank is wrong.
//!
//! The checks, in order: every step is well formed; every send meets a receive with the same blocks; no circle of
//! ranks waits for itself; both ends of a message agree on the round; no two steps of a round race; no rank uses more
//! ports than declared; every block read was written; no contribution is counted twice; every rank ends as the
//! contract says; operands are ordered and bits agree as the plan claims.
//!
//! [`Verified`] can be made only here and is the executor's only input, so what runs is what was checked. Cost: one
//! symbolic operation per block copied or reduced.

mod deadlock;
mod hazard;
mod result;
mod symbol;
mod term;

pub use symbol::Machine;

use crate::error::{Place, Violation};
use crate::plan::{Contract, Pair, Plan, Step, pair};

/// Most cells of symbolic state: 1 GiB.
const MAX_CELLS: usize = 1 << 28;

/// A value that passed the verifier. There is no other way to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// Gives up the proof.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> std::ops::Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Checks everything. The returned plan's `order` and `consistent` are what was found, which may be stricter than
/// what the plan claimed, never weaker.
pub fn verify(mut plan: Plan) -> Result<Verified<Plan>, Violation> {
    well_formed(&plan)?;
    let pairs = pair(&plan)?;
    same_blocks(&plan, &pairs)?;
    deadlock::check(&plan, &pairs)?;
    same_rounds(&plan, &pairs)?;
    hazard::check(&plan)?;
    ports(&plan)?;
    let mut machine = Machine::new(&plan, &pairs);
    for round in -1..plan.rounds as i32 {
        machine.run_round(round)?;
    }
    let found = result::check(&plan, &machine)?;
    (plan.order, plan.consistent) = (found.order, found.consistent);
    Ok(Verified(plan))
}

/// Checks that every step names things that exist and stands where the form of a program wants it.
pub(crate) fn well_formed(plan: &Plan) -> Result<(), Violation> {
    let header = |reason: String| Err(Violation::Header { reason });
    let (ranks, blocks) = (plan.ranks(), plan.blocks);
    if ranks == 0 || blocks == 0 || plan.ports == 0 {
        return header(format!("{ranks} ranks, {blocks} blocks, {} ports; each must be at least 1", plan.ports));
    }
    // the symbolic state has a cell per rank, buffer and block; every rank is looked at in every round
    let cells = ranks.checked_mul(plan.buffers).and_then(|n| n.checked_mul(blocks));
    let turns = ranks.checked_mul(plan.rounds);
    if cells.is_none_or(|n| n > MAX_CELLS) || turns.is_none_or(|n| n > MAX_CELLS) {
        let (buffers, rounds) = (plan.buffers, plan.rounds);
        return header(format!(
            "{ranks} ranks, {buffers} buffers, {blocks} blocks, {rounds} rounds: too large to verify"
        ));
    }
    if plan.result >= plan.buffers {
        return header(format!("the result is buffer {} of {}", plan.result, plan.buffers));
    }
    if plan.root >= ranks {
        return header(format!("the root is rank {} of {ranks}", plan.root));
    }
    if matches!(plan.contract, Contract::Allgather | Contract::ReduceScatter) && !blocks.is_multiple_of(ranks) {
        return header(format!("{} needs a multiple of {ranks} blocks, not {blocks}", plan.contract));
    }
    for (rank, program) in plan.programs.iter().enumerate() {
        let (mut round, mut local_seen) = (-1, false);
        for (step, timed) in program.iter().enumerate() {
            let at = Place { rank, step, round: timed.round };
            let bad = |reason: String| Err(Violation::Malformed { at, reason });
            if timed.round < round {
                return bad(format!("it follows a step of round {round}"));
            }
            if timed.round >= plan.rounds as i32 {
                return bad(format!("the plan has {} rounds", plan.rounds));
            }
            (round, local_seen) = (timed.round, local_seen && timed.round == round);
            let (peer, buffers) = match &timed.step {
                Step::Send { to: peer, buffer, .. }
                | Step::Receive { from: peer, buffer, .. }
                | Step::ReceiveReduce { from: peer, buffer, .. } => (Some(*peer as usize), [*buffer, *buffer]),
                Step::Copy { source, target, .. } | Step::Reduce { source, target, .. } => (None, [*source, *target]),
            };
            match peer {
                Some(_) if local_seen => return bad("a message after a local step of the same round".into()),
                Some(_) if round < 0 => return bad("a message before round 0".into()),
                Some(peer) if peer >= ranks => return bad(format!("rank {peer} of {ranks}")),
                Some(peer) if peer == rank => return bad("a message to itself; use a local step".into()),
                Some(_) => {}
                None if buffers[0] == buffers[1] => return bad("source and target are the same buffer".into()),
                None => local_seen = true,
            }
            if let Some(buffer) = buffers.into_iter().find(|b| *b as usize >= plan.buffers) {
                return bad(format!("buffer {buffer} of {}", plan.buffers));
            }
            let runs = timed.step.blocks().runs();
            if runs.is_empty() || runs.iter().any(|r| r.first >= r.end || r.end as usize > blocks) {
                return bad(format!("blocks [{}] of {blocks}", timed.step.blocks()));
            }
            if runs.windows(2).any(|w| w[0].end >= w[1].first) {
                return bad("its runs of blocks are not ascending and apart".into());
            }
        }
    }
    Ok(())
}

fn place(plan: &Plan, (rank, step): (usize, usize)) -> Place {
    Place { rank, step, round: plan.programs[rank][step].round }
}

fn same_blocks(plan: &Plan, pairs: &[Pair]) -> Result<(), Violation> {
    for p in pairs {
        let sent = plan.programs[p.send.0][p.send.1].step.blocks();
        let expected = plan.programs[p.receive.0][p.receive.1].step.blocks();
        if sent != expected {
            return Err(Violation::BlocksDiffer {
                send: place(plan, p.send),
                receive: place(plan, p.receive),
                sent: sent.to_string(),
                expected: expected.to_string(),
            });
        }
    }
    Ok(())
}

fn same_rounds(plan: &Plan, pairs: &[Pair]) -> Result<(), Violation> {
    for p in pairs {
        let (send, receive) = (place(plan, p.send), place(plan, p.receive));
        if send.round != receive.round {
            return Err(Violation::RoundsDiffer { send, receive });
        }
    }
    Ok(())
}

fn ports(plan: &Plan) -> Result<(), Violation> {
    for (rank, program) in plan.programs.iter().enumerate() {
        for steps in program.chunk_by(|a, b| a.round == b.round) {
            let (mut to, mut from) = (Vec::new(), Vec::new());
            for timed in steps {
                match &timed.step {
                    Step::Send { to: peer, .. } => to.push(*peer),
                    Step::Receive { from: peer, .. } | Step::ReceiveReduce { from: peer, .. } => from.push(*peer),
                    Step::Copy { .. } | Step::Reduce { .. } => {}
                }
            }
            for (kind, mut peers) in [("sends to", to), ("receives from", from)] {
                peers.sort_unstable();
                peers.dedup();
                if peers.len() > plan.ports {
                    let (round, used, allowed) = (steps[0].round, peers.len(), plan.ports);
                    return Err(Violation::Ports { rank, round, kind, used, allowed });
                }
            }
        }
    }
    Ok(())
}
