//! Traces of real jobs: every form of a call is in them, by every rank, in every arrangement, and whatever became of a rank.

use crate::common::{Job, Player};
use earlybird::trace::{CallOutcome, Trace, TracedCall, align, calls};
use earlybird::{CollectiveArgs, Communicator, Counts, Error, Op};
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("forms", forms),
        ("late", late),
        ("endless", endless),
        ("many", many),
        ("refused", refused),
    ]);
}

/// A directory for the traces of a test.
struct Traces(PathBuf);

impl Traces {
    fn new(name: &str) -> Traces {
        let directory = std::env::temp_dir().join(format!("earlybird-trace-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        Traces(directory)
    }

    fn path(&self) -> PathBuf {
        self.0.join("job")
    }

    fn job(&self, role: &'static str, ranks: usize) -> Job {
        Job::new(role, ranks).var("EARLYBIRD_TRACE", self.path().display())
    }

    fn read(&self) -> (Trace, Vec<TracedCall>) {
        let trace = Trace::read(&self.path()).unwrap();
        assert_eq!(align(&trace).len(), 1, "all ranks have one clock");
        let calls = calls(&trace, |_, _| 0);
        (trace, calls)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn forms(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank(), comm.size());
    for _ in 0..5 {
        comm.all_reduce_in_place(&mut [1.0f32; 2], Op::Sum).unwrap();
    }
    comm.barrier().unwrap();
    comm.process_at_rank(1).broadcast_into(&mut [7u8; 100]).unwrap();
    let (counts, own) = ([3, 1, 2, 4], [3, 1, 2, 4][rank]);
    let mut gathered = [0u16; 10];
    comm.all_gather_varcount_into(&vec![rank as u16; own], &mut gathered, &counts[..ranks]).unwrap();
    if rank == 1 {
        // Only this rank makes the mistake, and the numbers of the calls that follow are those of the others.
        comm.all_reduce_into(&[1u8; 3], &mut [0; 2], Op::Sum).unwrap_err();
    }
    let half = comm.split(Some(rank as u32 % 2), 0).unwrap().unwrap();
    half.all_reduce_in_place(&mut [1u64; 1000], Op::Max).unwrap();
    let sum = comm.start(CollectiveArgs::all_reduce(vec![1.0f64; 50], Op::Sum)).unwrap();
    let mut again = comm.init(CollectiveArgs::all_reduce(vec![1i32; 5], Op::Sum)).unwrap();
    for _ in 0..2 {
        again.start().unwrap();
        again.wait().unwrap();
    }
    assert_eq!(sum.wait().unwrap(), [ranks as f64; 50]);
    drop(comm.start(CollectiveArgs::barrier()).unwrap());
    drop(comm.all_reduce_shared(&[1.0f32; 2000], Op::Sum).unwrap());
    let each = vec![1usize; ranks];
    let pairs = Counts::PerPair { send: &each, recv: &each };
    comm.run(CollectiveArgs::all_to_all((&vec![1u8; ranks][..], &mut vec![0u8; ranks][..])).counts(pairs)).unwrap();
    comm.set_algorithm("plan:ring".parse::<earlybird::Choice>().unwrap()).unwrap();
    comm.all_reduce_in_place(&mut [1.0f32; 1 << 16], Op::Sum).unwrap();
    player.say(comm.last_call().unwrap().algorithm);
}

#[test]
fn every_form_of_a_call_is_recorded_by_every_rank() {
    for nodes in [None, Some("2"), Some("1,3")] {
        let traces = Traces::new("forms");
        let job = traces.job("forms", 4);
        let said = if let Some(nodes) = nodes { job.var("EARLYBIRD_RANKS_PER_NODE", nodes) } else { job }.run();
        let (trace, calls) = traces.read();
        assert_eq!((trace.size, trace.ranks.len()), (4, 4));
        let found: Vec<(&'static str, u64, usize)> =
            calls.iter().map(|call| (call.collective.name(), call.bytes, call.parts.len())).collect();
        let expected = [
            [("allreduce", 8, 4); 5].to_vec(),
            vec![("barrier", 0, 4), ("broadcast", 100, 4), ("allgather", 8, 4), ("split", 0, 4)],
            vec![("allreduce", 8000, 2); 2],
            vec![("allreduce", 400, 4), ("allreduce", 20, 4), ("allreduce", 20, 4), ("barrier", 0, 4)],
            vec![("allreduce", 8000, 4), ("alltoall", 1, 4), ("allreduce", 1 << 18, 4)],
        ];
        let sorted = |mut calls: Vec<(&'static str, u64, usize)>| {
            calls.sort_unstable();
            calls
        };
        assert_eq!(sorted(found), sorted(expected.concat()), "nodes {nodes:?}");
        for call in &calls {
            assert!(call.is_whole, "{call:?}");
            let last = call.ends().1.arrival;
            for part in &call.parts {
                let record = &part.record;
                assert!(part.waiting >= part.arrival && part.exit.is_none_or(|exit| exit >= part.waiting), "{part:?}");
                assert!(!call.synchronizes() || part.exit.is_none_or(|exit| exit >= last), "{call:?}");
                match record.outcome {
                    CallOutcome::Done => assert_ne!(trace.ranks[part.file].algorithm(record), "-", "{part:?}"),
                    outcome => assert_eq!((outcome, record.is_started), (CallOutcome::Released, true)),
                }
            }
        }
        let refused =
            |rank: usize| trace.ranks[rank].records.iter().filter(|r| r.outcome == CallOutcome::Refused).count();
        assert_eq!([0, 1, 2, 3].map(refused), [0, 1, 0, 0]);
        let last = calls.last().unwrap().parts[0];
        assert_eq!(trace.ranks[last.file].algorithm(&last.record), said[0][0], "by a plan, or between nodes");
    }
}

/// Rank 2 comes late, by 30 ms, which only a machine under great load makes another rank later than.
fn late(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    for _ in 0..player.arg(0) {
        if comm.rank() == 2 {
            comm.barrier().unwrap();
            std::thread::sleep(Duration::from_millis(30));
        } else {
            comm.barrier().unwrap();
        }
        comm.all_reduce_in_place(&mut [1.0f32; 100], Op::Sum).unwrap();
    }
}

#[test]
fn the_late_rank_is_the_last_and_the_others_wait_for_it() {
    let traces = Traces::new("late");
    traces.job("late", 4).arg(15).run();
    let (trace, calls) = traces.read();
    let reductions = calls.iter().filter(|call| call.bytes == 400);
    for call in reductions.clone() {
        let last = call.ends().1;
        // It slept after a barrier, which all left at about the time at which it began to sleep, but for a scheduler.
        assert!(call.parts.iter().all(|part| part.exit.unwrap() >= last.arrival), "{call:?}");
    }
    let by_rank_2 = reductions.clone().filter(|call| trace.ranks[call.ends().1.file].header.rank == 2).count();
    assert_eq!(reductions.count(), 15);
    assert!(by_rank_2 >= 12, "rank 2 was last in {by_rank_2} of 15");
}

fn endless(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut calls = 0u64;
    let error = loop {
        if let Err(error) = comm.all_reduce_in_place(&mut [1.0f32; 4], Op::Sum) {
            break error;
        }
        calls += 1;
        if calls == 1000 {
            player.say("under way");
        }
    };
    assert!(matches!(error, Error::PeerDied { rank: 1, .. }), "{error}");
    player.say(format!("calls {calls}"));
}

#[test]
fn the_trace_of_a_killed_rank_ends_with_its_last_call() {
    let traces = Traces::new("killed");
    let mut job = traces.job("endless", 3).start();
    job.wait_for(1, "under way");
    job.signal(1, Signal::KILL);
    job.wait_ended(&[0, 1, 2]);
    let ends = job.join();
    let (trace, calls) = traces.read();
    let of = |rank: usize| &trace.ranks[rank];
    for end in ends.iter().filter(|end| end.rank != 1) {
        let completed: u64 = end.heard("calls").unwrap().parse().unwrap();
        let records = &of(end.rank).records;
        assert_eq!(records.last().unwrap().outcome, CallOutcome::Failed);
        assert_eq!(records.last().unwrap().number, completed + 1);
        // The dead rank's record is at most a call behind the others'.
        let dead = of(1).records.last().unwrap();
        assert!(dead.number + 1 >= completed && of(1).torn <= 1, "{dead:?} {completed}");
        assert!(matches!(dead.outcome, CallOutcome::Open | CallOutcome::Done), "{dead:?}");
    }
    assert!(calls.iter().filter(|call| call.is_whole).count() >= 1000);

    let traces = Traces::new("all-killed");
    let mut job = traces.job("endless", 3).start();
    job.wait_for(0, "under way");
    job.kill_all(false);
    let (trace, _) = traces.read();
    assert!(trace.ranks.iter().all(|rank| rank.records.len() >= 999 && rank.torn <= 1));
}

fn many(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    for _ in 0..player.arg(0) {
        comm.barrier().unwrap();
    }
    // Another join of the same process goes on in the same file.
    drop(comm);
    Communicator::from_env().unwrap().barrier().unwrap();
}

#[test]
fn a_full_file_keeps_the_newest_calls_and_counts_the_others() {
    let traces = Traces::new("many");
    traces.job("many", 2).arg(1000).var("EARLYBIRD_TRACE_SIZE", 100 * 64).run();
    let (trace, calls) = traces.read();
    for rank in &trace.ranks {
        assert_eq!((rank.header.capacity, rank.records.len(), rank.dropped), (64, 64, 1001 - 64));
    }
    assert!(calls.len() == 64 && calls.iter().all(|call| call.is_whole));
    let communicators = |call: &TracedCall| call.parts[0].record.communicator;
    assert_ne!(communicators(&calls[62]), communicators(&calls[63]), "the name is the same, the group is not");
    // A smaller job of the same name does not take what the larger one has left for its own.
    traces.job("many", 1).arg(3).run();
    assert_eq!(traces.read().0.ranks.len(), 1);
}

fn refused(player: &Player) {
    match Communicator::from_env() {
        Err(error) => player.say(error),
        Ok(_) => player.say("joined"),
    }
}

#[test]
fn a_file_that_one_rank_cannot_write_is_an_error_of_all() {
    let job = |path: &Path, bytes: &str| {
        let job = Job::new("refused", 2).var_of(1, "EARLYBIRD_TRACE", path.display());
        job.var_of(1, "EARLYBIRD_TRACE_SIZE", bytes).run()
    };
    for (path, bytes, why) in [("/nowhere/job", "1Ki", "/nowhere/job.1"), ("/tmp/job", "63", "64 for each call")] {
        let said = job(Path::new(path), bytes);
        assert!(said.iter().all(|lines| lines[0].contains(why)), "{said:?}");
    }
}
