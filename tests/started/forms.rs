//! Forms of the calls that are started now and completed later: blocks of different lengths, many buffers, operators of users.

use crate::common::data::{Sample, contribution, reference, same_bits};
use crate::common::{Job, Player, mix};
use crate::open::{Rest, finish_in_another_order};
use bytemuck::{cast_slice, cast_slice_mut};
use earlybird::{BytesOp, CollectiveArgs, Communicator, Counts, Error, Op, UserOp};
use half::f16;
use std::sync::Arc;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("matrix", matrix),
        ("panics", panics),
        ("again", again),
        ("wrong", wrong),
        ("asks", asks),
        ("leaves", leaves),
    ]);
}

const KINDS: u64 = 4;

/// Starts a call of `kind` on the library's types; its rest.
fn start<T: Sample>(comm: &Communicator, kind: u64, seed: u64, count: usize, op: Op) -> Rest<'_> {
    let (rank, ranks) = (comm.rank(), comm.size());
    let root = (seed % ranks as u64) as usize;
    let what = move || format!("kind {kind} of {count} {} {op:?} root {root}", T::DTYPE.name());
    let counts: Vec<usize> = (0..ranks).map(|r| count * ((r + seed as usize) % 3) / 2).collect();
    // Sums that round are folded by rank on one node, node by node on several.
    let exact = comm.nodes() > 1;
    let given = move |rank: usize, count: usize| contribution::<T>(seed, rank, count, op, exact);
    let all: Vec<T> = (0..ranks).flat_map(|r| given(r, counts[r])).collect();
    let (own, total) = (given(rank, counts[rank]), counts.iter().sum::<usize>());
    let start: usize = counts[..rank].iter().sum();
    match kind {
        0 => {
            let request = comm
                .start(CollectiveArgs::all_gather((own, given(rank + 50, total))).counts(Counts::PerRank(&counts)))
                .unwrap();
            Box::new(move || same_bits(&request.wait().unwrap().1, &all, &what))
        }
        1 => {
            let (send, recv) = (given(rank, total), given(rank + 50, counts[rank]));
            let request =
                comm.start(CollectiveArgs::reduce_scatter((send, recv), op).counts(Counts::PerRank(&counts))).unwrap();
            let expected = reference::<T>(seed, ranks, total, op, exact)[start..start + counts[rank]].to_vec();
            Box::new(move || same_bits(&request.wait().unwrap().1, &expected, &what))
        }
        2 if rank == root => {
            let (to, from) = (given(rank + 50, total), given(rank + 50, counts[rank]));
            let gathers =
                comm.start(CollectiveArgs::gather(root, (own.clone(), to)).counts(Counts::PerRank(&counts))).unwrap();
            let scatters = comm
                .start(CollectiveArgs::scatter(root, (all.clone(), from)).counts(Counts::PerRank(&counts)))
                .unwrap();
            Box::new(move || {
                same_bits(&scatters.wait().unwrap().1, &own, &what);
                same_bits(&gathers.wait().unwrap().1, &all, &what);
            })
        }
        2 => {
            let gathers = comm
                .start(CollectiveArgs::gather(root, (own.clone(), Vec::new())).counts(Counts::PerRank(&counts)))
                .unwrap();
            let scatters = comm
                .start(
                    CollectiveArgs::scatter(root, (Vec::new(), given(rank + 50, counts[rank])))
                        .counts(Counts::PerRank(&counts)),
                )
                .unwrap();
            Box::new(move || {
                same_bits(&scatters.wait().unwrap().1, &own, &what);
                same_bits(&gathers.wait().unwrap().0, &own, &what);
            })
        }
        _ => {
            let whole = given(rank, count);
            let parts = vec![whole[..count / 3].to_vec(), Vec::new(), whole[count / 3..].to_vec()];
            let request = comm.start(CollectiveArgs::all_reduce_grouped(parts, op)).unwrap();
            let expected = reference::<T>(seed, ranks, count, op, exact);
            Box::new(move || same_bits(&request.wait().unwrap().into_parts().concat(), &expected, &what))
        }
    }
}

/// The map `x -> a x + b` and after it the other one: not commutative.
fn compose(a: &[u64; 2], b: &[u64; 2]) -> [u64; 2] {
    [a[0].wrapping_mul(b[0]), a[1].wrapping_mul(b[0]).wrapping_add(b[1])]
}

/// Starts an allreduce, a reduce-scatter and a reduce of elements of which only the size is known; what all give, what each gives
/// to all, and the three results.
fn post_on_bytes<'c>(
    comm: &'c Communicator,
    root: usize,
    given: [Vec<[u64; 2]>; 2],
    expected: [&[[u64; 2]]; 3],
) -> Rest<'c> {
    let bytes = |x: &[[u64; 2]]| cast_slice::<_, u8>(x).to_vec();
    let rows = |left: &[u8], right: &mut [u8]| {
        let (left, right): (&[[u64; 2]], &mut [[u64; 2]]) = (cast_slice(left), cast_slice_mut(right));
        left.iter().zip(right).for_each(|(a, b)| *b = compose(a, b));
    };
    let (raw, [mine, for_all], rooms) =
        (Arc::new(BytesOp::new(16, false, rows).unwrap()), given, expected.map(|x| vec![0; 16 * x.len()]));
    let [in_all, in_block, at_root] = rooms;
    let calls = [
        comm.init(CollectiveArgs::all_reduce((bytes(&mine), in_all), &raw)),
        comm.init(CollectiveArgs::reduce_scatter((bytes(&for_all), in_block), &raw)),
        comm.init(CollectiveArgs::reduce(root, (bytes(&mine), at_root), &raw)),
    ];
    let mut calls = calls.map(Result::unwrap);
    calls.iter_mut().for_each(|call| call.start().unwrap());
    let expected = expected.map(bytes);
    Box::new(move || {
        for (which, (call, expected)) in calls.iter_mut().zip(&expected).enumerate().rev() {
            call.wait().unwrap();
            assert!(call.buffers_mut().unwrap().1 == *expected, "call {which} on {} bytes", expected.len());
        }
    })
}

/// Starts calls by an operator that is not commutative.
fn post_by_user(comm: &Communicator, seed: u64, count: usize) -> Rest<'_> {
    let (rank, ranks) = (comm.rank(), comm.size());
    let op = Arc::new(UserOp::ordered(compose));
    let map = move |rank: usize, i: usize| [mix(seed ^ (rank * 1000 + i) as u64), mix(seed + i as u64)];
    let given = move |rank: usize, count: usize| (0..count).map(|i| map(rank, i)).collect::<Vec<_>>();
    let folded = move |i: usize| (1..ranks).fold(map(0, i), |sum, r| compose(&sum, &map(r, i)));
    let expected: Vec<[u64; 2]> = (0..count).map(folded).collect();
    let root = (seed % ranks as u64) as usize;
    let in_place = comm.start(CollectiveArgs::all_reduce(given(rank, count), &op)).unwrap();
    let apart = comm.start(CollectiveArgs::all_reduce((given(rank, count), vec![[0; 2]; count]), &op)).unwrap();
    let parts = comm.start(CollectiveArgs::reduce_scatter((given(rank, count * ranks), vec![[0; 2]; count]), &op));
    let parts = parts.unwrap();
    let own: Vec<[u64; 2]> = (rank * count..(rank + 1) * count).map(folded).collect();
    let at_root = if rank == root { expected.clone() } else { Vec::new() };
    let raw = post_on_bytes(comm, root, [given(rank, count), given(rank, count * ranks)], [&expected, &own, &at_root]);
    let reduced: Rest<'_> = match rank == root {
        true => {
            let request =
                comm.start(CollectiveArgs::reduce(root, (given(rank, count), vec![[0; 2]; count]), &op)).unwrap();
            let expected = expected.clone();
            Box::new(move || assert_eq!(request.wait().unwrap().1, expected))
        }
        false => {
            let request = comm.start(CollectiveArgs::reduce(root, (given(rank, count), Vec::new()), &op)).unwrap();
            Box::new(move || assert_eq!(request.wait().unwrap().0.len(), count))
        }
    };
    Box::new(move || {
        raw();
        reduced();
        assert!(parts.wait().unwrap().1 == own, "reduce-scatter of {count}");
        assert!(apart.wait().unwrap().1 == expected, "allreduce of {count}");
        assert!(in_place.wait().unwrap() == expected, "allreduce in place of {count}");
    })
}

fn matrix(player: &Player) {
    let job = Communicator::from_env().unwrap();
    let (me, last) = (job.rank(), job.size() as i64 - 1);
    // Over several nodes also with ranks that go through the nodes in no order.
    let mixed = job.nodes() > 1 && player.arg::<bool>(0);
    let key = if me % 2 == 0 { me as i64 } else { 2 * last - me as i64 };
    let comm = if mixed { job.split(Some(0), key).unwrap().unwrap() } else { job };
    let mut calls = 0u64;
    for count in [0, 1, 5, 37, 1000, 20_011] {
        let mut open: Vec<Rest<'_>> = Vec::new();
        for kind in 0..KINDS {
            calls += 3;
            open.push(start::<i32>(&comm, kind, mix(calls), count, Op::Sum));
            open.push(start::<f64>(&comm, kind, mix(calls + 1), count, Op::Product));
            open.push(start::<f16>(&comm, kind, mix(calls + 2), count, Op::Average));
            if mix(calls * 8 + comm.rank() as u64).is_multiple_of(3) {
                std::thread::sleep(Duration::from_micros(300));
            }
        }
        open.push(post_by_user(&comm, mix(count as u64), count));
        comm.barrier().unwrap();
        finish_in_another_order(open, 0);
    }
    comm.close().unwrap();
    player.say("done");
}

#[test]
fn started_forms_give_what_blocking_ones_give() {
    for ranks in [1, 2, 3, 5, 8] {
        assert!(Job::new("matrix", ranks).run().iter().all(|said| *said == ["done"]));
    }
    let least = earlybird_shm::layout::Windows::least_budget_bytes(3);
    assert!(Job::new("matrix", 3).var("EARLYBIRD_ARENA_MAX", least).run().iter().all(|said| *said == ["done"]));
}

#[test]
fn started_forms_over_several_nodes_give_what_blocking_ones_give() {
    for (ranks, nodes, mixed) in [(2, "1", false), (5, "2", false), (5, "2", true), (4, "1,3", false)] {
        let job = Job::new("matrix", ranks).arg(mixed).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        assert!(job.run().iter().all(|said| *said == ["done"]));
    }
}

/// An operator panics on one rank while that waits for something else.
fn panics(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let odd = comm.rank() == player.arg::<usize>(0);
    let op = Arc::new(UserOp::commutative(move |a: &[u64; 3], b: &[u64; 3]| match odd {
        true => panic!("it cannot be"),
        false => [a[0] + b[0], a[1], b[2]],
    }));
    let started = comm.start(CollectiveArgs::all_reduce(vec![[1u64; 3]; 2], &op)).unwrap();
    // A rank that has completed its call gets the error at the next one.
    let error = started.wait().and_then(|_| comm.barrier()).unwrap_err();
    player.say(format!("{} {}", error.code(), error.to_string().contains("it cannot be")));
    assert_eq!(comm.barrier().unwrap_err().code(), error.code());
}

#[test]
fn a_panic_in_a_started_operator_is_everybodys_error() {
    for (nodes, odd) in [(3, 1), (2, 2), (1, 1)] {
        let said = Job::new("panics", 3).arg(odd).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| *lines == ["EB_OPERATOR_PANICKED true"]), "{said:?}");
    }
}

/// Prepared once, started again and again.
fn again(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let ranks = comm.size() as u64;
    let mut grouped =
        comm.init(CollectiveArgs::all_reduce_grouped(vec![vec![0u64; 3], vec![0; 700]], Op::Sum)).unwrap();
    let op = Arc::new(UserOp::commutative(|a: &[u64; 2], b: &[u64; 2]| [a[0] + b[0], a[1].max(b[1])]));
    let mut merged = comm.init(CollectiveArgs::all_reduce(vec![[0u64; 2]; 400], &op)).unwrap();
    for step in 0..50 {
        grouped.buffers_mut().unwrap().parts_mut().for_each(|part| part.fill(step));
        merged.buffers_mut().unwrap().fill([1, step + comm.rank() as u64]);
        grouped.start().unwrap();
        merged.start().unwrap();
        assert!(matches!(grouped.buffers_mut(), Err(Error::Usage { .. })));
        grouped.wait().unwrap();
        merged.wait().unwrap();
        assert!(grouped.buffers_mut().unwrap().parts_mut().all(|part| part.iter().all(|x| *x == step * ranks)));
        assert!(merged.buffers_mut().unwrap().iter().all(|x| *x == [ranks, step + ranks - 1]));
    }
    assert_eq!(grouped.into_buffers().unwrap().into_parts()[1].len(), 700);
    drop(merged);
    comm.close().unwrap();
    player.say("done");
}

#[test]
fn prepared_forms_serve_many_times() {
    for (ranks, nodes) in [(1, 1), (3, 3), (3, 2)] {
        let job = Job::new("again", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        assert!(job.run().iter().all(|said| *said == ["done"]));
    }
}

fn wrong(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let ranks = comm.size();
    for code in [
        comm.start(CollectiveArgs::all_gather((vec![1u8], vec![0; ranks])).counts(Counts::PerRank(&[1]))).map(|_| ()),
        comm.start(CollectiveArgs::all_gather((vec![1u8], vec![0])).counts(Counts::PerRank(&vec![1; ranks])))
            .map(|_| ()),
        comm.init(CollectiveArgs::all_reduce(
            (vec![0; 7], vec![0; 7]),
            &Arc::new(BytesOp::new(2, true, |_: &[u8], _: &mut [u8]| {}).unwrap()),
        ))
        .map(|_| ()),
        comm.start(CollectiveArgs::scatter(9, (Vec::new(), vec![1u8])).counts(Counts::PerRank(&vec![1; ranks])))
            .map(|_| ()),
    ] {
        assert!(matches!(code, Err(Error::Usage { .. })), "{code:?}");
    }
    // The same total in other lengths.
    let lens = if comm.rank() == 1 { [2, 1] } else { [1, 2] };
    // Starting fails if the others have met already.
    let started = comm.start(CollectiveArgs::all_reduce_grouped(lens.map(|n| vec![1u32; n]).to_vec(), Op::Sum));
    player.say(started.and_then(earlybird::Request::wait).unwrap_err().code());
}

#[test]
fn other_lengths_are_told() {
    for nodes in [3, 2, 1] {
        let said = Job::new("wrong", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| *lines == ["EB_MISMATCH"]), "{said:?}");
    }
}

/// Makes one call, and asks for the next one until it has ended, which it cannot where a rank never starts it.
fn asks(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    player.say("once");
    if comm.rank() == 1 {
        std::thread::sleep(Duration::from_secs(100));
    }
    let mut request = comm.start(CollectiveArgs::all_reduce(vec![comm.rank() as u64; 9], Op::Sum)).unwrap();
    let error = loop {
        match request.try_wait() {
            Ok(Some(_)) => panic!("a sum without rank 1"),
            Ok(None) => {}
            Err(error) => break error,
        }
    };
    player.say(error.code());
}

#[test]
fn ranks_that_only_ask_learn_of_a_death() {
    for nodes in ["3", "2,1", "1,2", "1,1,1"] {
        crate::common::survivors_tell_of_a_death(Job::new("asks", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes));
    }
}

/// Rank 1 completes the second of two calls before the first, and leaves, while the leaders exchange for the second.
fn leaves(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let late = |ms: u64| std::thread::sleep(Duration::from_millis(if comm.rank() == 0 { ms } else { 0 }));
    let first = || comm.start(CollectiveArgs::all_reduce(vec![comm.rank() as u64; 9], Op::Sum)).unwrap();
    let second = || {
        let recv = if comm.rank() == 2 { vec![0; 9] } else { Vec::new() };
        comm.start(CollectiveArgs::reduce(2, (vec![1u64; 9], recv), Op::Sum)).unwrap()
    };
    late(20);
    if comm.rank() == 1 {
        let (first, second) = (first(), second());
        second.wait().unwrap();
        assert_eq!(first.wait().unwrap(), [3; 9]);
    } else {
        assert_eq!(first().wait().unwrap(), [3; 9]);
        late(200);
        let (_, counted) = second().wait().unwrap();
        assert!(comm.rank() == 0 || counted == [3; 9]);
    }
    player.say("left");
}

#[test]
fn a_rank_may_leave_once_its_calls_have_ended_in_any_order() {
    let said = Job::new("leaves", 3).var("EARLYBIRD_RANKS_PER_NODE", "2,1").run();
    assert!(said.iter().all(|lines| lines == &["left"]), "{said:?}");
}
