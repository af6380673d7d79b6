//! Random numbers, and what the seed of a run decides: ranks, nodes, settings, the violence and its victims.

use crate::common::mix;
use crate::kinds::{Kind, Load};
use earlybird::{Choice, WaitPreset};
use earlybird_hier::plan::Collective;
use earlybird_hier::schedule::ALGORITHMS;

/// A random sequence (splitmix64) that is the same on all ranks.
#[derive(Clone)]
pub struct Rng {
    state: u64,
    /// True if the call that is being made asked for a plan, which may be refused.
    pub plan: bool,
}

impl Rng {
    pub fn new(seed: u64, stream: u64) -> Rng {
        Rng { state: mix(mix(seed) ^ stream), plan: false }
    }

    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub fn flip(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())].clone()
    }

    /// A sequence of this rank's own.
    pub fn of_rank(&self, rank: usize) -> Rng {
        Rng::new(self.state, 1 + rank as u64)
    }

    /// A number of elements of `bytes` each, `blocks` of which are at most 1 MiB: mostly few, often odd, sometimes none.
    pub fn count(&mut self, bytes: usize, blocks: usize) -> usize {
        let power = self.below(22).min(self.below(22));
        let size = if power == 0 { 0 } else { (1 << (power - 1)) + self.below(1 << (power - 1)) };
        size / (bytes * blocks)
    }
}

/// The plans that an allreduce can be asked for.
pub fn plans() -> Vec<Choice> {
    let names = ALGORITHMS.iter().filter(|plan| plan.collectives.contains(&Collective::Allreduce));
    names.filter_map(|plan| format!("plan:{}", plan.name).parse().ok()).collect()
}

/// A run: everything in it follows from the seed and the kinds to draw from.
pub struct Scenario {
    pub seed: u64,
    pub kind: &'static Kind,
    pub ranks: usize,
    /// Sizes of the virtual nodes; empty for one node.
    pub nodes: Vec<usize>,
    pub vars: Vec<(&'static str, String)>,
    /// The ranks to which the violence is done; never all. The second one is another kind of victim in some kinds.
    pub victims: Vec<usize>,
    /// When, after all have joined, or after the start where joining is what is disturbed.
    pub moment_us: u64,
    /// For how long a process is stopped.
    pub pause_ms: u64,
    /// Calls of a run that is not ended by violence.
    pub calls: u64,
    /// A further number for the violence, for example a limit.
    pub dose: u64,
}

impl Scenario {
    pub fn new(seed: u64, kinds: &[&'static Kind]) -> Scenario {
        let mut rng = Rng::new(seed, 0);
        // A third of all runs has no violence, where that is among the kinds.
        let quiet = kinds.iter().find(|kind| kind.name == "none" && rng.below(3) == 0);
        let kind = quiet.copied().unwrap_or_else(|| rng.pick(kinds));
        let ranks = (2 + rng.below(7).min(rng.below(7))).max(kind.victims + 1);
        let nodes = if rng.below(5) < 2 { composition(ranks, &mut rng) } else { Vec::new() };
        let mut vars = vec![("EARLYBIRD_WAIT", rng.pick(&WaitPreset::ALL).name().to_owned())];
        if !nodes.is_empty() {
            let sizes: Vec<String> = nodes.iter().map(usize::to_string).collect();
            vars.push(("EARLYBIRD_RANKS_PER_NODE", sizes.join(",")));
            vars.push(("EARLYBIRD_ENDPOINTS", rng.pick(&["auto", "1", "2", "3"]).to_owned()));
            vars.push(("EARLYBIRD_EXCHANGE", rng.pick(&["auto", "auto", "ring", "direct", "butterfly"]).to_owned()));
        }
        let mut others: Vec<usize> = (0..ranks).collect();
        let victims = if kind.victims == 1 { 1 } else { (1 + rng.below(ranks - 1)).max(kind.victims) };
        let victims = (0..victims).map(|_| others.swap_remove(rng.below(others.len()))).collect();
        let most_us = if kind.load == Load::Joining { 30_000 } else { 150_000 };
        let (moment_us, pause_ms) = (rng.next() % most_us, 100 + rng.next() % 700);
        let (calls, dose) = (if kind.name == "none" { 300 } else { 100 }, rng.next());
        if kind.name == "arena" {
            vars.push(("EARLYBIRD_ARENA_MAX", (4096u64 << (dose % 16)).to_string()));
        }
        if kind.load == Load::Joining || kind.act.refuses() {
            // Nobody can know of a rank that ends before it says that it is there, or of a job that failed before one came.
            vars.push(("EARLYBIRD_TIMEOUT", "3".into()));
        }
        Scenario { seed, kind, ranks, nodes, vars, victims, moment_us, pause_ms, calls, dose }
    }
}

/// Two nodes or more whose sizes add up to `ranks`.
fn composition(ranks: usize, rng: &mut Rng) -> Vec<usize> {
    let first = 1 + rng.below(ranks - 1);
    let mut sizes = vec![first];
    while sizes.iter().sum::<usize>() < ranks {
        sizes.push(1 + rng.below(ranks - sizes.iter().sum::<usize>()));
    }
    sizes
}
