//! Published numbers and bounds as goldens, counted in plans.

use crate::common;
use crate::common::counted::counters;
use earlybird_hier::cost;
use earlybird_hier::plan::{Collective, Counters};
use earlybird_hier::schedule::{self, Params, Protocol};

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

/// Rabenseifner's tables: rounds, vectors transferred on the critical path, vectors reduced, for an odd number of
/// ranks. Transfer and operations of the bandwidth form are as printed, to two digits.
#[test]
fn odd_factors_of_the_slides() {
    type Cell = (usize, usize, usize);
    type Share = (usize, &'static str, &'static str);
    // ranks; latency by ring, by elimination; bandwidth by ring (without the slides' one copy round), by elimination
    let table: [(usize, Cell, Cell, Share, Share); 7] = [
        (3, (2, 2, 2), (3, 3, 2), (4, "1.33", "0.67"), (4, "2.00", "1.00")),
        (5, (3, 4, 4), (4, 4, 3), (7, "1.60", "0.80"), (6, "2.50", "1.25")),
        (7, (3, 6, 6), (4, 4, 3), (9, "1.71", "0.86"), (6, "2.50", "1.25")),
        (9, (4, 8, 8), (5, 5, 4), (12, "1.78", "0.89"), (8, "2.75", "1.38")),
        (11, (4, 10, 10), (5, 5, 4), (14, "1.82", "0.91"), (8, "2.75", "1.38")),
        (13, (4, 12, 12), (5, 5, 4), (16, "1.85", "0.92"), (8, "2.75", "1.38")),
        (15, (4, 14, 14), (5, 5, 4), (18, "1.87", "0.93"), (8, "2.75", "1.38")),
    ];
    for (p, ring, elimination, ring_split, elimination_split) in table {
        let of = |name: &str, protocol| {
            let plan = schedule::build(name, &Params { protocol: Some(protocol), ..Params::ranks(p) }).unwrap();
            (plan.blocks, plan.counters())
        };
        let share = |blocks: usize, of: usize| format!("{:.2}", (blocks as f64 / of as f64 * 100.0).round() / 100.0);
        let whole = |c: Counters| (c.rounds, c.critical_blocks_sent, c.critical_blocks_reduced);
        assert_eq!(whole(of("odd-ring", Protocol::Latency).1), ring, "ring of {p}");
        let (blocks, c) = of("odd-ring", Protocol::Bandwidth);
        let split = (c.rounds, share(c.critical_blocks_sent, blocks), share(c.max_blocks_reduced, blocks));
        assert_eq!(split, (ring_split.0, ring_split.1.to_string(), ring_split.2.to_string()), "ring of {p}");
        for name in ["elimination-3-2", "elimination-2-1"] {
            assert_eq!(whole(of(name, Protocol::Latency).1), elimination, "{name} of {p}");
            let (blocks, c) = of(name, Protocol::Bandwidth);
            let sent = share(c.critical_blocks_sent, blocks);
            let said = elimination_split;
            let reduced = share(c.critical_blocks_reduced, blocks);
            assert_eq!((c.rounds, sent, reduced), (said.0, said.1.to_string(), said.2.to_string()), "{name} of {p}");
        }
    }
    // a single one of 15 ranks sends 18 eighths, though 22 are on the critical path
    let c = counters("elimination-3-2", Params { protocol: Some(Protocol::Bandwidth), ..Params::ranks(15) });
    assert_eq!((c.max_blocks_sent, c.critical_blocks_sent), (18, 22));
    // 125 ranks: elimination 8 rounds, 8 m sent, 7 m reduced; bandwidth 14 rounds, 2.97 m, 1.48 m
    let of = |protocol| counters("elimination-3-2", Params { protocol: Some(protocol), ..Params::ranks(125) });
    let (latency, bandwidth) = (of(Protocol::Latency), of(Protocol::Bandwidth));
    assert_eq!((latency.rounds, latency.critical_blocks_sent, latency.critical_blocks_reduced), (8, 8, 7));
    assert_eq!((bandwidth.rounds, bandwidth.critical_blocks_sent, bandwidth.critical_blocks_reduced), (14, 190, 95));
    // 190 and 95 of 64 blocks
    assert_eq!((format!("{:.2}", 190.0 / 64.0), format!("{:.2}", 95.0 / 64.0)), ("2.97".into(), "1.48".into()));
    // one dimension per prime: 21 rounds for 125 by ring
    let params = Params { protocol: Some(Protocol::Bandwidth), radices: Some(vec![5, 5, 5]), ..Params::ranks(125) };
    assert_eq!(counters("odd-ring", params).rounds, 21);
    assert_eq!(counters("odd-ring", Params { ..Params::ranks(48) }).rounds, 6);
}

#[test]
fn prefix_lines() {
    for (p, lines) in [(7, 4), (11, 5), (13, 5), (15, 6), (127, 12)] {
        assert_eq!(counters("prefix", Params::ranks(p)).max_blocks_sent, lines, "P = {p}");
    }
}

#[test]
fn no_plan_sends_less_than_the_bound() {
    // over all ranks at least 2(P-1) m elements are sent
    for p in 2..=17 {
        for (name, params) in common::cases(p, false) {
            let plan = schedule::build(name, &params).unwrap();
            if plan.collective != Collective::Allreduce {
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
