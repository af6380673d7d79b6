//! Three operations in a ring of two slots and two areas: the third reuses what the first used.
//!
//! A rank that has finished an operation knows that everybody had left the one before, and does not look. With one
//! area, as in `loom_algorithms.rs`, it always looks; this ring is the smallest in which it does not.
#![cfg(all(earlybird_loom, earlybird_loom_ring))]

#[allow(dead_code)]
mod modelled;

use earlybird_shm::Algorithm::{self, Chain, Flat, Leader, StaticLeader, StaticLeaderEarly};
use modelled::{Bound, Scenario, run};

fn ring(algorithm: Algorithm, words: usize, bound: Bound) {
    let title = format!("ring of 2: {algorithm}, 2 ranks, {words} words, 3 operations");
    run(&title, bound, Scenario::new(algorithm, 2, words).epochs(3));
}

#[test]
fn ring_flat() {
    ring(Flat, 1, Some(3));
}
#[test]
fn ring_flat_pieces() {
    ring(Flat, 16, Some(1));
}
#[test]
fn ring_leader() {
    ring(Leader, 1, Some(1));
}
#[test]
fn ring_chain() {
    ring(Chain, 1, Some(2));
}
#[test]
fn ring_static_leader() {
    ring(StaticLeader, 1, Some(2));
}
#[test]
fn ring_static_leader_early() {
    ring(StaticLeaderEarly, 1, Some(2));
}
#[test]
fn ring_of_two_plans() {
    let scenario = Scenario::new(Leader, 2, 1).proposes(1, Chain).epochs(3);
    run("ring of 2: one proposes leader, one chain, 2 ranks, 3 operations", Some(1), scenario);
}
