//! Deaths in started operations: every rank dies at every step of its contributions, its windows and its leaving.

use super::started::{Act, Memory, StartedModel, explore};
use super::{Bound, End, Tally, report};
use earlybird_shm::Algorithm::{Chain, Flat, Slices};
use earlybird_shm::Collective::{AllReduce, AllToAll};
use earlybird_shm::protocol::step::Step::{self, Begin, Claimed, Deposited, Entered, Folded, Left, Published};
use earlybird_shm::protocol::word::Cause;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

/// A model in which one rank dies, and where it can.
pub struct DeathsModel {
    model: StartedModel,
    /// The ranks that die, one after the other.
    dead: &'static [usize],
    /// Visits to a step at which they die, from 1.
    visits: &'static [usize],
    reachable: &'static [Step],
}

const ONCE: &[Act] = &[Act::Start(1), Act::Finish(1)];
const TWICE: &[Act] = &[Act::Start(1), Act::Start(2), Act::Finish(2), Act::Finish(1)];

const fn model(name: &'static str, bound: usize, scripts: &'static [&'static [Act]]) -> StartedModel {
    let bound: Bound = Some(bound);
    StartedModel {
        name,
        collective: AllReduce,
        algorithm: Flat,
        words: 1,
        window: 128,
        memory: Memory::Private,
        bound,
        scripts,
    }
}

/// Every model of deaths.
pub static DEATHS: &[DeathsModel] = &[
    DeathsModel {
        model: model("deaths_started_flat_2", 2, &[TWICE, TWICE]),
        dead: &[0, 1],
        visits: &[1, 2],
        reachable: &[Begin, Entered, Left],
    },
    DeathsModel {
        model: model("deaths_started_flat_3", 1, &[ONCE, ONCE, ONCE]),
        dead: &[0, 2],
        visits: &[1],
        reachable: &[Begin, Entered, Left],
    },
    DeathsModel {
        model: StartedModel { words: 6, ..model("deaths_started_deposit_2", 2, &[TWICE, TWICE]) },
        dead: &[0, 1],
        visits: &[1, 2],
        reachable: &[Begin, Entered, Deposited, Left],
    },
    DeathsModel {
        model: StartedModel { algorithm: Slices, ..model("deaths_started_slices_2", 2, &[ONCE, ONCE]) },
        dead: &[0, 1],
        visits: &[1],
        reachable: SLICES,
    },
    DeathsModel {
        model: StartedModel { algorithm: Chain, ..model("deaths_started_chain_2", 2, &[ONCE, ONCE]) },
        dead: &[0, 1],
        visits: &[1],
        reachable: &[Begin, Entered, Claimed, Folded, Published, Left],
    },
    DeathsModel {
        model: StartedModel {
            algorithm: Slices,
            memory: Memory::Registered,
            ..model("deaths_started_registered_2", 2, &[ONCE, ONCE])
        },
        dead: &[0, 1],
        visits: &[1],
        reachable: SLICES,
    },
    DeathsModel {
        model: StartedModel {
            algorithm: Slices,
            words: 16,
            window: 64,
            ..model("deaths_started_slices_windows_2", 0, &[ONCE, ONCE])
        },
        dead: &[0, 1],
        visits: &[1, 2],
        reachable: SLICES,
    },
    DeathsModel {
        model: StartedModel {
            collective: AllToAll,
            words: 8,
            window: 64,
            ..model("deaths_started_windows_2", 2, &[ONCE, ONCE])
        },
        dead: &[1],
        visits: &[1, 2],
        reachable: &[Begin, Entered, Deposited, Left],
    },
];

const SLICES: &[Step] = &[Begin, Entered, Deposited, Claimed, Folded, Published, Left];

/// The model of this name.
pub fn deaths(name: &str) -> Option<&'static DeathsModel> {
    DEATHS.iter().find(|deaths| deaths.model.name == name)
}

/// Checks one execution: every survivor has its results or the one error, which names the dead rank and an operation that
/// this rank had not left.
fn check(ends: &[End], dead: usize, left: u64) {
    let failed = |end: &End| match end {
        End::Failed(poison, details) => Some((*poison, *details)),
        _ => None,
    };
    let mut failures = ends.iter().filter_map(failed);
    let Some((poison, details)) = failures.next() else { return };
    assert!(failures.all(|other| other == (poison, details)), "two errors: {ends:?}");
    assert_eq!(poison.cause(), Cause::PeerDied, "wrong error: {ends:?}");
    assert_eq!(details[0], dead as u64, "wrong details: {details:?} for the death of rank {dead}");
    assert_eq!(ends[dead], End::Died, "a living rank was declared dead: {ends:?}");
    assert!(poison.epoch() > left, "rank {dead} had left operation {}: {ends:?}", poison.epoch());
}

/// Explores every death of the model, and prints how far.
pub fn run_deaths(deaths: &'static DeathsModel) {
    let begun = Instant::now();
    let mut all = Tally { executions: 0, died: 0, failed: 0 };
    let mut reached = BTreeSet::new();
    let model = &deaths.model;
    for (dead, step, visit) in deaths.dead.iter().flat_map(|&dead| {
        Step::ALL.into_iter().flat_map(move |step| deaths.visits.iter().map(move |&visit| (dead, step, visit)))
    }) {
        let counts = Arc::new([const { AtomicUsize::new(0) }; 2]);
        let counted = counts.clone();
        all.executions += explore(model, Some((dead, step, visit)), move |group, ends| {
            check(ends, dead, group.left(dead));
            counted[0].fetch_add(usize::from(ends[dead] == End::Died), Relaxed);
            counted[1].fetch_add(usize::from(ends.iter().any(|end| matches!(end, End::Failed(..)))), Relaxed);
        });
        let [died, failed] = [0, 1].map(|i| counts[i].load(Relaxed));
        if died > 0 {
            reached.insert(step.name());
        }
        if step == Begin && visit == 1 {
            assert!(failed > 0, "{}: nobody missed rank {dead}, which gave nothing", model.name);
        }
        (all.died, all.failed) = (all.died + died, all.failed + failed);
    }
    let expected: BTreeSet<_> = deaths.reachable.iter().map(|step| step.name()).collect();
    assert_eq!(reached, expected, "{}: where ranks died", model.name);
    let title = format!("{} ({} deaths, {} failures)", model.name, all.died, all.failed);
    report(&title, model.bound, &all, begun);
}
