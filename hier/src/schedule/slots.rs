//! Schedules that look the same from every rank.
//!
//! Ranks and blocks are elements of a group; on rank ρ, slot k is block ρ - k. A shift by d moves slots from ρ to
//! ρ - d, where slot k of the sender is, as the same block, slot k - d. A schedule is written once in slots and
//! holds for all ranks.

use super::group::Group;
use super::slot_set::SlotSet;
use crate::plan::{Action, PlanBuilder, Side};

/// Slots that every rank ρ sends to ρ - `by`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shift {
    pub(super) by: usize,
    pub(super) slots: Vec<usize>,
}

/// Reduce-scatter in buffer 0: in each round the listed shifts at once, their slots reduced where they land. Returns
/// the round after the last.
pub(super) fn scatter(b: &mut PlanBuilder, group: &Group, rounds: &[Vec<Shift>], first: usize) -> usize {
    for (i, shifts) in rounds.iter().enumerate() {
        if !shifts.is_empty() && !b.announce(first + i, 0, 0) {
            continue;
        }
        for shift in shifts {
            let moved = SlotSet::of(shift.slots.iter().copied());
            for rank in 0..group.size() {
                let to = group.sub(rank, shift.by);
                // what arrives comes from a higher rank (cyclically) and covers the ranks after the receiver's
                b.message(first + i, rank, to, 0, 0, moved.blocks(group, rank), Action::Reduce(Side::Right));
            }
        }
    }
    first + rounds.len()
}

/// Allgather in `buffer`: the reverse of [`scatter`] with the same rounds, as copies.
pub(super) fn gather(b: &mut PlanBuilder, group: &Group, rounds: &[Vec<Shift>], buffer: usize, first: usize) -> usize {
    for (i, shifts) in rounds.iter().rev().enumerate() {
        if !shifts.is_empty() && !b.announce(first + i, buffer, buffer) {
            continue;
        }
        for shift in shifts {
            let moved = SlotSet::of(shift.slots.iter().copied()).minus(group, shift.by);
            for rank in 0..group.size() {
                let to = group.add(rank, shift.by);
                b.message(first + i, rank, to, buffer, buffer, moved.blocks(group, rank), Action::Copy);
            }
        }
    }
    first + rounds.len()
}
