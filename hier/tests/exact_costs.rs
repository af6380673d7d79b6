//! The closed forms of costs against the counts of the plans, and published numbers as goldens.

mod common;

use earlybird_hier::cost::{self, Cost};
use earlybird_hier::plan::{Contract, Counters};
use earlybird_hier::schedule::{self, Params, Protocol, Rule};

fn counters(name: &str, params: Params) -> Counters {
    schedule::build(name, &params).unwrap_or_else(|e| panic!("{name}: {e}")).counters()
}

fn same(name: &str, params: Params, cost: Cost) {
    let plan = schedule::build(name, &params).unwrap_or_else(|e| panic!("{name}: {e}"));
    let c = plan.counters();
    let counted = (plan.blocks, c.rounds, c.critical_blocks_sent, c.critical_blocks_reduced);
    assert_eq!(counted, (cost.blocks, cost.rounds, cost.sent, cost.reduced), "{name} {params:?}");
    assert!(plan.ports <= cost.ports, "{name} {params:?}: {} ports, {} expected", plan.ports, cost.ports);
}

fn ranks() -> impl Iterator<Item = usize> {
    (1..=64).chain([127, 128, 255, 300])
}

#[test]
fn one_formula_per_schedule() {
    for p in ranks() {
        let base = || Params::ranks(p);
        let latency = || Params { protocol: Some(Protocol::Latency), ..base() };
        let bandwidth = || Params { protocol: Some(Protocol::Bandwidth), ..base() };
        same("ring", base(), cost::ring(p));
        same("recursive-doubling", base(), cost::recursive_doubling(p));
        same("halving-doubling", base(), cost::halving_doubling(p));
        for name in ["elimination-3-2", "elimination-2-1"] {
            same(name, latency(), cost::elimination_latency(p));
            same(name, bandwidth(), cost::elimination_bandwidth(p));
        }
        same("odd-ring", latency(), cost::odd_ring_latency(p));
        same("census", base(), cost::census(p));
        same("prefix", base(), cost::prefix_by_twos(p));
        same("binomial", base(), cost::binomial(p));
        same("rsg", base(), cost::rsg(p));
        for (segments, ports) in [(1, 1), (4, 1), (1, 2), (2, 2), (3, 2), (4, 2), (9, 2)] {
            let params = Params { segments: Some(segments), ports: Some(ports), ..base() };
            same("chain", params, cost::chain(p, segments, ports));
        }
        for segments in [1, 2, 5, p, p + 1, 2 * p] {
            for late in [1, 2, p / 2, p.saturating_sub(2), p - 1] {
                let given = (1..p).contains(&late).then_some(late);
                let params = Params { segments: Some(segments), late: given, ..base() };
                same("pre-reduced-ring", params, cost::prereduced_ring(p, segments, given.unwrap_or(1)));
            }
        }
    }
}

#[test]
fn direct_exchanges_by_dimension() {
    for p in 2..=64 {
        for dims in common::factorisations(p).into_iter().take(8) {
            let params =
                |protocol| Params { protocol: Some(protocol), radices: Some(dims.clone()), ..Params::ranks(p) };
            same("radix", params(Protocol::Latency), cost::radix_latency(&dims));
            same("radix", params(Protocol::Bandwidth), cost::radix_bandwidth(&dims));
        }
    }
}

#[test]
fn odd_ring_bandwidth_counts_the_busiest_rank() {
    for p in ranks().filter(|p| *p <= 64) {
        let c = counters("odd-ring", Params { protocol: Some(Protocol::Bandwidth), ..Params::ranks(p) });
        let expected = cost::odd_ring_bandwidth(p);
        let counted = (c.rounds, c.max_blocks_sent, c.critical_blocks_sent, c.max_blocks_reduced);
        assert_eq!(counted, (expected.rounds, expected.sent, expected.sent, expected.reduced), "P = {p}");
    }
}

#[test]
fn butterfly_on_the_cyclic_group() {
    for p in ranks() {
        let levels = p.next_power_of_two().trailing_zeros() as usize;
        for r in 0..=levels {
            let cost = cost::butterfly(&[p], r).expect("r is within the folds");
            same("butterfly", Params { r: Some(r), ..Params::ranks(p) }, cost);
            if r > 0 && r < levels {
                let s = p.div_ceil(1 << (levels - r));
                let e = cost::double_steps(p);
                assert_eq!(cost.sent, 2 * (p - 1) + (s - 1) * (levels - 1));
                assert_eq!(cost.reduced, p - 1 + (s - 1) * (levels + e));
            } else if r > 0 {
                assert_eq!((cost.sent, cost.reduced), (p * levels, p * (levels + cost::double_steps(p))));
            }
        }
        assert_eq!(cost::butterfly(&[p], levels + 1), None);
    }
}

#[test]
fn butterfly_on_product_groups() {
    for p in (2..=32).chain([48]) {
        for factors in common::factorisations(p) {
            let text = factors.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
            for r in 0.. {
                let Some(cost) = cost::butterfly(&factors, r) else { break };
                let group = Some(text.parse().unwrap());
                same("butterfly", Params { r: Some(r), group, ..Params::ranks(p) }, cost);
            }
        }
    }
}

#[test]
fn factor_lists_beat_the_cyclic_group() {
    // (ranks, rounds, blocks on the cyclic group, blocks on the factors, factors)
    let table: [(usize, usize, usize, usize, &[usize]); 8] = [
        (12, 5, 37, 30, &[2, 6]),
        (12, 6, 28, 24, &[4, 3]),
        (48, 8, 149, 120, &[4, 12]),
        (48, 7, 209, 168, &[2, 24]),
        (64, 8, 201, 160, &[4, 16]),
        (128, 8, 632, 512, &[2, 64]),
        (300, 11, 1190, 975, &[4, 3, 25]),
        (300, 12, 894, 800, &[6, 50]),
    ];
    for (p, rounds, cyclic, best, factors) in table {
        let sent =
            |list: &[usize]| (0..).map_while(|r| cost::butterfly(list, r)).find(|c| c.rounds == rounds).map(|c| c.sent);
        assert_eq!((sent(&[p]), sent(factors)), (Some(cyclic), Some(best)), "P = {p}");
    }
}

#[test]
fn caps_bound_the_message() {
    for p in (2..=64).chain([127]) {
        for cap in 1..=p / 2 {
            let params = Params { cap: Some(cap), ..Params::ranks(p) };
            same("butterfly", params.clone(), cost::capped_butterfly(p, cap));
            assert!(counters("butterfly", params).max_message_blocks <= cap);
        }
    }
}

#[test]
fn step_counts_are_met_exactly_with_the_fewest_bytes() {
    for p in 2..=33usize {
        let levels = p.next_power_of_two().trailing_zeros() as usize;
        for rounds in 2 * levels..=2 * (p - 1) {
            let c = counters("butterfly", Params { rounds: Some(rounds), ..Params::ranks(p) });
            assert_eq!((c.rounds, c.max_blocks_sent, c.max_blocks_reduced), (rounds, 2 * (p - 1), p - 1));
        }
        for rounds in levels..2 * levels {
            assert_eq!(counters("butterfly", Params { rounds: Some(rounds), ..Params::ranks(p) }).rounds, rounds);
        }
    }
}

#[test]
fn cyclic_shift_sends_the_least_for_every_factor_list() {
    for p in 2..=64 {
        for f in [2usize, 3, 4, 5, 8, 13] {
            for rule in [Rule::Ceil, Rule::Cap] {
                let mut steps = 1;
                while f.pow(steps) < p {
                    steps += 1;
                }
                let params = Params { radices: Some(vec![f; steps as usize]), rule: Some(rule), ..Params::ranks(p) };
                let plan = schedule::build("cyclic-shift", &params).unwrap();
                let c = plan.counters();
                let cost = cost::cyclic_shift(p, steps as usize, f - 1);
                let counted = (c.rounds, c.max_blocks_sent, c.max_blocks_reduced);
                assert_eq!(counted, (cost.rounds, cost.sent, cost.reduced), "{p} {f}");
                assert!(plan.ports <= cost.ports);
            }
        }
    }
}

#[test]
fn prefix_lines() {
    for (p, lines) in [(7, 4), (11, 5), (13, 5), (15, 6), (127, 12)] {
        assert_eq!(counters("prefix", Params::ranks(p)).max_blocks_sent, lines, "P = {p}");
    }
}

#[test]
fn odd_factors_of_the_slides() {
    // 125 ranks: elimination 8 rounds, 8 m sent, 7 m reduced; bandwidth 14 rounds, 2.97 m, 1.48 m
    let latency = cost::elimination_latency(125);
    assert_eq!((latency.rounds, latency.sent, latency.reduced), (8, 8, 7));
    let bandwidth = cost::elimination_bandwidth(125);
    assert_eq!(bandwidth.rounds, 14);
    assert_eq!(format!("{:.2}", bandwidth.sent as f64 / bandwidth.blocks as f64), "2.97");
    // 11 ranks: latency 5 rounds and 5 vectors, 4 reductions; bandwidth 8 rounds, 2.75 m
    let (l, b) = (cost::elimination_latency(11), cost::elimination_bandwidth(11));
    assert_eq!((l.rounds, l.sent, l.reduced), (5, 5, 4));
    assert_eq!((b.rounds, b.sent * 4, b.blocks * 11), (8, b.blocks * 11, b.sent * 4));
    // one dimension per prime: 21 rounds for 125 by ring
    let params = Params { protocol: Some(Protocol::Bandwidth), radices: Some(vec![5, 5, 5]), ..Params::ranks(125) };
    assert_eq!(counters("odd-ring", params).rounds, 21);
    assert_eq!(counters("odd-ring", Params { ..Params::ranks(48) }).rounds, 6);
}

#[test]
fn mixed_protocol_lies_between() {
    for p in [12, 24, 48, 56] {
        let at = |n| counters("elimination-3-2", Params { protocol: Some(Protocol::Mixed(n)), ..Params::ranks(p) });
        let dims = (p.trailing_zeros() + 1) as usize;
        for n in 0..dims {
            assert!(at(n).rounds <= at(n + 1).rounds, "P = {p}, {n} split");
        }
    }
}

#[test]
fn no_plan_sends_less_than_the_bound() {
    // over all ranks at least 2(P-1) m elements are sent
    for p in 2..=17 {
        for (name, params) in common::cases(p, false) {
            let plan = schedule::build(name, &params).unwrap();
            if plan.contract != Contract::Allreduce {
                continue;
            }
            for elements in [0, 1, p - 1, p, p + 1, 97] {
                assert!(plan.max_elements_sent(elements) >= (2 * (p - 1) * elements).div_ceil(p), "{name} {params:?}");
                let total: usize = plan
                    .messages()
                    .unwrap()
                    .iter()
                    .map(|m| earlybird_hier::plan::elements_in(&m.blocks, plan.blocks, elements))
                    .sum();
                assert!(total >= 2 * (p - 1) * elements, "{name} {params:?}: {total} elements of {elements}");
            }
        }
    }
}

#[test]
fn the_bound_is_met_when_ranks_divide_the_vector() {
    for p in 2..=33 {
        let bandwidth = || Params { protocol: Some(Protocol::Bandwidth), ..Params::ranks(p) };
        let cases = [
            ("ring", Params::ranks(p)),
            ("butterfly", Params::ranks(p)),
            ("butterfly", Params { keep_order: true, ..Params::ranks(p) }),
            ("butterfly", Params { cap: Some(2), ..Params::ranks(p) }),
            ("cyclic-shift", Params { ports: Some(3), ..Params::ranks(p) }),
            ("radix", bandwidth()),
            ("direct", bandwidth()),
            ("odd-ring", bandwidth()),
        ];
        for (name, params) in cases {
            let plan = schedule::build(name, &params).unwrap();
            assert_eq!(plan.max_elements_sent(3 * p), 2 * (p - 1) * 3, "{name} {params:?}");
            assert_eq!(plan.max_elements_reduced(3 * p), (p - 1) * 3, "{name} {params:?}");
            // otherwise the ring stays within one element of the bound
            for m in [1, p - 1, p + 1, 5 * p + 2] {
                let sent = plan.max_elements_sent(m);
                assert!(name != "ring" || sent <= 2 * m - 2 * (m / p), "{m} elements over {p} ranks: {sent}");
            }
        }
    }
}

#[test]
fn the_two_phases_add_up() {
    for p in 2..=33usize {
        for name in ["ring", "butterfly", "cyclic-shift", "direct", "halving-doubling"] {
            let protocol = (name == "direct").then_some(Protocol::Bandwidth);
            let of = |contract| counters(name, Params { contract: Some(contract), protocol, ..Params::ranks(p) });
            if name == "halving-doubling" && !p.is_power_of_two() {
                continue;
            }
            let (down, up) = (of(Contract::ReduceScatter), of(Contract::Allgather));
            let both = of(Contract::Allreduce);
            assert_eq!((down.rounds, up.rounds), (both.rounds / 2, both.rounds / 2), "{name} {p}");
            assert_eq!((down.max_blocks_sent, up.max_blocks_sent), (p - 1, p - 1), "{name} {p}");
            assert_eq!((down.max_blocks_reduced, up.max_blocks_reduced), (p - 1, 0), "{name} {p}");
        }
        let levels = p.next_power_of_two().trailing_zeros() as usize;
        let bruck = counters("bruck", Params::ranks(p));
        assert_eq!((bruck.rounds, bruck.max_blocks_sent), (levels, p - 1));
        assert_eq!(counters("dissemination", Params::ranks(p)).rounds, levels);
        for contract in [Contract::Reduce, Contract::Broadcast] {
            let params = Params { contract: Some(contract), root: Some(p / 2), ..Params::ranks(p) };
            assert_eq!(counters("binomial", params.clone()).rounds, levels);
            assert_eq!(counters("chain", Params { segments: Some(4), ..params }).rounds, p - 1 + 4 - 1);
        }
    }
}

#[test]
fn two_levels_add_their_rounds() {
    for p in 1..=40usize {
        for per_node in 1..=9 {
            let inside = 2 * per_node.min(p).next_power_of_two().trailing_zeros() as usize;
            let nodes = p.div_ceil(per_node);
            let rounds = |name| counters(name, Params { ranks_per_node: Some(per_node), ..Params::ranks(p) }).rounds;
            assert_eq!(rounds("smp-binomial"), inside + cost::binomial(nodes).rounds, "{p} {per_node}");
            assert_eq!(rounds("smp-butterfly"), inside + cost::halving_doubling(nodes).rounds, "{p} {per_node}");
        }
    }
}

#[test]
fn spread_blocks_keep_intervals_balanced() {
    let plan = schedule::build("butterfly", &Params::ranks(12)).unwrap();
    assert_eq!((plan.max_elements_sent(100), plan.max_elements_reduced(100)), (184, 92));
}

#[test]
fn late_ranks_of_a_pre_reduced_ring_act_last_and_hold_up_nobody_before() {
    for p in 2..=33usize {
        let order = common::shuffled(p);
        for late in [1, 2, p / 2, p - 1].into_iter().filter(|late| (1..p).contains(late)) {
            for segments in [1, 3, p, 4 * p] {
                let params = Params {
                    segments: Some(segments),
                    late: Some(late),
                    order: Some(order.clone()),
                    ..Params::ranks(p)
                };
                let plan = schedule::build("pre-reduced-ring", &params).unwrap();
                let tail = cost::prereduced_ring_tail(p, segments, late);
                let start = (plan.rounds - tail) as i32;
                let is_late = |rank: usize| order[p - late..].contains(&rank);
                let messages = plan.messages().unwrap();
                for m in &messages {
                    assert!(m.round >= start || !(is_late(m.from) || is_late(m.to)), "{params:?}: {m:?}");
                    let place = order.iter().position(|rank| *rank == m.from).unwrap();
                    assert_eq!(m.to, order[(place + 1) % p], "only neighbours of the ring");
                }
                // before the late ranks act, every fold among the early ones is done
                let done = messages.iter().filter(|m| m.round < start).count();
                assert_eq!(done, segments * (p - late - 1), "{params:?}");
                assert_eq!(messages.len(), 2 * segments * (p - 1));
            }
        }
    }
    // 8 ranks, one late: after its arrival a ring takes 14 rounds of 1/8, this one 39 of 1/32
    let cost = cost::prereduced_ring(8, 32, 1);
    assert_eq!((cost.rounds, cost.sent, cost.reduced, cost::prereduced_ring_tail(8, 32, 1)), (76, 76, 69, 39));
}
