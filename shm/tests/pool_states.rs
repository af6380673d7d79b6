//! All states of the pool of regions: the lines that ship, one access to shared memory after the other, with ranks that
//! stop, die and go on writing while they die.
//!
//! A breadth-first walk over every interleaving of three ranks within the bounds of a model (`docs/internals/models.md`). A rule that
//! is broken on purpose must be found: those tests are the last ones here.
#![cfg(not(earlybird_loom))]

#[path = "pool_states/machine.rs"]
mod machine;
mod states;
#[path = "pool_states/world.rs"]
mod world;

use machine::Model;
use states::must_hold;
use world::Broken;

const ALL: &[usize] = &[0, 1, 2];
const FIRST: &[usize] = &[0, 1];
const LAST: &[usize] = &[0, 2];

fn must_fail(broken: Broken, model: Model, expected: &str) {
    states::must_fail(&format!("{broken:?}"), &Model { broken, ..model }, expected);
}

fn model(groups: &'static [&'static [usize]], owner: usize, kills: u8, allocations: u8) -> Model {
    Model { groups, owner, kills, allocations, broken: Broken::Nothing }
}

#[test]
fn a_buffer_in_the_operation_of_all() {
    must_hold("pool_all", &model(&[ALL], 0, 1, 1));
}

#[test]
fn a_buffer_of_another_rank() {
    must_hold("pool_other_owner", &model(&[ALL], 1, 1, 1));
}

#[test]
fn a_buffer_in_operations_of_two_groups() {
    must_hold("pool_two_groups", &model(&[FIRST, LAST], 0, 0, 0));
}

#[test]
fn a_buffer_in_operations_of_all_and_of_some() {
    must_hold("pool_all_and_some", &model(&[ALL, FIRST], 0, 0, 0));
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
