//! Models of started operations: ranks that complete them in different orders, in memory that is used again.

use super::board::{Died, Group, Heap, name_of};
use super::kept::KeptWords;
use super::registered::RegisteredWords;
use super::{Bound, End, Tally, explore_quietly, report};
use Act::{Finish, Run, Start, StartOther};
use Memory::{Kept, KeptEarly, OpenedOnce, Private, Registered};
use earlybird_shm::Algorithm::{Chain, Flat, Slices};
use earlybird_shm::Collective::{AllReduce, AllToAll, Gather};
use earlybird_shm::protocol::active_request::{ActiveRequest, Blocks, Room};
use earlybird_shm::protocol::board::Board;
use earlybird_shm::protocol::call::Prepared;
use earlybird_shm::protocol::collective::Collective;
use earlybird_shm::protocol::payload::Buffers;
use earlybird_shm::protocol::signature::Signature;
use earlybird_shm::protocol::step::Step;
use earlybird_shm::protocol::word::Cause;
use earlybird_shm::protocol::{Member, Patience, Stop};
use earlybird_shm::sync::{Rule, break_rule};
use earlybird_shm::{Algorithm, DType, FoldOrder, Op, OwnedBuffers, WaitPreset};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Instant;

/// The next act of a rank in the operation of this number, from 1.
#[derive(Debug, Clone, Copy)]
pub enum Act {
    /// Starts it.
    Start(usize),
    /// Starts another call than the others do.
    StartOther(usize),
    /// Asks whether it is complete, and takes it if so.
    Ask(usize),
    /// Waits for it.
    Finish(usize),
    /// Carries it out as a blocking call.
    Run(usize),
}

/// The place of the buffers of a started call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Private,
    /// A place at which the other ranks reach them, and reduce them.
    Registered,
    /// The same in a wrong protocol, whose ranks keep the buffers that they opened first.
    OpenedOnce,
    /// Private, beside memory that a rank writes before it enters an operation, and that the others read before they leave it.
    Kept,
    /// The same in a wrong protocol, which does not wait until the others have read what was sent before.
    KeptEarly,
}

/// Ranks, each with what it does.
pub struct StartedModel {
    /// Name of its test.
    pub name: &'static str,
    /// The started operations; the root is rank 0.
    pub collective: Collective,
    /// The algorithm of the operations.
    pub algorithm: Algorithm,
    /// 64-bit words that are summed, or of each block.
    pub words: usize,
    /// Bytes of a window: a call that is larger runs in several operations.
    pub window: usize,
    /// The place of the buffers.
    pub memory: Memory,
    /// Preemptions.
    pub bound: Bound,
    /// The acts of each rank.
    pub scripts: &'static [&'static [Act]],
}

/// The models of one slot and one area, so that every operation uses what the one before has used.
pub static STARTED: &[StartedModel] = &[
    StartedModel {
        name: "started_slices_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 1,
        window: 128,
        memory: Private,
        bound: Some(1),
        scripts: CROSSED,
    },
    StartedModel {
        name: "started_slices_pieces_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 16,
        window: 128,
        memory: Private,
        bound: Some(2),
        scripts: &[ONCE, ONCE],
    },
    StartedModel { name: "started_chain_2", ..CHAIN },
    StartedModel { name: "started_chain_pieces_2", words: 16, bound: Some(2), scripts: &[ONCE, ONCE], ..CHAIN },
    StartedModel { name: "started_chain_3", scripts: &[ONCE, ONCE, ONCE], ..CHAIN },
    StartedModel { name: "started_chain_windows_2", words: 16, window: 64, scripts: &[ONCE, ONCE], ..CHAIN },
    StartedModel {
        name: "started_flat_2",
        collective: AllReduce,
        algorithm: Flat,
        words: 1,
        window: 128,
        memory: Private,
        bound: Some(3),
        scripts: CROSSED,
    },
    StartedModel {
        name: "started_flat_3",
        collective: AllReduce,
        algorithm: Flat,
        words: 1,
        window: 128,
        memory: Private,
        bound: Some(2),
        scripts: &[ONCE, ONCE, ONCE],
    },
    StartedModel {
        name: "started_two_flat_3",
        collective: AllReduce,
        algorithm: Flat,
        words: 1,
        window: 128,
        memory: Private,
        bound: Some(0),
        scripts: CROSSED_3,
    },
    StartedModel {
        name: "started_deposit_2",
        collective: AllReduce,
        algorithm: Flat,
        words: 6,
        window: 128,
        memory: Private,
        bound: Some(2),
        scripts: CROSSED,
    },
    StartedModel {
        name: "started_two_registered_3",
        collective: AllReduce,
        algorithm: Slices,
        words: 1,
        window: 128,
        memory: Registered,
        bound: Some(0),
        scripts: CROSSED_3,
    },
    StartedModel {
        name: "started_and_blocking_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 1,
        window: 128,
        memory: Private,
        bound: Some(2),
        scripts: &[&[Start(1), Run(2), Finish(1)], &[Start(1), Finish(1), Run(2)]],
    },
    StartedModel {
        name: "started_gather_2",
        collective: Gather,
        algorithm: Flat,
        words: 1,
        window: 128,
        memory: Private,
        bound: Some(3),
        scripts: CROSSED,
    },
    StartedModel {
        name: "started_all_to_all_2",
        collective: AllToAll,
        algorithm: Flat,
        words: 1,
        window: 128,
        memory: Private,
        bound: Some(3),
        scripts: CROSSED,
    },
    StartedModel {
        name: "started_slices_windows_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 16,
        window: 64,
        memory: Private,
        bound: Some(1),
        scripts: &[ONCE, ONCE],
    },
    StartedModel {
        name: "started_all_to_all_windows_2",
        collective: AllToAll,
        algorithm: Flat,
        words: 8,
        window: 64,
        memory: Private,
        bound: Some(2),
        scripts: CROSSED,
    },
    StartedModel {
        name: "started_registered_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 1,
        window: 128,
        memory: Registered,
        bound: Some(2),
        scripts: CROSSED,
    },
    StartedModel {
        name: "started_registered_pieces_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 16,
        window: 128,
        memory: Registered,
        bound: Some(2),
        scripts: &[ONCE, ONCE],
    },
    StartedModel {
        name: "started_registered_3",
        collective: AllReduce,
        algorithm: Slices,
        words: 1,
        window: 128,
        memory: Registered,
        bound: Some(1),
        scripts: &[ONCE, ONCE, ONCE],
    },
    StartedModel {
        name: "started_registered_and_blocking_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 1,
        window: 128,
        memory: Registered,
        bound: Some(2),
        scripts: &[&[Start(1), Run(2), Finish(1)], &[Start(1), Finish(1), Run(2)]],
    },
    StartedModel {
        name: "started_registered_away_2",
        collective: AllReduce,
        algorithm: Slices,
        words: 16,
        window: 64,
        memory: Registered,
        bound: Some(3),
        scripts: AWAY,
    },
    StartedModel { name: "started_kept_2", memory: Kept, ..KEPT_EARLY },
    StartedModel { name: "started_kept_gather_2", collective: Gather, memory: Kept, ..KEPT_EARLY },
];

/// Memory from which every call is sent, though the others may still read what the one before has sent.
pub static KEPT_EARLY: StartedModel = StartedModel {
    name: "started_kept_early_2",
    collective: AllToAll,
    algorithm: Flat,
    words: 1,
    window: 128,
    memory: KeptEarly,
    bound: Some(2),
    scripts: &[FIRST_FIRST, ONE_BY_ONE],
};

/// Calls that are folded by chain.
const CHAIN: StartedModel = StartedModel {
    name: "",
    collective: AllReduce,
    algorithm: Chain,
    words: 1,
    window: 128,
    memory: Private,
    bound: Some(1),
    scripts: CROSSED,
};

/// Two ranks that start different calls, which no ticket compares: neither may add to what the other has folded.
pub static DIFFERENT: StartedModel = StartedModel {
    name: "mismatch_started_chain_2",
    bound: Some(3),
    scripts: &[ONCE, &[StartOther(1), Finish(1)]],
    ..CHAIN
};

const ONE_BY_ONE: &[Act] = &[Start(1), Finish(1), Start(2), Finish(2)];

/// The same as `started_registered_away_2` on private buffers, in two windows: rank 0 has to come back for the second.
pub static PRIVATE_AWAY: StartedModel = StartedModel {
    name: "started_slices_away_2",
    collective: AllReduce,
    algorithm: Slices,
    words: 16,
    window: 64,
    memory: Private,
    bound: Some(0),
    scripts: AWAY,
};

/// Rank 0 starts a call and is in none any more.
const AWAY: &[&[Act]] = &[&[Start(1)], ONCE];

const ONCE: &[Act] = &[Start(1), Finish(1)];

/// Two ranks that complete their requests in different orders.
pub const CROSSED: &[&[Act]] = &[FIRST_FIRST, SECOND_FIRST];
/// Three.
pub const CROSSED_3: &[&[Act]] = &[FIRST_FIRST, SECOND_FIRST, FIRST_FIRST];
const FIRST_FIRST: &[Act] = &[Start(1), Start(2), Finish(1), Finish(2)];
const SECOND_FIRST: &[Act] = &[Start(1), Start(2), Finish(2), Finish(1)];

/// The model of this name.
pub fn started(name: &str) -> Option<&'static StartedModel> {
    STARTED.iter().find(|model| model.name == name)
}

/// A death of a rank: at which step, and at which of its visits to it, from 1.
pub type Death = Option<(usize, Step, usize)>;

fn value(rank: usize, number: usize) -> u64 {
    1 << (8 * rank + number)
}

impl StartedModel {
    /// Blocks that a rank sends: a reduction sends the whole, a gather one block, and an alltoall a block to every rank.
    fn sends(&self) -> usize {
        if self.collective == AllToAll { self.scripts.len() } else { 1 }
    }

    /// The contribution of `rank` to operation `number`.
    fn contribution(&self, rank: usize, number: usize) -> Vec<u64> {
        (0..self.sends()).flat_map(|to| self.block(rank, to, number)).collect()
    }

    /// The block of `from` for `to`; those of a reduction are of equal words.
    fn block(&self, from: usize, to: usize, number: usize) -> Vec<u64> {
        let word = |w: usize| value(from, number) | (to as u64) << 40 | (w as u64) << 48;
        (0..self.words).map(|w| if self.collective == AllReduce { value(from, number) } else { word(w) }).collect()
    }

    /// The result of `rank`.
    fn result(&self, rank: usize, number: usize) -> Vec<u64> {
        let ranks = self.scripts.len();
        match self.collective {
            AllReduce => vec![(0..ranks).map(|rank| value(rank, number)).sum(); self.words],
            Gather if rank != 0 => Vec::new(),
            Gather => (0..ranks).flat_map(|from| self.block(from, 0, number)).collect(),
            _ => (0..ranks).flat_map(|from| self.block(from, rank, number)).collect(),
        }
    }

    fn is_registered(&self) -> bool {
        matches!(self.memory, Registered | OpenedOnce)
    }

    fn prepared(&self, started: bool, op: Op) -> Prepared<'static> {
        let (collective, algorithm) = if started { (self.collective, self.algorithm) } else { (AllReduce, Flat) };
        let signature = Signature::new(collective, DType::U64, op, FoldOrder::Rank, Algorithm::Auto, self.words);
        let signature = if started { signature.started() } else { signature };
        let signature = if started && self.is_registered() { signature.registered() } else { signature };
        let signature = if collective == Gather { signature.rooted(0) } else { signature };
        let signature = signature.in_lane(!started || collective != AllReduce);
        Prepared::new(signature, DType::U64, op, self.scripts.len(), false, algorithm).expect("u64 has all operators")
    }

    fn request(&self, board: &Heap, number: usize, op: Op) -> Box<ActiveRequest> {
        let (rank, ranks) = (board.rank(), self.scripts.len());
        let send = self.contribution(rank, number);
        let receives = self.collective != Gather || rank == 0;
        let others = (0..ranks).filter(|other| receives && *other != rank);
        let buffers = match self.collective {
            _ if matches!(self.memory, Kept | KeptEarly) => KeptWords {
                words: (send, vec![0; self.result(rank, number).len()]),
                memory: board.kept(),
                value: value(rank, number),
                expected: others.map(|other| (other, value(other, number))).collect(),
                is_early: self.memory == KeptEarly,
            }
            .into_owned(),
            AllReduce if !self.is_registered() => OwnedBuffers::from(send),
            AllReduce => RegisteredWords(send, name_of(number)).into_owned(),
            _ => OwnedBuffers::from((send, vec![0; self.result(rank, number).len()])),
        };
        let room = match self.memory {
            Private | Kept | KeptEarly => Room { accumulator: self.window, deposit: self.window },
            Registered | OpenedOnce => Room::NONE_NEEDED,
        };
        Box::new(ActiveRequest::new(self.prepared(true, op), buffers, (rank, 0), Blocks::Equal(self.words), room))
    }
}

fn carry_out(member: &mut Member<Heap>, rank: usize, model: &StartedModel) -> Result<(), Stop> {
    let take = |started: Box<ActiveRequest>, number: usize| {
        let mut buffers = started.into_buffers();
        let found = match buffers.owner::<(Vec<u64>, Vec<u64>)>() {
            Some((_, recv)) => recv,
            None => buffers.owner::<Vec<u64>>().expect("what was started"),
        };
        assert_eq!(*found, model.result(rank, number), "wrong result: rank {rank} operation {number}");
    };
    let mut numbers = [0; 8];
    for act in model.scripts[rank] {
        match *act {
            Act::Start(n) | Act::StartOther(n) => {
                let op = if matches!(act, Act::StartOther(_)) { Op::Max } else { Op::Sum };
                let started = member.start(model.request(&member.board, n, op)).map_err(|(_, stop)| stop)?;
                numbers[n] = member.number_of(started);
            }
            Act::Ask(n) => {
                if let Some((started, result)) = member.ask(numbers[n]) {
                    result?;
                    take(started, n);
                    numbers[n] = 0;
                }
            }
            Act::Finish(n) if numbers[n] == 0 => {}
            Act::Finish(n) => {
                let (started, result) = member.finish(numbers[n]).expect("it was started");
                result?;
                take(started, n);
            }
            Act::Run(n) => {
                let (mut buf, call) = ([value(rank, n)], model.prepared(false, Op::Sum));
                member.run(&Buffers::in_place(&mut buf).call(0..1, &call))?;
                assert_eq!(buf[..], model.result(rank, n)[..1], "wrong sum: rank {rank} operation {n}");
            }
        }
    }
    Ok(())
}

fn run_rank(group: &Group, rank: usize, model: &StartedModel, death: Death) -> End {
    let patience = Patience::new(WaitPreset::Balanced, false, None);
    let dies = death.filter(|death| death.0 == rank).map(|death| (death.1, death.2));
    let mut member = Member::new(group.board(rank, dies), patience);
    match catch_unwind(AssertUnwindSafe(|| carry_out(&mut member, rank, model))) {
        Ok(Ok(())) => End::Fine,
        Ok(Err(stop)) => End::Failed(stop.0, group.details(stop.0.reporter())),
        Err(panic) if panic.is::<Died>() => {
            group.bury(rank);
            End::Died
        }
        Err(panic) => resume_unwind(panic),
    }
}

/// Explores the model with this death, and hands the ends of every execution to `check`; how many there were.
pub fn explore(
    model: &'static StartedModel,
    death: Death,
    check: impl Fn(&Group, &[End]) + Sync + Send + 'static,
) -> usize {
    explore_quietly(model.bound, move || {
        let ranks = model.scripts.len();
        let group = Group::new(ranks, death.is_some()).opening_once(model.memory == OpenedOnce);
        let others: Vec<_> = (1..ranks)
            .map(|rank| {
                let group = group.share();
                loom::thread::spawn(move || run_rank(&group, rank, model, death))
            })
            .collect();
        let mut ends = vec![run_rank(&group, 0, model, death)];
        ends.extend(others.into_iter().map(|other| other.join().unwrap()));
        check(&group, &ends);
    })
}

/// Explores the model, without `broken` if that is a rule, and prints how far.
pub fn run_started(model: &'static StartedModel, broken: Option<Rule>) {
    let begun = Instant::now();
    break_rule(broken);
    let executions = explore(model, None, |_, ends| {
        assert!(ends.iter().all(|end| *end == End::Fine), "a healthy group failed: {ends:?}");
    });
    assert!(executions > 1, "{}: the model explores nothing", model.name);
    report(model.name, model.bound, &Tally { executions, died: 0, failed: 0 }, begun);
}

/// Explores [`DIFFERENT`] and prints how far: every rank learns that the other makes another call.
pub fn run_different() {
    let begun = Instant::now();
    let executions = explore(&DIFFERENT, None, |_, ends| {
        let is_told = |end: &End| matches!(end, End::Failed(poison, _) if poison.cause() == Cause::Mismatch);
        assert!(ends.iter().all(is_told), "somebody missed a mismatch: {ends:?}");
    });
    assert!(executions > 1, "{}: the model explores nothing", DIFFERENT.name);
    report(DIFFERENT.name, DIFFERENT.bound, &Tally { executions, died: 0, failed: executions }, begun);
}
