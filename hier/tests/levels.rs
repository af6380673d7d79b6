//! Two levels of cost: the published loads of node links, and the advice that follows from them.

use earlybird_hier::admit::{Consistency, OpTraits};
use earlybird_hier::choose::Model;
use earlybird_hier::levels::Levels;
use earlybird_hier::schedule::{self, Distance, Params};

const FLOAT: OpTraits = OpTraits { commutative: true, exact: false };

#[test]
fn link_loads_of_four_nodes_of_eight() {
    // only bytes between nodes cost, so a vector of one byte takes its load on the busiest link
    let free = Model::linear(0.0, 0.0, 0.0);
    let levels = Levels { ranks_per_node: 8, inside: free, between: Model::linear(0.0, 1.0, 0.0) };
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
    let levels = Levels { ranks_per_node: 1, inside: model.clone(), between: model.clone() };
    for ranks in [2, 7, 12, 16] {
        for choice in earlybird_hier::choose::ranking(ranks, 9216.0, FLOAT, Consistency::Identical, &model, 20) {
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
    let levels = Levels { ranks_per_node: 8, inside, between: Model::linear(3e-5, 1e-8, 1e-10) };
    let found = levels.ranking(32, 65536.0, FLOAT, Consistency::Identical).unwrap();
    assert!(found.is_sorted_by(|a, b| a.seconds <= b.seconds) && found.len() >= 6);
    assert!(["smp-butterfly", "halving-doubling"].contains(&found[0].algorithm), "{:?}", found[0]);
    let flat = found.iter().find(|p| p.algorithm == "butterfly" || p.algorithm == "ring").unwrap();
    assert!(flat.seconds > 1.5 * found[0].seconds, "{flat:?}");
    // a non-commutative operator gets ordered plans only
    let matrix = OpTraits { commutative: false, exact: false };
    for p in levels.ranking(32, 65536.0, matrix, Consistency::Identical).unwrap() {
        let plan = earlybird_hier::verify::verify(schedule::build(p.algorithm, &p.params).unwrap()).unwrap();
        assert_eq!(plan.order, earlybird_hier::Order::Ordered, "{p:?}");
    }
    let none = Levels { ranks_per_node: 0, ..levels };
    assert!(none.ranking(4, 64.0, FLOAT, Consistency::Identical).unwrap_err().to_string().contains("at least 1"));
}
