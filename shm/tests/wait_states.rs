//! All states of waiting ranks: the proof that a wait cannot end, one access to shared words after the other.
//!
//! A walk over every interleaving of two or three ranks that start, test, wait for and run operations (`docs/internals/models.md`). The counts
//! and the proof are those that ship; the operations are reduced to what ranks wait for: memory that is free, the contributions of all,
//! the chunks of all. In a healthy group no rank may ever find a wait endless. Where a word was written over, some rank must find
//! it within a few looks. A rule that is broken on purpose must be found: those tests are the last ones here.
#![cfg(not(earlybird_loom))]

#[path = "wait_states/machine.rs"]
mod machine;
mod states;
#[path = "wait_states/world.rs"]
mod world;

use machine::Act::{Test, Wait};
use machine::{Act, Broken, Kind, Model};
use states::must_hold;

const TESTS: &[Act] = &[Test];
const WAITS: &[Act] = &[Wait];
const BOTH: &[Act] = &[Test, Wait];

const STARTED: Kind = Kind { blocks: false, root: None };
const BLOCKING: Kind = Kind { blocks: true, root: None };
const ROOTED: Kind = Kind { blocks: false, root: Some(1) };

fn model(operations: &'static [Kind], areas: usize, ranks: &'static [&'static [Act]]) -> Model {
    Model { operations, areas, ranks, damage: false, broken: Broken::Nothing }
}

fn damaged(operations: &'static [Kind], areas: usize, ranks: &'static [&'static [Act]]) -> Model {
    Model { damage: true, ..model(operations, areas, ranks) }
}

fn must_fail(broken: Broken, model: Model, expected: &str) {
    states::must_fail(&format!("{broken:?}"), &Model { broken, ..model }, expected);
}

#[test]
fn two_started() {
    must_hold("waits_started_2", &model(&[STARTED, STARTED], 1, &[BOTH, BOTH]));
}

#[test]
fn two_started_in_memory_of_their_own() {
    must_hold("waits_areas_2", &model(&[STARTED, STARTED], 2, &[BOTH, BOTH]));
}

#[test]
fn a_started_and_a_blocking_one() {
    must_hold("waits_blocking_2", &model(&[STARTED, BLOCKING, STARTED], 2, &[BOTH, BOTH]));
}

#[test]
fn a_word_written_over() {
    must_hold("waits_damaged_2", &damaged(&[STARTED, BLOCKING], 2, &[WAITS, TESTS]));
}

#[test]
#[ignore = "a minute"]
fn long_run_of_two_started() {
    must_hold("waits_damaged_started_2", &damaged(&[STARTED, STARTED], 2, &[WAITS, TESTS]));
}

#[test]
#[ignore = "a minute"]
fn long_run_of_three_ranks() {
    must_hold("waits_rooted_3", &model(&[ROOTED], 1, &[TESTS, TESTS, TESTS]));
}

#[test]
#[ignore = "minutes"]
fn long_run_of_three_ranks_that_block() {
    must_hold("waits_blocking_3", &model(&[BLOCKING], 1, &[WAITS, WAITS, WAITS]));
}

#[test]
fn no_two_waits_have_one_word() {
    must_fail(Broken::FormerWord, model(&[STARTED, STARTED], 2, &[WAITS, TESTS]), "for endless");
}

#[test]
fn changes_are_counted() {
    must_fail(Broken::UncountedChange, model(&[STARTED, STARTED], 2, &[TESTS, TESTS]), "for endless");
}

#[test]
fn ends_are_counted() {
    must_fail(Broken::UncountedEnd, model(&[STARTED, BLOCKING, STARTED], 2, &[BOTH, BOTH]), "for endless");
}

#[test]
fn waits_are_counted() {
    must_fail(Broken::UncountedWait, model(&[BLOCKING, BLOCKING], 2, &[WAITS, WAITS]), "for endless");
}

#[test]
fn a_look_may_have_begun_before() {
    must_fail(Broken::OneLook, model(&[STARTED], 1, &[WAITS, WAITS]), "for endless");
}

#[test]
fn words_are_not_read_at_once() {
    must_fail(Broken::OneReading, model(&[ROOTED], 1, &[TESTS, TESTS, TESTS]), "for endless");
}

#[test]
fn a_test_is_no_new_wait() {
    must_fail(Broken::CountedTest, damaged(&[STARTED], 1, &[TESTS, TESTS]), "an endless wait");
}
