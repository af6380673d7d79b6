//! The selection: predictions equal the plans' counts, selected schedules are admitted, known cases come out.

use crate::common;
use crate::common::counted::same_rounds;
use earlybird_hier::cost::{self, Cost, Model};
use earlybird_hier::plan::Collective;
use earlybird_hier::schedule::{self, Params, ShiftRule};
use earlybird_hier::select::{ranking, select};
use earlybird_hier::verify::{Consistency, OpTraits, admit, verify};
use earlybird_hier::{Order, PlanError};
use std::collections::BTreeSet;

const EXACT: OpTraits = OpTraits { commutative: true, exact: true };
const FLOAT: OpTraits = OpTraits { commutative: true, exact: false };
const MATRIX: OpTraits = OpTraits { commutative: false, exact: false };

fn model() -> Model {
    Model::linear(3e-5, 1e-8, 2e-10)
}

/// Models under which different families win: cheap and expensive messages, free ports, expensive reductions, and a table with
/// a jump where a transport changes its protocol.
fn models() -> Vec<Model> {
    let table = vec![(0.0, 3e-6), (1024.0, 4e-6), (1025.0, 9e-6), (65536.0, 4e-5), (1e6, 4e-4)];
    vec![
        model(),
        Model { port_s: 0.0, ..model() },
        Model::linear(1e-6, 1e-9, 2e-8),
        Model { port_s: 2e-7, message_table: table, ..Model::linear(0.0, 0.0, 1e-10) },
    ]
}

#[test]
fn every_candidate_costs_what_its_plan_counts_and_is_admitted() {
    for ranks in (1..=24).chain([31, 32, 36, 48]) {
        for (op, consistency) in [
            (EXACT, Consistency::Identical),
            (FLOAT, Consistency::Identical),
            (FLOAT, Consistency::PerRank),
            (MATRIX, Consistency::Identical),
        ] {
            for model in [&models()[0], &models()[3]] {
                let all = ranking(ranks, 65536.0, op, consistency, model, usize::MAX);
                assert!(all.len() >= 8 && all.is_sorted_by(|a, b| a.seconds <= b.seconds));
                // a chain of a million steps is no other than one of a thousand
                for choice in all.iter().filter(|c| c.cost.blocks <= 256).step_by(all.len().div_ceil(60)) {
                    assert_eq!(model.predict_s(&choice.cost, 65536.0), choice.seconds);
                    let c = same_rounds(choice.algorithm, &choice.params, &choice.cost);
                    assert!(c.max_blocks_reduced <= choice.cost.reduced, "{choice:?}");
                    let plan = schedule::build(choice.algorithm, &choice.params).unwrap();
                    admit(verify(plan).unwrap(), op, consistency).unwrap_or_else(|e| panic!("{choice:?}: {e}"));
                }
            }
        }
    }
}

#[test]
fn every_family_is_a_candidate() {
    let all = ranking(12, 4096.0, EXACT, Consistency::PerRank, &models()[3], usize::MAX);
    let names: BTreeSet<&str> = all.iter().map(|c| c.algorithm).collect();
    let families = schedule::ALGORITHMS.iter().filter(|a| a.collectives.contains(&Collective::Allreduce));
    // a pre-reduced ring needs to know who is late
    let expected: BTreeSet<&str> = families.map(|a| a.name).filter(|name| *name != "pre-reduced-ring").collect();
    assert_eq!(names, expected);
    let forms = |part: &str| all.iter().any(|c| c.params.to_arguments().contains(part));
    for part in ["--cap 2", "--rounds 1", "--keep-order", "--protocol mixed:1", "--rule cap", "--target 2"] {
        assert!(forms(part), "{part} is not tried");
    }
}

#[test]
fn kolmakov_and_zhang_table_2() {
    // 127 is prime, so only the cyclic group: the best r falls with the size
    let best_r = |bytes: f64| {
        let time = |r: &usize| model().predict_s(&cost::butterfly(&[127], *r).unwrap(), bytes);
        (0..=7).min_by(|a, b| time(a).total_cmp(&time(b))).unwrap()
    };
    assert_eq!([425.0, 9216.0, 65536.0, 1048576.0].map(best_r), [7, 3, 0, 0]);
}

/// Every list of factors of at least 2 that is long enough for `p` with its last factor only.
fn covering(p: usize) -> Vec<Vec<usize>> {
    let mut lists = vec![(vec![], 1)];
    let mut done = Vec::new();
    while let Some((list, reach)) = lists.pop() {
        for f in 2..=p.div_ceil(reach) {
            let longer: Vec<usize> = list.iter().copied().chain([f]).collect();
            if reach * f >= p { done.push(longer) } else { lists.push((longer, reach * f)) }
        }
    }
    done
}

#[test]
fn no_list_of_factors_beats_the_ones_found() {
    for ranks in [7, 12, 15, 24, 30, 36, 48, 60, 64, 72, 96] {
        for bytes in [8.0, 64.0, 4096.0, 65536.0, 1e6] {
            for model in models() {
                let all = ranking(ranks, bytes, EXACT, Consistency::PerRank, &model, usize::MAX);
                let best = |name: &str, alias: &str| {
                    let of = |c: &&earlybird_hier::select::RankedSchedule| c.algorithm == name || c.algorithm == alias;
                    all.iter().find(of).expect("every family is tried").seconds
                };
                let not_beaten = |by: Cost, best: f64, what: &dyn std::fmt::Debug| {
                    let time = model.predict_s(&by, bytes);
                    assert!(time >= best * (1.0 - 1e-9), "{ranks} ranks, {bytes} bytes, {what:?}: {time} < {best}");
                };
                let (butterfly, radix) = (best("butterfly", "butterfly"), best("radix", "direct"));
                let odd_ring = best("odd-ring", "odd-ring");
                for factors in common::factorisations(ranks) {
                    for r in 0.. {
                        let Some(cost) = cost::butterfly(&factors, r) else { break };
                        not_beaten(cost, butterfly, &(&factors, r));
                    }
                    let rings: Vec<(usize, bool)> = factors.iter().map(|q| (*q, q % 2 == 1)).collect();
                    not_beaten(cost::butterfly_with_rings(&rings), butterfly, &rings);
                    for split in 0..=factors.len() {
                        not_beaten(cost::radix(&factors, split), radix, &("radix", &factors, split));
                        not_beaten(cost::odd_ring(&factors, split), odd_ring, &("odd-ring", &factors, split));
                    }
                }
                if ranks <= 36 {
                    let (shift, prefix) = (best("cyclic-shift", ""), best("prefix", ""));
                    for factors in covering(ranks) {
                        not_beaten(cost::cyclic_shift(ranks, &factors, ShiftRule::Ceil), shift, &("shift", &factors));
                        not_beaten(cost::prefix(ranks, &factors), prefix, &("prefix", &factors));
                    }
                }
            }
        }
    }
}

#[test]
fn what_is_not_tried_never_wins() {
    for ranks in 2..=40usize {
        let levels = ranks.next_power_of_two().trailing_zeros() as usize;
        // rank order with r > 0: at equal rounds some list of factors sends and reduces no more
        let lists = common::factorisations(ranks);
        for r in 1..=levels {
            let kept =
                common::counted::counters("butterfly", Params { r: Some(r), keep_order: true, ..Params::ranks(ranks) });
            let mut others = lists.iter().flat_map(|list| (0..).map_while(|r| cost::butterfly(list, r)));
            let sent = kept.critical_blocks_sent;
            assert!(others.any(|c| c.rounds <= kept.rounds && c.sent <= sent), "{ranks} ranks, r = {r}");
        }
        // the other rule of a cyclic shift: the same factors, the first as small as it can be, under `ceil`
        for mut factors in if ranks <= 24 { covering(ranks) } else { Vec::new() } {
            let later: usize = factors[1..].iter().product();
            if later >= ranks {
                continue;
            }
            let cap = cost::cyclic_shift(ranks, &factors, ShiftRule::Cap);
            factors[0] = ranks.div_ceil(later);
            let mut live = ranks;
            factors.retain(|f| {
                let before = live;
                live = live.div_ceil(*f);
                before > 1
            });
            let ceil = cost::cyclic_shift(ranks, &factors, ShiftRule::Ceil);
            let ports = |c: &Cost| c.profile.iter().map(|r| r.count * (r.ports - 1)).sum::<usize>();
            assert!(ceil.rounds <= cap.rounds && ceil.sent == cap.sent, "{factors:?}");
            assert!(ports(&ceil) <= ports(&cap), "{factors:?}");
        }
    }
}

#[test]
fn chains_have_the_best_number_of_segments() {
    for ranks in [3, 8, 17] {
        for bytes in [1e4, 1e6, 1e8] {
            for model in models() {
                let all = ranking(ranks, bytes, MATRIX, Consistency::Identical, &model, usize::MAX);
                let best = all.iter().find(|c| c.algorithm == "chain").unwrap().seconds;
                for segments in 1..2000 {
                    for ports in [1, 2] {
                        let time = model.predict_s(&cost::chain(ranks, segments, ports), bytes);
                        // with a table the time need not be convex: what is found is near the best
                        let slack = if model.is_linear() { 1e-9 } else { 0.1 };
                        assert!(time >= best * (1.0 - slack), "{ranks} {bytes} {segments}: {time} < {best}");
                    }
                }
            }
        }
    }
}

#[test]
fn refusals_say_why_and_what_could_be_had() {
    let plan = |name: &str, ranks| verify(schedule::build(name, &Params::ranks(ranks)).unwrap()).unwrap();
    let refused = |name: &str, op| match admit(plan(name, 7), op, Consistency::Identical) {
        Err(PlanError::NotAdmitted { reason, instead, .. }) => (reason, instead),
        other => panic!("{name} was not refused: {other:?}"),
    };
    let (reason, instead) = refused("ring", MATRIX);
    assert!(reason.contains("rotated") && instead.contains("halving-doubling"));
    let (reason, instead) = refused("census", FLOAT);
    assert!(reason.contains("rounds") && instead.contains("per-rank"));
    assert!(admit(plan("census", 7), FLOAT, Consistency::PerRank).is_ok());
    assert!(admit(plan("census", 7), EXACT, Consistency::Identical).is_ok());
    assert_eq!(plan("census", 7).order, Order::Rotated);
}

#[test]
fn tables_and_ports_change_the_choice() {
    let op = EXACT;
    let mut model = model();
    let one_port = select(48, 8.0, op, Consistency::Identical, &model);
    assert_eq!(one_port.cost.ports, 1, "{one_port:?}");
    model.port_s = 0.0;
    let many = select(48, 8.0, op, Consistency::Identical, &model);
    assert!(many.cost.ports > 1 && many.cost.rounds < one_port.cost.rounds, "{many:?}");
}

#[test]
fn a_jump_in_message_times_calls_for_smaller_messages() {
    // messages above 1024 bytes cost a hundredfold: 16 blocks of 512 bytes fit two at a time
    let table = vec![(0.0, 1e-6), (1024.0, 1e-6), (1025.0, 1e-4), (1e6, 1e-3)];
    let model = Model { message_table: table, ..Model::linear(0.0, 0.0, 0.0) };
    let best = select(16, 8192.0, FLOAT, Consistency::Identical, &model);
    let largest = best.cost.profile.iter().map(|r| r.sent).max().unwrap();
    assert!(largest * 8192 <= 1024 * best.cost.blocks, "{best:?}");
    let folded = model.predict_s(&cost::butterfly(&[16], 0).unwrap(), 8192.0);
    assert!(folded > 5.0 * best.seconds, "{folded} {best:?}");
}
