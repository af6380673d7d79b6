//! Steps of one round whose outcome would depend on when data arrives.
//!
//! A send may still be reading its buffer while the round's messages come in. Received data that is *combined* goes
//! through a receive area and waits until the sends are done; data that is *copied* may land in place. So a copying
//! receive must not touch what the rank sends in the same round, nor what another receive of the round writes.

use crate::plan::{Action, Plan, StepKind, StepLocation, Violation};

/// The last access to each block, as (number of the round of the rank, step); one mark per block of each buffer, so that
/// the check is linear in the blocks moved however many partners a rank has.
struct Marks(Vec<(u32, u32)>);

impl Marks {
    fn in_round(&self, cell: usize, stamp: u32) -> Option<usize> {
        Some(self.0[cell]).filter(|mark| mark.0 == stamp).map(|mark| mark.1 as usize)
    }
}

pub(super) fn check(plan: &Plan) -> Result<(), Violation> {
    let cells = plan.buffers * plan.blocks;
    let marks = || Marks(vec![(0, 0); cells]);
    let (mut sent, mut copied, mut reduced) = (marks(), marks(), marks());
    let mut stamp = 0;
    for (rank, program) in plan.programs.iter().enumerate() {
        let mut first = 0;
        for steps in program.chunk_by(|a, b| a.round == b.round) {
            stamp += 1;
            let messages = steps.iter().enumerate().filter(|(_, step)| !matches!(step.kind, StepKind::Local { .. }));
            for (i, step) in messages {
                let buffer = step.buffer as usize;
                for block in step.blocks.iter() {
                    let cell = buffer * plan.blocks + block;
                    let copy = copied.in_round(cell, stamp).map(|other| (other, "two writes"));
                    let (own, clash) = match step.kind {
                        StepKind::Send { .. } => (&mut sent, copy.map(|(other, _)| (other, "write over a send"))),
                        StepKind::Receive { action: Action::Reduce(_), .. } => (&mut reduced, copy),
                        StepKind::Receive { .. } | StepKind::Local { .. } => {
                            let send = sent.in_round(cell, stamp).map(|other| (other, "write over a send"));
                            let reduce = reduced.in_round(cell, stamp).map(|other| (other, "two writes"));
                            (&mut copied, send.or(copy).or(reduce))
                        }
                    };
                    if let Some((other, kind)) = clash {
                        let at = StepLocation { rank, step: first + i, round: step.round };
                        return Err(Violation::Hazard { at, other, buffer, block, kind });
                    }
                    own.0[cell] = (stamp, (first + i) as u32);
                }
            }
            first += steps.len();
        }
    }
    Ok(())
}
