//! Operations that a rank may leave before others have come: who dies is missed only where it was needed, who calls
//! something else is found out at the latest in the next common operation, and mistakes are refused before anything is
//! written.

#[cfg(feature = "fault")]
use crate::common::End;
use crate::common::{Job, Player};
use earlybird::{CollectiveArgs, Communicator, Error, Op};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("different", different), ("mistakes", mistakes), ("pairs", pairs), ("parts", parts)]);
}

/// One call as the tests write it: `operation:root:count`.
fn call(comm: &Communicator, text: &str) -> Result<(), Error> {
    let [operation, root, count] = text.split(':').collect::<Vec<_>>()[..] else { panic!("{text:?}") };
    let (root, count): (usize, usize) = (root.parse().unwrap(), count.parse().unwrap());
    let (rank, ranks) = (comm.rank(), comm.size());
    let process = comm.process_at_rank(root);
    let value = |from: usize, i: usize| (from * 1_000_003 + i) as f64;
    let mine = |count: usize| (0..count).map(|i| value(rank, i)).collect::<Vec<f64>>();
    let sum = |i: usize| (0..ranks).map(|r| value(r, i)).sum::<f64>();
    let (send, mut recv) = (mine(count), vec![0.0; count]);
    let algorithm = match operation {
        "reduce-chain" | "broadcast-chain" => "chain",
        "reduce-static" => "static-leader",
        "reduce-slices" => "slices",
        _ => "auto",
    };
    comm.set_algorithm(algorithm.parse::<earlybird::Algorithm>().unwrap())?;
    match operation.split('-').next().unwrap() {
        "reduce" if rank == root => {
            process.reduce_into_root(&send, &mut recv, Op::Sum)?;
            assert!(recv.iter().enumerate().all(|(i, v)| *v == sum(i)), "{text}");
        }
        "reduce" => process.reduce_into(&send, Op::Sum)?,
        "start" => {
            let sent = vec![value(rank, 0); count];
            let received = comm.start(CollectiveArgs::broadcast(root, sent))?.wait()?;
            assert_eq!(received, vec![value(root, 0); count], "{text}");
        }
        "broadcast" => {
            recv.copy_from_slice(&send);
            process.broadcast_into(&mut recv)?;
            assert!(recv.iter().enumerate().all(|(i, v)| *v == value(root, i)), "{text}");
        }
        "gather" if rank == root => {
            recv.resize(count * ranks, 0.0);
            process.gather_into_root(&send, &mut recv)?;
            assert!((0..count * ranks).all(|i| recv[i] == value(i / count, i % count)), "{text}");
        }
        "gather" => process.gather_into(&send)?,
        "scatter" if rank == root => process.scatter_into_root(&mine(count * ranks), &mut recv)?,
        "scatter" => {
            process.scatter_into(&mut recv)?;
            assert!(recv.iter().enumerate().all(|(i, v)| *v == value(root, rank * count + i)), "{text}");
        }
        "allgather" => {
            recv.resize(count * ranks, 0.0);
            comm.all_gather_into(&send, &mut recv)?;
            assert!((0..count * ranks).all(|i| recv[i] == value(i / count, i % count)), "{text}");
        }
        // Here the root says which rank gives one element more.
        "varcount" => {
            let counts: Vec<usize> = (0..ranks).map(|r| count + usize::from(r == root)).collect();
            recv.resize(count * ranks + 1, 0.0);
            comm.all_gather_varcount_into(&mine(counts[rank]), &mut recv, &counts)?;
        }
        "alltoall" => {
            recv.resize(count * ranks, 0.0);
            comm.all_to_all_into(&mine(count * ranks), &mut recv)?;
            assert!((0..count * ranks).all(|i| recv[i] == value(i / count, rank * count + i % count)), "{text}");
        }
        "scattered" => {
            comm.reduce_scatter_block_into(&mine(count * ranks), &mut recv, Op::Sum)?;
            assert!((0..count).all(|i| recv[i] == sum(rank * count + i)), "{text}");
        }
        "scan" => {
            comm.scan_into(&send, &mut recv, Op::Sum)?;
            assert!((0..count).all(|i| recv[i] == (0..=rank).map(|r| value(r, i)).sum::<f64>()), "{text}");
        }
        "barrier" => comm.barrier()?,
        _ => panic!("{text:?}"),
    }
    Ok(())
}

fn in_short(error: &Error) -> String {
    match error {
        Error::PeerDied { rank, pid, .. } => format!("peer died: rank {rank} pid {pid}"),
        other => format!("{}: {other}", other.code()),
    }
}

/// This rank's call, then barriers until one fails.
fn different(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    call(&comm, "barrier:0:0").unwrap();
    let own = player.args()[comm.rank()].clone();
    for text in [&own[..], "barrier:0:0", "barrier:0:0"] {
        if let Err(error) = call(&comm, text) {
            player.say(in_short(&error));
            // Leaving at once must not become the others' error.
            let again = comm.barrier().expect_err("a failed group carried out a barrier");
            assert_eq!(in_short(&again), in_short(&error));
            return;
        }
    }
    player.say("no error");
}

/// Everybody's call, and what the last rank calls instead.
const DIFFERENT: &[(&str, &str)] = &[
    ("broadcast:0:4", "broadcast:1:4"),
    // The last rank believes to be the root and needs nobody.
    ("broadcast:0:4", "broadcast:2:4"),
    ("broadcast:0:4000", "broadcast:2:4000"),
    ("broadcast:0:40000", "broadcast:2:40000"),
    ("broadcast-chain:0:4000", "broadcast-chain:1:4000"),
    ("broadcast-chain:0:4000", "broadcast:2:4000"),
    ("broadcast:0:4", "broadcast:0:5"),
    ("broadcast:0:4000", "broadcast:0:4001"),
    ("broadcast:0:4", "broadcast:0:4000"),
    ("reduce:0:4", "reduce:1:4"),
    ("reduce:0:4", "reduce:2:4"),
    ("reduce:0:40000", "reduce:2:40000"),
    ("reduce:2:4000", "reduce:1:4000"),
    ("reduce:0:4", "reduce:0:5"),
    ("reduce:0:40000", "reduce:0:40001"),
    ("reduce-chain:0:500", "reduce-static:0:500"),
    ("gather:0:4", "gather:2:4"),
    ("gather:0:4000", "gather:0:4001"),
    ("gather:0:4", "scatter:0:4"),
    ("scatter:0:4000", "scatter:2:4000"),
    ("scatter:0:1", "broadcast:0:1"),
    ("allgather:0:4", "allgather:0:5"),
    ("allgather:0:4000", "allgather:0:4001"),
    ("allgather:0:4000", "alltoall:0:4000"),
    ("varcount:0:4", "varcount:1:4"),
    ("varcount:0:4000", "varcount:2:4000"),
    ("varcount:0:4000", "allgather:0:4000"),
    ("alltoall:0:1", "barrier:0:0"),
    ("scattered:0:2", "scattered:0:3"),
    ("scattered:0:4000", "alltoall:0:4000"),
    ("reduce:0:4", "barrier:0:0"),
];

#[test]
fn a_different_call_is_found_out_on_all_ranks() {
    for (all, one) in DIFFERENT {
        let said = Job::new("different", 3).arg(all).arg(all).arg(one).run();
        assert_eq!(said[0].len(), 1, "{all} {one}: {said:?}");
        assert!(said[0][0].starts_with("EB_MISMATCH: ranks"), "{all} {one}: {said:?}");
        assert!(said.iter().all(|lines| lines == &said[0]), "{all} {one}: not one error: {said:?}");
    }
}

#[test]
fn equal_calls_are_no_mismatch() {
    for (call, _) in DIFFERENT {
        let said = Job::new("different", 3).arg(call).arg(call).arg(call).run();
        assert!(said.iter().all(|lines| lines == &["no error"]), "{call}: {said:?}");
    }
}

/// Refused on the spot, with what was given and what was expected; the group goes on as if nothing had been called.
fn mistakes(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (root, other) = (comm.process_at_rank(comm.rank()), comm.process_at_rank(1 - comm.rank()));
    let missing = comm.process_at_rank(2);
    let (a, b) = ([1u32, 2, 3], &mut [0u32; 4][..]);
    let mut huge = [3, 1 << 62];
    huge.rotate_right(comm.rank());
    for (result, says) in [
        (missing.broadcast_into(b), "root 2 does not exist among 2 ranks"),
        (missing.reduce_into(&a, Op::Sum), "root 2 does not exist"),
        (missing.gather_into(&a), "root 2 does not exist"),
        (missing.reduce_in_place(b, Op::Sum), "root 2 does not exist"),
        (missing.reduce_into_root(&a, b, Op::Sum), "call reduce_into on the others"),
        (root.reduce_into(&a, Op::Sum), "call reduce_into_root there"),
        (root.gather_into(&a), "call gather_into_root there"),
        (root.scatter_into(b), "call scatter_into_root there"),
        (other.reduce_into_root(&a, b, Op::Sum), "call reduce_into on the others"),
        (other.gather_into_root(&a, b), "call gather_into on the others"),
        (other.scatter_into_root(&a, b), "call scatter_into on the others"),
        (root.reduce_into_root(&a, b, Op::Sum), "3 elements and the receive buffer 4"),
        (root.gather_into_root(&a, b), "3 elements and the receive buffer 4, expected are 3 and 6"),
        (root.scatter_into_root(&a, b), "3 elements and the receive buffer 4, expected are 8 and 4"),
        (root.gather_varcount_into_root(&a, b, &[3]), "1 counts for 2 ranks"),
        (root.gather_varcount_into_root(&a, b, &[3, 3]), "expected are 3 and 6"),
        (other.gather_varcount_into(&a, &[4, 4]), "the send buffer has 3 elements"),
        (comm.all_gather_into(&a, b), "expected are 3 and 6"),
        (comm.all_gather_in_place(&mut b[..3]), "3 elements does not divide among 2 ranks; give a multiple"),
        (comm.all_gather_varcount_into(&a, b, &[2, 2]), "expected are 2 and 4"),
        (comm.all_gather_varcount_into(&a, b, &[usize::MAX, 2]), "too large"),
        // Three elements and then more than an address space holds, whose bytes are few where products wrap.
        (
            comm.process_at_rank(1 - comm.rank()).gather_varcount_into(&a, &huge),
            "address space holds; give smaller counts",
        ),
        (other.scatter_varcount_into(b, &huge), "address space holds"),
        (comm.all_gather_varcount_into(&a, b, &huge), "address space holds"),
        (comm.reduce_scatter_varcount_into(&a, b, &huge, Op::Sum), "address space holds"),
        (comm.all_to_all_into(&a, b), "does not divide among 2 ranks"),
        (comm.all_to_all_into(&a[..2], b), "expected are 2 and 2"),
        (comm.reduce_scatter_block_into(&a, b, Op::Sum), "expected are 8 and 4"),
        (comm.reduce_scatter_varcount_into(&a, b, &[1, 2], Op::Sum), "expected are 3 and"),
    ] {
        match result {
            Err(Error::Usage { message }) => assert!(message.contains(says), "{says:?}: {message}"),
            found => panic!("{says:?}: {found:?}"),
        }
    }
    comm.barrier().unwrap();
    assert_eq!(comm.last_call().unwrap().operation, 1, "a mistake has reached the others");
    // The call before has the same buffer; no other root is taken for its root.
    (0..2).for_each(|_| comm.process_at_rank(0).broadcast_into(b).unwrap());
    for impossible in [1 << 16, usize::MAX] {
        match comm.process_at_rank(impossible).broadcast_into(b) {
            Err(Error::Usage { message }) => assert!(message.contains("does not exist among 2 ranks"), "{message}"),
            found => panic!("root {impossible}: {found:?}"),
        }
    }
    player.say("refused");
}

#[test]
fn mistakes_are_refused_before_anything_is_written() {
    for nodes in ["2", "1"] {
        let said = Job::new("mistakes", 2).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| lines == &["refused"]), "{nodes}: {said:?}");
    }
}

/// Calls that no later operation compares: after them every rank drops its communicator, or closes it.
fn parts(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    call(&comm, "barrier:0:0").unwrap();
    for text in player.args()[1 + comm.rank()].split(' ') {
        // where another rank has closed before, this one may learn of the difference in a call
        if let Err(error) = call(&comm, text) {
            return player.say(in_short(&error));
        }
    }
    if player.arg::<String>(0) == "close" {
        player.say(comm.close().map_or_else(|error| in_short(&error), |()| "closed".into()));
    }
}

#[test]
fn roots_that_differ_in_the_last_call_are_told_when_they_part() {
    for (one, other, tells) in [
        (
            "broadcast:0:4",
            "broadcast:1:4",
            "broadcast of 4 x f64, root 0, algorithm auto as its last call, operation 2",
        ),
        ("broadcast:0:9 broadcast:0:4", "broadcast:1:9 broadcast:1:4", "broadcast of 4 x f64, root 0"),
        ("broadcast:0:4 broadcast:0:4", "broadcast:1:4", "operation 3"),
    ] {
        let job = |how: &str| Job::new("parts", 2).arg(how).arg(one).arg(other).start().join();
        let ends = job("close");
        let told: Vec<&str> = ends.iter().flat_map(|end| &end.said).map(String::as_str).collect();
        assert!(ends.iter().all(|end| end.status.success()) && told.len() == 2, "{ends:#?}");
        let mismatch = |line: &&str| line.starts_with("EB_MISMATCH: ranks") && line.contains(tells);
        assert!(told.iter().any(mismatch) && told.iter().all(|line| mismatch(line) || *line == "closed"), "{told:?}");
        let logs: String = job("drop").into_iter().map(|end| end.log).collect();
        // Of ranks that drop their handles after more calls and fewer, one may have left for a reason of its own.
        let as_many = one.split(' ').count() == other.split(' ').count();
        assert_eq!(logs.matches("made different calls").count(), usize::from(as_many), "one rank says so: {logs}");
        assert!(!as_many || (logs.contains("earlybird: ranks ") && logs.contains(tells)), "{logs}");
    }
}

/// The same where each rank is a node of its own, and where two of three ranks share one.
#[test]
fn roots_that_differ_in_the_last_call_of_several_nodes_are_told_by_the_last_to_close() {
    for (nodes, scripts) in [
        ("1", &["broadcast:0:4", "broadcast:1:4"][..]),
        ("1", &["broadcast:0:4 broadcast:0:4", "broadcast:1:4"]),
        ("1", &["start:0:4", "start:1:4"]),
        ("1", &["start:0:4 broadcast:0:4", "start:0:4 broadcast:1:4"]),
        ("2,1", &["broadcast:0:4", "broadcast:1:4", "broadcast:0:4"]),
    ] {
        let job = Job::new("parts", scripts.len()).arg("close").var("EARLYBIRD_RANKS_PER_NODE", nodes);
        let ends = scripts.iter().fold(job, |job, script| job.arg(script)).start().join();
        let told: Vec<&str> = ends.iter().flat_map(|end| &end.said).map(String::as_str).collect();
        let mismatch = |line: &&str| line.starts_with("EB_MISMATCH: ranks");
        assert!(ends.iter().all(|end| end.status.success()) && told.len() == scripts.len(), "{ends:#?}");
        assert!(told.iter().any(mismatch) && told.iter().all(|line| mismatch(line) || *line == "closed"), "{told:?}");
    }
}

#[test]
fn ranks_that_called_the_same_part_in_peace() {
    for ((call, _), nodes) in DIFFERENT.iter().flat_map(|calls| ["3", "2", "1"].map(|nodes| (calls, nodes))) {
        let job = Job::new("parts", 3).arg("close").var("EARLYBIRD_RANKS_PER_NODE", nodes);
        let ends = job.arg(call).arg(call).arg(call).start().join();
        assert!(ends.iter().all(|end| end.said == ["closed"] && !end.log.contains("earlybird:")), "{call}: {ends:#?}");
    }
}

/// Pairs of an operation and a barrier, until one fails.
fn pairs(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (operation, late): (String, usize) = (player.arg(0), player.arg(1));
    for pair in 1..=3 {
        for text in [&operation[..], "barrier:0:0"] {
            if comm.rank() == late {
                std::thread::sleep(std::time::Duration::from_millis(3));
            }
            if let Err(error) = call(&comm, text) {
                player.say(format!("failed in {pair} {}", text.split(':').next().unwrap()));
                player.say(format!("error {}", in_short(&error)));
                return;
            }
        }
    }
    player.say("end");
}

/// Every operation, small enough for the line and large enough for the arena.
#[cfg(feature = "fault")]
const OPERATIONS: [&str; 18] = [
    "reduce:0:3",
    "reduce:1:1500",
    "reduce-chain:0:5000",
    "reduce-static:1:5000",
    "broadcast:0:3",
    "broadcast:1:1500",
    "broadcast-chain:0:5000",
    "gather:0:3",
    "gather:1:1500",
    "scatter:0:2",
    "scatter:1:1500",
    "allgather:0:3",
    "allgather:0:1500",
    "alltoall:0:1500",
    "scattered:0:2",
    "scattered:0:1500",
    "scan:0:3",
    "scan:0:1500",
];

/// A rank dies at every step of the second operation: the others fail in it or in the barrier after it, and a rank
/// that had left it fails nobody in it.
#[cfg(feature = "fault")]
#[test]
fn a_death_is_missed_only_where_the_dead_was_needed() {
    use earlybird_shm::protocol::step::Step;
    let cases: Vec<_> = OPERATIONS
        .iter()
        .flat_map(|operation| Step::ALL.map(|step| (*operation, step)))
        .flat_map(|(operation, step)| (0..3).map(move |victim| (operation, step, victim)))
        .collect();
    let number = cases.len();
    let (queue, struck) = (std::sync::Mutex::new(cases), std::sync::atomic::AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while let Some((operation, step, victim)) = { queue.lock().unwrap().pop() } {
                    let killed = one_death(operation, step, victim);
                    struck.fetch_add(usize::from(killed), std::sync::atomic::Ordering::Relaxed);
                }
            });
        }
    });
    let struck = struck.into_inner();
    assert!(struck > number / 2, "{struck} of {number} deaths struck");
    println!("{number} deaths in {} operations, {struck} struck", OPERATIONS.len());
}

#[cfg(feature = "fault")]
fn one_death(operation: &str, step: earlybird_shm::protocol::step::Step, victim: usize) -> bool {
    use earlybird_shm::protocol::step::Step;
    // The barrier between passes these as well.
    let nth = if matches!(step, Step::Begin | Step::Entered | Step::Copied | Step::Left) { 3 } else { 2 };
    let job = Job::new("pairs", 3).arg(operation).arg((victim + 1) % 3);
    let mut running = job.var("EARLYBIRD_FAULT", format!("{victim}:{}:{nth}:kill", step.name())).start();
    running.wait_ended(&(0..3).filter(|rank| *rank != victim).collect::<Vec<_>>());
    let ends = running.join();
    let what =
        || format!("{operation} {} {victim}\n{}", step.name(), ends.iter().map(End::to_string).collect::<String>());
    if !ends[victim].was_killed() {
        assert!(ends.iter().all(|end| end.status.success() && end.said == ["end"]), "{}", what());
        return false;
    }
    let expected = format!("peer died: rank {victim} pid {}", ends[victim].pid);
    for end in ends.iter().filter(|end| end.rank != victim) {
        assert!(end.status.success(), "{}", what());
        assert_eq!(end.heard("error"), Some(&expected[..]), "{}", what());
        let failed = end.heard("failed").unwrap();
        // A chunk of the first operation may be the second of its kind.
        let (pair, where_) = failed.strip_prefix("in ").unwrap().split_once(' ').unwrap();
        assert!(pair == "2" || pair == "1" || (pair == "3" && nth == 2), "{}", what());
        if step == Step::Left {
            assert_eq!((pair, where_), ("2", "barrier"), "{}", what());
        }
    }
    true
}
