//! Runs one scenario under loom, counts the executions, and says whether the exploration ended by itself.

use earlybird_shm::model::{Died, Group};
use earlybird_shm::protocol::call::{Collective, Signature};
use earlybird_shm::protocol::payload::Buffers;
use earlybird_shm::protocol::step::Step;
use earlybird_shm::protocol::word::PoisonWord;
use earlybird_shm::protocol::{Member, Patience};
use earlybird_shm::{Algorithm, DType, FoldOrder, Op, WaitPreset};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How far loom looks.
#[derive(Clone, Copy)]
pub struct Bound(Option<usize>);

impl Bound {
    /// Every interleaving.
    pub const NONE: Bound = Bound(None);
    /// Every interleaving with at most `n` preemptions.
    pub const fn preemptions(n: usize) -> Self {
        Bound(Some(n))
    }
}

/// One group, some operations.
#[derive(Clone)]
pub struct Scenario {
    algorithms: Vec<Algorithm>,
    ranks: usize,
    words: usize,
    epochs: usize,
    by_rank: bool,
    /// (rank, step, n-th time): that rank dies there.
    death: Option<(usize, Step, usize)>,
    /// This rank makes another call in the last operation.
    stranger: Option<usize>,
}

/// How one rank's run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Every operation gave the right sum.
    Fine,
    /// The group failed with this poison and these details of its reporter.
    Failed(PoisonWord, [u64; 5]),
    /// The rank died, as told.
    Died,
}

#[allow(dead_code)]
impl Scenario {
    /// `ranks` ranks sum `words` 64-bit words with `algorithm`.
    pub fn new(algorithm: Algorithm, ranks: usize, words: usize) -> Self {
        Scenario {
            algorithms: vec![algorithm; ranks],
            ranks,
            words,
            epochs: 1,
            by_rank: false,
            death: None,
            stranger: None,
        }
    }
    pub fn epochs(mut self, n: usize) -> Self {
        self.epochs = n;
        self
    }
    pub fn by_rank(mut self) -> Self {
        self.by_rank = true;
        self
    }
    pub fn dies(mut self, rank: usize, step: Step, nth: usize) -> Self {
        self.death = Some((rank, step, nth));
        self
    }
    pub fn stranger(mut self, rank: usize) -> Self {
        self.stranger = Some(rank);
        self
    }
    /// `rank` proposes another algorithm than the others (for the same call).
    pub fn proposes(mut self, rank: usize, algorithm: Algorithm) -> Self {
        self.algorithms[rank] = algorithm;
        self
    }

    fn value(rank: usize, epoch: usize, word: usize) -> u64 {
        1 << (8 * rank) << epoch | (word as u64) << (40 + 4 * rank)
    }

    fn expected(&self, epoch: usize, word: usize) -> u64 {
        (0..self.ranks).map(|r| Self::value(r, epoch, word)).sum()
    }

    fn run_rank(&self, group: &Group, rank: usize) -> End {
        let dies = self.death.filter(|d| d.0 == rank).map(|d| (d.1, d.2));
        let patience =
            Patience { preset: WaitPreset::Balanced, oversubscribed: false, timeout_ns: None, mean_wait_ns: 0 };
        let mut member = Member::new(group.board(rank, dies), patience);
        for epoch in 1..=self.epochs {
            let send: Vec<u64> = (0..self.words).map(|w| Self::value(rank, epoch, w)).collect();
            let mut recv = vec![0u64; self.words];
            let algorithm = self.algorithms[rank];
            let flat = algorithm == Algorithm::Flat;
            let op = if self.stranger == Some(rank) && epoch == self.epochs { Op::Max } else { Op::Sum };
            let order = if self.by_rank { FoldOrder::Rank } else { FoldOrder::Arrival };
            let signature =
                Signature::new(Collective::AllReduce, DType::U64, op, order, Algorithm::Auto, flat, self.words);
            let buffers = Buffers::apart(&send, &mut recv).expect("buffers of one length");
            let call = buffers.call(0..self.words, signature, Op::Sum, self.by_rank, algorithm);
            match catch_unwind(AssertUnwindSafe(|| member.run(&call))) {
                Ok(Ok(report)) => {
                    assert_eq!(report.epoch, epoch as u64);
                    for (w, got) in recv.iter().enumerate() {
                        assert_eq!(*got, self.expected(epoch, w), "wrong sum: rank {rank} epoch {epoch} word {w}");
                    }
                }
                Ok(Err(stop)) => return End::Failed(stop.0, group.details(stop.0.reporter())),
                Err(panic) if panic.is::<Died>() => {
                    group.bury(rank);
                    return End::Died;
                }
                Err(panic) => resume_unwind(panic),
            }
        }
        End::Fine
    }
}

/// Explores `scenario`; every rank must end `Fine`.
#[allow(dead_code)]
pub fn explore(name: &str, bound: Bound, scenario: Scenario) {
    explore_to(name, bound, scenario, |ends| {
        assert!(ends.iter().all(|e| *e == End::Fine), "a healthy group failed: {ends:?}");
    });
}

/// Explores `scenario` and gives the ends of all ranks of each execution to `check`.
pub fn explore_to(name: &str, bound: Bound, scenario: Scenario, check: fn(&[End])) {
    let mut builder = loom::model::Builder::new();
    let bound = Bound(std::env::var("EXP_BOUND").map_or(bound.0, |b| b.parse().ok()));
    builder.preemption_bound = bound.0;
    builder.max_branches = 50_000;
    // No time or permutation limit: loom would end silently green at either.
    builder.max_duration = None;
    builder.max_permutations = None;
    let executions = Arc::new(AtomicUsize::new(0));
    let counted = executions.clone();
    builder.check(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let group = Group::new(scenario.ranks, scenario.death.is_some() || scenario.stranger.is_some());
        let threads: Vec<_> = (1..scenario.ranks)
            .map(|rank| {
                let (group, scenario) = (group.share(), scenario.clone());
                loom::thread::spawn(move || scenario.run_rank(&group, rank))
            })
            .collect();
        let mut ends = vec![scenario.run_rank(&group, 0)];
        ends.extend(threads.into_iter().map(|t| t.join().unwrap()));
        check(&ends);
    });
    let n = executions.load(Ordering::SeqCst);
    assert!(n > 1, "{name}: the model ran {n} time(s): it explores nothing");
    let reach =
        bound.0.map_or("every interleaving".to_owned(), |p| format!("every interleaving with at most {p} preemptions"));
    println!("loom: {name}: {n} executions, complete for {reach}");
}
