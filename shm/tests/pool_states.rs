//! All states of the pool of regions: the lines that ship, one access to shared memory after the other, with ranks that
//! stop, die and go on writing while they die.
//!
//! A breadth-first walk over every interleaving of three ranks within the bounds of a model (`docs/internals/models.md`). A rule that
//! is broken on purpose must be found: those tests are the last ones here.
#![cfg(not(earlybird_loom))]

#[path = "pool_states/machine.rs"]
mod machine;
#[path = "pool_states/world.rs"]
mod world;

use machine::Model;
use std::collections::{HashSet, VecDeque};
use std::hash::{Hash, Hasher};
use world::{Broken, State};

const ALL: &[usize] = &[0, 1, 2];
const FIRST: &[usize] = &[0, 1];
const LAST: &[usize] = &[0, 2];

/// Result of a walk.
struct Walk {
    states: usize,
    ends: usize,
    /// The first state that may not be, and the way to it.
    found: Option<(String, Vec<String>)>,
}

/// Two numbers of a state that no two states are expected to share.
#[derive(Default)]
struct Digest(u64, u64);

impl Hasher for Digest {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }
    fn write_u64(&mut self, word: u64) {
        let mix = |sum: u64, by: u64| {
            let product = u128::from(sum ^ word ^ 0x9e37_79b9_7f4a_7c15) * u128::from(by);
            (product as u64 ^ (product >> 64) as u64).wrapping_add(by)
        };
        (self.0, self.1) = (mix(self.0, 0xff51_afd7_ed55_8ccd), mix(self.1.rotate_left(23), 0xc4ce_b9fe_1a85_ec53));
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

fn digest(state: &State) -> u128 {
    let mut digest = Digest::default();
    state.hash(&mut digest);
    u128::from(digest.0) << 64 | u128::from(digest.1)
}

fn walk(model: &Model) -> Walk {
    // where each state was first come from, for the way to a bad one
    let mut ways: Vec<(usize, String)> = vec![(0, "begin".into())];
    let first = model.first();
    let mut seen = HashSet::from([digest(&first)]);
    let mut open = VecDeque::from([(0, first)]);
    let mut walk = Walk { states: 1, ends: 0, found: None };
    while let Some((at, state)) = open.pop_front() {
        let next = model.steps(&state);
        walk.ends += usize::from(next.is_empty());
        for (what, next) in next {
            let bad = match &next {
                Ok(next) => model.complaint(next),
                Err(why) => Some(why.clone()),
            };
            if let Some(why) = bad {
                let (mut way, mut from) = (vec![what], at);
                while from != 0 {
                    way.push(ways[from].1.clone());
                    from = ways[from].0;
                }
                way.reverse();
                walk.found = Some((why, way));
                return walk;
            }
            let Ok(next) = next else { continue };
            if seen.insert(digest(&next)) {
                ways.push((at, what));
                open.push_back((ways.len() - 1, next));
                walk.states += 1;
            }
        }
    }
    walk
}

fn must_hold(name: &str, model: Model) {
    let started = std::time::Instant::now();
    let Walk { states, ends, found } = walk(&model);
    if let Some((why, way)) = found {
        panic!("{name}: {why}\n{}", way.join("\n"));
    }
    println!("{name}: {states} states, {ends} of them ends, {:.1} s", started.elapsed().as_secs_f64());
    assert!(states > 1000 && ends > 0, "{name} has explored nothing");
}

fn must_fail(broken: Broken, model: Model, expected: &str) {
    let Walk { states, found, .. } = walk(&Model { broken, ..model });
    let Some((why, way)) = found else { panic!("{broken:?} was not found in {states} states") };
    println!("{broken:?}: after {states} states and {} steps: {why}", way.len());
    assert!(why.contains(expected), "{broken:?}: {why}\n{}", way.join("\n"));
}

fn model(groups: &'static [&'static [usize]], owner: usize, kills: u8, allocations: u8) -> Model {
    Model { groups, owner, kills, allocations, broken: Broken::Nothing }
}

#[test]
fn a_buffer_in_the_operation_of_all() {
    must_hold("pool_all", model(&[ALL], 0, 1, 1));
}

#[test]
fn a_buffer_of_another_rank() {
    must_hold("pool_other_owner", model(&[ALL], 1, 1, 1));
}

#[test]
fn a_buffer_in_operations_of_two_groups() {
    must_hold("pool_two_groups", model(&[FIRST, LAST], 0, 0, 0));
}

#[test]
fn a_buffer_in_operations_of_all_and_of_some() {
    must_hold("pool_all_and_some", model(&[ALL, FIRST], 0, 0, 0));
}

#[test]
fn memory_is_not_freed_because_a_rank_is_not_alive() {
    must_fail(Broken::FreesTheDying, model(&[ALL], 0, 2, 1), "while rank");
}

#[test]
fn memory_is_not_freed_while_a_failed_operation_may_go_on() {
    must_fail(Broken::ForgetsOperations, model(&[ALL], 0, 1, 1), "writes to region");
}

#[test]
fn the_lock_is_not_taken_from_a_dying_rank() {
    must_fail(Broken::RobsTheDying, model(&[ALL], 0, 1, 1), "in the table at the same time");
}

#[test]
fn memory_is_given_back_before_its_record() {
    must_fail(Broken::ClearsFirst, model(&[ALL], 0, 1, 1), "is not zero");
}
