//! A rank dies, stops or goes away at every step of every algorithm: the others return an error that names it, in that
//! operation or the next, and nothing is left behind.

use crate::common::{End, Job, Player, mix};
use earlybird::{Algorithm, Communicator, Error, FoldOrder, Op};
use earlybird_shm::protocol::step::Step;
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};
use std::sync::Mutex;
use std::time::Duration;

/// Calls of a job; faults strike in the first two.
const CALLS: usize = 4;

/// How calls are carried out; `count` elements of f64, the sum of which shows the order in both senses.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Variant {
    name: &'static str,
    algorithm: Algorithm,
    order: FoldOrder,
    count: usize,
    memory: Memory,
}

/// Where the buffers lie.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Memory {
    Private,
    /// In shared memory, the result in the place of the contribution.
    Registered,
    /// In shared memory, the result in a place of its own.
    RegisteredApart,
}

const fn variant(name: &'static str, algorithm: Algorithm, order: FoldOrder, count: usize) -> Variant {
    Variant { name, algorithm, order, count, memory: Memory::Private }
}

const fn registered(name: &'static str, memory: Memory) -> Variant {
    Variant { memory, ..variant(name, Algorithm::Slices, FoldOrder::Rank, 5000) }
}

static VARIANTS: [Variant; 11] = [
    variant("flat in the line", Algorithm::Flat, FoldOrder::Arrival, 3),
    variant("flat by deposits", Algorithm::Flat, FoldOrder::Arrival, 5000),
    variant("leader", Algorithm::Leader, FoldOrder::Arrival, 5000),
    variant("leader by rank", Algorithm::Leader, FoldOrder::Rank, 5000),
    variant("chain", Algorithm::Chain, FoldOrder::Arrival, 5000),
    variant("chain by rank", Algorithm::Chain, FoldOrder::Rank, 5000),
    variant("static leader", Algorithm::StaticLeader, FoldOrder::Arrival, 5000),
    variant("static leader, early", Algorithm::StaticLeaderEarly, FoldOrder::Arrival, 5000),
    variant("slices", Algorithm::Slices, FoldOrder::Rank, 5000),
    registered("registered buffers", Memory::Registered),
    registered("registered buffers, results apart", Memory::RegisteredApart),
];

/// Whether a rank passes a step in every operation.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Passes {
    Always,
    /// The algorithm has no such step for this rank.
    Never,
    /// It depends on its place in the arrival order.
    ByPlace,
}

/// The steps of each algorithm on three ranks.
fn passes(v: &Variant, step: Step, rank: usize) -> Passes {
    use Passes::{Always, ByPlace, Never};
    let is = |yes: bool| if yes { Always } else { Never };
    match (step, v.algorithm) {
        (Step::Begin | Step::Entered | Step::Copied | Step::Left, _) => Always,
        // Of no operation.
        (Step::Agreed | Step::Rejoined | Step::Joining | Step::Asked, _) => Never,
        (Step::Arrived, algorithm) => is(algorithm != Algorithm::Flat),
        (Step::Deposited, Algorithm::Flat) => is(v.count > 5),
        (Step::Deposited, Algorithm::Slices) => Always,
        (Step::Claimed | Step::Folded | Step::Published, Algorithm::Slices) => ByPlace,
        // Three ranks fold private data themselves.
        (Step::Deposited, Algorithm::Chain) => Never,
        (Step::Claimed | Step::Folded, Algorithm::Chain) => Always,
        // By rank, the highest rank completes every chunk.
        (Step::Published, Algorithm::Chain) if v.order == FoldOrder::Rank => is(rank == 2),
        (Step::Published, Algorithm::Chain) => ByPlace,
        // Places decide who deposits, who folds and who completes.
        (Step::Deposited | Step::Claimed | Step::Folded | Step::Published, Algorithm::Leader) => ByPlace,
        // One folder who takes no turns, and every rank publishes for itself.
        (Step::Claimed | Step::Folded | Step::Published, Algorithm::Flat) => Never,
        // Rank 0 folds and publishes without a fold word, the others deposit.
        (Step::Claimed | Step::Folded, _) => Never,
        (Step::Published, _) => is(rank == 0),
        (Step::Deposited, _) => is(rank != 0),
    }
}

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("calls", calls), ("hammer", hammer)]);
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Some calls, each begun late by this rank's delay, until one fails.
fn calls(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let v = &VARIANTS[player.arg::<usize>(0)];
    let (calls, delay_us): (usize, u64) = (player.arg(1), player.arg(2 + comm.rank()));
    comm.set_algorithm(v.algorithm).unwrap();
    comm.set_order(v.order).unwrap();
    for call in 1..=calls {
        player.say(format!("call {call}"));
        std::thread::sleep(Duration::from_micros(delay_us));
        if !one_call(&comm, player, v, call) {
            break;
        }
    }
    player.say("end");
}

/// Calls without a break until one fails.
fn hammer(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    player.say("joined");
    for call in 1.. {
        let v = VARIANTS[mix(call) as usize % VARIANTS.len()];
        comm.set_algorithm(v.algorithm).unwrap();
        comm.set_order(v.order).unwrap();
        if !one_call(&comm, player, &v, call as usize) {
            break;
        }
    }
    player.say("end");
}

/// Whether the call came back with a result, which must then be right.
fn one_call(comm: &Communicator, player: &Player, v: &Variant, call: usize) -> bool {
    let value = |rank: usize, i: usize| (rank * 1000 + call * 7 + i) as f64;
    match all_reduce(comm, v, |i| value(comm.rank(), i)) {
        Ok(sums) => {
            for (i, found) in sums.iter().enumerate() {
                assert_eq!(*found, (0..comm.size()).map(|r| value(r, i)).sum::<f64>(), "element {i} of call {call}");
            }
            true
        }
        Err(error) => {
            player.say(format!("failed {call} {}", now_ns()));
            player.say(format!("error {}", in_short(&error)));
            // The group has failed for good.
            let again = comm.barrier().expect_err("a failed group carried out a barrier");
            player.say(format!("again {}", in_short(&again)));
            false
        }
    }
}

/// The call of a variant on these contributions.
fn all_reduce(comm: &Communicator, v: &Variant, mine: impl Fn(usize) -> f64) -> Result<Vec<f64>, Error> {
    let mut buf: Vec<f64> = (0..v.count).map(mine).collect();
    if v.memory == Memory::Private {
        return comm.all_reduce_in_place(&mut buf, Op::Sum).map(|()| buf);
    }
    let mut shared = comm.alloc::<f64>(v.count)?;
    shared.copy_from_slice(&buf);
    if v.memory == Memory::Registered {
        return comm.all_reduce_shared_in_place(&mut shared, Op::Sum).map(|()| shared.to_vec());
    }
    let mut result = comm.alloc::<f64>(v.count)?;
    comm.all_reduce_shared_into(&shared, &mut result, Op::Sum).map(|()| result.to_vec())
}

fn in_short(error: &Error) -> String {
    match error {
        Error::PeerDied { rank, pid, .. } => format!("peer died: rank {rank} pid {pid}"),
        other => format!("{}: {other}", other.code()),
    }
}

/// Every survivor has met the death of `victim` in the call that the victim was in, or in the next; where the victim had
/// done its part of the very last call, there is no next one, and that call may have been completed without it.
fn check_survivors(ends: &[End], victim: usize, what: &dyn Fn() -> String) {
    let all = || ends.iter().map(End::to_string).collect::<String>();
    let last_call: usize = ends[victim].said.iter().filter(|line| line.starts_with("call ")).count();
    let expected = format!("peer died: rank {victim} pid {}", ends[victim].pid);
    for end in ends.iter().filter(|end| end.rank != victim) {
        assert!(end.status.success() && end.said.last().is_some_and(|l| l == "end"), "{}\n{}", what(), all());
        if last_call == CALLS && end.heard("error").is_none() {
            assert_eq!(end.said.len(), CALLS + 1, "{}\n{}", what(), all());
            continue;
        }
        assert_eq!(end.heard("error"), Some(expected.as_str()), "{}\n{}", what(), all());
        assert_eq!(end.heard("again"), Some(expected.as_str()), "{}\n{}", what(), all());
        if last_call > 0 {
            let failed: usize = end.heard("failed").unwrap().split(' ').next().unwrap().parse().unwrap();
            assert!((last_call..=last_call + 1).contains(&failed), "{}: in call {failed}\n{}", what(), all());
        }
    }
}

/// What a fault does to a rank at a step.
#[derive(Debug, Clone)]
struct Case {
    variant: usize,
    ranks: usize,
    step: Step,
    victim: usize,
    /// Place of the victim in the order in which ranks begin their calls.
    place: usize,
    nth: usize,
    what: &'static str,
}

impl Case {
    fn job(&self) -> Job {
        let mut job = Job::new("calls", self.ranks)
            .arg(self.variant)
            .arg(CALLS)
            .var("EARLYBIRD_FAULT", format!("{}:{}:{}:{}", self.victim, self.step.name(), self.nth, self.what));
        let mut others = (0..self.ranks).filter(|place| *place != self.place);
        for rank in 0..self.ranks {
            let place = if rank == self.victim { self.place } else { others.next().unwrap() };
            job = job.arg(place * 4000);
        }
        job
    }

    /// Runs the job; whether the fault struck.
    fn run(&self) -> bool {
        let survivors: Vec<usize> = (0..self.ranks).filter(|rank| *rank != self.victim).collect();
        let mut running = self.job().start();
        if self.what == "stop" {
            running.wait_stopped(self.victim);
            running.signal(self.victim, Signal::CONT);
        }
        running.wait_ended(&survivors);
        if self.what == "exec" {
            // It lives on as another program.
            running.signal(self.victim, Signal::KILL);
        }
        let ends = running.join();
        let last_word = ends[self.victim].said.last().map(String::as_str);
        let struck = self.what == "stop" || last_word != Some("end");
        if struck && self.what != "stop" {
            let victim = &ends[self.victim];
            // The other program may have ended by itself.
            let as_told = self.what == "exec" || victim.was_killed() == (self.what == "kill");
            assert!(as_told, "{self:?}\n{victim}");
            check_survivors(&ends, self.victim, &|| format!("{self:?}"));
        } else {
            let good = |end: &End| end.status.success() && end.said.len() == CALLS + 1 && end.heard("error").is_none();
            assert!(ends.iter().all(good), "{self:?}\n{}", ends.iter().map(End::to_string).collect::<String>());
        }
        struck
    }
}

/// Runs the cases a few at a time; which of them struck.
fn run_all(cases: Vec<Case>) -> Vec<(Case, bool)> {
    let (queue, done) = (Mutex::new(cases), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap().pop();
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some(case) = next() {
                    let struck = case.run();
                    done.lock().unwrap().push((case, struck));
                }
            });
        }
    });
    done.into_inner().unwrap()
}

/// A rank is killed at every step of one variant, whoever it is and whenever it comes.
fn killed_at_every_step(variant: usize) {
    let v = &VARIANTS[variant];
    let mut cases = Vec::new();
    for (number, step) in Step::ALL.into_iter().enumerate() {
        for victim in 0..3 {
            for place in 0..3 {
                // One case shows that a step is not passed.
                if passes(v, step, victim) != Passes::Never || (place == 1) {
                    let nth = 1 + (number + victim + place) % 2;
                    cases.push(Case { variant, ranks: 3, step, victim, place, nth, what: "kill" });
                }
            }
        }
    }
    let done = run_all(cases);
    let mut by_place = Vec::new();
    for (case, struck) in &done {
        match passes(v, case.step, case.victim) {
            Passes::Always => assert!(struck, "{}: the fault did not strike: {case:?}", v.name),
            Passes::Never => assert!(!struck, "{}: has this step after all: {case:?}", v.name),
            Passes::ByPlace => by_place.push(case.step),
        }
    }
    for step in by_place {
        let struck = done.iter().any(|(case, struck)| case.step == step && *struck);
        assert!(struck, "{}: {} is never passed in any order of arrival", v.name, step.name());
    }
    let struck = done.iter().filter(|(_, struck)| *struck).count();
    println!("{}: {} kills at {} steps, {struck} struck", v.name, done.len(), Step::ALL.len());
}

#[test]
fn killed_in_flat_in_the_line() {
    killed_at_every_step(0);
}

#[test]
fn killed_in_flat_by_deposits() {
    killed_at_every_step(1);
}

#[test]
fn killed_in_leader() {
    killed_at_every_step(2);
}

#[test]
fn killed_in_leader_by_rank() {
    killed_at_every_step(3);
}

#[test]
fn killed_in_chain() {
    killed_at_every_step(4);
}

#[test]
fn killed_in_chain_by_rank() {
    killed_at_every_step(5);
}

#[test]
fn killed_in_static_leader() {
    killed_at_every_step(6);
}

#[test]
fn killed_in_static_leader_early() {
    killed_at_every_step(7);
}

#[test]
fn killed_in_slices() {
    killed_at_every_step(8);
}

#[test]
fn killed_in_registered_buffers() {
    (9..11).for_each(killed_at_every_step);
}

/// Cases of `what` on steps that every rank passes.
fn certain(what: &'static str, ranks: usize, victims: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for (variant, v) in VARIANTS.iter().enumerate() {
        for step in Step::ALL {
            let always = (0..3).all(|rank| passes(v, step, rank) == Passes::Always);
            for &victim in victims.iter().filter(|_| always) {
                let (place, nth) = ((variant + victim) % ranks, 1 + (variant + victim) % 2);
                cases.push(Case { variant, ranks, step, victim, place, nth, what });
            }
        }
    }
    cases
}

fn all_strike(cases: Vec<Case>) {
    let (number, first) = (cases.len(), cases[0].clone());
    let done = run_all(cases);
    for (case, struck) in &done {
        assert!(struck, "the fault did not strike: {case:?}");
    }
    println!("{number} times {} on {} ranks", first.what, first.ranks);
}

#[test]
fn killed_among_two_and_five_ranks() {
    all_strike(certain("kill", 2, &[0, 1]));
    all_strike(certain("kill", 5, &[0, 4]));
}

#[test]
fn stopped_and_continued() {
    all_strike(certain("stop", 3, &[0, 2]));
}

#[test]
fn exited_without_leaving() {
    all_strike(certain("exit", 3, &[1]));
}

#[test]
fn replaced_by_another_program() {
    all_strike(certain("exec", 3, &[1]));
}

#[test]
fn killed_at_any_time() {
    let mut slowest_ns = 0;
    for round in 0..24u64 {
        let (ranks, victim) = ([2, 3, 5][(round % 3) as usize], (round / 3) as usize % 2);
        let mut running = Job::new("hammer", ranks).start();
        (0..ranks).for_each(|rank| running.wait_for(rank, "joined"));
        std::thread::sleep(Duration::from_micros(mix(round) % 20_000));
        let killed_ns = now_ns();
        running.signal(victim, Signal::KILL);
        let ends = running.join();
        check_survivors(&ends, victim, &|| format!("round {round}"));
        for end in ends.iter().filter(|end| end.rank != victim) {
            let returned_ns: u64 = end.heard("failed").unwrap().split(' ').nth(1).unwrap().parse().unwrap();
            slowest_ns = slowest_ns.max(returned_ns - killed_ns);
        }
    }
    println!("24 kills under load: the slowest survivor returned after {} ms", slowest_ns / 1_000_000);
}

#[test]
fn all_killed_at_any_time_leave_nothing() {
    for round in 0..40u64 {
        let ranks = [2, 3, 5][(round % 3) as usize];
        let mut running = Job::new("hammer", ranks).start();
        let met = round % 2 == 0;
        if met {
            (0..ranks).for_each(|rank| running.wait_for(rank, "joined"));
        }
        std::thread::sleep(Duration::from_micros(mix(round) % 30_000));
        running.kill_all(!met);
    }
}
