//! Three-phase hierarchies in time, against small cases by hand.

use earlybird_hier::schedule::{self, LazyPlan, Params};
use earlybird_hier::sim::{Call, Costs, Machine, NodeFold, ThreePhase, Timeline, mix};
use strum::VariantArray;

/// Inside: 1 s to give a byte, 10 s to reduce one. Between: 1000 s a message, 100 s a byte.
fn machine(ranks_per_node: usize) -> Machine {
    let inside = Costs::linear(0.0, 1.0, 10.0);
    Machine { ranks_per_node, inside, ..Machine::flat(Costs::linear(1000.0, 100.0, 10.0)) }
}

fn run(ranks: usize, per_node: usize, fold: NodeFold, chunks: usize, bytes: f64, arrivals_s: &[f64]) -> Timeline {
    let plan = schedule::build("recursive-doubling", &Params::ranks(ranks.div_ceil(per_node))).unwrap();
    let three = ThreePhase { ranks, fold, chunks, exchange: (&plan).into() };
    three.simulate(&machine(per_node), &Call { arrivals_s, ..Call::of(bytes) }).unwrap()
}

#[test]
fn one_chunk_is_the_sum_of_the_phases() {
    // 2 nodes of 4: give 8, fold, exchange 1000 + 800 + 80, copy 8
    let exchange = 1000.0 + 800.0 + 80.0;
    for (fold, inside) in [
        (NodeFold::StaticLeader, 8.0 + 3.0 * 80.0),
        (NodeFold::Leader, 8.0 + 3.0 * 80.0),
        (NodeFold::Chain, 8.0 + 3.0 * 88.0),
        (NodeFold::Slices, 8.0 + 0.75 * 80.0),
    ] {
        assert_eq!(run(8, 4, fold, 1, 8.0, &[]).exits_s, vec![inside + exchange + 8.0; 8], "{fold}");
    }
}

#[test]
fn after_a_late_rank_little_is_left_to_do_for_those_who_fold_early() {
    let mut arrivals = [0.0; 8];
    arrivals[6] = 5000.0;
    let tail = |fold| run(8, 4, fold, 1, 8.0, &arrivals).tail_s();
    let rest = 1880.0 + 8.0;
    assert_eq!(tail(NodeFold::StaticLeader), 8.0 + 240.0 + rest);
    assert_eq!(tail(NodeFold::Leader), 8.0 + 80.0 + rest);
    assert_eq!(tail(NodeFold::Chain), 88.0 + rest);
    assert_eq!(tail(NodeFold::Slices), 8.0 + 60.0 + rest);
}

#[test]
fn chunks_overlap_the_phases() {
    // one chunk: give 800, fold 3 * 8000, exchange 1000 + 80000 + 8000, copy 800
    assert_eq!(run(8, 4, NodeFold::StaticLeader, 1, 800.0, &[]).time_s(), 800.0 + 24000.0 + 89000.0 + 800.0);
    // four: the leader gives all of its own first; then the exchanges of 1000 + 22000 a chunk follow each other
    let four = run(8, 4, NodeFold::StaticLeader, 4, 800.0, &[]);
    assert_eq!(four.time_s(), 800.0 + 6000.0 + 4.0 * 23000.0 + 200.0);
    assert_eq!((four.rounds, four.messages), (4, 8));
    // with a free exchange, folding is what is left: chunks of a chain pass each other's ranks
    let plan = schedule::build("ring", &Params::ranks(1)).unwrap();
    let alone = |chunks| ThreePhase { ranks: 3, fold: NodeFold::Chain, chunks, exchange: (&plan).into() };
    let time = |chunks| alone(chunks).simulate(&machine(3), &Call::of(6.0)).unwrap().time_s();
    assert_eq!((time(1), time(2)), (6.0 + 66.0 + 66.0 + 6.0, 3.0 + 33.0 * 3.0 + 6.0));
}

#[test]
fn a_smaller_last_node_and_a_lazy_exchange_work() {
    let lazy = LazyPlan::new("elimination-3-2", &Params::ranks(3)).unwrap();
    let plan = schedule::build("elimination-3-2", &Params::ranks(3)).unwrap();
    let arrivals: Vec<f64> = (0..7).map(|r| (mix(r) % 1000) as f64).collect();
    for &fold in NodeFold::VARIANTS {
        let call = Call { arrivals_s: &arrivals, ..Call::of(40.0) };
        let whole = ThreePhase { ranks: 7, fold, chunks: 3, exchange: (&plan).into() };
        let found = whole.simulate(&machine(3), &call).unwrap();
        assert_eq!(found, ThreePhase { exchange: (&lazy).into(), ..whole }.simulate(&machine(3), &call).unwrap());
        let last = arrivals.iter().copied().fold(0.0, f64::max);
        assert!(found.exits_s.len() == 7 && found.exits_s.iter().all(|exit| *exit > last));
        assert_eq!(fold.to_string().parse(), Ok(fold));
    }
    assert!("early".parse::<NodeFold>().unwrap_err().contains("static-leader, leader, chain, slices"));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let plan = schedule::build("ring", &Params::ranks(3)).unwrap();
    let three = ThreePhase { ranks: 8, fold: NodeFold::Leader, chunks: 1, exchange: (&plan).into() };
    let refused = |three: ThreePhase, call: Call| three.simulate(&machine(4), &call).unwrap_err().to_string();
    assert!(refused(three, Call::of(1.0)).contains("2 nodes"));
    let three = ThreePhase { ranks: 12, ..three };
    assert!(refused(ThreePhase { chunks: 0, ..three }, Call::of(1.0)).contains("chunks = 0"));
    assert!(refused(three, Call { arrivals_s: &[1.0; 8], ..Call::of(1.0) }).contains("8 times"));
    assert!(refused(three, Call::of(-1.0)).contains("bytes = -1"));
}
