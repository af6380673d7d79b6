//! Every algorithm of the shipping protocol under loom, in health, with different calls, and with deaths.
//!
//! The subject, bound and size of each model stand in `docs/internals/models.md`, with the commands. The long run looks
//! further: `--ignored --test-threads 1`.
#![cfg(all(earlybird_loom, not(feature = "full-ring")))]

mod modelled;

use earlybird_shm::Algorithm::{self, Chain, Flat, Leader, Slices, StaticLeader, StaticLeaderEarly};
use earlybird_shm::Collective::{self, Broadcast, ExclusiveScan, Gather, Reduce, Scan, Scatter};
use earlybird_shm::protocol::step::Step;
use modelled::models::{MODELS, for_every_model, model};
use modelled::started_deaths::{DEATHS, deaths as deaths_of, run_deaths};
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

/// Every rank dies at every step of an operation, in every place in the arrival order the bound allows. The steps at
/// which some rank did die must be `reachable`, so that every role has died.
fn deaths(algorithm: Algorithm, ranks: usize, words: usize, bound: Bound, reachable: &[Step]) {
    let begun = Instant::now();
    let all = deaths_in(Collective::AllReduce, algorithm, ranks, words, bound, reachable);
    let title =
        format!("deaths, {algorithm}, {ranks} ranks, {words} words ({} deaths, {} failures)", all.died, all.failed);
    report(&title, bound, &all, begun);
}

/// The same in another operation than an allreduce, where only those are missed that another rank needs.
fn deaths_in(
    collective: Collective,
    algorithm: Algorithm,
    ranks: usize,
    words: usize,
    bound: Bound,
    reachable: &[Step],
) -> Tally {
    let mut all = Tally { executions: 0, died: 0, failed: 0 };
    let mut reached = BTreeSet::new();
    for rank in 0..ranks {
        for step in Step::ALL {
            let scenario = Scenario::new(algorithm, ranks, words).of(collective);
            let is_needed = scenario.is_needed(rank);
            let tally = explore(bound, scenario.dies(rank, step, 1));
            if tally.died > 0 {
                reached.insert(step.name());
            }
            match step {
                Step::Left => assert_eq!(tally.failed, 0, "{algorithm}: rank {rank} died after it had left"),
                Step::Begin => assert_eq!(tally.failed > 0, is_needed, "{algorithm}: who missed rank {rank}"),
                _ => {}
            }
            all.executions += tally.executions;
            all.died += tally.died;
            all.failed += tally.failed;
        }
    }
    let expected: BTreeSet<_> = reachable.iter().map(|s| s.name()).collect();
    assert_eq!(reached, expected, "{}, {algorithm}: where ranks died", collective.name());
    all
}

use Step::{Arrived, Begin, Claimed, Copied, Deposited, Entered, Folded, Left, Published};

const FLAT: &[Step] = &[Begin, Entered, Copied, Left];
const FLAT_PIECES: &[Step] = &[Begin, Entered, Deposited, Copied, Left];
/// The first and the last arriver fold, which is everybody where there are two; only the others deposit.
const FOLDERS: &[Step] = &[Begin, Entered, Arrived, Claimed, Folded, Published, Copied, Left];
/// Rank 0 folds without claiming, the others deposit.
const STATIC: &[Step] = &[Begin, Entered, Arrived, Deposited, Published, Copied, Left];

/// Everybody deposits, and whoever sees all deposits first folds.
const SLICES: &[Step] = &[Begin, Entered, Arrived, Deposited, Claimed, Folded, Published, Copied, Left];

macro_rules! death_tests {
    ($($name:ident: $algorithm:expr, $ranks:literal, $words:literal, $bound:literal, $long:literal, $reachable:expr;)*) => {
        $(
            #[test]
            fn $name() {
                deaths($algorithm, $ranks, $words, Some($bound), $reachable);
            }
        )*

        /// Name and model of every death test, to the bound of the long run.
        const LONG_DEATHS: &[(&str, fn())] =
            &[$((stringify!($name), || deaths($algorithm, $ranks, $words, Some($long), $reachable)),)*];
    };
}

// name: algorithm, ranks, words, preemptions, preemptions in the long run, where a rank can die
death_tests! {
    deaths_flat_2: Flat, 2, 1, 2, 3, FLAT;
    deaths_flat_pieces_2: Flat, 2, 16, 2, 3, FLAT_PIECES;
    deaths_flat_3: Flat, 3, 1, 1, 2, FLAT;
    deaths_leader_2: Leader, 2, 1, 2, 3, FOLDERS;
    deaths_leader_3: Leader, 3, 1, 0, 1, &Step::ALL;
    deaths_chain_2: Chain, 2, 1, 2, 3, FOLDERS;
    deaths_chain_pieces_2: Chain, 2, 16, 1, 2, FOLDERS;
    deaths_chain_3: Chain, 3, 1, 0, 1, FOLDERS;
    deaths_slices_2: Slices, 2, 1, 1, 2, SLICES;
    deaths_static_leader_2: StaticLeader, 2, 1, 2, 3, STATIC;
    deaths_static_leader_early_3: StaticLeaderEarly, 3, 1, 0, 1, STATIC;
}

/// A rank dies at every step of an operation in which not every rank needs every other: only those that somebody needs are missed.
#[test]
fn deaths_of_ranks_that_not_all_need() {
    let begun = Instant::now();
    let mut all = Tally { executions: 0, died: 0, failed: 0 };
    for (collective, algorithm, words, reachable) in EARLY_LEAVING {
        let tally = deaths_in(*collective, *algorithm, 2, *words, Some(2), reachable);
        all.executions += tally.executions;
        all.died += tally.died;
        all.failed += tally.failed;
    }
    let title =
        format!("deaths in operations that ranks leave early, 2 ranks ({} deaths, {} failures)", all.died, all.failed);
    report(&title, Some(2), &all, begun);
}

/// A rank dies at every step of an allgather that reads private buffers.
#[test]
fn deaths_single_copy_2() {
    let begun = Instant::now();
    let all = deaths_in(Collective::AllGather, Algorithm::SingleCopy, 2, 1, Some(2), FLAT_PIECES);
    let title = format!("deaths, allgather by single-copy, 2 ranks ({} deaths, {} failures)", all.died, all.failed);
    report(&title, Some(2), &all, begun);
}

const EARLY_LEAVING: &[(Collective, Algorithm, usize, &[Step])] = &[
    (Broadcast, Flat, 1, FLAT),
    (Broadcast, Chain, 16, &[Begin, Entered, Arrived, Published, Copied, Left]),
    (Reduce, Flat, 1, FLAT),
    (Reduce, Flat, 8, FLAT_PIECES),
    (Reduce, Flat, 16, FLAT_PIECES),
    (Reduce, Chain, 1, FOLDERS),
    (Reduce, Slices, 1, SLICES),
    (Gather, Flat, 1, FLAT),
    (Scatter, Flat, 1, FLAT),
    (Scan, Flat, 1, FLAT),
    (ExclusiveScan, Flat, 16, FLAT_PIECES),
];

/// A rank that dies between two operations fails the second one, never the first.
#[test]
fn deaths_between_operations() {
    let begun = Instant::now();
    let mut all = Tally { executions: 0, died: 0, failed: 0 };
    for algorithm in [Flat, Leader, Chain, StaticLeader] {
        for (step, nth) in [(Left, 1), (Begin, 2)] {
            let tally = explore(Some(2), Scenario::new(algorithm, 2, 1).epochs(2).dies(1, step, nth));
            assert_eq!(tally.died, tally.executions, "{algorithm}: {step:?} is always reached");
            assert_eq!(tally.failed, tally.executions, "{algorithm}: the second operation needs every rank");
            all.executions += tally.executions;
        }
    }
    report("deaths between two operations, 2 ranks", Some(2), &all, begun);
}

#[test]
fn started() {
    modelled::started::STARTED.iter().for_each(|model| modelled::started::run_started(model, None));
}

#[test]
fn different_started_calls() {
    modelled::started::run_different();
}

macro_rules! started_death_tests {
    ($($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                run_deaths(deaths_of(stringify!($name)).expect("a model of this name"));
            }
        )*

        #[test]
        fn no_model_of_deaths_is_forgotten() {
            assert_eq!([$(stringify!($name)),*].len(), DEATHS.len());
        }
    };
}
started_death_tests! {
    deaths_started_flat_2 deaths_started_flat_3 deaths_started_deposit_2 deaths_started_slices_2 deaths_started_chain_2 deaths_started_registered_2 deaths_started_slices_windows_2 deaths_started_windows_2
}

#[test]
fn rings() {
    modelled::rings::RINGS.iter().for_each(modelled::rings::run_ring);
}

#[test]
fn joining() {
    modelled::joining::JOINING.iter().for_each(modelled::joining::run_joining);
}

#[test]
#[ignore = "the long run: minutes per model"]
fn long_run() {
    let only = std::env::var("EARLYBIRD_MODEL").ok();
    let wanted = |name: &str| only.as_ref().is_none_or(|o| o == name);
    let mut found = false;
    for model in MODELS.iter().filter(|m| wanted(m.name)) {
        found = true;
        if let Some(bound) = model.long {
            run(model.title, bound, (model.scenario)());
        }
    }
    for (_, deaths) in LONG_DEATHS.iter().filter(|(name, _)| wanted(name)) {
        found = true;
        deaths();
    }
    assert!(found, "EARLYBIRD_MODEL={only:?} names no model");
}
