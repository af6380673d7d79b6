//! Virtual nodes of several ranks: every operation right and equal on all ranks, whatever goes wrong one error for
//! everybody, in the ranks of the job.

use crate::common::flags::meet;
use crate::common::victims::{all_tell_of_a_late_rank, tell, told_of_a_death, victim};
use crate::common::{Job, Player, mix};
use earlybird::{Communicator, Error, FoldOrder, Op};
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("operations", operations),
        ("victim", victim),
        ("differ", differ),
        ("refused", refused),
        ("missing", missing),
        ("groups", groups),
    ]);
}

const LAYOUTS: [(usize, &str); 6] = [(3, "1"), (6, "2"), (9, "5,3,1"), (3, "3"), (5, "2"), (4, "1,3")];

/// Comes late by a random time.
fn dawdle(comm: &Communicator, step: u64) {
    crate::common::dawdle(comm.rank(), step, 800);
}

/// What `rank` gives at `i` in call `step`.
fn exact(rank: usize, i: usize, step: u64) -> i64 {
    (rank * 1000 + i % 777) as i64 + step as i64
}

fn operations(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (me, size) = (comm.rank(), comm.size());
    let mut bits = 0u64;
    for (step, count) in [0usize, 1, 37, 1000, 100_003, 0, 300_000, 5].into_iter().enumerate() {
        let step = step as u64;
        let root = (mix(step) % size as u64) as usize;
        let at = comm.process_at_rank(root);
        let send: Vec<i64> = (0..count).map(|i| exact(me, i, step)).collect();
        let sum = |i: usize| (0..size).map(|r| exact(r, i, step)).sum::<i64>();
        comm.set_order(if step.is_multiple_of(2) { FoldOrder::Rank } else { FoldOrder::Arrival }).unwrap();

        dawdle(&comm, step);
        let mut recv = vec![-1; count];
        comm.all_reduce_into(&send, &mut recv, Op::Sum).unwrap();
        assert!(recv.iter().enumerate().all(|(i, v)| *v == sum(i)), "allreduce of {count}");
        let mut buf = send.clone();
        comm.all_reduce_in_place(&mut buf, Op::Sum).unwrap();
        assert_eq!(buf, recv);
        // Sums that round: the same bits everywhere, and in rank order in every run.
        let mut floats: Vec<f32> = (0..count).map(|i| (mix((i * 64 + me) as u64) % 1000) as f32 / 7.0).collect();
        comm.all_reduce_in_place(&mut floats, Op::Sum).unwrap();
        bits = floats.iter().fold(bits, |bits, v| mix(bits ^ u64::from(v.to_bits())));

        dawdle(&comm, step + 100);
        comm.barrier().unwrap();
        let mut all = if me == root { send.clone() } else { vec![0; count] };
        at.broadcast_into(&mut all).unwrap();
        assert!(all.iter().enumerate().all(|(i, v)| *v == exact(root, i, step)), "broadcast of {count} from {root}");
        let mut flags: Vec<bool> = (0..count % 5000).map(|i| me == root && i % 3 == 0).collect();
        at.broadcast_into(&mut flags).unwrap();
        assert!(flags.iter().enumerate().all(|(i, v)| *v == (i % 3 == 0)));

        dawdle(&comm, step + 200);
        let mut reduced = vec![-1; count];
        match me == root {
            true => at.reduce_into_root(&send, &mut reduced, Op::Sum).unwrap(),
            false => at.reduce_into(&send, Op::Sum).unwrap(),
        }
        assert!(
            reduced.iter().enumerate().all(|(i, v)| *v == if me == root { sum(i) } else { -1 }),
            "reduce to {root}"
        );
        let mut kept = send.clone();
        at.reduce_in_place(&mut kept, Op::Sum).unwrap();
        assert_eq!(kept, if me == root { reduced.clone() } else { send.clone() });

        blocks(&comm, &send, step, root);
        scattered(&comm, count, step, root);
        unequal(&comm, count.min(5000), step, root);
    }
    let last = comm.last_call().unwrap();
    player.say(format!("{} nodes {} {bits:x}", comm.nodes(), last.operation));
}

/// Operations that bring the ranks' blocks together.
fn blocks(comm: &Communicator, send: &[i64], step: u64, root: usize) {
    let (me, size, count) = (comm.rank(), comm.size(), send.len());
    let at = comm.process_at_rank(root);
    let right = |all: &[i64]| (0..size * count).all(|k| all[k] == exact(k / count, k % count, step));
    dawdle(comm, step + 300);
    let mut all = vec![-1; size * count];
    comm.all_gather_into(send, &mut all).unwrap();
    assert!(right(&all), "allgather of {count}");
    let mut all = vec![-1; size * count];
    all[me * count..][..count].copy_from_slice(send);
    comm.all_gather_in_place(&mut all).unwrap();
    assert!(right(&all), "allgather of {count} in place");
    match me == root {
        true => {
            let mut all = vec![-1; size * count];
            at.gather_into_root(send, &mut all).unwrap();
            assert!(right(&all), "gather of {count} to {root}");
        }
        false => at.gather_into(send).unwrap(),
    }
}

/// Operations that give every rank a block.
fn scattered(comm: &Communicator, count: usize, step: u64, root: usize) {
    let (me, size) = (comm.rank(), comm.size());
    let at = comm.process_at_rank(root);
    // Block r of rank `from`.
    let value = |from: usize, r: usize, i: usize| exact(from, i, step) * 16 + r as i64;
    let send: Vec<i64> =
        (0..size).flat_map(|r| (0..count).map(move |i| (r, i))).map(|(r, i)| value(me, r, i)).collect();
    dawdle(comm, step + 400);
    let mut mine = vec![-1; count];
    match me == root {
        true => at.scatter_into_root(&send, &mut mine).unwrap(),
        false => at.scatter_into(&mut mine).unwrap(),
    }
    assert!(mine.iter().enumerate().all(|(i, v)| *v == value(root, me, i)), "scatter of {count} from {root}");
    let mut recv = vec![-1; size * count];
    comm.all_to_all_into(&send, &mut recv).unwrap();
    assert!((0..size * count).all(|k| recv[k] == value(k / count, me, k % count)), "alltoall of {count}");
    let mut buf = send.clone();
    comm.all_to_all_in_place(&mut buf).unwrap();
    assert_eq!(buf, recv);
    comm.reduce_scatter_block_into(&send, &mut mine, Op::Sum).unwrap();
    let sum = |i: usize| (0..size).map(|from| value(from, me, i)).sum::<i64>();
    assert!(mine.iter().enumerate().all(|(i, v)| *v == sum(i)), "reduce-scatter of {count}");
}

/// Blocks of lengths of their own.
fn unequal(comm: &Communicator, count: usize, step: u64, root: usize) {
    let (me, size) = (comm.rank(), comm.size());
    let at = comm.process_at_rank(root);
    let counts: Vec<usize> = (0..size).map(|r| mix(step * 31 + r as u64) as usize % (count + 1)).collect();
    let total: usize = counts.iter().sum();
    let expected: Vec<i64> = (0..size).flat_map(|r| (0..counts[r]).map(move |i| exact(r, i, step))).collect();
    let mine = &expected[counts[..me].iter().sum()..][..counts[me]];
    let mut all = vec![-1; total];
    comm.all_gather_varcount_into(mine, &mut all, &counts).unwrap();
    assert_eq!(all, expected);
    match me == root {
        true => {
            all.fill(-1);
            at.gather_varcount_into_root(mine, &mut all, &counts).unwrap();
            assert_eq!(all, expected);
        }
        false => at.gather_varcount_into(mine, &counts).unwrap(),
    }
    let mut part = vec![-1; counts[me]];
    comm.reduce_scatter_varcount_into(&expected, &mut part, &counts, Op::Sum).unwrap();
    assert!(part.iter().zip(mine).all(|(sum, v)| *sum == v * size as i64));
}

#[test]
fn every_operation_on_every_layout() {
    for (ranks, nodes) in LAYOUTS {
        let said = Job::new("operations", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|of_rank| *of_rank == said[0]), "{nodes}: {said:?}");
        let count = nodes.parse::<usize>().map_or(nodes.split(',').count(), |each| ranks.div_ceil(each));
        assert!(said[0][0].starts_with(&format!("{count} nodes ")), "{said:?}");
    }
}

#[test]
fn every_exchange_plan_and_algorithm_gives_the_same_sums() {
    for (exchange, algorithm) in
        [("ring", "chain"), ("rsg", "leader"), ("binomial", "static-leader"), ("direct", "flat")]
    {
        let job = Job::new("operations", 6).var("EARLYBIRD_RANKS_PER_NODE", "3,2,1");
        let said = job.var("EARLYBIRD_EXCHANGE", exchange).var("EARLYBIRD_ALGORITHM", algorithm).run();
        assert!(said.iter().all(|of_rank| *of_rank == said[0]), "{exchange}: {said:?}");
    }
}

/// Six ranks on three nodes; one of them stops after twenty calls.
fn victims(who: usize, count: usize) -> Job {
    Job::new("victim", 6).arg(who).arg(20).arg(count).var("EARLYBIRD_RANKS_PER_NODE", "3,2,1")
}

#[test]
fn a_dead_rank_is_named_by_everybody_on_every_node() {
    for who in 0..6 {
        for count in [1, 5000, 400_000] {
            let told = told_of_a_death(victims(who, count), who, Duration::ZERO);
            assert!(told.contains("died during allreduce 21;"), "{told}");
        }
    }
}

#[test]
fn a_rank_may_die_anywhere_in_a_call() {
    for (round, who) in [0, 1, 3, 4, 5, 2, 0, 3].into_iter().enumerate() {
        let after = Duration::from_micros(mix(round as u64) % 20_000);
        told_of_a_death(victims(who, 300_000).arg("running"), who, after);
    }
}

#[test]
fn a_late_rank_is_named_under_a_deadline() {
    for who in 0..6 {
        all_tell_of_a_late_rank(victims(who, 100), who, 21);
    }
}

/// Some calls alike, then one of this rank's own.
fn differ(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let ours: Vec<usize> = player.args()[2].split(',').map(|rank| rank.parse().unwrap()).collect();
    for _ in 0..3 {
        comm.all_reduce_in_place(&mut [1u32; 50], Op::Sum).unwrap();
    }
    let call = &player.args()[usize::from(ours.contains(&comm.rank()))];
    let (mut buf, root) = ([1u32; 50], comm.process_at_rank(0));
    let result = match call.as_str() {
        "barrier" => comm.barrier(),
        "max" => comm.all_reduce_in_place(&mut buf, Op::Max),
        "i32" => comm.all_reduce_in_place(&mut [1i32; 50], Op::Sum),
        "sum" => comm.all_reduce_in_place(&mut buf, Op::Sum),
        "gather" => comm.all_gather_in_place(&mut [1u32; 6]),
        "broadcast" => root.broadcast_into(&mut buf),
        "broadcast from 1" => comm.process_at_rank(1).broadcast_into(&mut buf),
        "reduce" => root.reduce_in_place(&mut buf, Op::Sum),
        other => comm.all_reduce_in_place(&mut vec![1u32; other.parse().unwrap()], Op::Sum),
    };
    tell(player, result);
    tell(player, comm.barrier());
    // Leaving at once must not become the others' error.
    meet("told", &comm);
}

#[test]
fn different_calls_are_one_error_for_everybody() {
    let pairs = [
        ("sum", "51"),
        ("sum", "max"),
        ("sum", "i32"),
        ("sum", "barrier"),
        ("sum", "gather"),
        ("sum", "600000"),
        ("sum", "reduce"),
        ("barrier", "gather"),
        ("broadcast", "broadcast from 1"),
    ];
    for (most, some) in pairs {
        // One rank of a node, its leader, a whole node, the last node.
        for ours in ["1", "0", "3,4", "5"] {
            let job = Job::new("differ", 6).arg(most).arg(some).arg(ours).var("EARLYBIRD_RANKS_PER_NODE", "3,2,1");
            crate::common::all_tell_of_different_calls(job, "failed EB_MISMATCH ranks ");
        }
    }
}

/// What cannot be is refused on every rank and without harm.
fn refused(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut codes = Vec::new();
    let mut note = |result: Result<(), Error>| codes.push(result.expect_err("refused").code());
    note(comm.all_reduce_in_place(&mut [1i32], Op::Average));
    note(comm.all_reduce_in_place(&mut [true], Op::Sum));
    note(comm.all_reduce_into(&[1u8], &mut [], Op::Sum));
    note(comm.process_at_rank(9).broadcast_into(&mut [1u8]));
    note(comm.all_gather_into(&[1u8], &mut [0; 2]));
    note(comm.all_to_all_in_place(&mut [1u8]));
    note(comm.all_gather_varcount_into(&[1u8], &mut [0], &[1]));
    let mut sum = [1u8];
    comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
    player.say(format!("{} {}", codes.join(" "), sum[0]));
}

#[test]
fn refusals_leave_the_job_as_it_was() {
    let said = Job::new("refused", 5).var("EARLYBIRD_RANKS_PER_NODE", "2").run();
    let unsupported = "EB_UNSUPPORTED EB_UNSUPPORTED";
    let expected = format!("{unsupported} EB_USAGE EB_USAGE EB_USAGE EB_USAGE EB_USAGE 5");
    assert!(said.iter().all(|of_rank| *of_rank == [expected.clone()]), "{said:?}");
}

fn missing(_: &Player) {
    if let Err(error) = Communicator::from_env() {
        panic!("{error}");
    }
}

#[test]
fn a_missing_rank_is_named_at_the_start() {
    let mut job = Job::new("missing", 3).var("EARLYBIRD_RANKS_PER_NODE", "2").var("EARLYBIRD_SIZE", 4);
    job = job.var("EARLYBIRD_TIMEOUT", "1");
    for end in job.start().join() {
        assert!(!end.status.success() && end.log.contains("[3] had not arrived"), "{end}");
    }
}

#[test]
fn nothing_stays_when_everybody_is_killed() {
    let mut job = Job::new("victim", 6).arg(0).arg(20).arg(300_000).var("EARLYBIRD_RANKS_PER_NODE", "2").start();
    job.wait_for(0, "here");
    job.kill_all(false);
}

/// Groups of groups, duplicates, ranks without a color; all at work by turns.
fn groups(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (me, size) = (comm.rank(), comm.size());
    let sum = |comm: &Communicator| {
        let mut sum = vec![me as u64; 70_000];
        comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
        assert_eq!(sum[69_999], comm.job_ranks().iter().map(|rank| *rank as u64).sum::<u64>());
        let mut all = vec![0; comm.size()];
        comm.all_gather_into(&[me as u64], &mut all).unwrap();
        assert!(all.iter().eq(comm.job_ranks().iter().map(|rank| *rank as u64).collect::<Vec<_>>().iter()));
        assert_eq!(comm.job_ranks()[comm.rank()], me);
    };
    let twin = comm.duplicate().unwrap();
    assert_eq!((twin.rank(), twin.size(), twin.nodes()), (me, size, comm.nodes()));
    let parity = twin.split(Some((me % 2) as u32), -(me as i64)).unwrap().unwrap();
    assert!(parity.job_ranks().is_sorted_by(|a, b| a > b));
    let first = comm.split((me != 0).then_some(7), 0).unwrap();
    assert_eq!(first.is_none(), me == 0);
    // Neighbours: inside a node some of them.
    let pair = parity.split(Some((parity.rank() / 2) as u32), 0).unwrap().unwrap();
    let single = comm.split(Some(me as u32), 0).unwrap().unwrap();
    assert_eq!((single.size(), single.nodes()), (1, 1));
    for _ in 0..3 {
        [&comm, &parity, &twin, &pair, &single].into_iter().chain(&first).for_each(sum);
    }
    drop(twin);
    let inner = pair.split(Some(0), 0).unwrap().unwrap();
    assert_eq!(inner.job_ranks(), pair.job_ranks());
    for comm in [&inner, &comm, &parity] {
        sum(comm);
    }
    player.say(format!("{:?}", parity.job_ranks()));
}

#[test]
fn groups_span_nodes_too() {
    for (ranks, nodes) in LAYOUTS {
        let said = Job::new("groups", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().enumerate().all(|(rank, said)| *said == said_of(ranks, rank)), "{said:?}");
    }
}

fn said_of(ranks: usize, rank: usize) -> [String; 1] {
    [format!("{:?}", (0..ranks).filter(|other| other % 2 == rank % 2).rev().collect::<Vec<_>>())]
}
