//! Calls that are started now and waited for later: right results in any order of waiting, and nobody held up by a rank that
//! is elsewhere.

use crate::common::data::{Sample, contribution, reference, same_bits};
use crate::common::flags::{meet, raise, wait_for};
use crate::common::{Job, Player, mix};
use crate::open::{Rest, finish_in_another_order};
use earlybird::{Algorithm, BufferOwner, Choice, CollectiveArgs, Communicator, Element, Error, Op, Request};
use half::f16;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("matrix", matrix),
        ("large", large),
        ("away", away),
        ("queued", queued),
        ("behind", behind),
        ("dies", dies),
        ("absent", absent),
        ("lets_go", lets_go),
        ("leaves", leaves),
        ("wrong", wrong),
        ("again", again),
        ("fails", fails),
        ("differs", differs),
        ("long_differs", long_differs),
    ]);
}

/// The end of a call, waited for or asked for again and again.
fn end_of<B: BufferOwner>(mut request: Request<'_, B>, asks: bool) -> Result<B, Error> {
    if !asks {
        return request.wait();
    }
    let end = loop {
        if let Some(buffers) = request.try_wait()? {
            break buffers;
        }
    };
    let again = request.try_wait();
    assert!(matches!(again, Err(Error::Usage { .. })), "the buffers were given back");
    Ok(end)
}

/// Ranks, and how many of them are on each node.
const NODES: [(usize, &str); 3] = [(2, "1"), (5, "2"), (4, "1,3")];

/// Number of kinds of calls.
const KINDS: u64 = 10;

/// Starts a call of `kind`; its rest.
fn start<T: Sample>(comm: &Communicator, kind: u64, seed: u64, count: usize, op: Op) -> Rest<'_> {
    let (rank, ranks) = (comm.rank(), comm.size());
    let root = (seed % ranks as u64) as usize;
    let what = move || format!("kind {kind} of {count} {} {op:?} root {root}", T::DTYPE.name());
    // Sums that round are folded by rank on one node, node by node on several.
    let exact = comm.nodes() > 1;
    let given = move |rank: usize, count: usize| contribution::<T>(seed, rank, count, op, exact);
    let sum = move |count: usize| reference::<T>(seed, ranks, count, op, exact);
    let all = move |count: usize| (0..ranks).flat_map(|r| given(r, count)).collect::<Vec<T>>();
    let block = move |from: Vec<T>| from[rank * count..(rank + 1) * count].to_vec();
    let dirty = given(rank + 100, count);
    let check = move |found: &[T], expected: &[T]| same_bits(found, expected, &what);
    let one = move |request: earlybird::Request<'_, Vec<T>>, expected: Vec<T>| {
        check(&request.wait().unwrap(), &expected);
    };
    let two = move |request: earlybird::Request<'_, (Vec<T>, Vec<T>)>, sent: Vec<T>, expected: Vec<T>| {
        let (send, recv) = request.wait().unwrap();
        check(&send, &sent);
        check(&recv, &expected);
    };
    match kind {
        0 => {
            let request = comm.start(CollectiveArgs::all_reduce(given(rank, count), op)).unwrap();
            Box::new(move || one(request, sum(count)))
        }
        1 => {
            let request = comm.start(CollectiveArgs::all_reduce((given(rank, count), dirty), op)).unwrap();
            Box::new(move || two(request, given(rank, count), sum(count)))
        }
        2 => {
            let request = comm.start(CollectiveArgs::barrier()).unwrap();
            Box::new(move || request.wait().unwrap())
        }
        3 => {
            let request =
                comm.start(CollectiveArgs::all_gather((given(rank, count), given(rank + 100, count * ranks)))).unwrap();
            Box::new(move || two(request, given(rank, count), all(count)))
        }
        4 => {
            let send = given(rank, count * ranks);
            let request = comm.start(CollectiveArgs::all_to_all((send, given(rank + 100, count * ranks)))).unwrap();
            let expected = move || (0..ranks).flat_map(|r| block(given(r, count * ranks))).collect();
            Box::new(move || two(request, given(rank, count * ranks), expected()))
        }
        5 => {
            let request = comm.start(CollectiveArgs::reduce_scatter((given(rank, count * ranks), dirty), op)).unwrap();
            Box::new(move || two(request, given(rank, count * ranks), block(sum(count * ranks))))
        }
        6 => {
            let request = comm
                .start(CollectiveArgs::broadcast(root, if rank == root { given(rank, count) } else { dirty }))
                .unwrap();
            Box::new(move || one(request, given(root, count)))
        }
        // Of the others no receive buffer, or no send buffer.
        7 => {
            let recv = if rank == root { dirty } else { Vec::new() };
            let request = comm.start(CollectiveArgs::reduce(root, (given(rank, count), recv), op)).unwrap();
            let expected = move || if rank == root { sum(count) } else { Vec::new() };
            Box::new(move || two(request, given(rank, count), expected()))
        }
        8 => {
            let recv = if rank == root { given(rank + 100, count * ranks) } else { Vec::new() };
            let request = comm.start(CollectiveArgs::gather(root, (given(rank, count), recv))).unwrap();
            let expected = move || if rank == root { all(count) } else { Vec::new() };
            Box::new(move || two(request, given(rank, count), expected()))
        }
        9 => {
            let sent = move || if rank == root { given(rank, count * ranks) } else { Vec::new() };
            let request = comm.start(CollectiveArgs::scatter(root, (sent(), dirty))).unwrap();
            Box::new(move || two(request, sent(), block(given(root, count * ranks))))
        }
        _ => unreachable!("kind {kind}"),
    }
}

/// Starts every kind of call, more than there are slots, among blocking ones, and waits in an order of this rank's own.
fn batch<T: Sample>(comm: &Communicator, seed: u64, count: usize, op: Op) {
    let (rank, ranks) = (comm.rank(), comm.size());
    let mut rests = Vec::new();
    for i in 0..2 * KINDS {
        let call = mix(seed * 100 + i);
        let own = mix(call ^ rank as u64);
        if own.is_multiple_of(16) {
            std::thread::sleep(Duration::from_micros(own >> 32 & 0x1ff));
        }
        rests.push(start::<T>(comm, i % KINDS, call, count, op));
        if call.is_multiple_of(3) {
            let mut buf = contribution::<i64>(call, rank, [1, 37, 20_000][call as usize % 5 % 3], Op::Sum, true);
            let expected = reference::<i64>(call, ranks, buf.len(), Op::Sum, true);
            comm.all_reduce_in_place(&mut buf, Op::Sum).unwrap();
            same_bits(&buf, &expected, &|| format!("blocking among started ones, {}", buf.len()));
        }
        if own.is_multiple_of(5) {
            rests.swap_remove(own as usize / 7 % rests.len())();
        }
    }
    finish_in_another_order(rests, seed ^ rank as u64);
}

fn matrix(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    for (i, count) in [0, 1, 37, 5_000].into_iter().enumerate() {
        let seed = 10 * i as u64;
        batch::<f32>(&comm, seed, count, Op::Sum);
        batch::<f64>(&comm, seed + 1, count, Op::Average);
        batch::<i16>(&comm, seed + 2, count, Op::Max);
        batch::<f16>(&comm, seed + 3, count, Op::Sum);
        batch::<u64>(&comm, seed + 4, count, Op::BitXor);
    }
    batch::<f32>(&comm, 99, 100_003, Op::Sum);
    player.say(format!("ran {:?}", comm.last_call().map(|c| c.algorithm)));
}

#[test]
fn every_operation_gives_its_result_in_any_order_of_waiting() {
    for ranks in [1, 2, 3, 5] {
        Job::new("matrix", ranks).watchdog(Duration::from_secs(240)).run();
    }
}

#[test]
fn every_operation_gives_its_result_over_several_nodes() {
    for (ranks, nodes) in NODES {
        let job = Job::new("matrix", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        job.watchdog(Duration::from_secs(240)).run();
    }
}

fn large(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    batch::<f64>(&comm, 7, 300_001, Op::Sum);
    batch::<f16>(&comm, 8, 700_001, Op::Sum);
}

#[test]
fn calls_larger_than_the_windows_run_in_parts() {
    for ranks in [2, 3] {
        Job::new("large", ranks).watchdog(Duration::from_secs(240)).run();
    }
    Job::new("large", 3).var("EARLYBIRD_RANKS_PER_NODE", 2).watchdog(Duration::from_secs(240)).run();
}

/// Rank 0 starts and is away until the test, which has heard of the others' results, lets it go on.
fn away(player: &Player) {
    let (count, mixed): (usize, bool) = (player.arg(0), player.arg(1));
    let comm = Communicator::from_env().unwrap();
    let mine = vec![comm.rank() as u64 + 1; count];
    let sum = (1..=comm.size() as u64).sum::<u64>();
    let request = comm.start(CollectiveArgs::all_reduce(mine, Op::Sum)).unwrap();
    if comm.rank() == 0 {
        player.say("started");
        wait_for("go");
    } else if mixed {
        // The result is folded and copied inside another call.
        comm.process_at_rank(1).broadcast_into(&mut [0u8; 3]).unwrap();
    }
    let got = request.wait().unwrap();
    assert!(got.len() == count && got.iter().all(|v| *v == sum), "{got:?}");
    player.say("has it");
    if comm.rank() == 0 && mixed {
        comm.process_at_rank(1).broadcast_into(&mut [0u8; 3]).unwrap();
    }
}

#[test]
fn a_rank_that_has_started_holds_up_nobody() {
    for (count, mixed) in [(1, false), (37, true), (50_000, false), (50_000, true)] {
        let mut job = Job::new("away", 3).arg(count).arg(mixed).start();
        job.wait_for(0, "started");
        job.wait_for(1, "has it");
        job.wait_for(2, "has it");
        job.raise("go");
        for end in job.join() {
            assert!(end.status.success() && end.heard("has").is_some(), "{end}");
        }
    }
}

/// Rank 0 starts more than the memory holds and only then tells rank 1, through another communicator, to begin.
fn queued(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    let other = comm.duplicate().unwrap();
    for (round, count) in [1, 37, 30_000].into_iter().enumerate() {
        if comm.rank() == 1 {
            other.barrier().unwrap();
        }
        let all: Vec<_> = (0..20u64)
            .map(|i| comm.start(CollectiveArgs::all_reduce(vec![i + comm.rank() as u64; count], Op::Sum)).unwrap())
            .collect();
        if comm.rank() == 0 {
            other.barrier().unwrap();
        }
        for (i, request) in all.into_iter().enumerate() {
            assert_eq!(request.wait().unwrap(), vec![2 * i as u64 + 1; count], "round {round}, {i}");
        }
    }
}

#[test]
fn starting_never_waits_for_a_slot_or_an_area() {
    Job::new("queued", 2).run();
}

/// Rank 0 asks for the last of its calls only, through a blocking one, and the others for the first: what is pending
/// proceeds inside whatever call a rank is in.
fn behind(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    for round in 0..50u64 {
        let mut all: Vec<_> = (0..12u64)
            .map(|i| {
                comm.start(CollectiveArgs::all_reduce(vec![round + i; [1, 4_000][i as usize % 2]], Op::Max)).unwrap()
            })
            .collect();
        if comm.rank() == 0 {
            all.reverse();
            comm.barrier().unwrap();
            all.drain(..).for_each(|request| drop(request.wait().unwrap()));
        } else {
            all.drain(..).for_each(|request| drop(request.wait().unwrap()));
            comm.barrier().unwrap();
        }
    }
}

#[test]
fn a_rank_inside_another_call_carries_on_with_what_it_has_started() {
    for ranks in [2, 3] {
        Job::new("behind", ranks).run();
    }
    for (ranks, nodes) in NODES {
        Job::new("behind", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

/// Rank 2 dies with its first call started: that one is complete, the next is not.
fn dies(player: &Player) {
    let asks: bool = player.arg(0);
    let comm = Communicator::from_env().unwrap();
    let first = comm.start(CollectiveArgs::all_reduce(vec![1u32; 9_000], Op::Sum)).unwrap();
    player.say("started");
    if comm.rank() == 2 {
        wait_for("never");
    }
    wait_for("dead");
    // The other survivor may have found out before.
    let second = comm.start(CollectiveArgs::all_reduce(vec![1u32; 9_000], Op::Sum));
    assert_eq!(first.wait().unwrap(), vec![3; 9_000]);
    let error = second.and_then(|request| end_of(request, asks)).expect_err("the sum of a dead rank");
    assert!(matches!(error, Error::PeerDied { rank: 2, .. }), "{error}");
    let next = comm.start(CollectiveArgs::barrier()).map(|_| ()).unwrap_err();
    assert!(matches!(next, Error::PeerDied { rank: 2, .. }), "{next}");
    player.say("told");
}

#[test]
fn a_dead_rank_fails_what_it_had_not_started() {
    for asks in [false, true] {
        let mut job = Job::new("dies", 3).arg(asks).start();
        (0..3).for_each(|rank| job.wait_for(rank, "started"));
        job.signal(2, rustix::process::Signal::KILL);
        job.wait_ended(&[2]);
        job.raise("dead");
        for end in job.join() {
            assert!(end.rank == 2 || end.said == ["started", "told"], "{end}");
        }
    }
}

/// Rank 0 waits for, or asks for, what the others never start, until its deadline.
fn absent(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let count: usize = player.arg(1);
    if comm.rank() == 0 {
        let request = comm.start(CollectiveArgs::all_reduce(vec![1i8; count], Op::Sum));
        let error = request.and_then(|request| end_of(request, player.arg(0))).expect_err("two ranks have not come");
        assert!(matches!(&error, Error::Timeout { missing, .. } if *missing == [1, 2]), "{error}");
        raise("over");
        player.say("told");
    }
    wait_for("over");
}

#[test]
fn a_deadline_ends_waiting_and_asking() {
    for (asks, count) in [(false, 5), (true, 5), (false, 5_000), (true, 5_000)] {
        let job = Job::new("absent", 3).arg(asks).arg(count).var("EARLYBIRD_TIMEOUT", "1");
        assert_eq!(job.run()[0], ["told"]);
    }
}

/// Nobody waits for the requests of rank 0.
fn lets_go(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    for round in 0..30u64 {
        let all: Vec<_> = (0..11)
            .map(|i| comm.start(CollectiveArgs::all_reduce(vec![round; 1 + 700 * i], Op::Sum)).unwrap())
            .collect();
        if comm.rank() == 0 {
            drop(all);
        } else {
            for request in all {
                assert!(request.wait().unwrap().iter().all(|v| *v == round * comm.size() as u64));
            }
        }
        let mut one = [1.0f32];
        comm.all_reduce_in_place(&mut one, Op::Sum).unwrap();
        assert_eq!(one, [comm.size() as f32]);
    }
}

#[test]
fn dropped_requests_are_completed_by_later_calls() {
    for ranks in [1, 2, 3] {
        Job::new("lets_go", ranks).run();
    }
    for (ranks, nodes) in NODES {
        Job::new("lets_go", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

/// Rank 0 starts more than the memory holds, lets go of everything and drops the communicator.
fn leaves(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let late = comm.rank() != 0;
    if late {
        wait_for("gone");
    }
    let all: Vec<_> =
        (0..9u64).map(|i| comm.start(CollectiveArgs::all_reduce(vec![i; 5_000], Op::Sum)).unwrap()).collect();
    if late {
        for (i, request) in all.into_iter().enumerate() {
            assert_eq!(request.wait().unwrap(), vec![2 * i as u64; 5_000]);
        }
    } else {
        drop(all);
        player.say("leaves");
    }
}

#[test]
fn a_communicator_that_is_dropped_completes_what_others_need() {
    for nodes in ["2", "1"] {
        let mut job = Job::new("leaves", 2).var("EARLYBIRD_RANKS_PER_NODE", nodes).start();
        job.wait_for(0, "leaves");
        job.raise("gone");
        for end in job.join() {
            assert!(end.status.success(), "{end}");
        }
    }
}

fn usage<T>(result: Result<T, Error>, says: &str) {
    match result.map(|_| ()) {
        Err(error @ Error::Usage { .. }) => assert!(error.to_string().contains(says), "{error}"),
        other => panic!("{other:?}"),
    }
}

fn wrong(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let rank = comm.rank();
    usage(comm.start(CollectiveArgs::all_reduce((vec![1u8; 3], vec![0; 4]), Op::Sum)), "expected are");
    usage(comm.start(CollectiveArgs::all_gather((vec![1u8; 3], vec![0; 5]))), "expected are");
    usage(comm.start(CollectiveArgs::broadcast(7, vec![1u8])), "root 7 does not exist");
    let recv = if rank == 0 { Vec::new() } else { vec![0] };
    usage(comm.start(CollectiveArgs::reduce(0, (vec![1u8], recv), Op::Sum)), "expected are");
    let elsewhere = 1 - usize::from(rank == 1);
    usage(comm.start(CollectiveArgs::gather(elsewhere, vec![1u8; 2])), "only the root's block");
    assert!(matches!(comm.start(CollectiveArgs::all_reduce(vec![1.0f32], Op::BitAnd)), Err(Error::Unsupported { .. })));
    comm.set_algorithm("plan:ring".parse::<Choice>().unwrap()).unwrap();
    let refused = comm.start(CollectiveArgs::all_reduce(vec![1.0f32], Op::Sum)).map(|_| ()).unwrap_err();
    assert!(refused.to_string().contains("by plan:ring is not supported"), "{refused}");
    comm.set_algorithm(Algorithm::Auto).unwrap();
    let mut persistent = comm.init(CollectiveArgs::all_reduce(vec![1u64; 4], Op::Sum)).unwrap();
    persistent.start().unwrap();
    usage(persistent.start(), "is under way");
    usage(persistent.buffers_mut(), "is under way");
    persistent.wait().unwrap();
    assert_eq!(persistent.into_buffers().unwrap(), vec![comm.size() as u64; 4]);
    // A started call and a blocking one are different calls.
    let error = match rank {
        0 => comm
            .start(CollectiveArgs::all_reduce(vec![1u64; 400], Op::Sum))
            .and_then(|request| request.wait().map(drop)),
        _ => comm.all_reduce_in_place(&mut [1u64; 400], Op::Sum),
    };
    let error = error.unwrap_err();
    assert!(matches!(error, Error::Mismatch { .. }), "{error}");
    assert!(error.to_string().contains("immediate allreduce of 400 x u64"), "{error}");
    player.say("told");
}

#[test]
fn what_cannot_be_is_refused() {
    for said in Job::new("wrong", 2).run() {
        assert_eq!(said, ["told"]);
    }
}

/// Persistent calls of several operations, under way together.
fn again(_: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank() as u64, comm.size() as u64);
    let mut sum = comm.init(CollectiveArgs::all_reduce(vec![0u64; 3_000], Op::Sum)).unwrap();
    let mut few = comm.init(CollectiveArgs::all_reduce((vec![0u64; 2], vec![0; 2]), Op::Max)).unwrap();
    let mut all = comm.init(CollectiveArgs::all_gather((vec![0u64; 5], vec![0; 5 * ranks as usize]))).unwrap();
    let mut here = comm.init(CollectiveArgs::broadcast(0, vec![0u64; 900])).unwrap();
    let mut met = comm.init(CollectiveArgs::barrier()).unwrap();
    for round in 0..200u64 {
        sum.buffers_mut().unwrap().fill(round + rank);
        few.buffers_mut().unwrap().0.fill(round + rank);
        all.buffers_mut().unwrap().0.fill(round + rank);
        here.buffers_mut().unwrap().fill(if rank == 0 { round } else { 0 });
        sum.start().unwrap();
        few.start().unwrap();
        all.start().unwrap();
        here.start().unwrap();
        met.run().unwrap();
        while !few.try_wait().unwrap() {}
        here.wait().unwrap();
        all.wait().unwrap();
        sum.wait().unwrap();
        assert!(sum.buffers_mut().unwrap().iter().all(|v| *v == ranks * round + ranks * (ranks - 1) / 2));
        assert_eq!(few.buffers_mut().unwrap().1, [round + ranks - 1; 2]);
        let gathered: Vec<u64> = (0..ranks).flat_map(|r| [round + r; 5]).collect();
        assert_eq!(all.buffers_mut().unwrap().1, gathered);
        assert!(here.buffers_mut().unwrap().iter().all(|v| *v == round));
    }
    // One is left under way.
    met.start().unwrap();
}

#[test]
fn persistent_calls_start_again_and_again() {
    for ranks in [1, 2, 3] {
        Job::new("again", ranks).run();
    }
    for (ranks, nodes) in NODES {
        Job::new("again", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
    }
}

/// Over several nodes: starts and waits until the job fails; `who` stops after some calls, in the middle of them.
fn fails(player: &Player) {
    let (who, count): (usize, usize) = (player.arg(0), player.arg(1));
    let comm = Communicator::from_env().unwrap();
    let error = 'calls: loop {
        for call in 0u64.. {
            if comm.rank() == who && call == 20 {
                player.say("here");
                wait_for("never");
            }
            let a = comm.start(CollectiveArgs::all_reduce(vec![1.5f32; count], Op::Sum));
            let b = comm.start(CollectiveArgs::all_gather((vec![comm.rank() as u64; 3], vec![0; 3 * comm.size()])));
            let ends = [a.and_then(|a| a.wait().map(drop)), b.and_then(|b| b.wait().map(drop))];
            if let Some(error) = ends.into_iter().find_map(Result::err) {
                break 'calls error;
            }
        }
    };
    player.say(format!("{} {error}", error.code()));
    player.say(comm.start(CollectiveArgs::barrier()).map(drop).unwrap_err());
}

#[test]
fn deaths_and_deadlines_are_everybodys_over_several_nodes() {
    let cases = [(0, 5, false), (1, 5_000, false), (3, 300_000, false), (2, 5, true), (0, 5_000, true)];
    crate::common::deaths_and_deadlines_are_everybodys("fails", &cases, &[]);
}

/// Over several nodes: one rank starts another call than the others.
fn differs(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let odd = comm.rank() == player.arg::<usize>(1);
    let all =
        |count| comm.start(CollectiveArgs::all_reduce(vec![1u32; count], Op::Sum)).and_then(|r| r.wait().map(drop));
    // A rank may still be in this one when the others find what differs.
    let met = comm.start(CollectiveArgs::barrier()).and_then(earlybird::Request::wait);
    let result = met.and_then(|()| match (player.args()[0].as_str(), odd) {
        (_, false) => all(60),
        ("count", _) => all(61),
        ("blocking", _) => comm.all_reduce_in_place(&mut [1u32; 60], Op::Sum),
        ("reduce", _) => match comm.rank() {
            0 => comm
                .start(CollectiveArgs::reduce(1, (vec![1u32; 60], Vec::new()), Op::Sum))
                .and_then(|r| r.wait().map(drop)),
            _ => comm
                .start(CollectiveArgs::reduce(0, (vec![1u32; 60], Vec::new()), Op::Sum))
                .and_then(|r| r.wait().map(drop)),
        },
        (other, _) => panic!("no case {other}"),
    });
    let result = result.and_then(|()| comm.start(CollectiveArgs::barrier())?.wait());
    player.say(result.map_or_else(|error| format!("{} {error}", error.code()), |()| "accepted".into()));
    meet("told", &comm);
}

#[test]
fn different_calls_are_one_error_over_several_nodes() {
    for case in ["count", "blocking", "reduce"] {
        for odd in [0, 1, 3] {
            let job = Job::new("differs", 4).arg(case).arg(odd).var("EARLYBIRD_RANKS_PER_NODE", "2,2");
            crate::common::all_tell_of_different_calls(job, "EB_MISMATCH ranks ");
        }
    }
}

/// Long calls by different operators, which no ticket has compared before data are folded.
fn long_differs(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let op = if comm.rank() == 0 { Op::Sum } else { Op::Max };
    let ended = comm.start(CollectiveArgs::all_reduce(vec![1u32; 100_000], op)).and_then(|request| request.wait());
    player.say(ended.map_or_else(|error| error.code(), |_| "accepted"));
}

#[test]
fn long_calls_that_differ_are_told_to_all() {
    for said in Job::new("long_differs", 2).run() {
        assert_eq!(said, ["EB_MISMATCH"]);
    }
}

/// Requests may be handed to another thread, with the communicator.
#[test]
fn requests_and_persistent_calls_are_send() {
    fn send<T: Send>() {}
    fn any<T: Element>() {
        send::<earlybird::Request<'_, Vec<T>>>();
        send::<earlybird::Persistent<'_, (Vec<T>, Vec<T>)>>();
    }
    any::<f32>();
}
