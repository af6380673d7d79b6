//! Runs one scenario under loom, counts the executions, and says how far the exploration went.
//!
//! The models themselves stand in `models.rs`; two test binaries share both files.

#[allow(dead_code)]
pub mod board;
#[allow(dead_code)]
pub mod joining;
#[allow(dead_code)]
pub mod kept;
pub mod models;
#[allow(dead_code)]
pub mod parting;
#[allow(dead_code)]
pub mod pool;
#[allow(dead_code)]
pub mod registered;
#[allow(dead_code)]
pub mod rings;
mod stacks;
#[allow(dead_code)]
pub mod started;
#[allow(dead_code)]
pub mod started_deaths;
#[allow(dead_code)]
pub mod twins;

use board::{Died, Group, Heap};
use earlybird_shm::model::spin_first;
use earlybird_shm::protocol::board::Place;
use earlybird_shm::protocol::call::Prepared;
use earlybird_shm::protocol::collective::Collective;
use earlybird_shm::protocol::geometry::{Exchange, Lens, Pairs};
use earlybird_shm::protocol::lengths::{Announced, Lengths};
use earlybird_shm::protocol::payload::{Buffers, look};
use earlybird_shm::protocol::shared_result::SharedResult;
use earlybird_shm::protocol::signature::Signature;
use earlybird_shm::protocol::step::Step;
use earlybird_shm::protocol::word::{Cause, PoisonWord};
use earlybird_shm::protocol::{Member, Patience};
use earlybird_shm::{Algorithm, DType, FoldOrder, Op, WaitPreset};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// How far loom looks: every interleaving, or every one with at most so many preemptions.
pub type Bound = Option<usize>;

/// One group, some operations.
#[derive(Debug, Clone)]
pub struct Scenario {
    algorithms: Vec<Algorithm>,
    ranks: usize,
    words: usize,
    epochs: usize,
    by_rank: bool,
    death: Option<(usize, Step, usize)>,
    stranger: Option<usize>,
    forgetful: bool,
    registered: bool,
    /// True if they register places for their results besides.
    apart: bool,
    /// Ranks that never take the fast path.
    general: Vec<usize>,
    shared: bool,
    /// The rank that goes on reading the first shared result.
    keeps: Option<usize>,
    collective: Collective,
    /// Ranks that stop after so many operations, because they no longer matter to what is shown.
    stops: Vec<(usize, usize)>,
    spins: u32,
    /// The rank that may not read what others expose.
    cannot_read: Option<usize>,
    /// True if every rank is known to be able to read what others expose.
    trusted: bool,
    /// True if each rank knows the lengths of its own blocks only, and the root of a gather those of all; those of rank 0 are one word long.
    announced: bool,
    /// Words of each block that announced lengths leave to the deposit, if longer ones are read where they lie.
    reads_over: Option<usize>,
    /// True if all ranks know that rank 0's block is one word long, unlike the others.
    unequal: bool,
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

/// What the executions of one exploration came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Executions in all.
    pub executions: usize,
    /// Those in which a rank died.
    pub died: usize,
    /// Those in which a rank that did not die saw the group fail.
    pub failed: usize,
}

#[allow(dead_code)]
impl Scenario {
    /// `ranks` ranks sum `words` 64-bit words with `algorithm`, once.
    pub fn new(algorithm: Algorithm, ranks: usize, words: usize) -> Self {
        Scenario {
            algorithms: vec![algorithm; ranks],
            ranks,
            words,
            epochs: 1,
            by_rank: false,
            death: None,
            stranger: None,
            forgetful: false,
            registered: false,
            apart: false,
            general: Vec::new(),
            shared: false,
            keeps: None,
            collective: Collective::AllReduce,
            stops: Vec::new(),
            spins: 0,
            cannot_read: None,
            trusted: false,
            announced: false,
            reads_over: None,
            unequal: false,
        }
    }
    /// `rank` stops after `epochs` operations. The others must not need it any more.
    pub fn stops(mut self, rank: usize, epochs: usize) -> Self {
        self.stops.push((rank, epochs));
        self
    }
    /// Ranks spin and yield before they sleep.
    pub fn spins(mut self) -> Self {
        self.spins = 1;
        self
    }
    /// `rank` may not read what others expose: every rank learns of it.
    pub fn cannot_read(mut self, rank: usize) -> Self {
        self.cannot_read = Some(rank);
        self
    }
    /// Every rank is known to be able to read what others expose.
    pub fn trusted(mut self) -> Self {
        self.trusted = true;
        self
    }
    /// Ranks announce their lengths, and rank 0 has but one word for each.
    pub fn announced(mut self) -> Self {
        self.announced = true;
        self
    }
    /// Blocks of more than so many words, of which announced lengths tell, are read where they lie.
    pub fn reads_over(mut self, words: usize) -> Self {
        self.reads_over = Some(words);
        self
    }
    /// Every rank's block has a length that all know: rank 0's is one word long.
    pub fn unequal(mut self) -> Self {
        self.unequal = true;
        self
    }
    /// Another operation than an allreduce; the root is rank 0.
    pub fn of(mut self, collective: Collective) -> Self {
        self.collective = collective;
        self
    }
    /// `n` operations, each in the memory of the one before.
    pub fn epochs(mut self, n: usize) -> Self {
        self.epochs = n;
        self
    }
    /// Contributions are folded by rank.
    pub fn by_rank(mut self) -> Self {
        self.by_rank = true;
        self
    }
    /// `rank` dies on reaching `step` for the `nth` time (from 1).
    pub fn dies(mut self, rank: usize, step: Step, nth: usize) -> Self {
        self.death = Some((rank, step, nth));
        self
    }
    /// `rank` makes another call than the others in the last operation.
    pub fn stranger(mut self, rank: usize) -> Self {
        self.stranger = Some(rank);
        self
    }
    /// `rank` proposes another algorithm than the others, for the same call.
    pub fn proposes(mut self, rank: usize, algorithm: Algorithm) -> Self {
        self.algorithms[rank] = algorithm;
        self
    }
    /// `rank` takes the general path: it waits as where ranks outnumber CPUs.
    pub fn general(mut self, rank: usize) -> Self {
        self.general.push(rank);
        self
    }
    /// Ranks register their buffers.
    pub fn registered(mut self) -> Self {
        self.registered = true;
        self
    }
    /// Ranks register their buffers, and places for their results.
    pub fn registered_apart(self) -> Self {
        Scenario { apart: true, ..self.registered() }
    }
    /// Ranks share one result.
    pub fn shared(mut self) -> Self {
        self.shared = true;
        self
    }
    /// `rank` still reads the first shared result when the next one is made.
    pub fn keeps(mut self, rank: usize) -> Self {
        self.keeps = Some(rank);
        self
    }
    /// A wrong protocol: nobody waits until the memory of an operation has been left.
    pub fn forgetful(mut self) -> Self {
        self.forgetful = true;
        self
    }

    fn value(rank: usize, epoch: usize, word: usize) -> u64 {
        1 << (8 * rank) << epoch | (word as u64) << (40 + 4 * rank)
    }

    /// Words of the block of `rank`, or, of pairs of ranks, that it has for each.
    fn len(&self, rank: usize) -> usize {
        if (self.announced || self.unequal) && rank == 0 { 1 } else { self.words }
    }

    /// Returns whether owners announce the lengths of their blocks to the root.
    fn owners_announce(&self) -> bool {
        self.announced && self.collective.traits().has_blocks_at_root()
    }

    /// Words to send to and to receive from each rank, and where they begin.
    fn pairs(&self, rank: usize) -> [Vec<usize>; 4] {
        let lens = [vec![self.len(rank); self.ranks], (0..self.ranks).map(|from| self.len(from)).collect()];
        let [send_starts, recv_starts] =
            lens.each_ref().map(|lens| (0..=self.ranks).map(|r| lens[..r].iter().sum()).collect());
        let [send, recv] = lens;
        [send, send_starts, recv, recv_starts]
    }

    /// What `rank` must have at `word` of its result.
    fn expected(&self, rank: usize, epoch: usize, word: usize) -> u64 {
        let start = |block: usize| (0..block).map(|rank| self.len(rank)).sum::<usize>();
        let from = (0..self.ranks).rfind(|from| start(*from) <= word).expect("a word of some rank");
        let within = word - start(from);
        let sum = |word| (0..self.ranks).map(|r| Self::value(r, epoch, word)).sum();
        match self.collective {
            Collective::Broadcast => Self::value(0, epoch, word),
            Collective::AllGather | Collective::Gather => Self::value(from, epoch, within),
            Collective::AllToAll => Self::value(from, epoch, rank * self.len(from) + within),
            Collective::Scatter => Self::value(0, epoch, start(rank) + word),
            Collective::ReduceScatter => sum(start(rank) + word),
            Collective::AllReduce | Collective::Barrier | Collective::Reduce => sum(word),
            // The first rank of an exclusive one has no result.
            Collective::Scan => (0..=rank).map(|r| Self::value(r, epoch, word)).sum(),
            Collective::ExclusiveScan => (0..rank).map(|r| Self::value(r, epoch, word)).sum(),
            // The others run an allreduce of the group's own words.
            other => unreachable!("{} is not modelled by itself", other.name()),
        }
    }

    fn signature(&self, rank: usize, epoch: usize) -> Signature {
        let op = if self.stranger == Some(rank) && epoch == self.epochs { Op::Max } else { Op::Sum };
        let order = if self.by_rank { FoldOrder::Rank } else { FoldOrder::Arrival };
        let flat = self.algorithms[rank] == Algorithm::Flat;
        let call = Signature::new(self.collective, DType::U64, op, order, Algorithm::Auto, self.words).in_lane(flat);
        let call = if self.registered { call.registered() } else { call };
        let call = if self.shared { call.shared() } else { call };
        let call = match (self.announced, self.unequal) {
            (true, _) => call.unequal(&[]),
            (_, true) => call.unequal(&self.pairs(rank)[2]),
            _ => call,
        };
        if self.collective.traits().has_root() { call.rooted(0) } else { call }
    }

    /// Returns whether another rank waits for `rank` in every operation.
    pub fn is_needed(&self, rank: usize) -> bool {
        (0..self.ranks).any(|reader| reader != rank && self.needs(reader, rank))
    }

    /// Returns whether `rank` waits for `other` in every operation.
    fn needs(&self, rank: usize, other: usize) -> bool {
        Exchange::new(self.collective, 0, self.ranks, Lens::Equal(self.words)).receives(rank, other)
    }

    fn run_rank(&self, group: &Group, rank: usize) -> (End, Vec<Algorithm>) {
        let dies = self.death.filter(|d| d.0 == rank).map(|d| (d.1, d.2));
        let is_general = self.general.contains(&rank);
        let patience = Patience::new(WaitPreset::Balanced, is_general, None);
        let mut member = Member::new(group.board(rank, dies), patience);
        let mut ran = Vec::new();
        let epochs = self.stops.iter().find(|s| s.0 == rank).map_or(self.epochs, |s| s.1);
        for epoch in 1..=epochs {
            let [send, send_starts, recv, recv_starts] = &self.pairs(rank);
            let lens = match self.announced {
                true if !self.owners_announce() => {
                    Lens::Pairs(Pairs { me: rank, most: None, send, send_starts, recv, recv_starts })
                }
                true if rank == 0 => Lens::Each(recv, recv_starts),
                false if self.unequal => Lens::Each(recv, recv_starts),
                _ => Lens::Equal(self.len(rank)),
            };
            let exchange = Exchange::new(self.collective, 0, self.ranks, lens);
            let exchange = if self.owners_announce() { exchange.announced_by_owners() } else { exchange };
            let send: Vec<u64> = (0..exchange.send_count(rank)).map(|w| Self::value(rank, epoch, w)).collect();
            let mut recv = vec![0u64; exchange.recv_count(rank)];
            let buffers = match (self.collective, rank) {
                (Collective::Broadcast, 0) => {
                    recv.copy_from_slice(&send);
                    Buffers::in_place(&mut recv)
                }
                _ => Buffers::apart(&send, &mut recv),
            };
            let buffers = if self.registered { buffers.registered([1, 1 + u64::from(self.apart)]) } else { buffers };
            let keeps = epoch > 1 && self.keeps == Some(rank);
            let result = SharedResult::new(keeps.into(), (0, u64::from(rank == 0)), 8 * self.words);
            let buffers = if self.shared { buffers.shared(&result) } else { buffers };
            let signature = self.signature(rank, epoch);
            let prepared =
                Prepared::new(signature, DType::U64, Op::Sum, self.ranks, self.by_rank, self.algorithms[rank])
                    .expect("u64 has a sum");
            let prepared = if self.trusted { prepared.trusting() } else { prepared };
            let prepared = if self.reads_over.is_some() { prepared.reading_long_blocks() } else { prepared };
            let mut windows = exchange.windows(8, 128);
            let window = match self.algorithms[rank] {
                Algorithm::SingleCopy => exchange.whole(),
                _ if self.owners_announce() => exchange.of_owner(8, 128),
                _ if self.announced => exchange.announced(self.reads_over.unwrap_or(8), self.reads_over.is_some()),
                _ => {
                    let window = windows.next().expect("an exchange has a window");
                    assert!(windows.next().is_none(), "a model is one operation per call");
                    window
                }
            };
            let call = match prepared.exchanges() {
                true => buffers.window(&window, &prepared),
                false => buffers.call(0..self.words, &prepared),
            };
            let run = if is_general { Member::run_general } else { Member::run };
            match catch_unwind(AssertUnwindSafe(|| run(&mut member, &call))) {
                Ok(Ok(report)) => {
                    assert_eq!(report.epoch, epoch as u64);
                    ran.push(report.algorithm);
                    let lengths = Announced::Pairs(Lengths { largest: self.words, difference: 0 });
                    assert_eq!(
                        report.announced,
                        window.announces().then_some(lengths),
                        "wrong lengths: rank {rank} epoch {epoch}"
                    );
                    let is_done = self.cannot_read.is_none() || self.trusted;
                    assert_eq!(report.is_done, is_done, "rank {rank} epoch {epoch}");
                    if !report.is_done {
                        continue;
                    }
                    if result.agreed().is_some_and(|agreed| agreed.taken) {
                        recv = Self::view(&member.board, self.words);
                    }
                    if keeps {
                        let first: Vec<u64> = (0..self.words).map(|w| self.expected(rank, 1, w)).collect();
                        assert_eq!(Self::view(&member.board, self.words), first, "a view changed");
                    }
                    for (w, got) in recv.iter().enumerate() {
                        assert_eq!(
                            *got,
                            self.expected(rank, epoch, w),
                            "wrong sum: rank {rank} epoch {epoch} word {w}"
                        );
                    }
                }
                Ok(Err(stop)) => return (End::Failed(stop.0, group.details(stop.0.reporter())), ran),
                Err(panic) if panic.is::<Died>() => {
                    group.bury(rank);
                    return (End::Died, ran);
                }
                Err(panic) => resume_unwind(panic),
            }
        }
        (End::Fine, ran)
    }

    /// The words of the shared result, piece by piece.
    fn view(board: &Heap, words: usize) -> Vec<u64> {
        let number = |piece| 8.min(words - 8 * piece);
        let place =
            |piece| Place::Registered { rank: 0, result: true, piece, offset: 64 * piece, bytes: 8 * number(piece) };
        (0..words.div_ceil(8)).flat_map(|piece| look(board, place(piece), number(piece))).collect()
    }

    /// What must hold after every execution.
    fn check(&self, ends: &[End], ran: &[Vec<Algorithm>]) {
        for epoch in 0..self.epochs {
            let mut plans = ran.iter().filter_map(|r| r.get(epoch));
            let first = plans.next();
            assert!(plans.all(|p| Some(p) == first), "two plans: ranks ran {ran:?}");
        }
        let mut failures = ends.iter().filter_map(|e| match e {
            End::Failed(poison, details) => Some((*poison, *details)),
            _ => None,
        });
        let Some((poison, details)) = failures.next() else {
            assert!(self.stranger.is_none(), "nobody noticed a different call: {ends:?}");
            return;
        };
        assert!(failures.all(|f| f == (poison, details)), "two errors: {ends:?}");
        match (self.stranger, self.death) {
            (Some(_), Some((dead, ..))) if poison.cause() == Cause::PeerDied => {
                assert_eq!(details[0], dead as u64, "wrong details: {details:?} for the death of rank {dead}");
            }
            (Some(stranger), death) => {
                // A rank that does not need all the others, and one that dies, may be gone before.
                let needs_all = |rank: usize| (0..self.ranks).all(|other| self.needs(rank, other));
                let may_miss = |rank: usize| !needs_all(rank) || death.is_some_and(|(dead, ..)| dead == rank);
                let told = |(rank, end): (usize, &End)| may_miss(rank) || matches!(end, End::Failed(..));
                assert!(ends.iter().enumerate().all(told), "somebody missed a mismatch: {ends:?}");
                assert_eq!((poison.cause(), poison.epoch()), (Cause::Mismatch, self.epochs as u64), "wrong error");
                let (reporter, other) = (poison.reporter(), details[0] as usize);
                assert!((reporter == stranger) != (other == stranger), "wrong details: {details:?} by {reporter}");
                let (theirs, mine) = (self.signature(other, self.epochs), self.signature(reporter, self.epochs));
                let [send, _, recv, _] = self.pairs(other);
                let told = match self.announced {
                    true if !self.owners_announce() => Lengths::of(other, &send, &recv).word(),
                    true if self.collective == Collective::Gather && other != 0 => self.len(other) as u64,
                    // The list of lengths, and the blocks of the others.
                    true if self.collective == Collective::Scatter && other == 0 => {
                        8 * (self.ranks + (1..self.ranks).map(|rank| self.len(rank)).sum::<usize>()) as u64
                    }
                    _ => theirs.count,
                };
                let described = [other as u64, theirs.kind, told, mine.kind, mine.count];
                assert_eq!(details, described, "wrong details: the call of rank {other} as rank {reporter} told it");
            }
            (None, Some((dead, step, nth))) => {
                assert_eq!(poison.cause(), Cause::PeerDied, "wrong error: {ends:?}");
                assert_eq!(details[0], dead as u64, "wrong details: {details:?} for the death of rank {dead}");
                assert_eq!(ends[dead], End::Died, "a living rank was declared dead: {ends:?}");
                let left = if step == Step::Left { nth } else { nth - 1 };
                assert!(poison.epoch() > left as u64, "rank {dead} had left operation {}: {ends:?}", poison.epoch());
            }
            (None, None) => panic!("a healthy group failed: {ends:?}"),
        }
    }
}

/// Runs `body` in every execution within the bound, and counts them.
pub fn explore_quietly(bound: Bound, body: impl Fn() + Sync + Send + 'static) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = bound;
    // Loom panics at this limit. At the two below it would end without a word, as if everything had been explored.
    builder.max_branches = 20_000;
    builder.max_duration = None;
    builder.max_permutations = None;
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    builder.check(move || {
        body();
        counted.fetch_add(1, Ordering::Relaxed);
    });
    count.load(Ordering::Relaxed)
}

/// Explores `scenario` and checks every execution.
pub fn explore(bound: Bound, scenario: Scenario) -> Tally {
    let counts = Arc::new([const { AtomicUsize::new(0) }; 2]);
    let counted = counts.clone();
    spin_first(scenario.spins);
    let executions = explore_quietly(bound, move || {
        let inspects = scenario.death.is_some() || scenario.stranger.is_some();
        let group =
            if scenario.forgetful { Group::forgetful(scenario.ranks) } else { Group::new(scenario.ranks, inspects) };
        let group = group.without_reads_of(scenario.cannot_read);
        let threads: Vec<_> = (1..scenario.ranks)
            .map(|rank| {
                let (group, scenario) = (group.share(), scenario.clone());
                loom::thread::spawn(move || scenario.run_rank(&group, rank))
            })
            .collect();
        let mut runs = vec![scenario.run_rank(&group, 0)];
        runs.extend(threads.into_iter().map(|t| t.join().unwrap()));
        let (ends, ran): (Vec<_>, Vec<_>) = runs.into_iter().unzip();
        scenario.check(&ends, &ran);
        counted[0].fetch_add(usize::from(ends.contains(&End::Died)), Ordering::Relaxed);
        counted[1].fetch_add(usize::from(ends.iter().any(|e| matches!(e, End::Failed(..)))), Ordering::Relaxed);
    });
    let [died, failed] = [0, 1].map(|i| counts[i].load(Ordering::Relaxed));
    Tally { executions, died, failed }
}

/// Explores `scenario` and prints how far.
pub fn run(title: &str, bound: Bound, scenario: Scenario) {
    let begun = Instant::now();
    let tally = explore(bound, scenario);
    assert!(tally.executions > 1, "{title}: the model ran {} time(s): it explores nothing", tally.executions);
    report(title, bound, &tally, begun);
}

/// Prints one line for the table in `docs/internals/models.md`.
pub fn report(title: &str, bound: Bound, tally: &Tally, begun: Instant) {
    let reach = match bound {
        None => "every interleaving".to_owned(),
        Some(1) => "every interleaving with at most 1 preemption".to_owned(),
        Some(n) => format!("every interleaving with at most {n} preemptions"),
    };
    let seconds = begun.elapsed().as_secs_f64();
    println!("loom: {title}: {} executions, {seconds:.1} s, complete for {reach}", tally.executions);
}
