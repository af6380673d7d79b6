//! Ranks that wait for each other in a circle.
//!
//! A rank posts all messages of a round when it enters it and leaves it when all have completed; a message completes
//! when both ends are posted. If every message has the same round at both ends, round numbers order all waiting and no
//! circle can exist, so only plans with other messages are run through.

use crate::plan::{MatchedSteps, Plan, Violation};

pub(super) fn check(plan: &Plan, pairs: &[MatchedSteps]) -> Result<(), Violation> {
    let round_of = |(rank, step): (usize, usize)| plan.programs[rank][step].round;
    if pairs.iter().all(|p| round_of(p.send) == round_of(p.receive)) {
        return Ok(());
    }
    // for each rank: (its round, the other rank, the round in which that posts its end)
    let mut waits: Vec<Vec<(i32, usize, i32)>> = vec![Vec::new(); plan.ranks()];
    for p in pairs {
        waits[p.send.0].push((round_of(p.send), p.receive.0, round_of(p.receive)));
        waits[p.receive.0].push((round_of(p.receive), p.send.0, round_of(p.send)));
    }
    for list in &mut waits {
        list.sort_unstable();
    }
    // the round a rank is in is that of its next unfinished message
    let mut done = vec![0; plan.ranks()];
    let current = |done: &[usize], rank: usize| waits[rank].get(done[rank]).map_or(i32::MAX, |w| w.0);
    loop {
        let mut moved = false;
        for rank in 0..plan.ranks() {
            while let Some((_, peer, its_round)) = waits[rank].get(done[rank]) {
                if current(&done, *peer) < *its_round {
                    break;
                }
                done[rank] += 1;
                moved = true;
            }
        }
        let Some(stuck) = (0..plan.ranks()).find(|r| done[*r] < waits[*r].len()) else { return Ok(()) };
        if !moved {
            let mut path = vec![stuck];
            loop {
                let rank = path[path.len() - 1];
                let peer = waits[rank][done[rank]].1;
                if let Some(first) = path.iter().position(|r| *r == peer) {
                    path.push(peer);
                    let cycle = path[first..].iter().map(|r| (*r, current(&done, *r))).collect();
                    return Err(Violation::Deadlock { cycle });
                }
                path.push(peer);
            }
        }
    }
}
