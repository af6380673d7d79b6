//! What can be chosen, and the families whose members are few enough to be tried one by one.

use super::Search;
use crate::cost::{self, Cost};
use crate::plan::Order;
use crate::schedule::{
    Distance, Factor, GroupSpec, MAX_CELLS, Params, Protocol, Rule, ceil_log2, floor_log2, primes, repeated,
};

/// A schedule with its parameters.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Candidate {
    Ring,
    Butterfly {
        factors: Vec<usize>,
        r: usize,
    },
    /// r = 0, the marked factors folded as rings.
    RingFactors(Vec<(usize, bool)>),
    Capped {
        cap: usize,
    },
    Exact {
        rounds: usize,
    },
    KeepOrder {
        r: usize,
    },
    RecursiveDoubling,
    HalvingDoubling,
    Elimination {
        two_to_one: bool,
        split: usize,
    },
    OddRing {
        dims: Vec<usize>,
        split: usize,
    },
    Radix {
        dims: Vec<usize>,
        split: usize,
    },
    CyclicShift {
        factors: Vec<usize>,
        rule: Rule,
    },
    Prefix {
        factors: Vec<usize>,
    },
    PrefixTarget {
        target: usize,
    },
    Census,
    Chain {
        segments: usize,
        ports: usize,
    },
    Binomial,
    Rsg,
    Smp {
        butterfly: bool,
        per_node: usize,
    },
}

use Candidate::*;

impl Candidate {
    pub(super) fn cost(&self, p: usize) -> Cost {
        match self {
            Ring => cost::ring(p),
            Butterfly { factors, r } => cost::butterfly(factors, *r).expect("r is within the folds"),
            RingFactors(factors) => cost::butterfly_with_rings(factors),
            Capped { cap } => cost::capped_butterfly(p, *cap),
            Exact { rounds } => cost::exact_butterfly(p, *rounds),
            KeepOrder { r: 0 } => cost::butterfly(&[p], 0).expect("r = 0 always exists"),
            KeepOrder { r } => cost::butterfly(&vec![2; ceil_log2(p)], *r).expect("r is within the folds"),
            RecursiveDoubling => cost::recursive_doubling(p),
            HalvingDoubling => cost::halving_doubling(p),
            Elimination { split, .. } => cost::elimination(p, *split),
            OddRing { dims, split } => cost::odd_ring(dims, *split),
            Radix { dims, split } => cost::radix(dims, *split),
            CyclicShift { factors, rule } => cost::cyclic_shift(p, factors, *rule),
            Prefix { factors } => cost::prefix(p, factors),
            PrefixTarget { target } => cost::prefix_target(p, *target),
            Census => cost::census(p),
            Chain { segments, ports } => cost::chain(p, *segments, *ports),
            Binomial => cost::binomial(p),
            Rsg => cost::rsg(p),
            Smp { butterfly: false, per_node } => cost::smp_binomial(p, *per_node),
            Smp { butterfly: true, per_node } => cost::smp_butterfly(p, *per_node),
        }
    }

    pub(super) fn params(&self, p: usize) -> (&'static str, Params) {
        let base = || Params::ranks(p);
        match self {
            Ring => ("ring", base()),
            Butterfly { factors, r } => {
                let marked: Vec<(usize, bool)> = factors.iter().map(|q| (*q, false)).collect();
                ("butterfly", Params { group: Some(group(&marked)), r: Some(*r), ..base() })
            }
            RingFactors(factors) => ("butterfly", Params { group: Some(group(factors)), r: Some(0), ..base() }),
            Capped { cap } => ("butterfly", Params { cap: Some(*cap), ..base() }),
            Exact { rounds } => ("butterfly", Params { rounds: Some(*rounds), ..base() }),
            KeepOrder { r } => ("butterfly", Params { r: Some(*r), keep_order: true, ..base() }),
            RecursiveDoubling => ("recursive-doubling", base()),
            HalvingDoubling => ("halving-doubling", Params { distance: Some(Distance::Doubling), ..base() }),
            Elimination { two_to_one, split } => {
                let dims = p.trailing_zeros() as usize + usize::from(!p.is_power_of_two());
                let name = if *two_to_one { "elimination-2-1" } else { "elimination-3-2" };
                (name, Params { protocol: Some(protocol(*split, dims)), ..base() })
            }
            OddRing { dims, split } => {
                let protocol = Some(protocol(*split, dims.len()));
                ("odd-ring", Params { protocol, radices: Some(dims.clone()), ..base() })
            }
            Radix { dims, split } if dims.len() == 1 => {
                ("direct", Params { protocol: Some(protocol(*split, 1)), ..base() })
            }
            Radix { dims, split } => {
                let protocol = Some(protocol(*split, dims.len()));
                ("radix", Params { protocol, radices: Some(dims.clone()), ..base() })
            }
            CyclicShift { factors, rule } => {
                ("cyclic-shift", Params { radices: Some(factors.clone()), rule: Some(*rule), ..base() })
            }
            Prefix { factors } => ("prefix", Params { radices: Some(factors.clone()), ..base() }),
            PrefixTarget { target } => ("prefix", Params { target: Some(*target), ..base() }),
            Census => ("census", base()),
            Chain { segments, ports } => ("chain", Params { segments: Some(*segments), ports: Some(*ports), ..base() }),
            Binomial => ("binomial", base()),
            Rsg => ("rsg", base()),
            Smp { butterfly, per_node } => {
                let name = if *butterfly { "smp-butterfly" } else { "smp-binomial" };
                (name, Params { ranks_per_node: Some(*per_node), ..base() })
            }
        }
    }
}

fn group(factors: &[(usize, bool)]) -> GroupSpec {
    match factors {
        [] | [(_, false)] => GroupSpec::Cyclic,
        _ => GroupSpec::Factors(factors.iter().map(|(size, ring)| Factor { size: *size, ring: *ring }).collect()),
    }
}

fn protocol(split: usize, dims: usize) -> Protocol {
    match split {
        0 => Protocol::Latency,
        n if n >= dims => Protocol::Bandwidth,
        n => Protocol::Mixed(n),
    }
}

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
        // for as many rounds inside nodes, what counts is few nodes, or a power of two of them
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
                search.see(CyclicShift { factors, rule: Rule::Cap });
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
