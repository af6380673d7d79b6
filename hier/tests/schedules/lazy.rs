//! Plans made a few rounds at a time are the plans made at once.

use crate::common;
use earlybird_hier::plan::{Plan, Step};
use earlybird_hier::schedule::{self, LazyPlan, MAX_LAZY_RANKS, Params};

/// The windows of `width` rounds put together.
fn glued(lazy: &LazyPlan, width: i32) -> Plan {
    let mut plan = lazy.header().clone();
    assert!(plan.programs.iter().all(Vec::is_empty), "a header has no steps");
    let (mut first, end) = (-1, plan.rounds as i32);
    while first < end {
        let window = lazy.window(first, first + width).unwrap();
        let same = Plan { programs: plan.programs.clone(), ..window.clone() };
        assert_eq!(same, plan, "the header of a window is the plan's");
        for (program, more) in plan.programs.iter_mut().zip(window.programs) {
            assert!(more.iter().all(|t: &Step| (first..first + width).contains(&t.round)));
            program.extend(more);
        }
        first += width;
    }
    plan
}

#[test]
fn windows_put_together_are_the_plan_of_every_schedule() {
    let mut plans = 0;
    for n in (1..=64).chain([127, 128, 255, 300]) {
        for (name, params) in common::cases(n, n <= 9) {
            let plan = schedule::build(name, &params).unwrap();
            // many windows of a plan with many rounds take long and show nothing new
            let width = if plan.rounds <= 20 { 1 + (n as i32 % 3) } else { plan.rounds as i32 / 2 };
            let lazy = LazyPlan::new(name, &params).unwrap();
            assert!(glued(&lazy, width) == plan, "{name} {params:?}");
            plans += 1;
        }
    }
    assert!(plans > 5000, "{plans}");
}

#[test]
fn logarithmic_schedules_have_no_thousand_ranks_limit() {
    for (name, params) in [
        ("recursive-doubling", Params::ranks(5000)),
        ("halving-doubling", Params::ranks(5000)),
        ("elimination-3-2", Params::ranks(5000)),
        ("elimination-2-1", Params::ranks(5000)),
        ("census", Params::ranks(5000)),
        ("binomial", Params::ranks(5000)),
        ("rsg", Params::ranks(5000)),
        ("dissemination", Params::ranks(5000)),
        ("cyclic-shift", Params { ports: Some(3), ..Params::ranks(5000) }),
        ("smp-binomial", Params { ranks_per_node: Some(48), ..Params::ranks(5000) }),
        ("smp-butterfly", Params { ranks_per_node: Some(48), ..Params::ranks(5000) }),
        ("butterfly", Params::ranks(5000)),
        ("butterfly", Params { r: Some(1), ..Params::ranks(4999) }),
        ("butterfly", Params { r: Some(13), ..Params::ranks(5000) }),
        ("butterfly", Params { r: Some(7), group: Some("8,625".parse().unwrap()), ..Params::ranks(5000) }),
    ] {
        let lazy = LazyPlan::new(name, &params).unwrap_or_else(|e| panic!("{e}"));
        let rounds = lazy.header().rounds as i32;
        assert!((1..=40).contains(&rounds), "{name}: {rounds}");
        let last = lazy.window(rounds - 1, rounds).unwrap();
        assert!(last.programs.iter().filter(|program| !program.is_empty()).count() > 1000, "{name}");
        let refused = schedule::build(name, &params).unwrap_err().to_string();
        assert!(refused.contains("1 to 1024"), "{refused}");
    }
}

#[test]
fn other_schedules_and_too_many_ranks_are_refused() {
    for (name, params, part) in [
        ("ring", Params::ranks(1025), "1 to 1024"),
        ("chain", Params::ranks(5000), "1 to 1024"),
        ("butterfly", Params { cap: Some(1), ..Params::ranks(5000) }, "1 to 1024"),
        ("butterfly", Params { keep_order: true, ..Params::ranks(5000) }, "1 to 1024"),
        ("butterfly", Params { group: Some("2,2500r".parse().unwrap()), ..Params::ranks(5000) }, "1 to 1024"),
        ("butterfly", Params::ranks(MAX_LAZY_RANKS + 1), "1 to 131072"),
        ("butterfly", Params::ranks(0), "1 to"),
        ("bitterfly", Params::ranks(7), "there is no algorithm"),
        ("census", Params { r: Some(1), ..Params::ranks(7) }, "does not use r"),
    ] {
        let refused = LazyPlan::new(name, &params).unwrap_err().to_string();
        assert!(refused.contains(part), "{name}: {refused}");
    }
    let windowed = Params { window: Some((0, 1)), ..Params::ranks(4) };
    assert!(schedule::build("ring", &windowed).unwrap_err().to_string().contains("LazyPlan"));
}
