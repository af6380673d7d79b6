//! Allreduces of shared buffers that are started: reduced where they lie, without the ranks that compute meanwhile.

use crate::common::data::{Sample, contribution, reference, same_bits};
use crate::common::flags::wait_for;
use crate::common::{Job, Player, mix};
use earlybird::{
    Algorithm, CollectiveArgs, Communicator, Error, FoldOrder, Op, Request, SharedBuffer, UserOp, wait_all,
};
use half::f16;
use std::sync::Arc;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("results", results),
        ("together", together),
        ("away", away),
        ("again", again),
        ("lets_go", lets_go),
        ("differ", differ),
        ("dies", dies),
        ("late", late),
        ("across", across),
    ]);
}

fn shared<T: Sample>(comm: &Communicator, values: &[T]) -> SharedBuffer<T> {
    let mut buffer = comm.alloc(values.len()).unwrap();
    buffer.copy_from_slice(values);
    buffer
}

/// In place and into another buffer, of contributions whose sums round.
fn check<T: Sample>(comm: &Communicator, op: Op, count: usize) {
    let seed = mix(count as u64 ^ op as u64);
    let mine = contribution::<T>(seed, comm.rank(), count, op, false);
    let expected = reference::<T>(seed, comm.size(), count, op, false);
    let what = || format!("{count} x {} {op:?}", T::DTYPE.name());
    if mix(seed ^ comm.rank() as u64).is_multiple_of(4) {
        std::thread::sleep(Duration::from_micros(300));
    }
    let in_place = comm.start(CollectiveArgs::all_reduce(shared(comm, &mine), op)).unwrap();
    let apart = (shared(comm, &mine), comm.alloc::<T>(count).unwrap());
    let apart = comm.start(CollectiveArgs::all_reduce(apart, op)).unwrap();
    let (send, recv) = apart.wait().unwrap();
    same_bits(&send, &mine, &what);
    same_bits(&recv, &expected, &what);
    same_bits(&in_place.wait().unwrap(), &expected, &what);
}

fn results(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let by_rank: bool = player.arg(0);
    comm.set_order(if by_rank { FoldOrder::Rank } else { FoldOrder::Arrival }).unwrap();
    for count in [0, 1, 511, 2_048, 5_003, 100_003, 700_001] {
        check::<f32>(&comm, Op::Sum, count);
        check::<i64>(&comm, Op::Max, count);
        check::<f16>(&comm, Op::Average, count);
        check::<bool>(&comm, Op::LogicalXor, count);
    }
    // Calls that do not work in place of the buffers take them as any others.
    let last = Arc::new(UserOp::ordered(|_: &f64, b: &f64| *b));
    let mine = vec![comm.rank() as f64; 5003];
    let reduced = comm.start(CollectiveArgs::all_reduce(shared(&comm, &mine), &last)).unwrap();
    let root = comm.size() - 1;
    let sent = comm.start(CollectiveArgs::broadcast(root, shared(&comm, &mine))).unwrap();
    assert!(sent.wait().unwrap()[..] == reduced.wait().unwrap()[..] && root + 1 == comm.size());
    player.say("done");
}

#[test]
fn results_are_those_of_private_memory() {
    for ranks in [1, 2, 3, 4] {
        for by_rank in [false, true] {
            assert!(Job::new("results", ranks).arg(by_rank).run().iter().all(|said| *said == ["done"]));
        }
    }
}

/// Many under way, waited for in another order on each rank, blocking and private calls in between.
fn together(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, size) = (comm.rank(), comm.size());
    let sum = |call: usize| (0..size).map(|r| (r + call) as f64).sum::<f64>();
    for round in 0..player.arg::<usize>(0) {
        let count = [3_000, 70_000, 200_000][round % 3];
        let mut started: Vec<(usize, Request<'_, SharedBuffer<f64>>)> = Vec::new();
        for call in 0..10 {
            crate::common::dawdle(rank, (round * 10 + call) as u64, 300);
            let buffer = shared(&comm, &vec![(rank + call) as f64; count]);
            started.push((call, comm.start(CollectiveArgs::all_reduce(buffer, Op::Sum)).unwrap()));
            let mut between = vec![(rank + call) as f64; count];
            match (round + call) % 4 {
                0 => comm.all_reduce_in_place(&mut between, Op::Sum).unwrap(),
                1 => {
                    let mut buffer = shared(&comm, &between);
                    comm.set_algorithm(Algorithm::Slices).unwrap();
                    comm.all_reduce_shared_in_place(&mut buffer, Op::Sum).unwrap();
                    comm.set_algorithm(Algorithm::Auto).unwrap();
                    between.copy_from_slice(&buffer);
                }
                2 => between = comm.start(CollectiveArgs::all_reduce(between, Op::Sum)).unwrap().wait().unwrap(),
                _ => continue,
            }
            assert!(between.iter().all(|x| *x == sum(call)), "between, call {call}");
        }
        let turn = mix((round * size + rank) as u64) as usize % started.len();
        started.rotate_left(turn);
        for (call, mut request) in started {
            let found = match (call + rank).is_multiple_of(3) {
                true => loop {
                    if let Some(found) = request.try_wait().unwrap() {
                        break found;
                    }
                },
                false => request.wait().unwrap(),
            };
            assert!(found.iter().all(|x| *x == sum(call)), "rank {rank} round {round} call {call} of {count}");
        }
    }
    player.say("done");
}

#[test]
fn many_are_under_way_in_any_order() {
    for ranks in [2, 3, 4] {
        assert!(Job::new("together", ranks).arg(12).run().iter().all(|said| *said == ["done"]));
    }
}

/// Rank 0 starts calls of 16 MiB in all and is in none until the waits of all others have returned.
fn away(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (calls, size) = (player.arg::<usize>(0), comm.size());
    let count = (16 << 20) / size_of::<f32>() / calls;
    let start = |call| {
        let buffer = shared(&comm, &vec![(comm.rank() + call) as f32; count]);
        comm.start(CollectiveArgs::all_reduce(buffer, Op::Sum)).unwrap()
    };
    let check = |started: Vec<Request<'_, SharedBuffer<f32>>>| {
        for (call, sums) in wait_all(started).unwrap().into_iter().enumerate() {
            assert!(sums.iter().all(|x| *x == (0..size).map(|r| (r + call) as f32).sum::<f32>()), "call {call}");
        }
    };
    if comm.rank() == 0 {
        let started = (0..calls).map(start).collect();
        player.say("started");
        wait_for("returned");
        check(started);
    } else {
        wait_for("started");
        check((0..calls).map(start).collect());
        player.say("returned");
        // In no call either while rank 0 still waits.
        wait_for("returned");
    }
}

#[test]
fn an_early_rank_is_not_needed_once_it_has_started() {
    for (ranks, calls) in [(2, 1), (3, 1), (4, 1), (2, 8), (3, 8)] {
        let mut job = Job::new("away", ranks).arg(calls).start();
        job.wait_for(0, "started");
        job.raise("started");
        (1..ranks).for_each(|rank| job.wait_for(rank, "returned"));
        job.raise("returned");
        assert!(job.join().iter().all(|end| end.status.success()), "{ranks} ranks, {calls} calls");
    }
}

/// A persistent call takes what lies in its buffers, also in others that its caller puts there.
fn again(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let size = comm.size() as f32;
    let mut sum = comm.init(CollectiveArgs::all_reduce(comm.alloc::<f32>(50_000).unwrap(), Op::Sum)).unwrap();
    comm.barrier().unwrap();
    let taken = comm.shared_memory_bytes();
    for step in 0..50 {
        sum.buffers_mut().unwrap().fill(step as f32);
        sum.start().unwrap();
        assert!(matches!(sum.buffers_mut(), Err(Error::Usage { .. })), "the call is under way");
        sum.wait().unwrap();
        assert!(sum.buffers_mut().unwrap().iter().all(|x| *x == step as f32 * size), "step {step}");
        if step % 10 == 9 {
            *sum.buffers_mut().unwrap() = comm.alloc(50_000).unwrap();
        }
        comm.barrier().unwrap();
        assert_eq!(comm.shared_memory_bytes(), taken, "step {step}");
        comm.barrier().unwrap();
    }
    *sum.buffers_mut().unwrap() = comm.alloc(49_999).unwrap();
    assert!(matches!(sum.start(), Err(Error::Usage { .. })), "another length");
    player.say("done");
}

#[test]
fn persistent_calls_use_their_buffers_again() {
    for ranks in [1, 2, 3] {
        assert!(Job::new("again", ranks).run().iter().all(|said| *said == ["done"]));
    }
}

/// Requests are dropped: their calls are completed, and their memory comes back.
fn lets_go(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    // The first buffer also takes the table's first pages.
    drop(comm.alloc::<u8>(1));
    comm.barrier().unwrap();
    let before = comm.shared_memory_bytes();
    for step in 0..20u64 {
        crate::common::dawdle(comm.rank(), step, 500);
        let buffer = shared(&comm, &vec![1u32; 300_000]);
        drop(comm.start(CollectiveArgs::all_reduce(buffer, Op::Sum)).unwrap());
        let kept = comm.start(CollectiveArgs::all_reduce(shared(&comm, &[step as u32; 3000]), Op::Sum)).unwrap();
        assert!(kept.wait().unwrap().iter().all(|x| *x == step as u32 * comm.size() as u32));
    }
    let rest = comm.start(CollectiveArgs::all_reduce(shared(&comm, &[1u32; 3000]), Op::Sum)).unwrap();
    drop(rest.wait().unwrap());
    // The calls proceed inside these.
    let mut more = [true];
    while more[0] {
        more[0] = comm.shared_memory_bytes() > before;
        comm.all_reduce_in_place(&mut more, Op::LogicalOr).unwrap();
    }
    // The last one is completed when the communicator is dropped.
    drop(comm.start(CollectiveArgs::all_reduce(shared(&comm, &[1u32; 300_000]), Op::Sum)).unwrap());
    drop(comm);
    player.say("done");
}

#[test]
fn dropped_requests_are_completed_and_give_their_memory_back() {
    for ranks in [2, 3] {
        assert!(Job::new("lets_go", ranks).run().iter().all(|said| *said == ["done"]));
    }
}

/// Rank 1 starts another call than the others.
fn differ(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut buffer = shared(&comm, &[1f32; 500_000]);
    let error = match (comm.rank(), player.arg::<String>(0).as_str()) {
        (1, "private") => comm.start(CollectiveArgs::all_reduce(buffer.to_vec(), Op::Sum)).unwrap().wait().err(),
        (1, "longer") => {
            let buffer = comm.alloc::<f32>(500_001).unwrap();
            comm.start(CollectiveArgs::all_reduce(buffer, Op::Sum)).unwrap().wait().err()
        }
        (1, "blocking") => comm.all_reduce_shared_in_place(&mut buffer, Op::Sum).err(),
        _ => {
            let mut sum = comm.init(CollectiveArgs::all_reduce(buffer, Op::Sum)).unwrap();
            let error = sum.start().and_then(|()| sum.wait()).err();
            let mut buffer = sum.into_buffers().unwrap();
            assert!(buffer.iter().all(|x| x.to_bits() == 0), "private and zero");
            buffer.fill(3.0);
            let refused =
                comm.duplicate().map(drop).and_then(|()| comm.all_reduce_shared_in_place(&mut buffer, Op::Sum));
            assert!(refused.is_err());
            error
        }
    };
    let error = error.expect("the calls differ");
    player.say(format!("{} {error}", error.code()));
}

#[test]
fn different_calls_are_every_rank_s_one_error() {
    for (how, text) in
        [("private", "in shared buffers"), ("longer", "500001 x f32"), ("blocking", "immediate allreduce")]
    {
        let said = Job::new("differ", 3).arg(how).run();
        assert!(said.iter().all(|lines| lines == &said[0]), "{said:?}");
        assert!(said[0][0].starts_with("EB_MISMATCH") && said[0][0].contains(text), "{how}: {said:?}");
    }
}

/// Rank 2 never starts the second call: the others are told who is late.
fn late(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let start = || comm.start(CollectiveArgs::all_reduce(shared(&comm, &[1f32; 100_000]), Op::Sum)).unwrap();
    drop(start().wait().unwrap());
    if comm.rank() == 2 {
        wait_for("told");
        player.say(comm.barrier().unwrap_err().code());
        return;
    }
    player.say(start().wait().unwrap_err().to_string());
}

#[test]
fn a_deadline_names_the_late_rank() {
    let mut job = Job::new("late", 3).var("EARLYBIRD_TIMEOUT", "0.3").start();
    (0..2).for_each(|rank| job.wait_for(rank, ""));
    job.raise("told");
    let ends = job.join();
    assert!(ends[0].said[0].contains("rank(s) [2]") && ends[0].said == ends[1].said, "{ends:?}");
    assert_eq!(ends[2].said, ["EB_TIMEOUT"]);
}

/// Rank 1 is killed at some step; survivors have their sums or the one error, and go on without it.
fn dies(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let start = |comm: &Communicator, value: f32| {
        let apart = (shared(comm, &vec![value; 400_000]), comm.alloc::<f32>(400_000)?);
        let in_place = shared(comm, &vec![value; 400_000]);
        let apart = comm.start(CollectiveArgs::all_reduce(apart, Op::Sum))?;
        let in_place = comm.start(CollectiveArgs::all_reduce(in_place, Op::Sum))?;
        let (in_place, apart) = (in_place.wait(), apart.wait());
        Ok::<_, Error>((in_place?, apart?.1))
    };
    let delay: u64 = player.arg(comm.rank());
    let error = loop {
        std::thread::sleep(Duration::from_millis(delay));
        match start(&comm, 1.0) {
            Ok(sums) => assert!(sums.0.iter().chain(&sums.1[..]).all(|x| *x == comm.size() as f32)),
            Err(error) => break error,
        }
    };
    player.say(error);
    let left = comm.shrink().unwrap();
    let sums = start(&left, 2.0).unwrap();
    assert!(sums.0.iter().chain(&sums.1[..]).all(|x| *x == 2.0 * left.size() as f32));
    player.say(left.size());
}

#[cfg(feature = "fault")]
#[test]
fn a_death_at_any_step_is_the_survivors_one_error() {
    use earlybird_shm::protocol::step::Step;
    let steps = [Step::Begin, Step::Entered, Step::Deposited, Step::Claimed, Step::Folded, Step::Published, Step::Left];
    for (number, step) in steps.into_iter().enumerate() {
        for victim in 0..3 {
            // The victim comes first, between the others or last, so that it may fold all or nothing.
            for place in 0..3 {
                let nth = 1 + (number + victim + place) % 3;
                let fault = format!("{victim}:{}:{nth}:kill", step.name());
                let mut job = Job::new("dies", 3).var_of(victim, "EARLYBIRD_FAULT", fault);
                let mut others = (0..3).filter(|other| *other != place);
                for rank in 0..3 {
                    job = job.arg(if rank == victim { place } else { others.next().unwrap() } * 4);
                }
                let ends = job.start().join();
                let what = || format!("rank {victim} at {} {nth}, place {place}: {ends:?}", step.name());
                assert!(ends[victim].was_killed(), "{}", what());
                let text = format!("rank {victim} (pid {} on ", ends[victim].pid);
                for end in ends.iter().filter(|end| end.rank != victim) {
                    assert!(end.status.success() && end.said[0].contains(&text) && end.said[1] == "2", "{}", what());
                }
            }
        }
    }
}

/// Over several nodes shared buffers are reduced as private memory is.
fn across(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let sum = |comm: &Communicator| {
        let buffer = shared(comm, &vec![1 + comm.rank() as u32; 30_000]);
        comm.start(CollectiveArgs::all_reduce(buffer, Op::Sum)).unwrap().wait().unwrap()
    };
    assert!(comm.nodes() == 2 && sum(&comm).iter().all(|x| *x == 10));
    player.say("done");
}

#[test]
fn several_nodes_take_shared_buffers_as_any_others() {
    assert!(Job::new("across", 4).var("EARLYBIRD_RANKS_PER_NODE", 2).run().iter().all(|said| *said == ["done"]));
}
