//! The simulator against closed forms, its two variants against each other, and against small cases by hand.

use crate::common;
use crate::random_plans;
use earlybird_hier::cost::{self, Cost, Model, Topology};
use earlybird_hier::plan::{Action, Blocks, Plan, PlanBuilder, Side};
use earlybird_hier::schedule::{self, Distance, LazyPlan, Params, Protocol};
use earlybird_hier::sim::{Call, Costs, Duplex, Jitter, Machine, Network, Partition, Timeline, mix, simulate};
use proptest::prelude::*;
use std::collections::BTreeSet;

const ALPHA: f64 = 3e-5;
const BETA: f64 = 1e-8;
const GAMMA: f64 = 2e-10;

fn machine() -> Machine {
    Machine::flat(Costs::linear(ALPHA, BETA, GAMMA))
}

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-9 * a.abs().max(b.abs())
}

fn time(plan: &Plan, bytes: f64) -> f64 {
    simulate(plan, &machine(), None, &Call::of(bytes)).unwrap().time_s()
}

/// Random arrivals of up to `most` seconds.
fn late(n: usize, most: f64, seed: u64) -> Vec<f64> {
    (0..n as u64).map(|r| (mix(mix(seed) ^ r) >> 11) as f64 / (1u64 << 53) as f64 * most).collect()
}

/// Schedules in which all ranks do alike, with their closed forms.
fn alike(p: usize) -> Vec<(&'static str, Params, Cost)> {
    let base = || Params::ranks(p);
    let twos = vec![2; p.next_power_of_two().trailing_zeros() as usize];
    let mut all = vec![
        ("ring", base(), cost::ring(p)),
        ("census", base(), cost::census(p)),
        ("prefix", base(), cost::prefix(p, &twos)),
        ("butterfly", Params { cap: Some(2), ..base() }, cost::capped_butterfly(p, 2)),
        ("direct", base(), cost::radix(&[p], 0)),
    ];
    for r in 0.. {
        let Some(cost) = cost::butterfly(&[p], r) else { break };
        all.push(("butterfly", Params { r: Some(r), ..base() }, cost));
    }
    for factors in common::factorisations(p).into_iter().take(6) {
        let text = factors.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
        for r in 0.. {
            let Some(cost) = cost::butterfly(&factors, r) else { break };
            all.push(("butterfly", Params { r: Some(r), group: Some(text.parse().unwrap()), ..base() }, cost));
        }
        for (protocol, split) in [(Protocol::Latency, 0), (Protocol::Bandwidth, factors.len())] {
            let params = Params { protocol: Some(protocol), radices: Some(factors.clone()), ..base() };
            all.push(("radix", params, cost::radix(&factors, split)));
        }
    }
    if p.is_power_of_two() {
        all.push(("recursive-doubling", base(), cost::recursive_doubling(p)));
        all.push(("halving-doubling", base(), cost::halving_doubling(p)));
        all.push(("binomial", base(), cost::binomial(p)));
        all.push(("elimination-3-2", base(), cost::elimination(p, 0)));
    }
    all
}

#[test]
fn schedules_in_which_all_ranks_do_alike_take_what_the_closed_forms_say() {
    let model = Model::linear(ALPHA, BETA, GAMMA);
    let mut compared = 0;
    for p in (2..=33).chain([48, 64, 127, 128]) {
        for (name, params, cost) in alike(p) {
            let plan = schedule::build(name, &params).unwrap();
            for bytes in [0.0, 1.0, 425.0, 1048576.0] {
                let (simulated, predicted) = (time(&plan, bytes), model.predict_s(&cost, bytes));
                assert!(close(simulated, predicted), "{name} {params:?} {bytes}: {simulated} {predicted}");
                compared += 1;
            }
        }
    }
    assert!(compared > 1500, "{compared}");
}

#[test]
fn no_schedule_takes_longer_than_rounds_with_barriers() {
    for n in [1, 2, 3, 5, 6, 7, 11, 12, 16, 23, 33] {
        for (name, params) in common::cases(n, false) {
            let plan = schedule::build(name, &params).unwrap();
            let c = plan.counters();
            let unit = 1e6 / plan.blocks as f64;
            let starts = (c.rounds * plan.ports) as f64 * ALPHA;
            let blocks = (critical_blocks(&plan) as f64, c.critical_blocks_reduced as f64);
            let bound = starts + blocks.0 * unit * BETA + blocks.1 * unit * GAMMA;
            let simulated = time(&plan, 1e6);
            assert!(simulated <= bound * (1.0 + 1e-9), "{name} {params:?}: {simulated} {bound}");
        }
    }
}

/// Sum over rounds of the most blocks a rank sends or receives.
fn critical_blocks(plan: &Plan) -> usize {
    let mut rounds = vec![std::collections::HashMap::new(); plan.rounds];
    for m in plan.messages().unwrap() {
        *rounds[m.round as usize].entry((m.from, true)).or_insert(0) += m.blocks.len();
        *rounds[m.round as usize].entry((m.to, false)).or_insert(0) += m.blocks.len();
    }
    rounds.iter().map(|loads| loads.values().copied().max().unwrap_or(0)).sum()
}

fn same(a: &Timeline, b: &Timeline) -> bool {
    let exits = a.exits_s.iter().zip(&b.exits_s).all(|(x, y)| close(*x, *y));
    exits && (a.messages, a.rounds) == (b.messages, b.rounds) && close(a.bytes, b.bytes)
}

#[test]
fn lazy_plans_take_exactly_as_long() {
    for (name, params) in [
        ("butterfly", Params { r: Some(3), ..Params::ranks(127) }),
        ("butterfly", Params::ranks(1000)),
        ("elimination-2-1", Params { protocol: Some(Protocol::Bandwidth), ..Params::ranks(300) }),
        ("smp-butterfly", Params { ranks_per_node: Some(5), ..Params::ranks(63) }),
    ] {
        let plan = schedule::build(name, &params).unwrap();
        let lazy = LazyPlan::new(name, &params).unwrap();
        let arrivals = late(params.ranks, 1e-3, 5);
        let jitter = Jitter { mean_s: 1e-5, seed: 3 };
        let call = Call { bytes: 9216.0, arrivals_s: &arrivals, jitter };
        let whole = simulate(&plan, &machine(), None, &call).unwrap();
        assert_eq!(whole, simulate(&lazy, &machine(), None, &call).unwrap(), "{name}");
    }
}

#[test]
fn a_network_without_limits_changes_nothing() {
    for n in [2, 5, 8, 13, 24] {
        let network = Network::new(&Topology::star(n, 1).unwrap(), 0.0).unwrap();
        for (name, params) in common::cases(n, false) {
            let plan = schedule::build(name, &params).unwrap();
            if plan.ports > 1 {
                continue; // several messages of a round couple their ports, which only flows know
            }
            let arrivals = late(n, 2e-4, 11);
            let jitter = Jitter { mean_s: 2e-5, seed: 9 };
            let call = Call { bytes: 1e5, arrivals_s: &arrivals, jitter };
            for eager_bytes in [None, Some(3e4)] {
                let machine = Machine { eager_bytes, ..machine() };
                let plain = simulate(&plan, &machine, None, &call).unwrap();
                let flows = simulate(&plan, &machine, Some(&network), &call).unwrap();
                assert!(same(&plain, &flows), "{name} {params:?} {eager_bytes:?}");
            }
        }
    }
}

#[test]
fn symmetric_plans_on_several_ports_agree_too() {
    for p in [4, 9, 16] {
        let network = Network::new(&Topology::star(p, 1).unwrap(), 0.0).unwrap();
        for protocol in [Protocol::Latency, Protocol::Bandwidth] {
            let plan = schedule::build("direct", &Params { protocol: Some(protocol), ..Params::ranks(p) }).unwrap();
            let flows = simulate(&plan, &machine(), Some(&network), &Call::of(1e5)).unwrap().time_s();
            assert!(close(flows, time(&plan, 1e5)), "{p} {protocol}");
        }
    }
}

/// Two messages of 8 bytes from rank 0 to rank 1 and back.
fn there_and_back() -> Plan {
    let mut b = PlanBuilder::new("there-and-back", 2, 1);
    b.message(0, 0, 1, 0, 0, Blocks::range(0, 1), Action::Reduce(Side::Left));
    b.message(1, 1, 0, 0, 0, Blocks::range(0, 1), Action::Copy);
    b.finish()
}

#[test]
fn every_cost_is_where_loggp_puts_it() {
    let costs = Costs {
        send_s: 1.0,
        receive_s: 10.0,
        latency_s: 100.0,
        gap_s: 0.0,
        per_byte_s: 1000.0,
        reduce_per_byte_s: 10000.0,
        next_port_s: 0.0,
    };
    let run = |machine: Machine, arrivals_s: &[f64]| {
        let call = Call { bytes: 8.0, arrivals_s, jitter: Jitter::default() };
        simulate(&there_and_back(), &machine, None, &call).unwrap()
    };
    let there = 1.0 + 8000.0 + 100.0 + 10.0;
    let timeline = run(Machine::flat(costs), &[]);
    // rank 1 is done when its answer has left; one that waits for a message has its overhead after it
    assert_eq!(timeline.exits_s, [2.0 * there + 80000.0, there + 80000.0 + 8001.0]);
    // a late receiver finds the message in its buffer
    let late = there + 500.0;
    assert_eq!(run(Machine::flat(costs), &[0.0, late]).tail_s(), 80000.0 + 10.0 + there);
    // above the eager limit the message waits for it
    let eager = Machine { eager_bytes: Some(7.0), ..Machine::flat(costs) };
    assert_eq!(run(eager, &[0.0, late]).tail_s(), 2.0 * there + 80000.0 - 1.0);
    let eager = Machine { eager_bytes: Some(8.0), ..Machine::flat(costs) };
    assert_eq!(run(eager, &[0.0, late]).tail_s(), 80000.0 + 10.0 + there);
    // inside a node other costs apply
    let inside = Machine { ranks_per_node: 2, inside: Costs::linear(1.0, 0.0, 0.0), ..Machine::flat(costs) };
    assert_eq!(run(inside, &[]).time_s(), 2.0);
}

#[test]
fn half_duplex_ports_carry_one_direction_after_the_other() {
    let plan = schedule::build("recursive-doubling", &Params::ranks(8)).unwrap();
    let half = Machine { duplex: Duplex::Half, ..machine() };
    let found = simulate(&plan, &half, None, &Call::of(1e6)).unwrap().time_s();
    assert!(close(found, 3.0 * (ALPHA + 2.0 * 1e6 * BETA + 1e6 * GAMMA)), "{found}");
    let network = Network::new(&Topology::star(8, 1).unwrap(), 0.0).unwrap();
    let flows = simulate(&plan, &half, Some(&network), &Call::of(1e6)).unwrap().time_s();
    assert!(close(found, flows), "{found} {flows}");
}

#[test]
fn whole_elements_are_cut_as_the_executor_cuts_them() {
    let plan = schedule::build("ring", &Params::ranks(4)).unwrap();
    let machine = Machine { partition: Partition::Elements(8), ..machine() };
    // two elements for four blocks: blocks 1 and 3 have one each, and empty messages are not sent
    let timeline = simulate(&plan, &machine, None, &Call::of(16.0)).unwrap();
    assert_eq!((timeline.messages, timeline.bytes), (12, 96.0));
    let even = simulate(&plan, &Machine { partition: Partition::Even, ..machine }, None, &Call::of(16.0)).unwrap();
    assert_eq!((even.messages, even.bytes), (24, 96.0));
}

#[test]
fn links_slow_down_what_shares_them() {
    // 4 nodes of 8 ranks: the loads of PY's and our own tables, here as time, when only links cost
    let tree = Topology::star(32, 8).unwrap();
    let network = Network::new(&tree, BETA).unwrap();
    let links_only = Machine::flat(Costs::linear(0.0, 0.0, 0.0));
    let bytes = 32e6;
    let load = |name: &str, params: Params| {
        let plan = schedule::build(name, &params).unwrap();
        simulate(&plan, &links_only, Some(&network), &Call::of(bytes)).unwrap().time_s() / (bytes * BETA)
    };
    let base = || Params::ranks(32);
    let distance = |distance| Params { distance: Some(distance), ..base() };
    assert!(close(load("ring", base()), 62.0 / 32.0));
    assert!(close(load("halving-doubling", distance(Distance::Doubling)), 1.5));
    assert!(close(load("halving-doubling", distance(Distance::Halving)), 12.0));
    assert!(close(load("smp-butterfly", Params { ranks_per_node: Some(8), ..base() }), 1.5));
    assert!(close(load("smp-binomial", Params { ranks_per_node: Some(8), ..base() }), 4.0));
    // a shuffled ring crosses links often; without barriers it takes less than the sum of its rounds' largest loads
    let shuffled = load("ring", Params { order: Some(common::shuffled(32)), ..base() });
    assert!(shuffled > 2.0 * 1.94, "{shuffled}");
}

#[test]
fn lateness_and_noise_only_ever_delay() {
    let network = Network::new(&Topology::tree(12, 2, 3).unwrap(), BETA).unwrap();
    for (name, params) in common::cases(12, false).into_iter().step_by(3) {
        let plan = schedule::build(name, &params).unwrap();
        for network in [None, Some(&network)] {
            let quiet = simulate(&plan, &machine(), network, &Call::of(1e4)).unwrap();
            let arrivals = late(12, 1e-3, 2);
            let jitter = Jitter { mean_s: 1e-5, seed: 4 };
            let call = Call { bytes: 1e4, arrivals_s: &arrivals, jitter };
            let noisy = simulate(&plan, &machine(), network, &call).unwrap();
            assert_eq!(noisy, simulate(&plan, &machine(), network, &call).unwrap(), "the same seed, the same times");
            let last = arrivals.iter().copied().fold(0.0, f64::max);
            assert!(noisy.exits_s.iter().zip(&arrivals).all(|(exit, arrival)| exit >= arrival));
            assert!(noisy.time_s() >= last && quiet.time_s() > 0.0);
            if network.is_none() {
                assert!(noisy.time_s() >= quiet.time_s() * (1.0 - 1e-9), "{name}");
                assert!(noisy.exits_s.iter().zip(&quiet.exits_s).all(|(a, b)| *a >= b * (1.0 - 1e-9)), "{name}");
            }
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let plan = schedule::build("ring", &Params::ranks(4)).unwrap();
    let refused = |plan: &Plan, machine: Machine, network: Option<&Network>, call: Call| {
        simulate(plan, &machine, network, &call).unwrap_err().to_string()
    };
    let wrong = |costs: Costs| refused(&plan, Machine::flat(costs), None, Call::of(1.0));
    assert!(wrong(Costs::linear(-1.0, 0.0, 0.0)).contains("send = -1"));
    assert!(wrong(Costs::linear(0.0, f64::NAN, 0.0)).contains("per-byte"));
    assert!(refused(&plan, machine(), None, Call::of(f64::INFINITY)).contains("bytes"));
    let call = Call { arrivals_s: &[0.0; 3], ..Call::of(1.0) };
    assert!(refused(&plan, machine(), None, call).contains("3 times"));
    let call = Call { arrivals_s: &[0.0, -1.0, 0.0, 0.0], ..Call::of(1.0) };
    assert!(refused(&plan, machine(), None, call).contains("arrivals = -1"));
    let small = Network::new(&Topology::star(3, 1).unwrap(), 0.0).unwrap();
    assert!(refused(&plan, machine(), Some(&small), Call::of(1.0)).contains("tree of 3 ranks"));
    let lazy = LazyPlan::new("census", &Params::ranks(3)).unwrap();
    let error = simulate(&lazy, &machine(), Some(&small), &Call::of(1.0)).unwrap_err().to_string();
    assert!(error.contains("whole plan"), "{error}");
    let mut broken = plan.clone();
    broken.programs[0].remove(0);
    for network in [None, Some(&Network::new(&Topology::star(4, 1).unwrap(), 0.0).unwrap())] {
        assert!(refused(&broken, machine(), network, Call::of(1.0)).contains("no counterpart"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Plans that the verifier accepts run in both variants, with exactly the plan's messages and no rank done too early.
    #[test]
    fn plans_nobody_designed_run_both_ways(plan in random_plans::plan(), seed in any::<u64>()) {
        let plan = earlybird_hier::verify::verify(plan).expect("random plans are correct");
        let network = Network::new(&Topology::star(plan.ranks(), 2).unwrap(), BETA).unwrap();
        let arrivals = late(plan.ranks(), 1e-3, seed);
        let call = Call { bytes: 1e5, arrivals_s: &arrivals, jitter: Jitter { mean_s: 1e-5, seed } };
        let messages = plan.messages().unwrap();
        let ends: BTreeSet<_> = messages.iter().map(|m| (m.round, m.from, m.to)).collect();
        let blocks: usize = messages.iter().map(|m| m.blocks.len()).sum();
        let last = arrivals.iter().copied().fold(0.0, f64::max);
        for network in [None, Some(&network)] {
            let found = simulate(&plan, &machine(), network, &call).unwrap();
            prop_assert_eq!(found.messages as usize, ends.len());
            prop_assert!(close(found.bytes + 1.0, 1.0 + blocks as f64 * 1e5 / plan.blocks as f64));
            // every rank needs the data of the last one to arrive
            let soonest = if plan.ranks() > 1 { last } else { 0.0 };
            prop_assert!(found.exits_s.iter().all(|exit| *exit >= soonest && exit.is_finite()));
        }
    }
}
