//! Every parameter combination of every schedule for a number of ranks.

// every test binary compiles this file and uses only a part of it
#![allow(dead_code)]

pub mod counted;

use earlybird_hier::plan::Collective;
use earlybird_hier::schedule::{Distance, GroupSpec, Params, Protocol, ShiftRule};

/// A schedule's name and what to ask it for.
pub type Case = (&'static str, Params);

fn divisors(n: usize) -> Vec<usize> {
    (2..=n).filter(|d| n.is_multiple_of(*d)).collect()
}

/// Ordered factorisations of `n` into factors of at least 2.
pub fn factorisations(n: usize) -> Vec<Vec<usize>> {
    if n == 1 {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for d in divisors(n) {
        for mut rest in factorisations(n / d) {
            rest.insert(0, d);
            all.push(rest);
        }
    }
    all
}

fn ceil_log2(n: usize) -> usize {
    n.next_power_of_two().trailing_zeros() as usize
}

/// Some order that is no rotation of rank order (for at least 4 ranks).
pub fn shuffled(n: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    let mut state = 12345usize;
    for i in (1..n).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        order.swap(i, (state >> 33) % (i + 1));
    }
    order
}

/// All cases for `n` ranks. With `thorough`, also every r, step count and cap of the butterfly.
pub fn cases(n: usize, thorough: bool) -> Vec<Case> {
    let base = || Params::ranks(n);
    let two_phase = [Collective::Allreduce, Collective::ReduceScatter, Collective::Allgather];
    let mut all: Vec<Case> = Vec::new();
    for collective in two_phase {
        let collective = Some(collective);
        all.push(("ring", Params { collective, ..base() }));
        all.push(("ring", Params { collective, order: Some(shuffled(n)), ..base() }));
        all.push(("butterfly", Params { collective, ..base() }));
        all.push(("butterfly", Params { collective, cap: Some(3), ..base() }));
        all.push(("butterfly", Params { collective, keep_order: true, ..base() }));
        all.push(("direct", Params { collective, protocol: Some(Protocol::Bandwidth), ..base() }));
        for rule in [ShiftRule::Ceil, ShiftRule::Cap] {
            for ports in [1, 2, 4] {
                all.push(("cyclic-shift", Params { collective, rule: Some(rule), ports: Some(ports), ..base() }));
            }
        }
        if n.is_power_of_two() || collective == Some(Collective::Allreduce) {
            for distance in [Distance::Doubling, Distance::Halving] {
                all.push(("halving-doubling", Params { collective, distance: Some(distance), ..base() }));
            }
        }
    }
    if n > 1 {
        all.push(("cyclic-shift", Params { radices: Some(vec![n]), ..base() }));
    }
    butterflies(n, thorough, &mut all);
    for protocol in [Protocol::Latency, Protocol::Bandwidth, Protocol::Mixed(1.min(n - 1))] {
        let protocol = Some(protocol);
        for name in ["elimination-3-2", "elimination-2-1", "odd-ring", "radix", "direct"] {
            all.push((name, Params { protocol, ..base() }));
        }
        if n > 1 {
            for radices in factorisations(n).into_iter().take(if thorough { 6 } else { 2 }) {
                all.push(("odd-ring", Params { protocol, radices: Some(radices.clone()), ..base() }));
                all.push(("radix", Params { protocol, radices: Some(radices), ..base() }));
            }
        }
    }
    for ports in [1, 2, 3, 7] {
        all.push(("prefix", Params { ports: Some(ports), ..base() }));
    }
    for target in [2, 3, 5, 13] {
        all.push(("prefix", Params { target: Some(target), ..base() }));
    }
    for name in ["census", "recursive-doubling"] {
        all.push((name, base()));
    }
    for root in [0, n / 2, n - 1] {
        for collective in [Collective::Reduce, Collective::Broadcast] {
            let (collective, root) = (Some(collective), Some(root));
            all.push(("binomial", Params { collective, root, ..base() }));
            for segments in [1, 3] {
                all.push(("chain", Params { collective, root, segments: Some(segments), ..base() }));
            }
        }
        let collective = Some(Collective::Reduce);
        all.push(("binomial", Params { collective, root: Some(root), keep_order: true, ..base() }));
    }
    all.push(("binomial", base()));
    for segments in [1, 2, 5] {
        for ports in [1, 2] {
            let (segments, ports) = (Some(segments), Some(ports));
            all.push(("chain", Params { segments, ports, ..base() }));
            all.push(("chain", Params { segments, ports, order: Some(shuffled(n)), ..base() }));
        }
    }
    let lates: Vec<usize> =
        if thorough { (1..n).collect() } else { (1..n).take(2).chain((1..n).rev().take(1)).collect() };
    for late in std::iter::once(None).chain(lates.into_iter().map(Some)) {
        for segments in [Some(1), Some(n + 2), None] {
            all.push(("pre-reduced-ring", Params { segments, late, ..base() }));
        }
        let (segments, order) = (Some(5), Some(shuffled(n)));
        all.push(("pre-reduced-ring", Params { segments, late, order, ..base() }));
    }
    all.push(("rsg", base()));
    all.push(("rsg", Params { collective: Some(Collective::Reduce), ..base() }));
    for per_node in [1, 2, 3, 4, 8] {
        for name in ["smp-binomial", "smp-butterfly"] {
            all.push((name, Params { ranks_per_node: Some(per_node), ..base() }));
        }
    }
    all.push(("dissemination", base()));
    all.push(("bruck", base()));
    all
}

fn butterflies(n: usize, thorough: bool, all: &mut Vec<Case>) {
    let base = || Params::ranks(n);
    let levels = ceil_log2(n);
    for r in 0..=levels {
        all.push(("butterfly", Params { r: Some(r), ..base() }));
        all.push(("butterfly", Params { r: Some(r), keep_order: true, ..base() }));
        if n.is_power_of_two() {
            all.push(("butterfly", Params { r: Some(r), group: Some(GroupSpec::Xor), ..base() }));
        }
    }
    for factors in factorisations(n).into_iter().filter(|f| f.len() > 1).take(if thorough { 64 } else { 3 }) {
        let text = |ring: &str| factors.iter().map(|f| format!("{f}{ring}")).collect::<Vec<_>>().join(",");
        let steps: usize = factors.iter().map(|f| ceil_log2(*f)).sum();
        for r in 0..=steps {
            all.push(("butterfly", Params { r: Some(r), group: Some(text("").parse().unwrap()), ..base() }));
        }
        all.push(("butterfly", Params { group: Some(text("r").parse().unwrap()), ..base() }));
    }
    let rounds: Vec<usize> = (levels..=2 * (n - 1)).collect();
    let every = if thorough { 1 } else { (rounds.len() / 4).max(1) };
    for rounds in rounds.into_iter().step_by(every) {
        all.push(("butterfly", Params { rounds: Some(rounds), ..base() }));
    }
    for cap in (1..=n / 2).step_by(if thorough { 1 } else { n.max(8) / 8 }) {
        all.push(("butterfly", Params { cap: Some(cap), ..base() }));
    }
}
