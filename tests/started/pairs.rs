//! The started alltoall of blocks that differ for every pair of ranks, on one node and on several: right whatever else is started,
//! what differs told to all, memory given back.

use crate::common::data::{Sample, contribution, same_bits};
use crate::common::flags::{meet, wait_for};
use crate::common::{Job, Player, mix};
use crate::open::{Rest, finish_in_another_order};
use earlybird::{CollectiveArgs, Communicator, Counts, Error, Op, Request};
use half::f16;
use num_complex::Complex;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("matrix", matrix),
        ("differ", differ),
        ("strays", strays),
        ("again", again),
        ("kept", kept),
        ("dropped", dropped),
        ("full", full),
        ("room", room),
        ("away", away),
    ]);
}

const LAYOUTS: [(usize, &str); 7] = [(1, "1"), (2, "2"), (3, "3"), (5, "5"), (2, "1"), (5, "2"), (4, "1,3")];

/// How many elements `from` has for `to`: some pairs have none.
fn pair(seed: u64, from: usize, to: usize, count: usize) -> usize {
    match mix(seed ^ (from * 64 + to) as u64) % 4 {
        0 => 0,
        n => count * n as usize / 3,
    }
}

fn start<T: Sample>(comm: &Communicator, seed: u64, count: usize) -> Rest<'_> {
    let (rank, ranks) = (comm.rank(), comm.size());
    let block = move |from: usize, to: usize| {
        contribution::<T>(seed ^ (from * ranks + to) as u64, from, pair(seed, from, to, count), Op::Sum, false)
    };
    let send_counts: Vec<usize> = (0..ranks).map(|to| pair(seed, rank, to, count)).collect();
    let recv_counts: Vec<usize> = (0..ranks).map(|from| pair(seed, from, rank, count)).collect();
    let send: Vec<T> = (0..ranks).flat_map(|to| block(rank, to)).collect();
    let expected: Vec<T> = (0..ranks).flat_map(|from| block(from, rank)).collect();
    let dirty = contribution::<T>(seed + 1, rank, expected.len(), Op::Sum, false);
    let started = comm
        .start(
            CollectiveArgs::all_to_all((send.clone(), dirty))
                .counts(Counts::PerPair { send: &send_counts, recv: &recv_counts }),
        )
        .unwrap();
    Box::new(move || {
        let (sent, got) = started.wait().unwrap();
        let what = || format!("{count} x {}", T::DTYPE.name());
        same_bits(&got, &expected, &what);
        same_bits(&sent, &send, &what);
    })
}

fn matrix(player: &Player) {
    let job = Communicator::from_env().unwrap();
    let (me, last) = (job.rank(), job.size() as i64 - 1);
    // Also with ranks that go through the nodes in no order.
    let key = if me % 2 == 0 { me as i64 } else { 2 * last - me as i64 };
    let mixed = job.split(Some(0), key).unwrap().unwrap();
    let mut calls = 0u64;
    for comm in [job, mixed] {
        for count in [0, 1, 5, 37, 1000, 20_011] {
            let mut open: Vec<Rest<'_>> = Vec::new();
            for _ in 0..3 {
                calls += 8;
                open.push(start::<u32>(&comm, mix(calls), count));
                let sum = comm.start(CollectiveArgs::all_reduce(vec![comm.rank() as u64; 9], Op::Sum)).unwrap();
                let ranks = comm.size() as u64;
                open.push(Box::new(move || assert_eq!(sum.wait().unwrap(), vec![ranks * (ranks - 1) / 2; 9])));
                open.push(start::<f64>(&comm, mix(calls + 1), count));
                open.push(start::<bool>(&comm, mix(calls + 2), count));
                if mix(calls * 8 + comm.rank() as u64).is_multiple_of(3) {
                    std::thread::sleep(Duration::from_micros(300));
                }
                open.push(start::<f16>(&comm, mix(calls + 3), count));
                open.push(start::<Complex<f64>>(&comm, mix(calls + 4), count));
            }
            finish_in_another_order(open, 0);
        }
        comm.close().unwrap();
    }
    player.say("done");
}

#[test]
fn blocks_of_every_pair_come_to_their_ranks() {
    for (ranks, nodes) in LAYOUTS {
        let said = Job::new("matrix", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| *lines == ["done"]), "{nodes}: {said:?}");
    }
}

/// Rank 1 sends to rank 2 what that does not expect, or gives buffers that do not fit; the communicator goes on.
fn differ(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank(), comm.size());
    let even = vec![4; ranks];
    let mine = vec![rank as u64; 4 * ranks];
    let right = || {
        comm.start(
            CollectiveArgs::all_to_all((mine.clone(), vec![0; 4 * ranks]))
                .counts(Counts::PerPair { send: &even, recv: &even }),
        )
    };
    let mut send_counts = even.clone();
    if rank == 1 {
        send_counts[2] = 5;
    }
    let send = vec![rank as u64; send_counts.iter().sum()];
    let before = right().unwrap();
    let wrong = comm
        .start(
            CollectiveArgs::all_to_all((send, vec![0; 4 * ranks]))
                .counts(Counts::PerPair { send: &send_counts, recv: &even }),
        )
        .unwrap();
    let after = right().unwrap();
    let expected: Vec<u64> = (0..4 * ranks as u64).map(|i| i / 4).collect();
    assert_eq!(after.wait().unwrap().1, expected);
    let error = wrong.wait().unwrap_err();
    player.say(format!("{} {error}", error.code()));
    assert_eq!(before.wait().unwrap().1, expected);
    for result in [
        comm.start(
            CollectiveArgs::all_to_all((vec![1u8], vec![0])).counts(Counts::PerPair { send: &even, recv: &even }),
        ),
        comm.start(CollectiveArgs::all_to_all((vec![1u8], vec![0])).counts(Counts::PerPair { send: &[1], recv: &[1] })),
        comm.start(
            CollectiveArgs::all_to_all((vec![1u8], vec![0]))
                .counts(Counts::PerPair { send: &vec![usize::MAX; ranks], recv: &even }),
        ),
    ] {
        assert!(matches!(result, Err(Error::Usage { .. })));
    }
    comm.barrier().unwrap();
}

#[test]
fn counts_that_differ_are_told_to_all_and_nothing_is_lost() {
    crate::common::all_tell_that_counts_differ("differ");
}

/// One rank starts another call.
fn strays(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (ranks, odd) = (comm.size(), comm.rank() == player.arg::<usize>(0));
    let (counts, send, recv) = (vec![3; ranks], vec![1u64; 3 * ranks], vec![0; 3 * ranks]);
    let met = comm.start(CollectiveArgs::barrier()).and_then(Request::wait);
    let result = met.and_then(|()| match (player.args()[1].as_str(), odd) {
        (_, false) => comm
            .start(CollectiveArgs::all_to_all((send, recv)).counts(Counts::PerPair { send: &counts, recv: &counts }))?
            .wait()
            .map(drop),
        ("equal", true) => comm.start(CollectiveArgs::all_to_all((send, recv)))?.wait().map(drop),
        ("type", true) => {
            let (send, recv) = (vec![1i64; 3 * ranks], vec![0i64; 3 * ranks]);
            comm.start(
                CollectiveArgs::all_to_all((send, recv)).counts(Counts::PerPair { send: &counts, recv: &counts }),
            )?
            .wait()
            .map(drop)
        }
        (other, _) => panic!("no case {other}"),
    });
    let result = result.and_then(|()| comm.start(CollectiveArgs::barrier())?.wait());
    player.say(result.map_or_else(|error| error.code(), |()| "accepted"));
    meet("told", &comm);
}

#[test]
fn another_call_is_everybodys_error() {
    for case in ["equal", "type"] {
        for (odd, nodes) in [(1, "3"), (1, "2"), (2, "2")] {
            let said = Job::new("strays", 3).arg(odd).arg(case).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
            assert!(said.iter().all(|lines| *lines == ["EB_MISMATCH"]), "{case}, rank {odd}, {nodes}: {said:?}");
        }
    }
}

/// Prepared once, started again and again.
fn again(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (me, ranks) = (comm.rank(), comm.size());
    // The further a rank, the more.
    let (gives, gets): (Vec<usize>, Vec<usize>) =
        (0..ranks).map(|other| (40 * (me + other), 40 * (other + me))).unzip();
    let (send, recv) = (vec![0u64; gives.iter().sum()], vec![0u64; gets.iter().sum()]);
    let mut call = comm
        .init(CollectiveArgs::all_to_all((send, recv)).counts(Counts::PerPair { send: &gives, recv: &gets }))
        .unwrap();
    for step in 0..30 {
        call.buffers_mut().unwrap().0.fill(step * 100 + me as u64);
        call.start().unwrap();
        assert!(matches!(call.buffers_mut().map(|_| ()), Err(Error::Usage { .. })));
        while !call.try_wait().unwrap() {
            std::thread::yield_now();
        }
        let senders = gets.iter().enumerate().flat_map(|(from, count)| std::iter::repeat_n(from as u64, *count));
        assert!(call.buffers_mut().unwrap().1.iter().copied().eq(senders.map(|from| step * 100 + from)));
    }
    assert_eq!(call.into_buffers().unwrap().1.len(), gets.iter().sum::<usize>());
    player.say("done");
}

#[test]
fn a_prepared_call_serves_many_times() {
    for (ranks, nodes) in LAYOUTS {
        let said = Job::new("again", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| *lines == ["done"]), "{nodes}: {said:?}");
    }
}

/// The table of allocations takes a page more when there are more of them at once than ever before, and keeps it: so there are many once.
fn take_the_table(comm: &Communicator) {
    let many: Vec<_> = (0..40).map(|_| comm.alloc::<u8>(1).unwrap()).collect();
    drop(many);
    comm.barrier().unwrap();
}

/// Memory that is kept for later calls: none is sent from again while a rank still has to read it, however many calls are under way
/// and whoever is late, and no rank keeps more than five blocks: for two calls that the others may not have ended and three more.
fn kept(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (me, ranks) = (comm.rank(), comm.size());
    take_the_table(&comm);
    let seed = |step: u64, i: u64| (500 + step % 30) * 10 + i;
    let words_of = |from: usize, seed: u64| (0..ranks).map(|to| pair(seed, from, to, 3000)).sum::<usize>();
    let all = (0..30 * 3).flat_map(|at| (0..ranks).map(move |from| (from, at)));
    let longest = all.map(|(from, at)| words_of(from, seed(at / 3, at % 3))).max().unwrap();
    let block = (longest * size_of::<u64>()).next_power_of_two().max(64 << 10);
    // What the counts travel in is there first.
    (0..20).for_each(|_| start::<u64>(&comm, 0, 0)());
    comm.barrier().unwrap();
    let most = comm.shared_memory_bytes() + (ranks * 5 * block) as u64;
    comm.barrier().unwrap();
    for step in 0..90u64 {
        let calls: Vec<Rest<'_>> = (0..=step % 3).map(|i| start::<u64>(&comm, seed(step, i), 3000)).collect();
        if step as usize % ranks == me {
            std::thread::sleep(Duration::from_millis(1));
        }
        finish_in_another_order(calls, step + me as u64);
        assert!(comm.shared_memory_bytes() <= most, "step {step}: {} of {most}", comm.shared_memory_bytes());
    }
    player.say("done");
}

#[test]
fn memory_that_is_kept_is_read_before_it_is_sent_from_again() {
    for ranks in [2, 3, 5] {
        let said = Job::new("kept", ranks).run();
        assert!(said.iter().all(|lines| *lines == ["done"]), "{ranks}: {said:?}");
    }
}

/// Requests that are dropped: the others get what they need, and the memory is back.
fn dropped(player: &Player) {
    let job = Communicator::from_env().unwrap();
    let (me, ranks) = (job.rank(), job.size());
    take_the_table(&job);
    drop(job.duplicate().unwrap());
    job.barrier().unwrap();
    let before = job.shared_memory_bytes();
    job.barrier().unwrap();
    let comm = job.duplicate().unwrap();
    let counts = vec![5000; ranks];
    for step in 0..12 {
        let (send, recv) = (vec![step as u64; 5000 * ranks], vec![0; 5000 * ranks]);
        let started = comm
            .start(CollectiveArgs::all_to_all((send, recv)).counts(Counts::PerPair { send: &counts, recv: &counts }))
            .unwrap();
        if (step + me).is_multiple_of(3) {
            drop(started);
        } else {
            assert!(started.wait().unwrap().1.iter().all(|x| *x == step as u64));
        }
    }
    comm.barrier().unwrap();
    drop(comm);
    job.barrier().unwrap();
    assert_eq!(job.shared_memory_bytes(), before, "everything is back");
    job.barrier().unwrap();
    player.say("done");
}

#[test]
fn what_is_dropped_leaves_nothing_behind() {
    for nodes in [3, 2] {
        let said = Job::new("dropped", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| *lines == ["done"]), "{said:?}");
    }
}

/// More than the node's budget holds: every rank is told, and goes on.
fn full(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let ranks = comm.size();
    let large = if comm.rank() == 1 { 4 << 20 } else { 4 };
    let (mut gives, mut gets) = (vec![4; ranks], vec![4; ranks]);
    gives[0] = large;
    if comm.rank() == 0 {
        gets[1] = 4 << 20;
    }
    let (send, recv) = (vec![1u64; gives.iter().sum()], vec![0u64; gets.iter().sum()]);
    let started = comm
        .start(
            CollectiveArgs::all_to_all((send.clone(), recv.clone()))
                .counts(Counts::PerPair { send: &gives, recv: &gets }),
        )
        .unwrap();
    let error = started.wait().unwrap_err();
    player.say(format!("{} {error}", error.code()));
    let mut recv = recv;
    comm.all_to_all_varcount_into(&send, &gives, &mut recv, &gets).unwrap();
    assert!(recv.iter().all(|x| *x == 1));
}

#[test]
fn what_finds_no_memory_is_told_to_all() {
    let said = Job::new("full", 3).var("EARLYBIRD_ARENA_MAX", 24 << 20).run();
    assert!(said[0][0].starts_with("EB_NO_SPACE") && said[0][0].contains("rank 1"), "{said:?}");
    assert!(said.iter().all(|lines| *lines == said[0]), "{said:?}");
}

/// Memory that is kept for later calls makes room for a call that needs more than is left beside it.
fn room(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (me, ranks) = (comm.rank(), comm.size());
    let counts_of = |from: usize, to: usize, large: usize| if (from, to) == (1, 0) { large } else { 40_000 };
    // Three ranks keep two MiB each of the twelve beside the group's own; then 6.5 MiB are needed at once.
    for large in [40_000, 40_000, 40_000, 770_000] {
        let gives: Vec<usize> = (0..ranks).map(|to| counts_of(me, to, large)).collect();
        let gets: Vec<usize> = (0..ranks).map(|from| counts_of(from, me, large)).collect();
        let (send, recv) = (vec![me as u64; gives.iter().sum()], vec![9; gets.iter().sum()]);
        let args = CollectiveArgs::all_to_all((send, recv)).counts(Counts::PerPair { send: &gives, recv: &gets });
        let got = comm.start(args).unwrap().wait().unwrap().1;
        let senders = gets.iter().enumerate().flat_map(|(from, count)| std::iter::repeat_n(from as u64, *count));
        assert!(got.into_iter().eq(senders));
    }
    player.say("done");
}

#[test]
fn what_is_kept_makes_room() {
    let said = Job::new("room", 3).var("EARLYBIRD_ARENA_MAX", 24 << 20).run();
    assert!(said.iter().all(|lines| *lines == ["done"]), "{said:?}");
}

/// On one node a rank that has started holds up nobody.
fn away(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (me, ranks) = (comm.rank(), comm.size());
    let counts = vec![3000; ranks];
    let (send, recv) = (vec![me as u64; 3000 * ranks], vec![0; 3000 * ranks]);
    let started = comm
        .start(CollectiveArgs::all_to_all((send, recv)).counts(Counts::PerPair { send: &counts, recv: &counts }))
        .unwrap();
    player.say("started");
    if me == 1 {
        wait_for("go");
    }
    let got = started.wait().unwrap().1;
    assert!(got.iter().enumerate().all(|(i, from)| *from == i as u64 / 3000));
    player.say("done");
}

#[test]
fn a_rank_that_has_started_holds_up_nobody_on_its_node() {
    let mut job = Job::new("away", 3).start();
    job.wait_for(1, "started");
    job.wait_for(0, "done");
    job.wait_for(2, "done");
    job.raise("go");
    assert!(job.join().iter().all(|end| end.status.success()));
}
