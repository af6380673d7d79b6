//! Orders of ranks on trees of switches, and the contention of plans on them.

use crate::common;
use earlybird_hier::cost::Topology;
use earlybird_hier::schedule::{self, Distance, Params};
use std::fmt::Write;

/// `nodes` machines of `each` consecutive ranks on one switch.
fn flat(nodes: usize, each: usize) -> Topology {
    let mut text = "[[switch]]\nname = \"top\"\n".to_string();
    for node in 0..nodes {
        let ranks: Vec<usize> = (node * each..(node + 1) * each).collect();
        let _ = write!(text, "[[machine]]\nname = \"n{node}\"\nswitch = \"top\"\nranks = {ranks:?}\n");
    }
    Topology::from_toml(&text).unwrap()
}

#[test]
fn loads_of_the_two_level_tree() {
    let tree = flat(4, 8);
    let base = || Params::ranks(32);
    let measure = |name: &str, params: Params| {
        let plan = schedule::build(name, &params).unwrap();
        let c = tree.contention(&plan).unwrap();
        (c.most_messages, format!("{:.2}", c.load_blocks as f64 / plan.blocks as f64))
    };
    let distance = |d| Params { distance: Some(d), ..base() };
    let per_node = || Params { ranks_per_node: Some(8), ..base() };
    assert_eq!(measure("ring", base()), (1, "1.94".into()));
    assert_eq!(measure("halving-doubling", distance(Distance::Doubling)), (8, "1.50".into()));
    assert_eq!(measure("halving-doubling", distance(Distance::Halving)), (8, "12.00".into()));
    let butterfly = measure("butterfly", base());
    assert!(butterfly.0 == 8 && butterfly.1.starts_with("13.3"), "{butterfly:?}");
    assert_eq!(measure("butterfly", Params { keep_order: true, ..base() }), (8, "4.50".into()));
    assert_eq!(measure("smp-binomial", per_node()), (1, "4.00".into()));
    assert_eq!(measure("smp-butterfly", per_node()), (1, "1.50".into()));
    let shuffled = measure("ring", Params { order: Some(common::shuffled(32)), ..base() });
    assert!(shuffled.0 > 1, "a shuffled ring was found free of contention");
}

#[test]
fn depth_first_rings_are_free_of_contention_on_random_trees() {
    let mut state = 7usize;
    let mut random = move |n: usize| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) % n
    };
    let mut contended = 0;
    for _ in 0..300 {
        let switches = 1 + random(6);
        let mut text = String::new();
        for s in 0..switches {
            let _ = writeln!(text, "[[switch]]\nname = \"s{s}\"");
            if s > 0 {
                let _ = writeln!(text, "parent = \"s{}\"", random(s));
            }
        }
        // ranks are dealt out in an order that has nothing to do with the tree
        let sizes: Vec<usize> = (0..2 + random(6)).map(|_| 1 + random(4)).collect();
        let mut names = common::shuffled(sizes.iter().sum());
        let n = names.len();
        for (m, size) in sizes.into_iter().enumerate() {
            let ranks: Vec<usize> = names.drain(..size).collect();
            let on = random(switches);
            let _ = writeln!(text, "[[machine]]\nname = \"m{m}\"\nswitch = \"s{on}\"\nranks = {ranks:?}");
        }
        let tree = Topology::from_toml(&text).unwrap();
        let ring = |order| schedule::build("ring", &Params { order, ..Params::ranks(n) }).unwrap();
        assert!(tree.contention(&ring(Some(tree.depth_first_order()))).unwrap().most_messages <= 1, "{text}");
        contended += usize::from(tree.contention(&ring(None)).unwrap().most_messages > 1);
    }
    assert!(contended > 100, "rank order must mostly be contended, or the check sees nothing: {contended}");
}

#[test]
fn broken_trees_are_errors_that_name_the_fault() {
    let refuse = |text: &str| Topology::from_toml(text).expect_err("refused").to_string();
    let top = "[[switch]]\nname = \"t\"\n";
    let machine =
        |name: &str, ranks: &str| format!("[[machine]]\nname = \"{name}\"\nswitch = \"t\"\nranks = {ranks}\n");
    assert!(refuse("nonsense").contains("topology"));
    assert!(refuse("").contains("exactly one switch"));
    assert!(refuse(&format!("{top}[[switch]]\nname = \"u\"\n")).contains("t, u"));
    assert!(refuse(&format!("{top}{}{}", machine("a", "[0]"), machine("a", "[1]"))).contains("used twice"));
    assert!(refuse(&format!("{top}{}", machine("a", "[1]"))).contains("rank 1"));
    assert!(refuse(&format!("{top}{}{}", machine("a", "[0]"), machine("b", "[0]"))).contains("exactly once"));
    assert!(refuse(&machine("a", "[0]")).contains("no switch"));
    assert!(refuse(&format!("{top}{}extra = 1\n", machine("a", "[0]"))).contains("extra"));
    let circle = "[[switch]]\nname = \"a\"\nparent = \"b\"\n[[switch]]\nname = \"b\"\nparent = \"a\"\n";
    assert!(refuse(&format!("{top}{circle}")).contains("its own ancestor"));
    let plan = schedule::build("ring", &Params::ranks(3)).unwrap();
    assert!(flat(2, 2).contention(&plan).unwrap_err().to_string().contains("4 ranks"));
}
