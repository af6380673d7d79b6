//! Sets of slots as runs, so that one step of a schedule over many ranks can move a whole set.
//!
//! The slots of a fold are an interval of one digit of the group, the digits before it fixed and those after it free.
//! Shifting such a run, spreading it over copies and reading it as blocks of a rank stay runs, at most two. Sets of
//! any other form are treated slot by slot.

use super::group::Group;
use crate::plan::{Blocks, joined};

/// Ascending, disjoint, non-touching half-open runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct SlotSet(Vec<(usize, usize)>);

impl SlotSet {
    /// In any order, also overlapping; empty runs are dropped.
    pub(super) fn from_runs(runs: Vec<(usize, usize)>) -> Self {
        Self(joined(runs))
    }

    pub(super) fn of(slots: impl IntoIterator<Item = usize>) -> Self {
        Self::from_runs(slots.into_iter().map(|slot| (slot, slot + 1)).collect())
    }

    fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().flat_map(|(lo, hi)| *lo..*hi)
    }

    pub(super) fn union(sets: &[SlotSet]) -> Self {
        Self::from_runs(sets.iter().flat_map(|set| set.0.iter().copied()).collect())
    }

    pub(super) fn intersects(&self, other: &SlotSet) -> bool {
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(x), Some(y)) = (a.peek(), b.peek()) {
            if x.0 < y.1 && y.0 < x.1 {
                return true;
            }
            if x.1 <= y.1 {
                a.next()
            } else {
                b.next()
            };
        }
        false
    }

    /// Every slot minus `by`, digit by digit.
    pub(super) fn minus(&self, group: &Group, by: usize) -> Self {
        self.map(group, |run| run.minus(group, by), |slot| group.sub(slot, by))
    }

    /// The blocks of these slots on a rank: `rank` minus every slot.
    pub(super) fn blocks(&self, group: &Group, rank: usize) -> Blocks {
        let set = self.map(group, |run| run.mirrored(group, rank), |slot| group.sub(rank, slot));
        Blocks::from_runs(set.0)
    }

    /// Every slot plus every one of `copies`, digit by digit.
    pub(super) fn spread(&self, group: &Group, copies: &SlotSet) -> Self {
        let digit = match copies.0[..] {
            [(0, count)] => (0..group.digits()).rev().find(|j| {
                let (weight, size) = (group.weight(*j), group.factor(*j));
                count.is_multiple_of(weight) && count / weight <= size
            }),
            _ => None,
        };
        let Some(j) = digit else {
            return Self::of(self.iter().flat_map(|k| copies.iter().map(move |c| group.add(k, c))));
        };
        let (weight, size) = (group.weight(j), group.factor(j));
        let more = copies.0[0].1 / weight - 1;
        let mut runs = Vec::new();
        for (lo, hi) in &self.0 {
            // digits after j become free; digits before j stay
            let (lo, hi) = (lo / weight, hi.div_ceil(weight));
            for high in lo / size..hi.div_ceil(size) {
                let (first, end) = (lo.max(high * size) - high * size, hi.min((high + 1) * size) - high * size);
                let count = size.min(end - first + more);
                DigitRun { weight, size, high, first, count }.push(&mut runs);
            }
        }
        Self::from_runs(runs)
    }

    fn map(&self, group: &Group, whole: impl Fn(DigitRun) -> DigitRun, single: impl Fn(usize) -> usize) -> Self {
        let mut runs = Vec::with_capacity(2);
        for (lo, hi) in &self.0 {
            match DigitRun::of(group, *lo, *hi) {
                Some(run) => whole(run).push(&mut runs),
                None => runs.extend((*lo..*hi).map(&single).map(|slot| (slot, slot + 1))),
            }
        }
        Self::from_runs(runs)
    }
}

/// Slots whose digit of `weight` and `size` is in the cyclic interval `first .. first + count`, the digits before it
/// those of `high`, the digits after it free.
#[derive(Debug, Clone, Copy)]
struct DigitRun {
    weight: usize,
    size: usize,
    high: usize,
    first: usize,
    count: usize,
}

impl DigitRun {
    fn of(group: &Group, lo: usize, hi: usize) -> Option<DigitRun> {
        (0..group.digits()).find_map(|j| {
            let (weight, size) = (group.weight(j), group.factor(j));
            let high = lo / (weight * size);
            let fits = lo.is_multiple_of(weight) && hi.is_multiple_of(weight) && high == (hi - 1) / (weight * size);
            fits.then(|| DigitRun { weight, size, high, first: lo / weight % size, count: (hi - lo) / weight })
        })
    }

    /// The digits before this one of `high` op those of `other`, and the digit itself of `other`.
    fn of_other(&self, other: usize) -> (usize, usize) {
        (other / (self.weight * self.size), other / self.weight % self.size)
    }

    fn minus(self, group: &Group, by: usize) -> DigitRun {
        let span = self.weight * self.size;
        let (high, digit) = self.of_other(by);
        let high = group.sub(self.high * span, high * span) / span;
        DigitRun { high, first: (self.first + self.size - digit) % self.size, ..self }
    }

    fn mirrored(self, group: &Group, rank: usize) -> DigitRun {
        let span = self.weight * self.size;
        let (high, digit) = self.of_other(rank);
        let high = group.sub(high * span, self.high * span) / span;
        let last = self.first + self.count - 1;
        DigitRun { high, first: (digit + 2 * self.size - last % self.size) % self.size, ..self }
    }

    fn push(self, runs: &mut Vec<(usize, usize)>) {
        let base = self.high * self.size;
        let end = self.first + self.count;
        let mut add = |lo: usize, hi: usize| runs.push(((base + lo) * self.weight, (base + hi) * self.weight));
        add(self.first, end.min(self.size));
        add(0, end.saturating_sub(self.size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_do_what_single_slots_do() {
        for factors in [vec![12], vec![4, 3], vec![2, 3, 2], vec![3, 2, 2, 2], vec![2, 7]] {
            let group = Group::new(factors);
            let n = group.size();
            let boxes: Vec<SlotSet> =
                [vec![(0, 1)], vec![(0, 2)], vec![(0, n / 2)], vec![(0, n)], vec![(0, 1), (3, 4)], vec![(0, 6)]]
                    .map(SlotSet::from_runs)
                    .into();
            for lo in 0..n {
                for hi in lo + 1..=n {
                    let set = SlotSet::from_runs(vec![(lo, hi), (0, lo / 3)]);
                    for x in 0..n {
                        let one_by_one = SlotSet::of(set.iter().map(|k| group.sub(k, x)));
                        assert_eq!(set.minus(&group, x), one_by_one);
                        let blocks = Blocks::from_indices(set.iter().map(|k| group.sub(x, k)));
                        assert_eq!(set.blocks(&group, x), blocks);
                    }
                    for copies in &boxes {
                        let pairs = set.iter().flat_map(|k| copies.iter().map(move |c| (k, c)));
                        let one_by_one = SlotSet::of(pairs.map(|(k, c)| group.add(k, c)));
                        assert_eq!(set.spread(&group, copies), one_by_one, "{set:?} {copies:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn sets_meet_or_do_not() {
        let set = |runs: &[(usize, usize)]| SlotSet::from_runs(runs.to_vec());
        assert!(set(&[(0, 2), (5, 7)]).intersects(&set(&[(3, 4), (6, 9)])));
        assert!(!set(&[(0, 2), (5, 7)]).intersects(&set(&[(2, 5), (7, 9)])));
        assert!(!set(&[]).intersects(&set(&[(0, 9)])));
        assert_eq!(SlotSet::union(&[set(&[(0, 2)]), set(&[(2, 3), (8, 9)])]), set(&[(0, 3), (8, 9)]));
    }
}
