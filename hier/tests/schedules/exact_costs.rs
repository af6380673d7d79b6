//! The closed forms of costs against the counts of the plans.

use crate::common;
use crate::common::counted::{counters, ranks, same, same_rounds};
use earlybird_hier::cost;
use earlybird_hier::plan::Collective;
use earlybird_hier::schedule::{self, Params, Protocol, ShiftRule};

#[test]
fn one_formula_per_schedule() {
    for p in ranks() {
        let base = || Params::ranks(p);
        same("ring", base(), cost::ring(p));
        same("recursive-doubling", base(), cost::recursive_doubling(p));
        same("halving-doubling", base(), cost::halving_doubling(p));
        let latency = || Params { protocol: Some(Protocol::Latency), ..base() };
        let bandwidth = || Params { protocol: Some(Protocol::Bandwidth), ..base() };
        let levels = p.next_power_of_two().trailing_zeros() as usize;
        for name in ["elimination-3-2", "elimination-2-1"] {
            same(name, latency(), cost::elimination(p, 0));
            same(name, bandwidth(), cost::elimination(p, p.trailing_zeros() as usize + 1));
        }
        let extra = usize::from(!p.is_power_of_two());
        let said = cost::elimination(p, 0);
        assert_eq!((said.rounds, said.sent, said.reduced), (levels + extra, levels + extra, levels));
        let (twos, odd) = (p.trailing_zeros() as usize, p >> p.trailing_zeros());
        let (pairs, in_odd) = (vec![2; twos], Some(odd).filter(|q| *q > 1));
        let dims: Vec<usize> = pairs.into_iter().chain(in_odd).collect();
        let said = cost::odd_ring(&dims, 0);
        let odd_levels = odd.next_power_of_two().trailing_zeros() as usize;
        assert_eq!((said.rounds, said.sent, said.reduced), (twos + odd_levels, twos + odd - 1, twos + odd - 1));
        let said = cost::odd_ring(&dims, dims.len());
        assert_eq!((said.rounds, said.sent), (2 * twos + odd - 1 + odd_levels, 2 * (p - 1)));
        same("odd-ring", latency(), cost::odd_ring(&dims, 0));
        same("census", base(), cost::census(p));
        same("prefix", base(), cost::prefix(p, &vec![2; levels]));
        let twice = (0..levels.saturating_sub(1)).filter(|i| p >> i & 1 == 1 && p % (1 << i) != 0).count();
        let said = cost::prefix(p, &vec![2; levels]);
        assert_eq!((said.sent, said.reduced), (levels + twice, levels + twice), "P = {p}");
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

/// The protocol with the first `split` of `dims` dimensions in bandwidth form.
fn protocol(split: usize, dims: usize) -> Option<Protocol> {
    Some(if split == dims { Protocol::Bandwidth } else { Protocol::Mixed(split) })
}

#[test]
fn hypercubes_by_dimension_and_protocol() {
    for p in (2..=64).chain([128, 300]) {
        for dims in common::factorisations(p).into_iter().take(8) {
            for split in 0..=dims.len() {
                let params =
                    Params { protocol: protocol(split, dims.len()), radices: Some(dims.clone()), ..Params::ranks(p) };
                same("radix", params.clone(), cost::radix(&dims, split));
                let said = cost::odd_ring(&dims, split);
                let counted = same_rounds("odd-ring", &params, &said);
                // ranks reduce in different rounds of the bandwidth form, so the busiest rank is what the form says
                assert_eq!(counted.max_blocks_reduced, said.reduced, "{params:?}");
                if split == 0 || dims[..split].iter().all(|q| *q == 2) {
                    assert_eq!(counted.critical_blocks_reduced, said.reduced, "{params:?}");
                }
            }
        }
    }
}

#[test]
fn mixed_protocols_of_eliminations() {
    for p in ranks() {
        let dims = p.trailing_zeros() as usize + usize::from(!p.is_power_of_two());
        for name in ["elimination-3-2", "elimination-2-1"] {
            for split in 0..=dims {
                same(name, Params { protocol: protocol(split, dims), ..Params::ranks(p) }, cost::elimination(p, split));
            }
        }
    }
}

#[test]
fn prefixes_of_other_factors() {
    for p in ranks().filter(|p| *p > 1) {
        for f in 2..=17.min(p) {
            let factors = {
                let steps = (1..).find(|s| f.pow(*s) >= p).unwrap();
                vec![f; steps as usize]
            };
            let said = cost::prefix(p, &factors);
            if f.pow(factors.len() as u32) == p {
                assert_eq!((said.sent, said.ports), ((f - 1) * factors.len(), f - 1), "one line per port: {p} {f}");
            }
            same("prefix", Params { radices: Some(factors), ..Params::ranks(p) }, said);
            same("prefix", Params { target: Some(f), ..Params::ranks(p) }, cost::prefix_target(p, f));
        }
        for factors in [[2, 3].as_slice(), &[3, 2], &[3, 4, 2], &[5, 2, 3], &[2, 7, 5]] {
            let reach: usize = factors.iter().product();
            if reach >= p && reach / factors[factors.len() - 1] < p {
                same(
                    "prefix",
                    Params { radices: Some(factors.to_vec()), ..Params::ranks(p) },
                    cost::prefix(p, factors),
                );
            }
        }
    }
}

#[test]
fn butterfly_on_the_cyclic_group() {
    for p in ranks() {
        let levels = p.next_power_of_two().trailing_zeros() as usize;
        for r in 0..=levels {
            let cost = cost::butterfly(&[p], r).expect("r is within the folds");
            same("butterfly", Params { r: Some(r), ..Params::ranks(p) }, cost.clone());
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
            same("butterfly", Params { rounds: Some(rounds), ..Params::ranks(p) }, cost::exact_butterfly(p, rounds));
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
            for rule in [ShiftRule::Ceil, ShiftRule::Cap] {
                let mut steps = 1;
                while f.pow(steps) < p {
                    steps += 1;
                }
                let factors = vec![f; steps as usize];
                let cost = cost::cyclic_shift(p, &factors, rule);
                assert_eq!((cost.rounds, cost.sent, cost.reduced), (2 * factors.len(), 2 * (p - 1), p - 1), "{p} {f}");
                same("cyclic-shift", Params { radices: Some(factors), rule: Some(rule), ..Params::ranks(p) }, cost);
            }
        }
        for factors in [[2, 3, 11].as_slice(), &[11, 3, 2], &[4, 2, 8], &[3, 3, 8]] {
            for rule in [ShiftRule::Ceil, ShiftRule::Cap] {
                let params = Params { radices: Some(factors.to_vec()), rule: Some(rule), ..Params::ranks(p) };
                if schedule::build("cyclic-shift", &params).is_ok() {
                    same("cyclic-shift", params, cost::cyclic_shift(p, factors, rule));
                }
            }
        }
    }
}

#[test]
fn the_two_phases_add_up() {
    for p in 2..=33usize {
        for name in ["ring", "butterfly", "cyclic-shift", "direct", "halving-doubling"] {
            let protocol = (name == "direct").then_some(Protocol::Bandwidth);
            let of = |collective| counters(name, Params { collective: Some(collective), protocol, ..Params::ranks(p) });
            if name == "halving-doubling" && !p.is_power_of_two() {
                continue;
            }
            let (down, up) = (of(Collective::ReduceScatter), of(Collective::Allgather));
            let both = of(Collective::Allreduce);
            assert_eq!((down.rounds, up.rounds), (both.rounds / 2, both.rounds / 2), "{name} {p}");
            assert_eq!((down.max_blocks_sent, up.max_blocks_sent), (p - 1, p - 1), "{name} {p}");
            assert_eq!((down.max_blocks_reduced, up.max_blocks_reduced), (p - 1, 0), "{name} {p}");
        }
        let levels = p.next_power_of_two().trailing_zeros() as usize;
        let bruck = counters("bruck", Params::ranks(p));
        assert_eq!((bruck.rounds, bruck.max_blocks_sent), (levels, p - 1));
        assert_eq!(counters("dissemination", Params::ranks(p)).rounds, levels);
        for collective in [Collective::Reduce, Collective::Broadcast] {
            let params = Params { collective: Some(collective), root: Some(p / 2), ..Params::ranks(p) };
            assert_eq!(counters("binomial", params.clone()).rounds, levels);
            assert_eq!(counters("chain", Params { segments: Some(4), ..params }).rounds, p - 1 + 4 - 1);
        }
    }
}

#[test]
fn two_levels_add_up() {
    for p in (1..=64usize).chain([127, 128]) {
        for per_node in (1..=9).chain([16]) {
            let inside = 2 * per_node.min(p).next_power_of_two().trailing_zeros() as usize;
            let nodes = p.div_ceil(per_node);
            let params = || Params { ranks_per_node: Some(per_node), ..Params::ranks(p) };
            same("smp-binomial", params(), cost::smp_binomial(p, per_node));
            same("smp-butterfly", params(), cost::smp_butterfly(p, per_node));
            let rounds = |cost: cost::Cost| cost.rounds - inside;
            assert_eq!(rounds(cost::smp_binomial(p, per_node)), cost::binomial(nodes).rounds, "{p} {per_node}");
            assert_eq!(
                rounds(cost::smp_butterfly(p, per_node)),
                cost::halving_doubling(nodes).rounds,
                "{p} {per_node}"
            );
        }
    }
}
