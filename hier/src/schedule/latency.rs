//! Butterflies whose last steps send copies instead of being undone (KZ sections 8 and 9).
//!
//! With K folds and the last r of them latency-optimal, every rank ends the reduction with complete results in the
//! slots S that are live before the last r folds, and only the first K - r folds are undone. The copies are the same
//! schedule shifted by every c in S. A partial result is therefore known by its slot and its *type*: the tree of
//! shifts that made it. Each type lives in a buffer of its own. If a value goes on both unmerged and merged, the
//! unmerged one is copied away first; if an arriving value is used twice, it is received aside.

use super::group::Group;
use super::slot_set::SlotSet;
use super::slots::Shift;
use crate::plan::{Action, PlanBuilder, Side};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A type: a leaf, or what own value was merged with what other value from which shift.
type ValueTree = Option<(usize, usize, usize)>;

struct ValueTypes {
    known: HashMap<ValueTree, usize>,
    // buffer of a live type
    buffer: BTreeMap<usize, usize>,
}

impl ValueTypes {
    fn id(&mut self, tree: ValueTree) -> usize {
        let next = self.known.len();
        *self.known.entry(tree).or_insert(next)
    }

    fn free_buffer(&self, also_taken: &BTreeSet<usize>) -> usize {
        (0..).find(|b| !self.buffer.values().any(|x| x == b) && !also_taken.contains(b)).expect("some number is free")
    }
}

/// The reduction phase: all folds, the slots of the last `r` copied. Returns the buffer of the results.
pub(super) fn reduce(b: &mut PlanBuilder, group: &Group, folds: &[Shift], r: usize) -> usize {
    let mut live = vec![true; group.size()];
    for k in folds[..folds.len() - r].iter().flat_map(|fold| &fold.slots) {
        live[*k] = false;
    }
    let copies = SlotSet::of((0..group.size()).filter(|k| live[*k]));
    let mut types = ValueTypes { known: HashMap::new(), buffer: BTreeMap::new() };
    let leaf = types.id(None);
    types.buffer.insert(leaf, 0);
    let mut type_of = vec![Some(leaf); group.size()];
    for (step, fold) in folds.iter().enumerate() {
        type_of = one_fold(b, group, step, fold, &copies, &mut types, &type_of);
    }
    types.buffer[&type_of[0].expect("slot 0 is never sent away")]
}

/// `type_of` has the type of every live slot.
fn one_fold(
    b: &mut PlanBuilder,
    group: &Group,
    step: usize,
    fold: &Shift,
    copies: &SlotSet,
    types: &mut ValueTypes,
    type_of: &[Option<usize>],
) -> Vec<Option<usize>> {
    let mut sent = vec![false; group.size()];
    for k in &fold.slots {
        sent[*k] = true;
    }
    let mut next_type = vec![None; group.size()];
    // own type -> (the types made of it, each with the base slots where it is made)
    let mut made: BTreeMap<usize, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (k, own) in type_of.iter().enumerate().filter_map(|(k, own)| Some((k, (*own)?))).filter(|(k, _)| !sent[*k]) {
        let partner = group.add(k, fold.by);
        let new = match type_of[partner].filter(|_| sent[partner]) {
            Some(other) => types.id(Some((own, fold.by, other))),
            None => own,
        };
        next_type[k] = Some(new);
        made.entry(own).or_default().entry(new).or_default().push(k);
    }
    // give every new type a buffer; a type that was merged first keeps the place of the old one
    let mut placed: BTreeMap<usize, usize> = BTreeMap::new();
    let mut copied: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for (own, merged) in &made {
        let keeps = *merged.keys().find(|new| *new != own).unwrap_or(own);
        placed.insert(keeps, types.buffer[own]);
        for (new, base_slots) in merged.iter().filter(|(new, _)| **new != keeps) {
            let buffer = types.free_buffer(&placed.values().copied().collect());
            placed.insert(*new, buffer);
            copied.push((types.buffer[own], buffer, base_slots.clone()));
        }
    }
    for (from, to, base_slots) in copied {
        let slots = SlotSet::of(base_slots).spread(group, copies);
        local(b, group, step as i32 - 1, (from, to), &slots, Action::Copy);
    }
    // every arriving type, the buffers it is merged into, and the base slots that come for each
    let mut uses: BTreeMap<usize, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for k in &fold.slots {
        if let (Some(arriving), Some(made)) = (type_of[*k], next_type[group.sub(*k, fold.by)]) {
            uses.entry(arriving).or_default().entry(placed[&made]).or_default().push(*k);
        }
    }
    let mut taken: BTreeSet<usize> = placed.values().chain(types.buffer.values()).copied().collect();
    for (arriving, targets) in uses {
        let source = types.buffer[&arriving];
        let landing = |slots: Vec<usize>| SlotSet::of(slots).spread(group, copies).minus(group, fold.by);
        let by_target: BTreeMap<usize, SlotSet> =
            targets.into_iter().map(|(target, slots)| (target, landing(slots))).collect();
        let sets: Vec<SlotSet> = by_target.values().cloned().collect();
        let twice = (0..sets.len()).any(|i| sets[..i].iter().any(|set| set.intersects(&sets[i])));
        let message = |b: &mut PlanBuilder, target: usize, slots: &SlotSet, action: Action| {
            if b.announce(step, source, target) {
                for to in 0..group.size() {
                    b.message(step, group.add(to, fold.by), to, source, target, slots.blocks(group, to), action);
                }
            }
        };
        if twice {
            let aside = (0..).find(|x| !taken.contains(x)).expect("some number is free");
            taken.insert(aside);
            message(b, aside, &SlotSet::union(&sets), Action::Copy);
            for (target, slots) in by_target {
                local(b, group, step as i32, (aside, target), &slots, Action::Reduce(Side::Right));
            }
        } else {
            for (target, slots) in by_target {
                message(b, target, &slots, Action::Reduce(Side::Right));
            }
        }
    }
    types.buffer = placed;
    next_type
}

/// A local step of every rank.
fn local(b: &mut PlanBuilder, group: &Group, round: i32, (from, to): (usize, usize), slots: &SlotSet, action: Action) {
    if b.announce_local(round, from, to) {
        for rank in 0..group.size() {
            b.local(round, rank, from, to, slots.blocks(group, rank), action);
        }
    }
}
