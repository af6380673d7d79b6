//! Ranks die, wherever they are, and those that are left go on in a communicator of their own: the same on all of them, with
//! right results, on one node and on several.

use crate::common::{End, Job, Player, Running};
use earlybird::{Communicator, Error, Op};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::time::{Duration, Instant};

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("survive", survive),
        ("enter", enter),
        ("part", part),
        ("healthy", healthy),
        ("fails", fails),
        ("late", late),
        ("again", again),
        ("short", short),
        ("costs", costs),
    ]);
}

/// Makes calls whose results depend on every rank, and checks every element of them.
fn check(comm: &Communicator) -> Result<(), Error> {
    let ranks = comm.job_ranks().to_vec();
    let mine = |rank: usize, i: usize| (ranks[rank] * 1_000 + i) as u64;
    let all = 0..comm.size();
    for count in [1, 1_000, 50_000] {
        let mut sums: Vec<u64> = (0..count).map(|i| mine(comm.rank(), i)).collect();
        comm.all_reduce_in_place(&mut sums, Op::Sum)?;
        let right = |i| all.clone().map(|rank| mine(rank, i)).sum::<u64>();
        assert!(sums.iter().enumerate().all(|(i, sum)| *sum == right(i)), "{count} elements");
    }
    let mut gathered = vec![0u64; 3 * comm.size()];
    let part: Vec<u64> = (0..3).map(|i| mine(comm.rank(), i)).collect();
    comm.all_gather_into(&part, &mut gathered)?;
    assert!(gathered.iter().enumerate().all(|(i, value)| *value == mine(i / 3, i % 3)), "{gathered:?}");
    let last = comm.size() - 1;
    let mut told: Vec<u64> = (0..100).map(|i| if comm.rank() == last { mine(last, i) } else { 0 }).collect();
    comm.process_at_rank(last).broadcast_into(&mut told)?;
    assert!(told.iter().enumerate().all(|(i, value)| *value == mine(last, i)));
    let pair = comm.split(Some((comm.rank() / 2) as u32), 0)?.expect("a color was given");
    let mut members = [1u64];
    pair.all_reduce_in_place(&mut members, Op::Sum)?;
    assert_eq!(members[0] as usize, (comm.size() - comm.rank() / 2 * 2).min(2));
    comm.barrier()
}

/// Computes with whoever is left until only `left` are, and those have right results.
fn until_left(player: &Player, mut comm: Communicator, left: usize) -> Communicator {
    loop {
        let result = check(&comm);
        match result {
            Ok(()) if comm.size() == left => {
                player.say(format!("left {:?} as {} of {} nodes", comm.job_ranks(), comm.rank(), comm.nodes()));
                return comm;
            }
            Ok(()) => assert!(comm.size() > left, "only {:?} are left", comm.job_ranks()),
            Err(Error::PeerDied { .. }) => {
                let began = Instant::now();
                player.say("shrinks");
                let new = comm.shrink().unwrap();
                assert!(new.size() < comm.size() || new.job_ranks() == comm.job_ranks());
                assert!(comm.barrier().is_err(), "the old one stays failed");
                comm = new;
                player.say(format!("shrunk {:?} {}", comm.job_ranks(), began.elapsed().as_micros()));
            }
            Err(other) => panic!("{other}"),
        }
    }
}

fn survive(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    player.say("here");
    drop(until_left(player, comm, player.arg(0)));
}

/// Every rank but `dead` has the same last word, which names those that are left.
fn agreed(ends: &[End], dead: &[usize], nodes: usize) {
    let left: Vec<usize> = (0..ends.len()).filter(|rank| !dead.contains(rank)).collect();
    for (place, rank) in left.iter().enumerate() {
        let end = &ends[*rank];
        let word = format!("left {left:?} as {place} of {nodes} nodes");
        assert!(end.status.success() && end.said.last() == Some(&word), "dead {dead:?}, not {word:?}: {end}");
    }
}

fn killed(mut job: Running, ranks: usize, dead: &[usize]) -> Vec<End> {
    (0..ranks).for_each(|rank| job.wait_for(rank, "here"));
    dead.iter().for_each(|rank| job.signal(*rank, Signal::KILL));
    job.join()
}

#[test]
fn every_rank_of_two_to_five_may_die() {
    for ranks in 2..=5 {
        for dead in 0..ranks {
            let ends = killed(Job::new("survive", ranks).arg(ranks - 1).start(), ranks, &[dead]);
            agreed(&ends, &[dead], 1);
        }
    }
}

#[test]
fn two_may_die_at_once() {
    for dead in [[0, 1], [0, 3], [1, 2], [2, 3]] {
        let ends = killed(Job::new("survive", 4).arg(2).start(), 4, &dead);
        agreed(&ends, &dead, 1);
    }
}

#[test]
fn all_but_one_may_die() {
    let ends = killed(Job::new("survive", 4).arg(1).start(), 4, &[0, 1, 3]);
    agreed(&ends, &[0, 1, 3], 1);
}

/// Shrinks when the first rank is dead; the rank of the argument never does.
fn enter(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    player.say("here");
    while check(&comm).is_ok() {}
    player.say("failed");
    if comm.rank() == player.arg::<usize>(0) {
        std::thread::sleep(Duration::from_secs(3600));
    }
    drop(until_left(player, comm, player.arg(1)));
}

#[test]
fn one_may_die_while_the_others_wait_for_it_in_shrink() {
    for nodes in ["4", "2", "3,1"] {
        for (first, second) in [(1, 2), (0, 3), (3, 0), (2, 1)] {
            let job = Job::new("enter", 4).arg(second).arg(2).var("EARLYBIRD_RANKS_PER_NODE", nodes);
            let mut job = job.start();
            (0..4).for_each(|rank| job.wait_for(rank, "here"));
            job.signal(first, Signal::KILL);
            let left: Vec<usize> = (0..4).filter(|rank| ![first, second].contains(rank)).collect();
            left.iter().for_each(|rank| job.wait_for(*rank, "shrinks"));
            job.wait_for(second, "failed");
            job.signal(second, Signal::KILL);
            let size: Vec<usize> = if nodes == "4" { vec![4] } else { vec![if nodes == "2" { 2 } else { 3 }] };
            let place = |rank: &usize| rank / size[0];
            let nodes = if left.iter().all(|rank| place(rank) == place(&left[0])) { 1 } else { 2 };
            agreed(&job.join(), &[first, second], nodes);
        }
    }
}

/// A rank dies after the survivors have agreed, or after it has joined anew, and they agree again.
#[test]
fn one_may_die_while_the_survivors_join_anew() {
    for (nodes, first, faults) in [("4", 1, vec![0, 2, 3]), ("3,1", 0, vec![2])] {
        for second in faults {
            for (step, how) in [("agreed", "kill"), ("agreed", "exec"), ("rejoined", "kill"), ("rejoined", "exit")] {
                let fault = format!("{second}:{step}:1:{how}");
                let job = Job::new("survive", 4).arg(2).var("EARLYBIRD_RANKS_PER_NODE", nodes);
                let ends = killed(job.var("EARLYBIRD_FAULT", &fault).start(), 4, &[first]);
                let word = if nodes == "4" { 1 } else { 2 };
                agreed(&ends, &[first, second], word);
            }
        }
    }
}

/// The second one is killed at some moment of the others' shrinking and its own.
#[test]
fn one_may_die_at_any_moment_of_shrinking() {
    for round in 0..24u64 {
        let nodes = ["4", "2"][round as usize % 2];
        let mut job = Job::new("survive", 4).arg(2).var("EARLYBIRD_RANKS_PER_NODE", nodes).start();
        (0..4).for_each(|rank| job.wait_for(rank, "here"));
        job.signal(1, Signal::KILL);
        job.wait_for(0, "shrinks");
        std::thread::sleep(Duration::from_micros(crate::common::mix(round) % 12_000));
        job.signal(2, Signal::KILL);
        agreed(&job.join(), &[1, 2], if nodes == "4" { 1 } else { 2 });
    }
}

#[test]
fn virtual_nodes_lose_leaders_others_and_all_their_ranks() {
    for (nodes, dead, left) in [
        ("2", vec![0], 2),
        ("2", vec![1], 2),
        ("2", vec![2], 2),
        ("2", vec![3], 2),
        ("2", vec![2, 3], 1),
        ("2", vec![0, 1], 1),
        ("2", vec![0, 2], 2),
        ("3,1", vec![0], 2),
        ("3,1", vec![2], 2),
        ("3,1", vec![3], 1),
        ("3,1", vec![0, 1, 2], 1),
    ] {
        let job = Job::new("survive", 4).arg(4 - dead.len()).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        agreed(&killed(job.start(), 4, &dead), &dead, left);
    }
}

/// Ranks of a part shrink it while the others go on with theirs; then all shrink the whole.
fn part(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let keys = [1, 3, 0, 2, 4];
    let color = player.arg::<usize>(0);
    let mine = if color == 0 { 0 } else { comm.rank() % color } as u32;
    let part = comm.split(Some(mine), keys[comm.rank()]).unwrap().unwrap();
    let dead: usize = player.arg(1);
    let others = part.job_ranks().iter().filter(|rank| **rank != dead).count();
    check(&part).unwrap();
    player.say("here");
    let shrunk = until_left(player, part, others);
    if others == shrunk.size() {
        check(&shrunk).unwrap();
    }
    drop(shrunk);
    drop(until_left(player, comm, 4));
}

#[test]
fn parts_shrink_on_their_own() {
    for (nodes, color, dead) in [("5", 2, 2), ("5", 2, 0), ("2,3", 0, 0), ("2,3", 0, 3), ("2,3", 2, 4), ("5", 3, 2)] {
        let job = Job::new("part", 5).arg(color).arg(dead).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        let ends = killed(job.start(), 5, &[dead]);
        agreed(&ends, &[dead], if nodes == "5" { 1 } else { 2 });
    }
}

#[test]
fn a_communicator_of_survivors_shrinks_again() {
    for (nodes, on) in [("5", 1), ("3,2", 2)] {
        let mut job = Job::new("survive", 5).arg(3).var("EARLYBIRD_RANKS_PER_NODE", nodes).start();
        (0..5).for_each(|rank| job.wait_for(rank, "here"));
        job.signal(1, Signal::KILL);
        [0, 2, 3, 4].iter().for_each(|rank| job.wait_for(*rank, "shrunk"));
        job.signal(3, Signal::KILL);
        agreed(&job.join(), &[1, 3], on);
    }
}

fn healthy(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let all = comm.job_ranks().to_vec();
    let first = comm.shrink().unwrap();
    let second = comm.shrink().unwrap();
    let third = second.shrink().unwrap();
    for comm in [comm, first, second, third] {
        assert_eq!((comm.job_ranks(), comm.rank()), (&all[..], comm.identity().rank));
        check(&comm).unwrap();
    }
    player.say("done");
}

#[test]
fn a_healthy_group_shrinks_to_itself_and_goes_on() {
    for (ranks, nodes) in [(1, "1"), (3, "3"), (4, "2"), (3, "2,1")] {
        let said = Job::new("healthy", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| lines == &["done"]), "{said:?}");
    }
}

/// Fails the job in the way of the argument, and shrinks.
fn fails(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut x = [1.0f64; 64];
    let result = match player.arg::<String>(0).as_str() {
        "mismatch" if comm.rank() == 1 => comm.all_reduce_in_place(&mut x[..32], Op::Max),
        "mismatch" => comm.all_reduce_in_place(&mut x, Op::Sum),
        "timeout" => {
            if comm.rank() == 1 {
                std::thread::sleep(Duration::from_millis(1500));
            }
            comm.all_reduce_in_place(&mut x, Op::Sum)
        }
        _ => {
            let sum = earlybird::UserOp::commutative(|_: &f64, _: &f64| -> f64 { panic!("no") });
            comm.all_reduce_in_place(&mut x, &sum)
        }
    };
    player.say(result.unwrap_err().code());
    let comm = loop {
        match comm.shrink() {
            Ok(comm) => break comm,
            // the late rank has not called yet
            Err(Error::Timeout { missing, .. }) => assert_eq!(missing, [1]),
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(comm.size(), 3);
    check(&comm).unwrap();
    player.say("done");
}

#[test]
fn after_any_failure_all_that_live_are_left() {
    for (how, code) in [("mismatch", "EB_MISMATCH"), ("timeout", "EB_TIMEOUT"), ("panic", "EB_OPERATOR_PANICKED")] {
        for nodes in ["3", "2,1"] {
            let job = Job::new("fails", 3).arg(how).var("EARLYBIRD_RANKS_PER_NODE", nodes);
            let job = if how == "timeout" { job.var("EARLYBIRD_TIMEOUT", "0.5") } else { job };
            let said = job.run();
            assert!(said.iter().all(|lines| lines == &[code, "done"]), "{how} {nodes}: {said:?}");
        }
    }
}

/// Rank 2 comes late to shrink: the others wait, or their deadline ends and they call again.
fn late(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    player.say("here");
    while check(&comm).is_ok() {}
    if comm.rank() == 2 {
        std::thread::sleep(Duration::from_millis(1200));
    }
    let mut timeouts = 0;
    let comm = loop {
        match comm.shrink() {
            Ok(comm) => break comm,
            Err(Error::Timeout { missing, during, .. }) => {
                assert_eq!((missing, during.as_str()), (vec![2], "shrink"));
                timeouts += 1;
            }
            Err(other) => panic!("{other}"),
        }
    };
    player.say(format!("timeouts {}", timeouts > 0));
    drop(until_left(player, comm, 3));
}

#[test]
fn a_late_rank_is_waited_for_and_a_deadline_names_it() {
    for (timeout, nodes) in [("none", "4"), ("0.4", "4"), ("0.4", "2"), ("none", "2")] {
        let job = Job::new("late", 4).var("EARLYBIRD_TIMEOUT", timeout).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        let ends = killed(job.start(), 4, &[1]);
        agreed(&ends, &[1], if nodes == "4" { 1 } else { 2 });
        for rank in [0, 3] {
            assert_eq!(ends[rank].heard("timeouts"), Some(if timeout == "none" { "false" } else { "true" }));
        }
    }
}

/// No rank may make a file of the arena's size, then all may.
fn short(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    check(&comm).unwrap();
    let limit = getrlimit(Resource::Fsize);
    setrlimit(Resource::Fsize, Rlimit { current: Some(1 << 20), ..limit }).unwrap();
    let error = comm.shrink().unwrap_err();
    setrlimit(Resource::Fsize, limit).unwrap();
    player.say(error.code());
    check(&comm.shrink().unwrap()).unwrap();
    player.say("done");
}

#[test]
fn what_keeps_a_rank_from_joining_is_every_ranks_error() {
    for nodes in ["3", "2,1"] {
        let said = Job::new("short", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| lines == &["EB_NO_SPACE", "done"]), "{said:?}");
    }
}

/// The resources of this process: descriptors, threads, mappings.
fn held() -> [usize; 3] {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let shared = maps.lines().filter(|line| line.contains("earlybird")).count();
    let entries = |path| std::fs::read_dir(path).unwrap().count();
    [entries("/proc/self/fd"), entries("/proc/self/task"), shared]
}

fn again(player: &Player) {
    let mut comm = Communicator::from_env().unwrap();
    let mut before = None;
    for round in 0..50 {
        comm = comm.shrink().unwrap();
        check(&comm).unwrap();
        if round % 10 == 4 {
            comm.barrier().unwrap();
            // of the shared memory, a page more or less is a matter of who was first
            let (now, pages) = (held(), comm.shared_memory_bytes() / 4096);
            let (held, first) = *before.get_or_insert((now, pages));
            assert!(
                now == held && pages <= first + 8,
                "round {round}: {now:?} and {pages} pages, not {held:?} and {first}"
            );
        }
    }
    player.say("done");
}

#[test]
fn dropped_communicators_leave_nothing() {
    for nodes in ["3", "2,1"] {
        let said = Job::new("again", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|lines| lines == &["done"]), "{said:?}");
    }
}

fn costs(player: &Player) {
    let mut comm = Communicator::from_env().unwrap();
    let mut times = Vec::new();
    for _ in 0..30 {
        comm.barrier().unwrap();
        let began = Instant::now();
        let new = comm.shrink().unwrap();
        times.push(began.elapsed().as_micros() as u64);
        comm.barrier().unwrap();
        comm = new;
    }
    times.sort_unstable();
    player.say(format!("median {} us ({} to {})", times[15], times[0], times[29]));
}

#[test]
#[ignore = "a measurement"]
fn what_it_costs() {
    for (ranks, nodes) in [(2, "2"), (4, "4"), (8, "8"), (4, "2"), (8, "4")] {
        let said = Job::new("costs", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        println!("{ranks} ranks, {nodes} per node: {}", said[0][0]);
    }
}
