//! Every schedule, for every number of ranks, parameter and collective, through the verifier.

use crate::common;
use earlybird_hier::plan::{Collective, Order};
use earlybird_hier::schedule::{self, Params, Protocol};
use earlybird_hier::verify::verify;
use std::collections::BTreeSet;

/// The fault of a case, if any.
fn fault(name: &str, params: &Params) -> Option<String> {
    let fault = |what: String| Some(format!("{name} {params:?}: {what}"));
    let plan = match schedule::build(name, params) {
        Ok(plan) => plan,
        Err(e) => return fault(e.to_string()),
    };
    let claimed = (plan.order, plan.consistent);
    let found = match verify(plan) {
        Ok(plan) => (plan.order, plan.consistent),
        Err(e) => return fault(e.to_string()),
    };
    // claims may be weaker than what holds, but not so weak that they say nothing; these are stated per family, not
    // for each special case of it
    let family =
        matches!(name, "cyclic-shift" | "dissemination" | "prefix") || params.cap == Some(1) || params.group.is_some();
    if params.ranks > 4 && claimed != found && !family {
        return fault(format!("claims {claimed:?}, has {found:?}"));
    }
    None
}

fn all_good(cases: impl Iterator<Item = common::Case>) -> BTreeSet<&'static str> {
    let mut names = BTreeSet::new();
    let mut faults = Vec::new();
    for (name, params) in cases {
        names.insert(name);
        faults.extend(fault(name, &params));
    }
    let shown: Vec<&String> = faults.iter().take(20).collect();
    assert!(faults.is_empty(), "{} cases fail, the first of them: {shown:#?}", faults.len());
    names
}

#[test]
fn every_case_up_to_33_ranks() {
    let seen = all_good((1..=33).flat_map(|ranks| common::cases(ranks, ranks <= 17)));
    let all: BTreeSet<&str> = schedule::ALGORITHMS.iter().map(|a| a.name).collect();
    assert_eq!(seen, all, "a schedule without cases is not tested");
}

#[test]
fn more_ranks() {
    all_good((34..=64).flat_map(|ranks| common::cases(ranks, false)));
}

#[test]
fn many_ranks() {
    all_good([127, 128, 255, 300].into_iter().flat_map(|ranks| common::cases(ranks, false)));
}

/// Every r, step count, cap, number of late ranks, and more lists of factors. `tests/long/run` runs it.
#[test]
#[ignore = "takes a minute"]
fn long_run_of_every_parameter_to_64_ranks() {
    all_good((18..=64).flat_map(|ranks| common::cases(ranks, true)));
}

/// The same for many ranks.
#[test]
#[ignore = "takes a quarter of an hour"]
fn long_run_of_every_parameter_of_many_ranks() {
    all_good([127, 128, 255, 300].into_iter().flat_map(|ranks| common::cases(ranks, true)));
}

#[test]
fn every_number_of_split_dimensions() {
    let names = ["elimination-3-2", "elimination-2-1", "odd-ring", "radix"];
    for ranks in [6, 12, 24, 28, 30, 36, 40, 48, 56, 60] {
        for name in names {
            let with = |n| Params { protocol: Some(Protocol::Mixed(n)), ..Params::ranks(ranks) };
            let possible = (0..).take_while(|n| schedule::build(name, &with(*n)).is_ok()).count();
            assert!(possible >= 3, "{name} of {ranks} has {possible} forms");
            all_good((0..possible).map(|n| (name, with(n))));
        }
    }
}

#[test]
fn one_rank_does_nothing() {
    for (name, params) in common::cases(1, true) {
        let plan = verify(schedule::build(name, &params).unwrap()).unwrap();
        assert_eq!((plan.rounds, plan.counters().messages, plan.counters().max_blocks_reduced), (0, 0, 0), "{name}");
        if plan.collective != Collective::Barrier {
            assert_eq!((plan.order, plan.consistent), (Order::Ordered, true), "{name}");
        }
    }
}
