//! Levels of cost: the published loads of node links, and the advice that follows from them.

use earlybird_hier::cost::{Level, Model};
use earlybird_hier::schedule::{self, Distance, Params};
use earlybird_hier::select::Levels;
use earlybird_hier::verify::{Consistency, OpTraits};

const FLOAT: OpTraits = OpTraits { commutative: true, exact: false };

#[test]
fn link_loads_of_four_nodes_of_eight() {
    // only bytes between nodes cost, so a vector of one byte takes its load on the busiest link
    let free = Model::linear(0.0, 0.0, 0.0);
    let levels = Levels::two(8, free, Model::linear(0.0, 1.0, 0.0)).unwrap();
    let base = || Params::ranks(32);
    let distance = |d| Params { distance: Some(d), ..base() };
    let per_node = || Params { ranks_per_node: Some(8), ..base() };
    for (name, params, load) in [
        ("ring", base(), "1.94"),
        ("halving-doubling", distance(Distance::Doubling), "1.50"),
        ("halving-doubling", distance(Distance::Halving), "12.00"),
        ("butterfly", Params { keep_order: true, ..base() }, "4.50"),
        ("smp-binomial", per_node(), "4.00"),
        ("smp-butterfly", per_node(), "1.50"),
    ] {
        let plan = schedule::build(name, &params).unwrap();
        assert_eq!(format!("{:.2}", levels.predict_s(&plan, 1.0).unwrap()), load, "{name} {params:?}");
    }
}

#[test]
fn one_rank_per_node_is_the_flat_model() {
    let model = Model::linear(3e-5, 1e-8, 2e-10);
    let levels = Levels::two(1, model.clone(), model.clone()).unwrap();
    for ranks in [2, 7, 12, 16] {
        for choice in earlybird_hier::select::ranking(ranks, 9216.0, FLOAT, Consistency::Identical, &model, 20) {
            if choice.cost.ports > 1 || choice.algorithm == "odd-ring" {
                // several ports share a link here; odd-ring's closed form counts the busiest rank, not the rounds
                continue;
            }
            let plan = schedule::build(choice.algorithm, &choice.params).unwrap();
            let seconds = levels.predict_s(&plan, 9216.0).unwrap();
            assert!((seconds / choice.seconds - 1.0).abs() < 1e-9, "{choice:?}: {seconds}");
        }
    }
}

#[test]
fn slow_links_call_for_reducing_inside_first() {
    let inside = Model::linear(5e-7, 1e-10, 1e-10);
    let levels = Levels::two(8, inside.clone(), Model::linear(3e-5, 1e-8, 1e-10)).unwrap();
    let found = levels.ranking(32, 65536.0, FLOAT, Consistency::Identical).unwrap();
    assert!(found.is_sorted_by(|a, b| a.seconds <= b.seconds) && found.len() >= 6);
    // schedules that exchange with the nearest ranks first
    assert!(!["ring", "butterfly", "cyclic-shift"].contains(&found[0].algorithm), "{:?}", found[0]);
    let doubling = found.iter().find(|p| p.algorithm == "halving-doubling").unwrap();
    assert!(doubling.seconds < 1.5 * found[0].seconds, "{doubling:?}");
    let flat = found.iter().find(|p| p.algorithm == "butterfly" || p.algorithm == "ring").unwrap();
    assert!(flat.seconds > 1.5 * found[0].seconds, "{flat:?}");
    // a non-commutative operator gets ordered plans only
    let matrix = OpTraits { commutative: false, exact: false };
    for p in levels.ranking(32, 65536.0, matrix, Consistency::Identical).unwrap() {
        let plan = earlybird_hier::verify::verify(schedule::build(p.algorithm, &p.params).unwrap()).unwrap();
        assert_eq!(plan.order, earlybird_hier::Order::Ordered, "{p:?}");
    }
    assert!(Levels::two(0, inside.clone(), inside).unwrap_err().to_string().contains("at least 1"));
}

#[test]
fn racks_of_nodes_are_a_third_level() {
    // 2 racks of 2 nodes of 4 ranks; a second per byte on one level only, so that times count bytes on its links
    let free = || Model::linear(0.0, 0.0, 0.0);
    let only = |dear: usize| {
        let model = |level| if level == dear { Model::linear(0.0, 1.0, 0.0) } else { free() };
        let level = |i: usize, ranks| Level { ranks, model: model(i) };
        Levels::new(vec![level(0, Some(4)), level(1, Some(8)), level(2, None)]).unwrap()
    };
    let load = |name: &str, params: &Params, level| {
        let plan = schedule::build(name, params).unwrap();
        only(level).predict_s(&plan, 1.0).unwrap()
    };
    // a whole vector up and down between two leaders of nodes, then between two leaders of racks; what leaves a rack
    // has left a node too
    let binomial = Params::ranks(16);
    assert_eq!([0, 1, 2].map(|level| load("binomial", &binomial, level)), [4.0, 4.0, 2.0]);
    // distance doubling, there and back: 1/2 and 1/4 inside the node, four times 1/8 between nodes, eight times 1/16
    // between racks, half of that on each node's link
    let halving = Params { distance: Some(Distance::Doubling), ..Params::ranks(16) };
    assert_eq!([0, 1, 2].map(|level| load("halving-doubling", &halving, level)), [1.5, 1.5, 1.0]);
    // reductions cost what the level of their message says
    let gamma = |at: usize| {
        let level = |i: usize, ranks| Level { ranks, model: Model::linear(0.0, 0.0, f64::from(u8::from(i == at))) };
        Levels::new(vec![level(0, Some(4)), level(1, Some(8)), level(2, None)]).unwrap()
    };
    let plan = schedule::build("binomial", &binomial).unwrap();
    assert_eq!([0, 1, 2].map(|level| gamma(level).predict_s(&plan, 1.0).unwrap()), [2.0, 1.0, 1.0]);
    // every level's nodes are tried
    let found = only(2).ranking(16, 65536.0, FLOAT, Consistency::Identical).unwrap();
    for size in [4, 8] {
        assert!(found.iter().any(|p| p.algorithm == "smp-butterfly" && p.params.ranks_per_node == Some(size)));
    }
}

#[test]
fn levels_without_sense_are_refused() {
    let level = |ranks| Level { ranks, model: Model::linear(1.0, 1.0, 1.0) };
    let refused = |levels: Vec<Level>| Levels::new(levels).unwrap_err().to_string();
    assert!(refused(vec![]).contains("at least one"));
    assert!(refused(vec![level(Some(4)), level(Some(6)), level(None)]).contains("multiples"));
    assert!(refused(vec![level(None), level(None)]).contains("last level"));
    assert!(refused(vec![level(Some(4))]).contains("last level"));
}
