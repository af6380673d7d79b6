//! A plan written as JSON is the same plan when read; drawings and dumps show the data.

use crate::common;
use earlybird_hier::plan::{Action, Blocks, Collective, Order, PlanBuilder, Side};
use earlybird_hier::schedule::{self, Params};
use earlybird_hier::verify::{svg, verify};
use earlybird_hier::{Plan, PlanError};
use serde_json::Value;

/// The plan that a JSON text states.
fn read(text: &str) -> Plan {
    let value: Value = serde_json::from_str(text).unwrap();
    let number = |of: &Value, name: &str| of[name].as_u64().unwrap() as usize;
    let header = |name| number(&value, name);
    let mut plan = PlanBuilder::new(value["algorithm"].as_str().unwrap(), header("ranks"), header("blocks"));
    for (name, given) in value["parameters"].as_object().unwrap() {
        plan.parameter(name, given.as_str().unwrap());
    }
    let orders = [Order::Ordered, Order::Rotated, Order::Commutative];
    let order = orders.into_iter().find(|o| value["order"] == o.name()).unwrap();
    plan.collective(value["contract"].as_str().unwrap().parse().unwrap(), header("root"));
    plan.claim(order, value["consistent"].as_bool().unwrap()).ports(header("ports"));
    for step in value["steps"].as_array().unwrap() {
        let action = match (step["action"].as_str().unwrap(), step["side"].as_str().unwrap()) {
            ("copy", "right") => Action::Copy,
            ("reduce", "left") => Action::Reduce(Side::Left),
            ("reduce", "right") => Action::Reduce(Side::Right),
            other => panic!("{other:?}"),
        };
        let run = |run: &Value| run[0].as_u64().unwrap() as usize..run[1].as_u64().unwrap() as usize;
        let blocks = Blocks::from_indices(step["blocks"].as_array().unwrap().iter().flat_map(run));
        let round = step["round"].as_i64().unwrap() as i32;
        let [source, target] = ["source", "target"].map(|name| number(step, name));
        match step.get("rank") {
            Some(_) => plan.local(round, number(step, "rank"), source, target, blocks, action),
            None => {
                let [from, to] = ["from", "to"].map(|name| number(step, name));
                plan.message(round as usize, from, to, source, target, blocks, action);
            }
        }
    }
    let mut plan = plan.finish();
    (plan.buffers, plan.rounds, plan.result) = (header("buffers"), header("rounds"), header("result"));
    plan
}

#[test]
fn json_round_trips_and_stays_verified() {
    for ranks in [1, 2, 5, 7, 8] {
        for (name, params) in common::cases(ranks, false) {
            let plan = verify(schedule::build(name, &params).unwrap()).unwrap();
            let text = plan.to_json(None).unwrap();
            assert_eq!(verify(read(&text)).unwrap(), plan, "{name} {params:?}");
        }
    }
}

#[test]
fn json_has_the_stated_fields() {
    let plan = verify(schedule::build("butterfly", &Params { r: Some(1), ..Params::ranks(7) }).unwrap()).unwrap();
    let value: Value = serde_json::from_str(&plan.to_json(Some(100)).unwrap()).unwrap();
    for field in [
        "algorithm parameters contract root ranks blocks buffers result rounds max_blocks_sent max_blocks_reduced",
        "critical_blocks_sent critical_blocks_reduced max_message_blocks messages order consistent steps",
    ] {
        for name in field.split(' ') {
            assert!(value.get(name).is_some(), "{name} is missing");
        }
    }
    assert_eq!((&value["ranks"], &value["rounds"], &value["order"]), (&7.into(), &5.into(), &"commutative".into()));
    assert_eq!(value["elements"]["length"], 100);
    let counters = plan.counters();
    assert_eq!(value["max_blocks_sent"], counters.max_blocks_sent);
    assert_eq!(value["messages"], counters.messages);
    let steps = value["steps"].as_array().unwrap();
    let locals_before = steps.iter().filter(|s| s["round"] == -1 && s.get("rank").is_some()).count();
    assert_eq!(locals_before, 7, "results in the making are set aside before the first round");
    for step in steps {
        assert!(step.get("rank").is_some() != step.get("from").is_some());
        assert!(["reduce", "copy"].contains(&step["action"].as_str().unwrap()));
        assert!(["left", "right"].contains(&step["side"].as_str().unwrap()));
    }
}

#[test]
fn text_is_stable() {
    let plan = schedule::build("ring", &Params::ranks(3)).unwrap();
    let expected = "ring allreduce ranks=3 blocks=3 buffers=1 result=0 ports=1\n\
        0: 2.0 -> 0.0 reduce-left [1]\n0: 0.0 -> 1.0 reduce-left [2]\n0: 1.0 -> 2.0 reduce-left [0]\n\
        1: 2.0 -> 0.0 reduce-left [0]\n1: 0.0 -> 1.0 reduce-left [1]\n1: 1.0 -> 2.0 reduce-left [2]\n\
        2: 2.0 -> 0.0 copy [2]\n2: 0.0 -> 1.0 copy [0]\n2: 1.0 -> 2.0 copy [1]\n\
        3: 2.0 -> 0.0 copy [1]\n3: 0.0 -> 1.0 copy [2]\n3: 1.0 -> 2.0 copy [0]\n";
    assert_eq!(plan.to_string(), expected);
}

#[test]
fn digests_tell_plans_apart() {
    let mut digests = std::collections::BTreeMap::new();
    for ranks in [4, 6] {
        for (name, params) in common::cases(ranks, false) {
            let plan = schedule::build(name, &params).unwrap();
            assert_eq!(plan.digest(), plan.clone().digest());
            if let Some(other) = digests.insert(plan.digest(), plan.clone()) {
                assert_eq!(other, plan, "two plans with one digest");
            }
        }
    }
    assert!(digests.len() > 100);
}

#[test]
fn drawings_show_every_message_and_every_complete_block() {
    for r in [0, 1, 3] {
        let plan = verify(schedule::build("butterfly", &Params { r: Some(r), ..Params::ranks(7) }).unwrap()).unwrap();
        let drawing = svg(&plan).unwrap();
        assert_eq!(drawing.matches("<line ").count(), plan.counters().messages);
        // the last state is complete in the result buffer of every rank
        let complete = drawing.matches("all</text>").count();
        assert!(complete >= 7 * 7, "{complete}");
        assert!(drawing.matches("0, 1, 2, 3, 4, 5, 6</title>").count() >= complete, "tooltips name everybody");
        assert!(drawing.ends_with("</svg>\n"));
    }
    // names may come from a file: they must not end the document's elements
    let mut plan = schedule::build("ring", &Params::ranks(3)).unwrap();
    plan.algorithm = "<a> & b".to_string();
    assert!(svg(&verify(plan).unwrap()).unwrap().contains("&lt;a&gt; &amp; b allreduce"));
    let large = verify(schedule::build("ring", &Params::ranks(128)).unwrap()).unwrap();
    assert!(matches!(svg(&large), Err(PlanError::Parameter { parameter: "format", .. })));
}

#[test]
fn bad_requests_say_what_is_wrong() {
    let refuse = |name: &str, params: Params| schedule::build(name, &params).expect_err("refused").to_string();
    let p = Params::ranks;
    assert!(refuse("rings", p(4)).contains("butterfly"));
    assert!(refuse("ring", p(0)).contains("1 to 1024"));
    assert!(refuse("ring", p(5000)).contains("1 to 1024"));
    assert!(refuse("ring", Params { r: Some(1), ..p(4) }).contains("does not use r"));
    assert!(refuse("ring", Params { order: Some(vec![0, 1, 1, 2]), ..p(4) }).contains("exactly once"));
    assert!(refuse("ring", Params { root: Some(1), ..p(4) }).contains("no root"));
    assert!(refuse("ring", Params { collective: Some(Collective::Barrier), ..p(4) }).contains("reduce-scatter"));
    assert!(
        refuse("binomial", Params { collective: Some(Collective::Reduce), root: Some(4), ..p(4) }).contains("below 4")
    );
    assert!(refuse("butterfly", Params { r: Some(4), ..p(7) }).contains("0 to 3"));
    assert!(refuse("butterfly", Params { r: Some(1), cap: Some(1), ..p(7) }).contains("one of them"));
    assert!(refuse("butterfly", Params { cap: Some(0), ..p(7) }).contains("at least 1"));
    assert!(refuse("butterfly", Params { rounds: Some(99), ..p(7) }).contains("3 to 12"));
    assert!(refuse("butterfly", Params { group: Some("xor".parse().unwrap()), ..p(7) }).contains("power of two"));
    assert!(refuse("butterfly", Params { group: Some("4,3".parse().unwrap()), ..p(7) }).contains("product is 7"));
    assert!(refuse("chain", Params { segments: Some(0), ..p(4) }).contains("1 to"));
    assert!(refuse("chain", Params { ports: Some(3), ..p(4) }).contains("1 to 2"));
    assert!(refuse("radix", Params { radices: Some(vec![2, 3]), ..p(7) }).contains("product is 7"));
    assert!(refuse("radix", Params { target: Some(5), ..p(7) }).contains("largest prime"));
    assert!(refuse("cyclic-shift", Params { radices: Some(vec![2]), ..p(7) }).contains("reaches 7"));
    assert!(refuse("cyclic-shift", Params { radices: Some(vec![8, 2]), ..p(7) }).contains("than needed"));
    assert!(refuse("cyclic-shift", Params { ports: Some(0), ..p(7) }).contains("at least 1"));
    assert!(refuse("prefix", Params { target: Some(1), ..p(7) }).contains("at least 2"));
    assert!(refuse("prefix", Params { radices: Some(vec![1, 7]), ..p(7) }).contains("at least 2"));
    assert!(refuse("smp-binomial", p(7)).contains("at least 1"));
    assert!(
        refuse("elimination-3-2", Params { protocol: Some("mixed:9".parse().unwrap()), ..p(7) }).contains("mixed:1")
    );
    assert!(
        refuse("halving-doubling", Params { collective: Some(Collective::Allgather), ..p(6) }).contains("power of two")
    );
    assert!(refuse("rsg", Params { collective: Some(Collective::Reduce), root: Some(1), ..p(4) }).contains("binomial"));
    for bad in ["", "4,", "1", "r", "4x3", "Cyclic"] {
        assert!(bad.parse::<earlybird_hier::schedule::GroupSpec>().is_err(), "{bad}");
    }
    for bad in ["", "mixed", "mixed:", "mixed:-1", "lat"] {
        assert!(bad.parse::<earlybird_hier::schedule::Protocol>().is_err(), "{bad}");
    }
}
