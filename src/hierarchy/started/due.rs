//! The calls under way that a step of progress polls: those that may have something to do. So a step costs the same however many calls
//! are under way.

use std::collections::VecDeque;

/// Calls that are polled from each place on: as many can have their data in the memory of a node at a time.
const AT_ONCE: usize = 8;

/// The place of a step in the calls under way, which lie in the order of their numbers. It polls the first of them, whose results come
/// next, and those from a call on whose turn has come.
pub(super) struct Due {
    place: usize,
    left: usize,
}

impl Due {
    pub(super) fn new() -> Self {
        Due { place: 0, left: AT_ONCE }
    }

    /// The place of the next call to poll, if there is one. `turns` are the numbers of calls that have something to do now.
    pub(super) fn next<C>(
        &mut self,
        calls: &VecDeque<C>,
        number: impl Fn(&C) -> u64,
        turns: [u64; 3],
    ) -> Option<usize> {
        let here = number(calls.get(self.place)?);
        if turns.contains(&here) {
            self.left = AT_ONCE;
        }
        if self.left == 0 {
            let later = turns.into_iter().filter(|turn| *turn > here).min()?;
            (self.place, self.left) = (calls.partition_point(|call| number(call) < later), AT_ONCE);
        }
        (self.place < calls.len()).then_some(self.place)
    }

    /// Goes on behind the call that was polled, which has not ended; one that has ended is removed instead.
    pub(super) fn pass(&mut self) {
        (self.place, self.left) = (self.place + 1, self.left - 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers of the calls that a step polls, none of which ends.
    fn polled(calls: impl IntoIterator<Item = u64>, turns: [u64; 3]) -> Vec<u64> {
        let (calls, mut due, mut polled) = (VecDeque::from_iter(calls), Due::new(), Vec::new());
        while let Some(place) = due.next(&calls, |call| *call, turns) {
            polled.push(calls[place]);
            due.pass();
        }
        polled
    }

    #[test]
    fn a_step_polls_the_first_calls_and_those_whose_turn_has_come() {
        let [first, turn, other] = [0..8, 300..308, 990..998].map(Vec::from_iter);
        assert_eq!(polled(0..1000, [0, 0, 1000]), first);
        assert_eq!(polled(0..1000, [300, 990, 1000]), [first, turn, other].concat());
        assert_eq!(polled(0..1000, [4, 9, 999]), Vec::from_iter((0..17).chain([999])));
        // Calls that have ended are not there, perhaps the one whose turn has come.
        assert_eq!(polled((0..1000).step_by(2), [301, 0, 0]).len(), 16);
        assert_eq!(polled(0..5, [1, 2, 5]), Vec::from_iter(0..5));
    }

    #[test]
    fn a_step_follows_the_turn_that_a_call_passes_on() {
        let (calls, mut due, mut turn) = (VecDeque::from_iter(0..1000), Due::new(), 500);
        while let Some(place) = due.next(&calls, |call| *call, [turn, 0, 0]) {
            if calls[place] == turn && turn < 600 {
                turn += 1;
            }
            due.pass();
        }
        assert_eq!((turn, due.place), (600, 608));
    }
}
