//! A breadth-first walk over all states of a model: every state that its steps reach is looked at once, and the first one that may not be
//! is shown with the shortest way to it.

use std::collections::{HashSet, VecDeque};
use std::fmt::Display;
use std::hash::{Hash, Hasher};

/// A step by its name, and the state after it, or what was seen to go wrong in it.
pub type Step<N, S> = (N, Result<S, String>);

/// A model by its states and steps. States that hash alike are taken for one.
pub trait Model {
    /// What all ranks and their shared memory are at one moment.
    type State: Hash;
    /// The name of a step.
    type Name: Display;

    /// The state in which every walk begins.
    fn first(&self) -> Self::State;
    /// Every step that some rank can take.
    fn steps(&self, state: &Self::State) -> Vec<Step<Self::Name, Self::State>>;
    /// The first broken rule of a state, if any.
    fn complaint(&self, state: &Self::State) -> Option<String>;
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

fn digest(state: &impl Hash) -> u128 {
    let mut digest = Digest::default();
    state.hash(&mut digest);
    u128::from(digest.0) << 64 | u128::from(digest.1)
}

/// Result of a walk.
struct Walk {
    states: usize,
    ends: usize,
    /// The first state that may not be, and the way to it.
    found: Option<(String, Vec<String>)>,
}

fn walk<M: Model>(model: &M) -> Walk {
    // where each state was first come from, for the way to a bad one
    let mut ways: Vec<(usize, Option<M::Name>)> = vec![(0, None)];
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
                let (mut way, mut from) = (vec![what.to_string()], at);
                while let (before, Some(what)) = &ways[from] {
                    way.push(what.to_string());
                    from = *before;
                }
                way.reverse();
                walk.found = Some((why, way));
                return walk;
            }
            let Ok(next) = next else { continue };
            if seen.insert(digest(&next)) {
                ways.push((at, Some(what)));
                open.push_back((ways.len() - 1, next));
                walk.states += 1;
            }
        }
    }
    walk
}

/// Walks until no state is left, none of which may break a rule, and prints their number.
pub fn must_hold(name: &str, model: &impl Model) {
    let started = std::time::Instant::now();
    let Walk { states, ends, found } = walk(model);
    if let Some((why, way)) = found {
        panic!("{name}, after {states} states: {why}\n{}", way.join("\n"));
    }
    println!("{name}: {states} states, {ends} of them ends, {:.1} s", started.elapsed().as_secs_f64());
    assert!(states > 1000 && ends > 0, "{name} has explored nothing");
}

/// Walks until a state breaks a rule with `expected` in the complaint, which one must.
pub fn must_fail(name: &str, model: &impl Model, expected: &str) {
    let Walk { states, found, .. } = walk(model);
    let Some((why, way)) = found else { panic!("{name} was not found in {states} states") };
    println!("{name}: after {states} states and {} steps: {why}", way.len());
    assert!(why.contains(expected), "{name}: {why}\n{}", way.join("\n"));
}
