//! Schedules that look the same from every rank.
//!
//! Ranks and blocks are elements of a group; on rank ρ, slot k is block ρ - k. A shift by d moves slots from ρ to
//! ρ - d, where slot k of the sender is, as the same block, slot k - d. A schedule is written once in slots and
//! holds for all ranks.

use super::group::Group;
use crate::plan::{Action, Blocks, PlanBuilder, Side};

/// Slots that every rank ρ sends to ρ - `by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shift {
    pub(super) by: usize,
    pub(super) slots: Vec<usize>,
}

/// The blocks of `slots` on a rank.
pub(super) fn blocks(group: &Group, rank: usize, slots: impl IntoIterator<Item = usize>) -> Blocks {
    Blocks::from_indices(slots.into_iter().map(|k| group.sub(rank, k)))
}

/// Reduce-scatter in buffer 0: in each round the listed shifts at once, their slots reduced where they land. Returns
/// the round after the last.
pub(super) fn scatter(b: &mut PlanBuilder, group: &Group, rounds: &[Vec<Shift>], first: usize) -> usize {
    for (i, shifts) in rounds.iter().enumerate() {
        for shift in shifts {
            for rank in 0..group.size() {
                let to = group.sub(rank, shift.by);
                let moved = blocks(group, rank, shift.slots.iter().copied());
                // what arrives comes from a higher rank (cyclically) and covers the ranks after the receiver's
                b.message(first + i, rank, to, 0, 0, moved, Action::Reduce(Side::Right));
            }
        }
    }
    first + rounds.len()
}

/// Allgather in `buffer`: the reverse of [`scatter`] with the same rounds, as copies.
pub(super) fn gather(b: &mut PlanBuilder, group: &Group, rounds: &[Vec<Shift>], buffer: usize, first: usize) -> usize {
    for (i, shifts) in rounds.iter().rev().enumerate() {
        for shift in shifts {
            for rank in 0..group.size() {
                let to = group.add(rank, shift.by);
                let moved = blocks(group, rank, shift.slots.iter().map(|k| group.sub(*k, shift.by)));
                b.message(first + i, rank, to, buffer, buffer, moved, Action::Copy);
            }
        }
    }
    first + rounds.len()
}
