//! Steps of one round whose outcome would depend on when data arrives.
//!
//! A send may still be reading its buffer while the round's messages come in. Received data that is *combined* goes
//! through a receive area and waits until the sends are done; data that is *copied* may land in place. So a copying
//! receive must not touch what the rank sends in the same round, nor what another receive of the round writes.

use crate::error::{Place, Violation};
use crate::plan::{Blocks, Plan, Step};

pub(super) fn check(plan: &Plan) -> Result<(), Violation> {
    for (rank, program) in plan.programs.iter().enumerate() {
        let mut first = 0;
        for steps in program.chunk_by(|a, b| a.round == b.round) {
            // (index, buffer, blocks, sends, copies)
            let mut seen: Vec<(usize, u32, &Blocks, bool, bool)> = Vec::new();
            for (i, timed) in steps.iter().enumerate() {
                let (buffer, blocks, sends, copies) = match &timed.step {
                    Step::Send { buffer, blocks, .. } => (*buffer, blocks, true, false),
                    Step::Receive { buffer, blocks, .. } => (*buffer, blocks, false, true),
                    Step::ReceiveReduce { buffer, blocks, .. } => (*buffer, blocks, false, false),
                    Step::Copy { .. } | Step::Reduce { .. } => continue,
                };
                for (other, its_buffer, its_blocks, its_sends, its_copies) in &seen {
                    if *its_buffer != buffer || !(copies || *its_copies) {
                        continue;
                    }
                    if let Some(block) = blocks.first_common(its_blocks) {
                        let at = Place { rank, step: first + i, round: timed.round };
                        let kind = if sends || *its_sends { "write over a send" } else { "two writes" };
                        return Err(Violation::Hazard { at, other: *other, buffer: buffer as usize, block, kind });
                    }
                }
                seen.push((first + i, buffer, blocks, sends, copies));
            }
            first += steps.len();
        }
    }
    Ok(())
}
