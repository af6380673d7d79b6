//! Random calls of all forms on random jobs, quiet ones and such to which violence is done: every element is checked, nobody
//! hangs, everybody gets an error that names the dead, nothing stays (`docs/internals/chaos.md`).

#[path = "../common/mod.rs"]
mod common;
mod draw;
mod driver;
mod folds;
mod forms;
mod judge;
mod kinds;
mod messages;
mod moves;
mod overlapping;
mod report;
mod said;
mod select;
mod users;
mod violence;
mod worker;

use draw::Scenario;
use driver::Job;
use judge::{Class, Outcome};
use kinds::{Act, KINDS, SHORT};
use report::Summary;
use select::{Options, Selection};
use std::time::{Duration, Instant};

/// Much more than a death takes to be noticed on a machine that does other things too.
const HANG: Duration = Duration::from_secs(15);

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    worker::play();
}

fn run(seed: u64, only: &str, sabotage: Option<&str>, hang: Duration) -> (Scenario, Outcome) {
    let selection = Selection::of(only).unwrap_or_else(|error| panic!("{error}"));
    let scenario = Scenario::new(seed, &selection.kinds);
    let outcome = Job { scenario: &scenario, only, sabotage, hang }.run();
    (scenario, outcome)
}

#[test]
#[ignore = "run by tests/long/chaos, with options in CHAOS_ARGS"]
fn long() {
    let args = std::env::var("CHAOS_ARGS").unwrap_or_default();
    let mut options = Options::parse(&args).unwrap_or_else(|error| panic!("{error}"));
    if options.only.is_empty() && std::env::var_os("CHAOS_OWN_MOUNTS").is_none() {
        // File systems without room need a mount namespace of their own.
        let rest = KINDS.iter().filter(|kind| !matches!(kind.act, Act::FullDirectory | Act::FullShm));
        options.only = rest.map(|kind| kind.name).collect::<Vec<_>>().join(",");
    }
    println!("seeds from {} on", options.seed);
    let (began, mut summary, mut seed) = (Instant::now(), Summary::default(), options.seed);
    while seed - options.seed < options.runs && began.elapsed() < options.seconds {
        let (scenario, outcome) = run(seed, &options.only, None, HANG);
        summary.add(&scenario, &options.only, &outcome);
        seed += 1;
    }
    println!("seeds {} to {}", options.seed, seed - 1);
    summary.print();
    assert_eq!(summary.failures(), 0, "hangs, wrong elements, leaks and errors");
}

#[test]
fn every_kind_of_violence_ends_as_it_must() {
    let mut summary = Summary::default();
    for (kind, seeds, _) in SHORT {
        for seed in *seeds {
            let (scenario, outcome) = run(*seed, kind, None, HANG);
            summary.add(&scenario, kind, &outcome);
        }
    }
    summary.print();
    assert_eq!(summary.failures(), 0, "hangs, wrong elements, leaks and errors: see the lines above");
}

#[test]
fn the_short_form_has_every_kind_or_a_reason_why_not() {
    let names: Vec<&str> = SHORT.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>());
    assert!(SHORT.iter().all(|(_, seeds, why)| !seeds.is_empty() || !why.is_empty()));
}

/// The checker refuses what it is there for.
#[test]
fn a_wrong_element_a_hang_and_a_leak_are_refused() {
    for (sabotage, class) in [("wrong", Class::Wrong), ("hang", Class::Hang), ("leak", Class::Leak)] {
        let (_, outcome) = run(1, "none", Some(sabotage), Duration::from_secs(3));
        let found: Vec<Class> = outcome.problems.iter().map(|(class, _)| *class).collect();
        assert!(found.contains(&class), "{sabotage}: {:?}", outcome.problems);
        assert!(
            class == Class::Wrong || found.iter().all(|other| *other == class),
            "{sabotage}: {:?}",
            outcome.problems
        );
    }
    let (_, outcome) = run(1, "none", None, HANG);
    assert!(outcome.problems.is_empty() && !outcome.calls.is_empty(), "{:?}", outcome.problems);
}
