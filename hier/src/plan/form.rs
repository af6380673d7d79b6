//! The form of a plan: every step names things that exist, in the order that a program has.

use super::{Collective, Plan, StepKind, StepLocation, Violation};

/// Most cells of symbolic state: 1 GiB.
const MAX_CELLS: usize = 1 << 28;

/// Checks header and steps.
pub(crate) fn check_form(plan: &Plan) -> Result<(), Violation> {
    let header = |reason: String| Err(Violation::Header { reason });
    let (ranks, blocks) = (plan.ranks(), plan.blocks);
    if ranks == 0 || blocks == 0 || plan.ports == 0 {
        return header(format!("{ranks} ranks, {blocks} blocks, {} ports; each must be at least 1", plan.ports));
    }
    // the symbolic state has a cell per rank, buffer and block; every rank is visited in every round
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
    if matches!(plan.collective, Collective::Allgather | Collective::ReduceScatter) && !blocks.is_multiple_of(ranks) {
        return header(format!("{} needs a multiple of {ranks} blocks, not {blocks}", plan.collective));
    }
    for (rank, program) in plan.programs.iter().enumerate() {
        let (mut round, mut local_seen) = (-1, false);
        for (number, step) in program.iter().enumerate() {
            let at = StepLocation { rank, step: number, round: step.round };
            let bad = |reason: String| Err(Violation::Malformed { at, reason });
            if step.round < round {
                return bad(format!("it follows a step of round {round}"));
            }
            if step.round >= plan.rounds as i32 {
                return bad(format!("the plan has {} rounds", plan.rounds));
            }
            (round, local_seen) = (step.round, local_seen && step.round == round);
            let (peer, source) = match step.kind {
                StepKind::Send { to: peer } | StepKind::Receive { from: peer, .. } => {
                    (Some(peer as usize), step.buffer)
                }
                StepKind::Local { source, .. } => (None, source),
            };
            match peer {
                Some(_) if local_seen => return bad("a message after a local step of the same round".into()),
                Some(_) if round < 0 => return bad("a message before round 0".into()),
                Some(peer) if peer >= ranks => return bad(format!("rank {peer} of {ranks}")),
                Some(peer) if peer == rank => return bad("a message to itself; use a local step".into()),
                Some(_) => {}
                None if source == step.buffer => return bad("source and target are the same buffer".into()),
                None => local_seen = true,
            }
            if let Some(buffer) = [source, step.buffer].into_iter().find(|b| *b as usize >= plan.buffers) {
                return bad(format!("buffer {buffer} of {}", plan.buffers));
            }
            let runs = step.blocks.runs();
            if runs.is_empty() || runs.iter().any(|r| r.first >= r.end || r.end as usize > blocks) {
                return bad(format!("blocks [{}] of {blocks}", step.blocks));
            }
            if runs.windows(2).any(|w| w[0].end >= w[1].first) {
                return bad("its runs of blocks are not ascending and apart".into());
            }
        }
    }
    Ok(())
}
