//! Buffers in shared memory: results as of private ones, memory given back, and nobody's memory touched after a failure.

use crate::common::data::{Sample, contribution, reference, same_bits};
use crate::common::flags::wait_for;
use crate::common::{Job, Player, mix};
use earlybird::{Algorithm, CollectiveArgs, Communicator, Error, FoldOrder, Identity, Indexed, Op, UserOp};
use half::f16;
use num_complex::Complex;
use rustix::process::{Resource, Rlimit, Signal, setrlimit};
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("results", results),
        ("groups", groups),
        ("budget", budget),
        ("differ", differ),
        ("dies", dies),
        ("stranger", stranger),
        ("stopped", stopped),
        ("narrow", narrow),
    ]);
}

fn check<T: Sample>(comm: &Communicator, op: Op, count: usize, exact: bool) {
    let (rank, ranks) = (comm.rank(), comm.size());
    let seed = mix(count as u64 ^ op as u64);
    let send = contribution::<T>(seed, rank, count, op, exact);
    let expected = reference::<T>(seed, ranks, count, op, exact);
    let what = |how: &str| format!("{how}: {count} x {} {op:?}", T::DTYPE.name());
    if mix(seed ^ rank as u64).is_multiple_of(8) {
        std::thread::sleep(Duration::from_micros(200));
    }
    let mut buffer = comm.alloc::<T>(count).unwrap();
    assert!(buffer.len() == count && buffer.iter().all(|x| x.bits() == 0), "{}", what("fresh"));
    buffer.copy_from_slice(&send);
    let mut recv = comm.alloc::<T>(count).unwrap();
    comm.all_reduce_shared_into(&buffer, &mut recv, op).unwrap();
    same_bits(&recv, &expected, &|| what("into"));
    same_bits(&buffer, &send, &|| what("the contribution"));
    comm.all_reduce_shared_in_place(&mut buffer, op).unwrap();
    same_bits(&buffer, &expected, &|| what("in place"));
    // Shared memory is memory: other calls take it too.
    buffer.copy_from_slice(&send);
    comm.set_order(FoldOrder::Rank).unwrap();
    comm.all_reduce_in_place(&mut buffer, op).unwrap();
    same_bits(&buffer, &expected, &|| what("plain"));
    comm.set_order(FoldOrder::Arrival).unwrap();
}

/// Calls that do not work in shared buffers take them as any others.
fn check_copied(comm: &Communicator) {
    let (mut buffer, mut recv) = (comm.alloc::<f64>(5003).unwrap(), comm.alloc::<f64>(5003).unwrap());
    buffer.fill(comm.rank() as f64);
    let last = UserOp::ordered(|_: &f64, b: &f64| *b);
    comm.run(CollectiveArgs::all_reduce((&buffer, &mut recv), &last)).unwrap();
    comm.run(CollectiveArgs::broadcast(comm.size() - 1, &mut buffer)).unwrap();
    assert!(buffer[..] == recv[..] && recv.iter().all(|x| *x == (comm.size() - 1) as f64));
}

fn results(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    check_copied(&comm);
    // Where ranks outnumber the CPUs nothing would be reduced where it lies otherwise, and not by rank.
    let exact = !player.arg::<bool>(0);
    if !exact {
        comm.set_algorithm(Algorithm::Slices).unwrap();
    }
    for count in [0, 1, 37, 511, 512, 1000, 5_003, 100_003, 700_001] {
        check::<f32>(&comm, Op::Sum, count, true);
        check::<f32>(&comm, Op::Sum, count, exact);
        check::<i64>(&comm, Op::Max, count, true);
        check::<u8>(&comm, Op::BitXor, count, true);
        if count <= 5_003 {
            check::<f16>(&comm, Op::Sum, count, exact);
            check::<f16>(&comm, Op::Average, count, true);
            check::<f64>(&comm, Op::Average, count, true);
            check::<f64>(&comm, Op::Product, count, exact);
            check::<bool>(&comm, Op::LogicalXor, count, true);
            check::<Complex<f64>>(&comm, Op::Product, count, true);
            check::<Indexed<f32, i32>>(&comm, Op::MinIndex, count, true);
        }
    }
    let mut buffer = comm.alloc::<f32>(4096).unwrap();
    // Whoever asks for it gets the way with copies, but not where it would have to wait for ranks in their order.
    for (wished, order, expected) in [
        (Algorithm::Chain, FoldOrder::Arrival, Algorithm::Chain),
        (Algorithm::Slices, FoldOrder::Arrival, Algorithm::Slices),
        (Algorithm::Leader, FoldOrder::Arrival, Algorithm::Slices),
        (Algorithm::Chain, FoldOrder::Rank, if comm.size() > 2 { Algorithm::Slices } else { Algorithm::Chain }),
    ] {
        comm.set_algorithm(wished).unwrap();
        comm.set_order(order).unwrap();
        buffer.fill(1.0);
        comm.all_reduce_shared_in_place(&mut buffer, Op::Sum).unwrap();
        assert!(buffer.iter().all(|sum| *sum == comm.size() as f32), "{wished:?} {order:?}");
        assert!(comm.size() == 1 || comm.last_call().unwrap().algorithm == expected, "{wished:?} {order:?}");
    }
    player.say("done");
}

#[test]
fn results_are_those_of_private_memory() {
    for (ranks, where_they_lie) in
        [(1, true), (2, true), (3, true), (5, true), (8, true), (9, true), (2, false), (5, false)]
    {
        assert!(Job::new("results", ranks).arg(where_they_lie).run().iter().all(|said| *said == ["done"]));
    }
}

/// Buffers of the whole job in communicators of some of its ranks, many at once, and after their communicator.
fn groups(player: &Player) {
    let world = Communicator::from_env().unwrap();
    world.set_algorithm(Algorithm::Slices).unwrap();
    let (rank, size) = (world.rank(), world.size());
    let pair = world.split(Some(rank as u32 / 2), 0).unwrap().unwrap();
    let mut kept = Vec::new();
    for round in 0..20u32 {
        let mut mine = if round % 2 == 0 { world.alloc::<u32>(3000) } else { pair.alloc(3000) }.unwrap();
        mine.fill(1);
        pair.all_reduce_shared_in_place(&mut mine, Op::Sum).unwrap();
        assert!(mine.iter().all(|sum| *sum == pair.size() as u32));
        world.all_reduce_shared_in_place(&mut mine, Op::Sum).unwrap();
        let sum: usize = (0..size).map(|r| 2.min(size - r / 2 * 2)).sum();
        assert!(mine.iter().all(|total| *total == sum as u32));
        // The places of dropped ones are used again, by whoever comes first.
        if round % 3 == 0 {
            kept.push(mine);
        }
    }
    drop(pair);
    world.barrier().unwrap();
    drop(world);
    kept.iter_mut().for_each(|buffer| buffer.fill(7));
    assert!(kept.iter().all(|buffer| buffer.iter().all(|x| *x == 7)));
    player.say("done");
}

#[test]
fn buffers_serve_every_communicator_of_the_job_and_outlive_it() {
    for ranks in [2, 5] {
        assert!(Job::new("groups", ranks).run().iter().all(|said| *said == ["done"]));
    }
}

fn budget(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    // The first loan also takes the table's first pages.
    drop(comm.alloc::<u8>(1));
    comm.barrier().unwrap();
    let before = comm.shared_memory_bytes();
    let most = player.arg::<usize>(0);
    if comm.rank() == 0 {
        let mut buffer = comm.alloc::<u8>(1 << 20).unwrap();
        assert_eq!((buffer.len(), buffer.budget_bytes()), (1 << 20, 1 << 20));
        assert_eq!(comm.shared_memory_bytes(), before + (1 << 20));
        match comm.alloc::<u8>(most) {
            Err(Error::NoSpace { needed, free, hint }) => {
                assert!(needed == most as u64 && free < needed && hint.contains("EARLYBIRD_ARENA_MAX"), "{hint}");
            }
            other => panic!("{other:?}"),
        }
        match comm.alloc::<u8>(1 << 40) {
            Err(Error::NoSpace { hint, .. }) => assert!(hint.contains("several smaller ones"), "{hint}"),
            other => panic!("{other:?}"),
        }
        assert!(matches!(comm.alloc::<u64>(usize::MAX), Err(Error::Usage { .. })));
        // Nobody else has heard of this call, so the memory can go back all the same.
        let refused = comm.all_reduce_shared_in_place(&mut buffer, Op::Average);
        assert!(matches!(refused, Err(Error::Unsupported { .. })), "{refused:?}");
        drop(buffer);
        assert_eq!(comm.shared_memory_bytes(), before, "what was refused took nothing, what was dropped is back");
    }
    comm.barrier().unwrap();
    comm.all_reduce_in_place(&mut [1.0; 1000], Op::Sum).unwrap();
    player.say("done");
}

#[test]
fn what_does_not_fit_is_refused_and_what_is_dropped_comes_back() {
    let job = Job::new("budget", 2).arg(12 << 20).var("EARLYBIRD_ARENA_MAX", 16 << 20);
    assert!(job.run().iter().all(|said| *said == ["done"]));
}

/// After a failure the others may still be writing: what this rank sees then is its own.
fn is_private_and_zero(buffer: &mut [f32]) -> bool {
    let zero = buffer.iter().all(|x| x.to_bits() == 0);
    buffer.fill(3.0);
    zero && buffer.iter().all(|x| *x == 3.0)
}

fn differ(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut shared = comm.alloc::<f32>(5000).unwrap();
    shared.fill(1.0);
    let result = match (comm.rank(), player.arg::<String>(0).as_str()) {
        (1, "private") => comm.all_reduce_in_place(&mut vec![1f32; 5000], Op::Sum),
        (1, "longer") => comm.all_reduce_shared_in_place(&mut comm.alloc::<f32>(5001).unwrap(), Op::Sum),
        (_, "unequal") => {
            let mut other = comm.alloc::<f32>(4999).unwrap();
            let result = comm.all_reduce_shared_into(&shared, &mut other, Op::Sum);
            assert!(shared.iter().all(|x| *x == 1.0));
            result
        }
        _ => comm.all_reduce_shared_in_place(&mut shared, Op::Sum),
    };
    let error = result.unwrap_err();
    player.say(format!("{} {error}", error.code()));
    if comm.rank() != 1 && error.code() != "EB_USAGE" {
        assert!(is_private_and_zero(&mut shared));
    }
}

#[test]
fn other_buffers_are_refused() {
    for (how, code, text) in [
        ("private", "EB_MISMATCH", "in shared buffers"),
        ("longer", "EB_MISMATCH", "5001 x f32 in shared buffers"),
        ("unequal", "EB_USAGE", "5000 elements and the receive buffer 4999"),
    ] {
        let said = Job::new("differ", 3).arg(how).run();
        assert!(said.iter().all(|lines| lines[0].starts_with(code) && lines[0].contains(text)), "{said:?}");
        // A rank's own mistake names the rank; what ranks find together is one error.
        assert!(code == "EB_USAGE" || said.iter().all(|lines| *lines == said[0]), "{said:?}");
    }
}

/// Rank 1 is killed while it waits for the last one.
fn dies(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::Slices).unwrap();
    let mut buffer = comm.alloc::<f32>(100_000).unwrap();
    buffer.fill(1.0);
    comm.all_reduce_shared_in_place(&mut buffer, Op::Sum).unwrap();
    player.say("once");
    if comm.rank() == 2 {
        std::thread::sleep(Duration::from_millis(300));
    }
    let error = comm.all_reduce_shared_in_place(&mut buffer, Op::Sum).unwrap_err();
    assert!(is_private_and_zero(&mut buffer));
    player.say(error.code());
    assert!(comm.alloc::<f32>(10).is_ok());
}

#[test]
fn a_death_leaves_every_survivor_with_memory_of_its_own() {
    crate::common::survivors_tell_of_a_death(Job::new("dies", 3));
}

/// Two jobs of one rank in one process.
fn stranger(player: &Player) {
    let join = |key: &str| {
        let mut identity = Identity::detect().unwrap();
        (identity.rank, identity.size, identity.key) = (0, 1, key.into());
        Communicator::builder().identity(identity).connect().unwrap()
    };
    let (one, other) = (join("one"), join("other"));
    let mut buffer = one.alloc::<f32>(10_000).unwrap();
    one.all_reduce_shared_in_place(&mut buffer, Op::Sum).unwrap();
    let error = other.all_reduce_shared_in_place(&mut buffer, Op::Sum).unwrap_err();
    player.say(format!("{} {error}", error.code()));
}

#[test]
fn a_buffer_of_another_job_is_refused() {
    let said = Job::new("stranger", 1).run();
    assert!(said[0][0].starts_with("EB_USAGE the shared buffer belongs to another job"), "{said:?}");
}

/// Rank 2 is stopped while it holds a chunk of everybody's buffers, rank 1 is killed, and rank 0 goes on with other memory.
fn stopped(player: &Player) {
    let world = Communicator::from_env().unwrap();
    let group = world.duplicate().unwrap();
    group.set_algorithm(Algorithm::Slices).unwrap();
    let count = 200_000;
    let mut buffer = group.alloc::<f32>(count).unwrap();
    buffer.fill(1.0);
    player.say("calls");
    // Until rank 2 holds a chunk, as it does when it comes first to one.
    let error = loop {
        buffer.fill(1.0);
        if let Err(error) = group.all_reduce_shared_in_place(&mut buffer, Op::Sum) {
            break error;
        }
    };
    player.say(error.code());
    drop(buffer);
    drop(group);
    if world.rank() == 0 {
        let taken = world.shared_memory_bytes();
        let mut healthy = world.alloc::<f32>(count).unwrap();
        healthy.fill(7.0);
        player.say("healthy");
        wait_for("resumed");
        let changed = healthy.iter().filter(|x| **x != 7.0).count();
        player.say(format!("changed {changed}"));
        drop(healthy);
        // What waited for rank 2 is back as well.
        assert!(world.shared_memory_bytes() < taken, "{} of {taken} bytes", world.shared_memory_bytes());
    }
}

#[test]
fn memory_that_a_stopped_rank_may_still_write_is_allocated_to_no_other() {
    let mut job = Job::new("stopped", 3).var("EARLYBIRD_FAULT", "2:claimed:1:stop").start();
    job.wait_for(1, "calls");
    job.wait_stopped(2);
    job.signal(1, Signal::KILL);
    job.wait_for(0, "healthy");
    job.signal(2, Signal::CONT);
    job.wait_ended(&[2]);
    job.raise("resumed");
    let ends = job.join();
    assert!(ends[1].was_killed());
    println!("rank 0 said {:?}", ends[0].said);
    assert_eq!(ends[0].said, ["calls", "EB_PEER_DIED", "healthy", "changed 0"], "{ends:#?}");
    assert_eq!(ends[2].said, ["calls", "EB_PEER_DIED"], "{ends:#?}");
}

/// Leaves this process so many more bytes of address space than it has now.
fn limit_addresses(more: u64) {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm").unwrap().split(' ').next().unwrap().parse().unwrap();
    let limit = Some(pages * rustix::param::page_size() as u64 + more);
    setrlimit(Resource::As, Rlimit { current: limit, maximum: limit }).unwrap();
}

/// A limit on the address space: enough for the buffers but not for the largest there could be, or for nothing at all.
fn narrow(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::Slices).unwrap();
    let mut buffer = comm.alloc::<f32>(1 << 20).unwrap();
    buffer.fill(1.0);
    if comm.rank() == 1 {
        limit_addresses(player.arg(0));
    }
    // Whoever comes to no chunk maps nothing.
    for _ in 0..player.arg::<u32>(1) {
        buffer.fill(1.0);
        match comm.all_reduce_shared_in_place(&mut buffer, Op::Sum) {
            Ok(()) => assert!(buffer.iter().all(|sum| *sum == 3.0)),
            Err(Error::System { context, errno, reason, .. }) => {
                return player.say(format!("errno {errno:?} {context}: {reason}"));
            }
            Err(other) => return player.say(other),
        }
    }
    player.say("done");
}

#[test]
fn a_limit_of_the_address_space_is_met_where_buffers_fit_and_told_where_not() {
    let said = Job::new("narrow", 3).arg(16 << 20).arg(20).run();
    println!("16 MiB more: {:?}", said[1]);
    assert!(said.iter().all(|lines| *lines == ["done"]), "{said:?}");
    let said = Job::new("narrow", 3).arg(1 << 20).arg(u32::MAX).run();
    println!("1 MiB more: {:?}", said[1]);
    assert!(said.iter().all(|lines| lines == &said[0]), "{said:?}");
    assert!(said[0][0].starts_with("errno Some(12) rank 1 could not have 4194304 bytes that rank "), "{said:?}");
    assert!(said[0][0].contains("ulimit -v"), "{said:?}");
}
