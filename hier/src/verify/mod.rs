//! The verifier: proves that a plan does what it claims, or names the step that is wrong.
//!
//! The checks, in order: every step is well formed; every send matches a receive with the same blocks; no ranks wait for
//! each other in a circle; both ends of a message agree on the round; no two steps of a round race; no rank uses more
//! ports than declared; every block read was written; no contribution is counted twice; every rank ends with the result of
//! the collective; operands are ordered and bits agree as the plan claims.
//!
//! [`Verified`] can be made only here and is the executor's only input, so what runs is what was checked. Cost: one
//! symbolic operation per block copied or reduced.

mod admit;
mod deadlock;
mod hazard;
mod result;
mod svg;
mod symbol;
mod term;

pub(crate) use admit::check_operator;
pub use admit::{Consistency, OpTraits, admit};
pub use svg::svg;

use crate::plan::{MatchedSteps, Plan, StepKind, Violation, check_form, match_steps, same_rounds};
use symbol::SymbolicState;

/// A value that passed the verifier. There is no other way to make one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified<T>(T);

impl<T> Verified<T> {
    /// The value, without the proof.
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

/// Makes all checks. The returned plan's `order` and `consistent` are what was found, which may be stricter than
/// what the plan claimed, never weaker.
pub fn verify(mut plan: Plan) -> Result<Verified<Plan>, Violation> {
    check_form(&plan)?;
    let pairs = match_steps(&plan)?;
    same_blocks(&plan, &pairs)?;
    deadlock::check(&plan, &pairs)?;
    same_rounds(&plan, &pairs)?;
    hazard::check(&plan)?;
    ports(&plan)?;
    let mut state = SymbolicState::new(&plan, &pairs);
    for round in -1..plan.rounds as i32 {
        state.run_round(round)?;
    }
    let found = result::check(&plan, &state)?;
    (plan.order, plan.consistent) = (found.order, found.consistent);
    Ok(Verified(plan))
}

fn same_blocks(plan: &Plan, pairs: &[MatchedSteps]) -> Result<(), Violation> {
    for p in pairs {
        let sent = &plan.programs[p.send.0][p.send.1].blocks;
        let expected = &plan.programs[p.receive.0][p.receive.1].blocks;
        if sent != expected {
            return Err(Violation::BlocksDiffer {
                send: plan.location(p.send),
                receive: plan.location(p.receive),
                sent: sent.to_string(),
                expected: expected.to_string(),
            });
        }
    }
    Ok(())
}

fn ports(plan: &Plan) -> Result<(), Violation> {
    for (rank, program) in plan.programs.iter().enumerate() {
        for steps in program.chunk_by(|a, b| a.round == b.round) {
            let (mut to, mut from) = (Vec::new(), Vec::new());
            for step in steps {
                match step.kind {
                    StepKind::Send { to: peer } => to.push(peer),
                    StepKind::Receive { from: peer, .. } => from.push(peer),
                    StepKind::Local { .. } => {}
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
