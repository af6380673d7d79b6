//! Communicators made from MPI's: every layout of nodes, ranks in any order, messages of the program under way meanwhile,
//! and errors that reach every node.

use earlybird::{CollectiveArgs, Communicator, Config, Error, FoldOrder, Identity, Op};
use mpi::topology::{Color, SimpleCommunicator};
use mpi::traits::{Communicator as _, CommunicatorCollectives as _, Destination as _, Source as _};
use std::time::{Duration, Instant};

pub fn all(world: &SimpleCommunicator) {
    let ranks = world.size() as usize;
    let uneven = format!("{},1", ranks - 1);
    for layout in [None, Some("1"), Some("2"), Some(&*uneven), Some(&ranks.to_string())] {
        let comm = join(world, layout, None).expect("MPI and shared memory work");
        let nodes = comm.nodes();
        match layout {
            // One machine.
            None => assert_eq!(nodes, 1),
            Some("1") => assert_eq!(nodes, ranks),
            Some(_) => assert!(nodes >= 1 && nodes < ranks.max(3)),
        }
        every_operation(&comm);
        beside_messages(world, &comm);
        started(&comm);
        crossed(world, &comm);
        groups(&comm);
    }
    in_another_order(world);
    by_several_endpoints(world);
    different_calls(world);
    a_late_rank(world);
    what_one_refuses(world);
    nothing_stays();
}

fn join(world: &SimpleCommunicator, layout: Option<&str>, timeout: Option<Duration>) -> Result<Communicator, Error> {
    let ranks_per_node = layout.map(|text| text.parse().expect("a layout"));
    let mut config = Config::default();
    (config.ranks_per_node, config.timeout) = (ranks_per_node, timeout);
    Communicator::builder().config(config).connect_mpi(world)
}

fn value(rank: usize, i: usize) -> i64 {
    (rank * 1000 + i % 777) as i64
}

/// Every operation once, on sizes around those where something changes.
fn every_operation(comm: &Communicator) {
    let (me, size) = (comm.rank(), comm.size());
    for (step, count) in [0, 1, 100, 5000, 200_000].into_iter().enumerate() {
        let root = step % size;
        let at = comm.process_at_rank(root);
        let send: Vec<i64> = (0..count).map(|i| value(me, i)).collect();
        let sum = |i: usize| (0..size).map(|r| value(r, i)).sum::<i64>();
        comm.set_order(if step % 2 == 0 { FoldOrder::Rank } else { FoldOrder::Arrival }).unwrap();
        let mut recv = vec![-1; count];
        comm.all_reduce_into(&send, &mut recv, Op::Sum).unwrap();
        assert!(recv.iter().enumerate().all(|(i, v)| *v == sum(i)), "allreduce of {count}");
        comm.barrier().unwrap();
        let mut buf = if me == root { send.clone() } else { vec![0; count] };
        at.broadcast_into(&mut buf).unwrap();
        assert!(buf.iter().enumerate().all(|(i, v)| *v == value(root, i)), "broadcast of {count}");
        let mut reduced = send.clone();
        at.reduce_in_place(&mut reduced, Op::Sum).unwrap();
        assert_eq!(reduced, if me == root { recv.clone() } else { send.clone() }, "reduce of {count}");

        let gathered = |all: &[i64]| (0..size * count).all(|k| all[k] == value(k / count, k % count));
        let mut all = vec![-1; size * count];
        comm.all_gather_into(&send, &mut all).unwrap();
        assert!(gathered(&all), "allgather of {count}");
        match me == root {
            true => {
                all.fill(-1);
                at.gather_into_root(&send, &mut all).unwrap();
                assert!(gathered(&all), "gather of {count}");
            }
            false => at.gather_into(&send).unwrap(),
        }
        // Block r of what everybody sends is all r.
        let blocks: Vec<i64> = (0..size * count).map(|k| (k / count.max(1)) as i64 + me as i64).collect();
        let mut mine = vec![-1; count];
        match me == root {
            true => at.scatter_into_root(&blocks, &mut mine).unwrap(),
            false => at.scatter_into(&mut mine).unwrap(),
        }
        assert!(mine.iter().all(|v| *v == (me + root) as i64), "scatter of {count}");
        comm.all_to_all_into(&blocks, &mut all).unwrap();
        assert!((0..size * count).all(|k| all[k] == (me + k / count) as i64), "alltoall of {count}");
        comm.reduce_scatter_block_into(&blocks, &mut mine, Op::Sum).unwrap();
        let sum = (0..size).map(|r| r + me).sum::<usize>() as i64;
        assert!(mine.iter().all(|v| *v == sum), "reduce-scatter of {count}");
    }
}

/// What a call may be.
type Operation<'a> = (&'a str, &'a dyn Fn(&Communicator));

/// A megabyte each way, not received before the collective is over: at the sender's side it may need MPI's progress, and
/// the last rank comes to the collective only when the messages to it have come.
fn beside_messages(world: &SimpleCommunicator, comm: &Communicator) {
    const BYTES: usize = 1 << 20;
    let (me, size) = (comm.rank(), comm.size());
    let last = size - 1;
    let at = |comm: &Communicator, call: &dyn Fn(bool)| call(comm.rank() == 0);
    let operations: [Operation<'_>; 11] = [
        ("barrier", &|c| c.barrier().unwrap()),
        ("allreduce", &|c| c.all_reduce_in_place(&mut [1u64; 300], Op::Sum).unwrap()),
        ("persistent allreduce", &|c| {
            c.init(CollectiveArgs::all_reduce(vec![1u64; 300], Op::Sum)).unwrap().run().unwrap()
        }),
        ("immediate alltoall", &|c| {
            let n = c.size();
            c.start(CollectiveArgs::all_to_all((vec![1u64; n], vec![0; n]))).unwrap().wait().unwrap();
        }),
        ("broadcast", &|c| c.process_at_rank(0).broadcast_into(&mut [1u64; 300]).unwrap()),
        ("reduce", &|c| c.process_at_rank(0).reduce_in_place(&mut [1u64; 300], Op::Sum).unwrap()),
        ("allgather", &|c| c.all_gather_into(&[1u64; 30], &mut vec![0; 30 * c.size()]).unwrap()),
        ("alltoall", &|c| c.all_to_all_in_place(&mut vec![1u64; 30 * c.size()]).unwrap()),
        ("reduce-scatter", &|c| {
            c.reduce_scatter_block_into(&vec![1u64; 30 * c.size()], &mut [0; 30], Op::Sum).unwrap();
        }),
        ("gather", &|c| {
            at(c, &|root| match root {
                true => c.process_at_rank(0).gather_into_root(&[1u64; 30], &mut vec![0; 30 * c.size()]).unwrap(),
                false => c.process_at_rank(0).gather_into(&[1u64; 30]).unwrap(),
            });
        }),
        ("scatter", &|c| {
            at(c, &|root| match root {
                true => c.process_at_rank(0).scatter_into_root(&vec![1u64; 30 * c.size()], &mut [0; 30]).unwrap(),
                false => c.process_at_rank(0).scatter_into(&mut [0u64; 30]).unwrap(),
            });
        }),
    ];
    let data = vec![me as u8; BYTES];
    for (tag, (name, call)) in operations.into_iter().enumerate() {
        let tag = tag as i32;
        let mut rooms = vec![vec![255u8; BYTES]; size];
        mpi::request::multiple_scope(4 * size, |scope, requests| {
            if me == last {
                // It needs the others' messages, which they have under way while they wait for it.
                for (rank, room) in rooms.iter_mut().enumerate().take(last) {
                    world.process_at_rank(rank as i32).receive_into_with_tag(&mut room[..], tag);
                }
            } else {
                let to = world.process_at_rank(last as i32);
                requests.add(to.immediate_synchronous_send_with_tag(scope, &data[..], tag));
                // And a ring among all, begun before and ended after.
                let (next, before) = ((me + 1) % last, (me + last - 1) % last);
                let from = world.process_at_rank(before as i32);
                requests.add(from.immediate_receive_into_with_tag(scope, &mut rooms[before][..], 100 + tag));
                requests.add(world.process_at_rank(next as i32).immediate_send_with_tag(scope, &data[..], 100 + tag));
            }
            call(comm);
            let mut done = Vec::new();
            requests.wait_all(&mut done);
        });
        let expected: Vec<usize> = if me == last { (0..last).collect() } else { vec![(me + last - 1) % last] };
        assert!(expected.iter().all(|rank| rooms[*rank].iter().all(|b| *b == *rank as u8)), "messages beside {name}");
    }
}

/// Calls that are started, among blocking ones, and waited for in an order of each rank's own.
fn started(comm: &Communicator) {
    let (me, size) = (comm.rank(), comm.size());
    let total = (size * (size - 1) / 2) as u64;
    let mut again = comm.init(CollectiveArgs::all_reduce(vec![0u64; 2000], Op::Sum)).unwrap();
    for round in 0..20usize {
        let root = comm.process_at_rank(round % size);
        let count = [1, 40, 3000, 100_000][round % 4];
        again.buffers_mut().unwrap().fill(me as u64);
        again.start().unwrap();
        let sum = comm.start(CollectiveArgs::all_reduce(vec![me as u64; count], Op::Sum)).unwrap();
        let mean = comm.start(CollectiveArgs::all_reduce(vec![me as f32; count], Op::Average)).unwrap();
        let all = comm.start(CollectiveArgs::all_gather((vec![me as u32; 9], vec![0; 9 * size]))).unwrap();
        let met = comm.start(CollectiveArgs::barrier()).unwrap();
        let news = comm
            .start(CollectiveArgs::broadcast(
                root.rank(),
                vec![if me == root.rank() { round } else { 0 } as u64; count],
            ))
            .unwrap();
        if round % 5 == 0 {
            comm.all_reduce_in_place(&mut [1u8; 3], Op::Max).unwrap();
        }
        let swapped = comm.start(CollectiveArgs::all_to_all((vec![me as u16; size], vec![0; size]))).unwrap();
        if (round + me) % 2 == 0 {
            met.wait().unwrap();
            assert_eq!(news.wait().unwrap(), vec![round as u64; count]);
        } else {
            drop((met, news));
        }
        assert_eq!(swapped.wait().unwrap().1, (0..size as u16).collect::<Vec<_>>());
        assert!(all.wait().unwrap().1.iter().enumerate().all(|(k, v)| *v as usize == k / 9));
        let mut asked = sum;
        let got = loop {
            if let Some(got) = asked.try_wait().unwrap() {
                break got;
            }
        };
        assert_eq!(got, vec![total; count]);
        assert_eq!(mean.wait().unwrap(), vec![total as f32 / size as f32; count]);
        again.wait().unwrap();
        assert_eq!(*again.buffers_mut().unwrap(), vec![total; 2000]);
    }
}

/// Rank 0 waits in another communicator, then in MPI, for ranks that wait for what all have started.
fn crossed(world: &SimpleCommunicator, comm: &Communicator) {
    let (me, size) = (comm.rank(), comm.size());
    let total = vec![(size * (size - 1) / 2) as u64; 3000];
    let other = comm.duplicate().unwrap();
    for round in 0..6 {
        let sum = comm.start(CollectiveArgs::all_reduce(vec![me as u64; 3000], Op::Sum)).unwrap();
        let met = || match round % 3 {
            0 => other.barrier().unwrap(),
            1 => other.start(CollectiveArgs::barrier()).unwrap().wait().unwrap(),
            _ if me != 0 => world.process_at_rank(0).send(&1u8),
            _ => {
                for _ in 1..size {
                    while world.any_process().immediate_probe().is_none() {
                        earlybird::progress();
                    }
                    world.any_process().receive::<u8>();
                }
            }
        };
        if me == 0 {
            met();
        }
        assert_eq!(sum.wait().unwrap(), total);
        if me != 0 {
            met();
        }
    }
}

/// Groups of a communicator, and of a group.
fn groups(comm: &Communicator) {
    let me = comm.rank();
    let parity = comm.split(Some((me % 2) as u32), -(me as i64)).unwrap().expect("a color was given");
    assert!(parity.job_ranks().is_sorted_by(|a, b| a > b) && parity.job_ranks()[parity.rank()] == me);
    let some = parity.split((parity.rank() > 0).then_some(3), 0).unwrap();
    assert_eq!(some.is_none(), parity.rank() == 0);
    let twin = comm.duplicate().unwrap();
    [comm, &parity, &twin].into_iter().chain(&some).for_each(every_operation);
}

/// Ranks of the program in an order of their own, so that nodes are no contiguous ranks of it.
fn in_another_order(world: &SimpleCommunicator) {
    let key = (world.rank() * 3 + 1) % world.size();
    let mixed = world.split_by_color_with_key(Color::with_value(0), -key).expect("all have a color");
    let comm = join(&mixed, Some("2"), None).expect("any order will do");
    assert_eq!((comm.rank(), comm.size()), (mixed.rank() as usize, mixed.size() as usize));
    every_operation(&comm);
}

/// Large messages in parts, each by its own rank; two nodes that differ are told all the same.
fn by_several_endpoints(world: &SimpleCommunicator) {
    if world.size() < 5 {
        return;
    }
    let mut config = Config::default();
    (config.ranks_per_node, config.endpoints) = ("3,2".parse().ok(), Some(2));
    let comm = Communicator::builder().config(config).connect_mpi(world).expect("MPI and shared memory work");
    assert_eq!((comm.nodes(), comm.endpoints()), (2, 2));
    every_operation(&comm);
    groups(&comm);
    let count = if comm.rank() < 3 { 200_000 } else { 300_000 };
    let error = comm.all_reduce_in_place(&mut vec![1u64; count], Op::Sum).and_then(|()| comm.barrier());
    assert_eq!(error.expect_err("two nodes give different lengths").code(), "EB_MISMATCH");
    world.barrier();
}

/// One error on all ranks, whoever differs.
fn different_calls(world: &SimpleCommunicator) {
    for odd in 0..world.size() as usize {
        let comm = join(world, Some("2"), None).expect("MPI and shared memory work");
        comm.barrier().unwrap();
        let count = if comm.rank() == odd { 51 } else { 50 };
        let error = match odd % 2 {
            0 => comm.all_reduce_in_place(&mut vec![1u32; count], Op::Sum),
            _ => comm
                .start(CollectiveArgs::all_reduce(vec![1u32; count], Op::Sum))
                .and_then(|request| request.wait().map(drop)),
        };
        let error = error.and_then(|()| comm.barrier()).expect_err("one rank makes another call");
        assert_eq!(error.code(), "EB_MISMATCH", "{error}");
        assert!(comm.nodes() == 1 || error.to_string().contains(&format!("{odd}")), "{error}");
        world.barrier();
    }
}

/// A deadline names the rank that does not come, on every node.
fn a_late_rank(world: &SimpleCommunicator) {
    let comm = join(world, Some("2"), Some(Duration::from_millis(400))).expect("MPI and shared memory work");
    comm.barrier().unwrap();
    let late = comm.size() - 1;
    if comm.rank() == late {
        let since = Instant::now();
        while since.elapsed() < Duration::from_secs(4) {
            std::thread::sleep(Duration::from_millis(10));
        }
        // What had come before may complete one call.
        let told = comm.barrier().and_then(|()| comm.barrier()).map_err(|error| error.code());
        assert_eq!(told, Err("EB_TIMEOUT"), "the others gave up");
    } else {
        let error = comm.barrier().expect_err("one is missing");
        assert_eq!(error.code(), "EB_TIMEOUT", "{error}");
        assert!(error.to_string().contains(&format!("[{late}]")), "{error}");
    }
    world.barrier();
}

/// What one rank cannot do is an error of all, and the next attempt is not disturbed.
fn what_one_refuses(world: &SimpleCommunicator) {
    let layout = if world.rank() == 0 { "99,1" } else { "1" };
    let error = join(world, Some(layout), None).expect_err("rank 0 has another layout");
    assert_eq!(error.code(), "EB_USAGE", "{error}");
    let identity = Identity::named("mpi", world.rank() as usize, world.size() as usize).unwrap();
    let error = Communicator::builder().identity(identity).connect_mpi(world).expect_err("MPI knows the ranks");
    assert_eq!(error.code(), "EB_USAGE", "{error}");
    join(world, None, None).expect("all say the same").barrier().unwrap();
    world.barrier();
}

/// Names that a job leaves behind in shared memory.
fn nothing_stays() {
    let left: Vec<_> = std::fs::read_dir("/dev/shm")
        .expect("shared memory")
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("earlybird-probe-"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
