//! Every algorithm of the shipping protocol under loom: two operations in one slot and one area, so that the second
//! reuses all memory of the first.
//!
//! `EARLYBIRD_WEAKEN` names one sync point to weaken: the twins run these same models in processes of their own and
//! expect them to fail.
#![cfg(earlybird_loom)]

mod modelled;

use earlybird_shm::Algorithm;
use earlybird_shm::Algorithm::{Chain, Flat, Leader, StaticLeader, StaticLeaderEarly};
use modelled::{Bound, Scenario, explore};

#[test]
fn flat_2() {
    explore("flat, 2 ranks, reuse", Bound::NONE, Scenario::new(Flat, 2, 1).epochs(2));
}
#[test]
fn flat_deposits_2() {
    explore("flat with deposits, 2 ranks, reuse", Bound::preemptions(3), Scenario::new(Flat, 2, 16).epochs(2));
}
#[test]
fn flat_3() {
    explore("flat, 3 ranks", Bound::preemptions(2), Scenario::new(Flat, 3, 1).epochs(2));
}
#[test]
fn leader_2() {
    explore("leader, 2 ranks, reuse", Bound::preemptions(3), Scenario::new(Leader, 2, 1).epochs(2));
}
#[test]
fn leader_3() {
    explore("leader, 3 ranks", Bound::preemptions(1), Scenario::new(Leader, 3, 1).epochs(1));
}
#[test]
fn leader_by_rank_3() {
    explore("leader by rank, 3 ranks", Bound::preemptions(1), Scenario::new(Leader, 3, 1).epochs(1).by_rank());
}
#[test]
fn chain_2() {
    explore("chain, 1 chunk, 2 ranks, reuse", Bound::preemptions(3), Scenario::new(Chain, 2, 1).epochs(2));
}
#[test]
fn chain_chunks_2() {
    explore("chain, 2 chunks, 2 ranks, reuse", Bound::preemptions(2), Scenario::new(Chain, 2, 16).epochs(2));
}
#[test]
fn chain_3() {
    explore("chain, 1 chunk, 3 ranks", Bound::preemptions(2), Scenario::new(Chain, 3, 1).epochs(1));
}
#[test]
fn chain_by_rank_3() {
    explore("chain by rank, 1 chunk, 3 ranks", Bound::preemptions(1), Scenario::new(Chain, 3, 1).epochs(1).by_rank());
}
#[test]
fn static_leader_2() {
    explore("static-leader, 2 ranks, reuse", Bound::preemptions(3), Scenario::new(StaticLeader, 2, 1).epochs(2));
}
#[test]
fn static_leader_early_3() {
    explore("static-leader-early, 3 ranks", Bound::preemptions(1), Scenario::new(StaticLeaderEarly, 3, 1).epochs(1));
}

#[test]
fn exp() {
    let a = std::env::var("EXP").unwrap();
    let v: Vec<&str> = a.split(',').collect();
    let alg = Algorithm::ALL.into_iter().find(|x| x.to_string() == v[0]).unwrap();
    let mut s = Scenario::new(alg, v[1].parse().unwrap(), v[2].parse().unwrap()).epochs(v[3].parse().unwrap());
    if v.len() > 4 {
        s = s.by_rank();
    }
    explore(&a, Bound::NONE, s);
}
