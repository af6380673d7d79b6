//! The candidates of a selection: a schedule with its parameters and its cost.

use crate::cost::{self, Cost};
use crate::schedule::{Distance, Factor, GroupSpec, Params, Protocol, ShiftRule, ceil_log2};

/// A schedule with its parameters, for any number of ranks.
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
        rule: ShiftRule,
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
