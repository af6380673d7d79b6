//! Which schedule is the fastest for a shape: the argmin over every family, factor list and step count.
//!
//! No plan is built: each candidate's closed form ([`cost`]) is put into the model. Butterflies are tried on all
//! factor lists [a, q, z] of the number of ranks with z and the last v folds of q latency-optimal. Splitting a or z
//! further can save neither rounds nor bytes: folded by halves, the product of two factors never takes more steps
//! than the two, and sends the same blocks.
//!
//! Cost: some thousand closed forms for the worst shapes below 10 000 ranks; [`Chooser`] remembers shapes.

use crate::admit::{Consistency, OpTraits};
use crate::cost::{self, Cost};
use crate::plan::Order;
use crate::schedule::{Distance, Factor, GroupSpec, Params, Protocol, ceil_log2, merge_primes, primes};
use std::collections::HashMap;

/// What messages and reductions cost. Times in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// Start of a message.
    pub alpha_s: f64,
    /// Per byte sent.
    pub beta_s_per_byte: f64,
    /// Per byte reduced.
    pub gamma_s_per_byte: f64,
    /// For every port beyond the first, per round.
    pub port_s: f64,
    /// Measured (bytes, seconds) of one message, ascending; in place of alpha and beta if not empty. Between points
    /// times are interpolated, beyond them extended by the nearest slope.
    pub message_table: Vec<(f64, f64)>,
}

impl Model {
    /// A linear model. An extra port costs a message start: nothing is gained by ports until measured otherwise.
    pub fn linear(alpha_s: f64, beta_s_per_byte: f64, gamma_s_per_byte: f64) -> Self {
        Self { alpha_s, beta_s_per_byte, gamma_s_per_byte, port_s: alpha_s, message_table: Vec::new() }
    }

    /// Time of one message.
    pub fn message_s(&self, bytes: f64) -> f64 {
        let table = &self.message_table;
        if table.len() < 2 {
            let fixed = table.first().map_or(self.alpha_s, |point| point.1 - point.0 * self.beta_s_per_byte);
            return fixed + bytes * self.beta_s_per_byte;
        }
        let upper = table.partition_point(|point| point.0 < bytes).clamp(1, table.len() - 1);
        let ((x0, y0), (x1, y1)) = (table[upper - 1], table[upper]);
        (y0 + (bytes - x0) * (y1 - y0) / (x1 - x0)).max(0.0)
    }

    /// Predicted time of a schedule over `bytes`. With a table, each round's message is taken as the average one.
    pub fn predict_s(&self, cost: &Cost, bytes: f64) -> f64 {
        if cost.rounds == 0 {
            return 0.0;
        }
        let unit = bytes / cost.blocks as f64;
        let rounds = cost.rounds as f64;
        let message = self.message_s(cost.sent as f64 * unit / rounds);
        rounds * (message + (cost.ports - 1) as f64 * self.port_s) + cost.reduced as f64 * unit * self.gamma_s_per_byte
    }
}

/// A candidate with its predicted time.
#[derive(Debug, Clone, PartialEq)]
pub struct Choice {
    /// Name of the schedule.
    pub algorithm: &'static str,
    /// What to ask it for.
    pub params: Params,
    /// Its closed form.
    pub cost: Cost,
    /// Predicted seconds.
    pub seconds: f64,
}

/// A candidate before its parameters are written out.
#[derive(Debug, Clone, Copy)]
enum Candidate {
    Ring,
    Butterfly { factors: [usize; 3], r: usize },
    RecursiveDoubling,
    HalvingDoubling,
    Elimination(Protocol),
    OddRing(Protocol),
    Radix { target: usize, protocol: Protocol },
    CyclicShift { ports: usize },
    Prefix,
    Census,
    Chain { segments: usize, ports: usize },
    Binomial,
    Rsg,
}

impl Candidate {
    fn order_and_consistency(self, ranks: usize) -> (Order, bool) {
        match self {
            _ if ranks == 1 => (Order::Ordered, true),
            Candidate::Ring => (Order::Rotated, true),
            Candidate::Butterfly { factors: [_, q, z], r } => {
                let whole_z = r.saturating_sub(ceil_log2(z));
                let touched = z.is_power_of_two() && (whole_z == 0 || q.is_power_of_two());
                (Order::Commutative, r == 0 || touched)
            }
            Candidate::CyclicShift { .. } => (Order::Commutative, true),
            Candidate::Prefix | Candidate::Census => (Order::Rotated, false),
            Candidate::RecursiveDoubling
            | Candidate::HalvingDoubling
            | Candidate::Elimination(_)
            | Candidate::OddRing(_)
            | Candidate::Radix { .. }
            | Candidate::Chain { .. }
            | Candidate::Binomial
            | Candidate::Rsg => (Order::Ordered, true),
        }
    }

    fn params(self, ranks: usize) -> (&'static str, Params) {
        let base = || Params::ranks(ranks);
        match self {
            Candidate::Ring => ("ring", base()),
            Candidate::Butterfly { factors, r } => {
                let sizes = factors.into_iter().filter(|q| *q > 1);
                let list: Vec<Factor> = sizes.map(|size| Factor { size, ring: false }).collect();
                let group = if list.len() > 1 { GroupSpec::Factors(list) } else { GroupSpec::Cyclic };
                ("butterfly", Params { group: Some(group), r: Some(r), ..base() })
            }
            Candidate::RecursiveDoubling => ("recursive-doubling", base()),
            Candidate::HalvingDoubling => ("halving-doubling", Params { distance: Some(Distance::Doubling), ..base() }),
            Candidate::Elimination(protocol) => ("elimination-3-2", Params { protocol: Some(protocol), ..base() }),
            Candidate::OddRing(protocol) => ("odd-ring", Params { protocol: Some(protocol), ..base() }),
            Candidate::Radix { target, protocol } => {
                ("radix", Params { target: Some(target), protocol: Some(protocol), ..base() })
            }
            Candidate::CyclicShift { ports } => ("cyclic-shift", Params { ports: Some(ports), ..base() }),
            Candidate::Prefix => ("prefix", base()),
            Candidate::Census => ("census", base()),
            Candidate::Chain { segments, ports } => {
                ("chain", Params { segments: Some(segments), ports: Some(ports), ..base() })
            }
            Candidate::Binomial => ("binomial", base()),
            Candidate::Rsg => ("rsg", base()),
        }
    }
}

fn divisors(n: usize) -> Vec<usize> {
    (1..=n).take_while(|d| d * d <= n).filter(|d| n.is_multiple_of(*d)).flat_map(|d| [d, n / d]).fold(
        Vec::new(),
        |mut all, d| {
            if !all.contains(&d) {
                all.push(d);
            }
            all
        },
    )
}

fn visit(p: usize, mut see: impl FnMut(Candidate, Cost)) {
    see(Candidate::Ring, cost::ring(p));
    see(Candidate::Butterfly { factors: [1, p, 1], r: 0 }, cost::butterfly(&[p], 0).expect("r = 0 always exists"));
    for z in divisors(p) {
        for q in divisors(p / z) {
            let factors = [p / z / q, q, z];
            // some folds of q, not all, beside all of z; without q only z
            let some = if q == 1 { 0..1 } else { 1..ceil_log2(q) };
            for v in some {
                let r = ceil_log2(z) + v;
                if let Some(cost) = cost::butterfly(&factors, r).filter(|_| r > 0) {
                    see(Candidate::Butterfly { factors, r }, cost);
                }
            }
        }
    }
    see(Candidate::RecursiveDoubling, cost::recursive_doubling(p));
    see(Candidate::HalvingDoubling, cost::halving_doubling(p));
    see(Candidate::Elimination(Protocol::Latency), cost::elimination_latency(p));
    see(Candidate::Elimination(Protocol::Bandwidth), cost::elimination_bandwidth(p));
    see(Candidate::OddRing(Protocol::Latency), cost::odd_ring_latency(p));
    see(Candidate::OddRing(Protocol::Bandwidth), cost::odd_ring_bandwidth(p));
    let largest = primes(p).pop().unwrap_or(1);
    let mut seen: Vec<Vec<usize>> = Vec::new();
    for target in divisors(p).into_iter().filter(|t| *t >= largest) {
        let dims = merge_primes(p, target);
        if !seen.contains(&dims) {
            see(Candidate::Radix { target, protocol: Protocol::Latency }, cost::radix_latency(&dims));
            see(Candidate::Radix { target, protocol: Protocol::Bandwidth }, cost::radix_bandwidth(&dims));
            seen.push(dims);
        }
    }
    let mut fewest = usize::MAX;
    for ports in 1..p.min(128) {
        let mut steps = 0;
        let mut reach = 1usize;
        while reach < p {
            reach = reach.saturating_mul(ports + 1);
            steps += 1;
        }
        // more ports for as many steps gain nothing
        if steps < fewest {
            see(Candidate::CyclicShift { ports }, cost::cyclic_shift(p, steps, ports));
            fewest = steps;
        }
    }
    see(Candidate::Prefix, cost::prefix_by_twos(p));
    see(Candidate::Census, cost::census(p));
    for segments in (0..=10).map(|k| 1 << k) {
        for ports in [1, 2] {
            see(Candidate::Chain { segments, ports }, cost::chain(p, segments, ports));
        }
    }
    see(Candidate::Binomial, cost::binomial(p));
    see(Candidate::Rsg, cost::rsg(p));
}

/// The best candidates for an allreduce of `bytes` over `ranks`, at most `how_many`, fastest first; ties to what was
/// seen first (fewer bytes, ordered families before others). Only what the operator and caller admit.
pub fn ranking(
    ranks: usize,
    bytes: f64,
    op: OpTraits,
    consistency: Consistency,
    model: &Model,
    how_many: usize,
) -> Vec<Choice> {
    let ranks = ranks.max(1);
    let mut best: Vec<(f64, Candidate, Cost)> = Vec::new();
    visit(ranks, |candidate, cost| {
        let (order, consistent) = candidate.order_and_consistency(ranks);
        let admitted = (op.commutative || order == Order::Ordered)
            && (op.exact || consistent || consistency == Consistency::PerRank);
        if !admitted {
            return;
        }
        let seconds = model.predict_s(&cost, bytes);
        let at = best.partition_point(|b| b.0 <= seconds);
        if at < how_many {
            best.truncate(how_many.saturating_sub(1));
            best.insert(at, (seconds, candidate, cost));
        }
    });
    let written = |(seconds, candidate, cost): (f64, Candidate, Cost)| {
        let (algorithm, params) = candidate.params(ranks);
        Choice { algorithm, params, cost, seconds }
    };
    best.into_iter().map(written).collect()
}

/// The fastest candidate. There always is one: recursive doubling is ordered and gives identical bits.
pub fn choose(ranks: usize, bytes: f64, op: OpTraits, consistency: Consistency, model: &Model) -> Choice {
    ranking(ranks, bytes, op, consistency, model, 1).pop().expect("an ordered, consistent candidate exists")
}

/// Remembers choices by shape.
#[derive(Debug)]
pub struct Chooser {
    model: Model,
    known: HashMap<(usize, u64, bool, bool, bool), Choice>,
}

impl Chooser {
    /// A chooser that knows nothing yet.
    pub fn new(model: Model) -> Self {
        Self { model, known: HashMap::new() }
    }

    /// As [`choose`], computed once per shape.
    pub fn choose(&mut self, ranks: usize, bytes: u64, op: OpTraits, consistency: Consistency) -> &Choice {
        let key = (ranks, bytes, op.commutative, op.exact, consistency == Consistency::PerRank);
        self.known.entry(key).or_insert_with(|| choose(ranks, bytes as f64, op, consistency, &self.model))
    }
}
