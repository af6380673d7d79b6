//! Every algorithm of the shipping protocol under loom, in health, with different calls, and with deaths.
//!
//! What each model covers, its bound and its size stand in `docs/models.md`, with the commands. The long run looks
//! further: `--ignored --test-threads 1`.
#![cfg(earlybird_loom)]

mod modelled;

use earlybird_shm::Algorithm::{self, Chain, Flat, Leader, StaticLeader, StaticLeaderEarly};
use earlybird_shm::protocol::step::Step;
use modelled::models::{MODELS, for_every_model, model};
use modelled::{Bound, Scenario, Tally, explore, report, run};
use std::collections::BTreeSet;
use std::time::Instant;

macro_rules! tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                let model = model(stringify!($name));
                run(model.title, model.bound, (model.scenario)());
            }
        )*

        #[test]
        fn no_model_is_forgotten() {
            let tested = [$(stringify!($name)),*];
            let listed: Vec<_> = MODELS.iter().map(|m| m.name).collect();
            assert_eq!(tested.as_slice(), listed, "models without a test, or the other way round");
        }
    };
}
for_every_model!(tests);

#[test]
#[ignore = "the long run: minutes per model"]
fn long_run() {
    let only = std::env::var("EARLYBIRD_MODEL").ok();
    let chosen: Vec<_> = MODELS.iter().filter(|m| only.as_ref().is_none_or(|name| m.name == *name)).collect();
    assert!(!chosen.is_empty(), "EARLYBIRD_MODEL={only:?} names no model");
    for model in chosen {
        if let Some(bound) = model.long {
            run(model.title, bound, (model.scenario)());
        }
    }
}

/// Every rank dies at every step of an operation, in every place in the arrival order the bound allows. The steps at
/// which each rank did die must be those it can reach.
fn deaths(algorithm: Algorithm, ranks: usize, words: usize, bound: Bound, reachable: fn(usize) -> &'static [Step]) {
    let begun = Instant::now();
    let mut all = Tally { executions: 0, died: 0, failed: 0 };
    for rank in 0..ranks {
        let mut reached = BTreeSet::new();
        for step in Step::ALL {
            let tally = explore(bound, Scenario::new(algorithm, ranks, words).dies(rank, step, 1));
            if tally.died > 0 {
                reached.insert(step.name());
            }
            match step {
                Step::Left => assert_eq!(tally.failed, 0, "{algorithm}: rank {rank} died after it had left"),
                Step::Begin => assert!(tally.failed > 0, "{algorithm}: nobody missed rank {rank}"),
                _ => {}
            }
            all.executions += tally.executions;
            all.died += tally.died;
            all.failed += tally.failed;
        }
        let expected: BTreeSet<_> = reachable(rank).iter().map(|s| s.name()).collect();
        assert_eq!(reached, expected, "{algorithm}: where rank {rank} of {ranks} died");
    }
    let title = format!("deaths, {algorithm}, {ranks} ranks, {words} words ({} deaths, {} failures)", all.died, all.failed);
    report(&title, bound, &all, begun);
}

use Step::{Arrived, Begin, Claimed, Copied, Deposited, Entered, Folded, Left, Published};

#[test]
fn deaths_flat_2() {
    deaths(Flat, 2, 1, Some(2), |_| &[Begin, Entered, Copied, Left]);
}
#[test]
fn deaths_flat_pieces_2() {
    deaths(Flat, 2, 16, Some(2), |_| &[Begin, Entered, Deposited, Copied, Left]);
}
#[test]
fn deaths_flat_3() {
    deaths(Flat, 3, 1, Some(1), |_| &[Begin, Entered, Copied, Left]);
}
#[test]
fn deaths_leader_2() {
    deaths(Leader, 2, 1, Some(2), |_| &[Begin, Entered, Arrived, Claimed, Folded, Published, Copied, Left]);
}
#[test]
fn deaths_leader_3() {
    deaths(Leader, 3, 1, Some(1), |_| &Step::ALL);
}
#[test]
fn deaths_chain_2() {
    deaths(Chain, 2, 1, Some(2), |_| &[Begin, Entered, Arrived, Claimed, Folded, Published, Copied, Left]);
}
#[test]
fn deaths_chain_pieces_2() {
    deaths(Chain, 2, 16, Some(1), |_| &[Begin, Entered, Arrived, Claimed, Folded, Published, Copied, Left]);
}
#[test]
fn deaths_chain_3() {
    deaths(Chain, 3, 1, Some(1), |_| &[Begin, Entered, Arrived, Claimed, Folded, Published, Copied, Left]);
}

/// Only rank 0 folds, only the others deposit.
fn static_roles(rank: usize) -> &'static [Step] {
    match rank {
        0 => &[Begin, Entered, Arrived, Published, Copied, Left],
        _ => &[Begin, Entered, Arrived, Deposited, Copied, Left],
    }
}

#[test]
fn deaths_static_leader_2() {
    deaths(StaticLeader, 2, 1, Some(2), static_roles);
}
#[test]
fn deaths_static_leader_early_3() {
    deaths(StaticLeaderEarly, 3, 1, Some(1), static_roles);
}

/// A rank that dies between two operations fails the second one, never the first.
#[test]
fn deaths_between_operations() {
    let begun = Instant::now();
    let mut all = Tally { executions: 0, died: 0, failed: 0 };
    for algorithm in [Flat, Leader, Chain, StaticLeader] {
        for step in [Left, Begin] {
            let nth = if step == Left { 1 } else { 2 };
            let tally = explore(Some(2), Scenario::new(algorithm, 2, 1).epochs(2).dies(1, step, nth));
            assert_eq!(tally.died, tally.executions, "{algorithm}: {step:?} is always reached");
            assert_eq!(tally.failed, tally.executions, "{algorithm}: the second operation needs every rank");
            all.executions += tally.executions;
        }
    }
    report("deaths between two operations, 2 ranks", Some(2), &all, begun);
}
