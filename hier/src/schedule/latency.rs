//! Butterflies whose last steps send copies instead of being undone (KZ sections 8 and 9).
//!
//! With K folds and the last r of them latency-optimal, every rank ends the reduction with complete results in the
//! slots S that are live before the last r folds, and only the first K - r folds are undone. The copies are the same
//! schedule shifted by every c in S. A partial result is therefore known by its slot and its *type*: the tree of
//! shifts that made it. Each type lives in a buffer of its own. If a value goes on both unmerged and merged, the
//! unmerged one is copied away first; if an arriving value is used twice, it is received aside.

use super::group::Group;
use super::slots::{Shift, blocks};
use crate::plan::{Action, PlanBuilder, Side};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A type: a leaf, or what own value was merged with what other value from which shift.
type Tree = Option<(usize, usize, usize)>;

struct Types {
    known: HashMap<Tree, usize>,
    // buffer of a live type
    buffer: BTreeMap<usize, usize>,
}

impl Types {
    fn id(&mut self, tree: Tree) -> usize {
        let next = self.known.len();
        *self.known.entry(tree).or_insert(next)
    }

    fn free_buffer(&self, also_taken: &BTreeSet<usize>) -> usize {
        (0..).find(|b| !self.buffer.values().any(|x| x == b) && !also_taken.contains(b)).expect("some number is free")
    }
}

/// The reduction phase: all folds, the slots of the last `r` copied. Returns the buffer of the results.
pub(super) fn reduce(b: &mut PlanBuilder, group: &Group, folds: &[Shift], r: usize) -> usize {
    let mut live: BTreeSet<usize> = (0..group.size()).collect();
    for fold in &folds[..folds.len() - r] {
        for k in &fold.slots {
            live.remove(k);
        }
    }
    let copies: Vec<usize> = live.into_iter().collect();
    let mut types = Types { known: HashMap::new(), buffer: BTreeMap::new() };
    let leaf = types.id(None);
    types.buffer.insert(leaf, 0);
    let mut type_of: BTreeMap<usize, usize> = (0..group.size()).map(|k| (k, leaf)).collect();
    for (step, fold) in folds.iter().enumerate() {
        type_of = one_fold(b, group, step, fold, &copies, &mut types, &type_of);
    }
    types.buffer[&type_of[&0]]
}

fn one_fold(
    b: &mut PlanBuilder,
    group: &Group,
    step: usize,
    fold: &Shift,
    copies: &[usize],
    types: &mut Types,
    type_of: &BTreeMap<usize, usize>,
) -> BTreeMap<usize, usize> {
    let sent: BTreeSet<usize> = fold.slots.iter().copied().collect();
    let mut next_type = BTreeMap::new();
    // own type -> (the types made of it, each with the base slots where it is made)
    let mut made: BTreeMap<usize, BTreeMap<usize, Vec<usize>>> = BTreeMap::new();
    for (k, own) in type_of.iter().filter(|(k, _)| !sent.contains(k)) {
        let partner = group.add(*k, fold.by);
        let new = match sent.contains(&partner) {
            true => types.id(Some((*own, fold.by, type_of[&partner]))),
            false => *own,
        };
        next_type.insert(*k, new);
        made.entry(*own).or_default().entry(new).or_default().push(*k);
    }
    // give every new type a buffer; a type that was merged first keeps the place of the old one
    let mut placed: BTreeMap<usize, usize> = BTreeMap::new();
    let mut copied: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for (own, news) in &made {
        let keeps = *news.keys().find(|new| *new != own).unwrap_or(own);
        placed.insert(keeps, types.buffer[own]);
        for (new, base_slots) in news.iter().filter(|(new, _)| **new != keeps) {
            let buffer = types.free_buffer(&placed.values().copied().collect());
            placed.insert(*new, buffer);
            copied.push((types.buffer[own], buffer, base_slots.clone()));
        }
    }
    for (from, to, base_slots) in copied {
        let slots = spread(group, &base_slots, copies);
        for rank in 0..group.size() {
            b.local(step as i32 - 1, rank, from, to, blocks(group, rank, slots.iter().copied()), Action::Copy);
        }
    }
    // every arriving (type, slot) and the buffers it is merged into
    let mut uses: BTreeMap<usize, BTreeMap<usize, BTreeSet<usize>>> = BTreeMap::new();
    for k in &fold.slots {
        let target = placed[&next_type[&group.sub(*k, fold.by)]];
        for c in copies {
            let landing = group.sub(group.add(*k, *c), fold.by);
            uses.entry(type_of[k]).or_default().entry(landing).or_default().insert(target);
        }
    }
    let mut taken: BTreeSet<usize> = placed.values().chain(types.buffer.values()).copied().collect();
    for (arriving, landings) in uses {
        let source = types.buffer[&arriving];
        let twice = landings.values().any(|targets| targets.len() > 1);
        let mut by_target: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (slot, targets) in &landings {
            for target in targets {
                by_target.entry(*target).or_default().push(*slot);
            }
        }
        let message = |b: &mut PlanBuilder, target: usize, slots: &[usize], action: Action| {
            for to in 0..group.size() {
                let moved = blocks(group, to, slots.iter().copied());
                b.message(step, group.add(to, fold.by), to, source, target, moved, action);
            }
        };
        if twice {
            let aside = (0..).find(|x| !taken.contains(x)).expect("some number is free");
            taken.insert(aside);
            message(b, aside, &landings.keys().copied().collect::<Vec<_>>(), Action::Copy);
            for (target, slots) in by_target {
                for rank in 0..group.size() {
                    let merged = blocks(group, rank, slots.iter().copied());
                    b.local(step as i32, rank, aside, target, merged, Action::Reduce(Side::Right));
                }
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

/// All base slots shifted by all copies.
fn spread(group: &Group, base_slots: &[usize], copies: &[usize]) -> BTreeSet<usize> {
    base_slots.iter().flat_map(|k| copies.iter().map(|c| group.add(*k, *c))).collect()
}
