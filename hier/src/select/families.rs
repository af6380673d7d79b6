//! Families with few members, which are tried one by one.

use super::candidate::Candidate::*;
use super::search::Search;
use crate::cost;
use crate::plan::Order;
use crate::schedule::{MAX_CELLS, ShiftRule, ceil_log2, floor_log2, primes, repeated};

/// Tries every member, plain forms first.
pub(super) fn visit(search: &mut Search<'_>) {
    let p = search.ranks;
    let levels = ceil_log2(p);
    if search.admits(Order::Commutative, true) {
        search.see(Butterfly { factors: vec![p], r: 0 });
    }
    if search.admits(Order::Rotated, true) {
        search.see(Ring);
    }
    search.see(RecursiveDoubling);
    search.see(HalvingDoubling);
    for two_to_one in [false, true] {
        let dims = p.trailing_zeros() as usize + usize::from(!p.is_power_of_two());
        (0..=dims).for_each(|split| search.see(Elimination { two_to_one, split }));
    }
    if search.admits(Order::Rotated, p == 1) {
        search.see(Census);
    }
    chains(search);
    search.see(Binomial);
    search.see(Rsg);
    for butterfly in [false, true] {
        // at equal rounds inside nodes, few nodes are best, or a power of two of them
        let mut sizes: Vec<usize> = (1..levels).flat_map(|l| [1 << l, p.div_ceil(1 << (levels - l))]).collect();
        sizes.sort_unstable();
        sizes.dedup();
        sizes.into_iter().filter(|n| *n < p).for_each(|per_node| search.see(Smp { butterfly, per_node }));
    }
    if search.admits(Order::Rotated, true) {
        search.see(KeepOrder { r: 0 });
    }
    if p.is_power_of_two() {
        for r in 1..=levels {
            if search.admits(Order::Rotated, r == 1) {
                search.see(KeepOrder { r });
            }
        }
    }
    if search.admits(Order::Commutative, true) && p > 3 {
        // more rounds for the same bytes: only a table of times can call for them
        let caps = (0..floor_log2(p)).map(|i| 1 << i).chain((2..levels).map(|i| p.div_ceil(1 << i)));
        let mut caps: Vec<usize> = caps.filter(|cap| *cap < p / 2).collect();
        caps.sort_unstable();
        caps.dedup();
        caps.into_iter().for_each(|cap| search.see(Capped { cap }));
        (2 * levels..=(4 * levels).min(2 * (p - 1))).for_each(|rounds| search.see(Exact { rounds }));
        // with both rules the same factors cut other windows
        for f in 2..p.min(64) {
            let factors = repeated(p, f);
            let exact = f.pow(factors.len() as u32) == p;
            let more_ports_for_nothing = f > 2 && repeated(p, f - 1).len() == factors.len();
            if !exact && !more_ports_for_nothing {
                search.see(CyclicShift { factors, rule: ShiftRule::Cap });
            }
        }
    }
    if search.admits(Order::Commutative, false) {
        let largest = primes(p).pop().unwrap_or(1);
        (2..largest.min(64)).for_each(|target| search.see(PrefixTarget { target }));
    }
}

/// Chains of 1, 2, 4, … segments, and of the number between that is best: the time is convex in it.
fn chains(search: &mut Search<'_>) {
    let p = search.ranks;
    let most = MAX_CELLS / p;
    for ports in [1, 2] {
        let time = |segments: usize| search.model.predict_s(&cost::chain(p, segments, ports), search.bytes);
        let powers: Vec<usize> = (0..=20).map(|k| 1 << k).take_while(|k| *k <= most).collect();
        let Some(best) = powers.iter().copied().min_by(|a, b| time(*a).total_cmp(&time(*b))) else { return };
        let (mut low, mut high) = ((best / 2).max(1), (best * 2).min(most));
        while high - low > 2 {
            let (a, b) = (low + (high - low) / 3, high - (high - low) / 3);
            if time(a) <= time(b) { high = b } else { low = a }
        }
        powers.into_iter().chain(low..=high).for_each(|segments| search.see(Chain { segments, ports }));
    }
}
