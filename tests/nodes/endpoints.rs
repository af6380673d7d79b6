//! Several endpoints per node: large messages in parts, each by a rank of its own, with the bits that one leader gives, and with
//! one error for everybody whichever of them fails.

use crate::common::flags::meet;
use crate::common::victims::{all_tell_of_a_late_rank, tell, told_of_a_death, victim};
use crate::common::{Job, Player, mix};
use earlybird::{Communicator, Config, Costs, Error, FoldOrder, Op};
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("sums", sums), ("victim", victim), ("differ", differ), ("set", set)]);
}

/// The budget of a node, and more.
const BUDGET: &str = "48Mi";
const MORE_THAN_THERE_IS: usize = 64 << 20;

/// Comes late by a random time.
fn dawdle(comm: &Communicator, step: u64) {
    crate::common::dawdle(comm.rank(), step, 1500);
}

/// What `rank` gives at `i`.
fn give(rank: usize, i: usize) -> f32 {
    ((i * 31 + rank * 17) % 1000) as f32 / 7.0
}

/// Sums around the lengths where there is one segment more, on the communicator and on groups of it. Says what it has seen.
fn sums(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_order(FoldOrder::Rank).unwrap();
    let halves = comm.split(Some((comm.rank() % 2) as u32), -(comm.rank() as i64)).unwrap().unwrap();
    let mut bits = 0u64;
    for (step, count) in [3usize, 131_072, 131_073, 262_145, 1_100_000, 1, 524_288].into_iter().enumerate() {
        for comm in [&comm, &halves] {
            let send: Vec<f32> = (0..count).map(|i| give(comm.rank(), i)).collect();
            dawdle(comm, step as u64);
            let mut sum = vec![-1f32; count];
            comm.all_reduce_into(&send, &mut sum, Op::Sum).unwrap();
            dawdle(comm, step as u64 + 50);
            let mut in_place = send;
            comm.all_reduce_in_place(&mut in_place, Op::Sum).unwrap();
            assert!(sum.iter().zip(&in_place).all(|(a, b)| a.to_bits() == b.to_bits()), "{count}");
            let exact = |i: usize| (0..comm.size()).map(|rank| f64::from(give(rank, i))).sum::<f64>();
            assert!(sum.iter().enumerate().all(|(i, v)| (f64::from(*v) - exact(i)).abs() < 0.01), "{count}");
            bits = sum.iter().fold(bits, |bits, v| mix(bits ^ u64::from(v.to_bits())));
            rooted(comm, step, &sum);
        }
    }
    player.say(format!("{} {} endpoints", comm.endpoints(), halves.endpoints()));
    player.say(comm.rank() % 2);
    player.say(format!("{bits:x}"));
    comm.barrier().unwrap();
    // What the rings have left of the node's budget.
    match comm.alloc::<u8>(MORE_THAN_THERE_IS).map(drop) {
        Err(Error::NoSpace { free, .. }) => player.say(free),
        // A rank alone on its node shares nothing.
        Ok(()) => player.say(0),
        other => panic!("{other:?}"),
    }
    // Who leaves gives back what was its own.
    comm.barrier().unwrap();
}

/// The same sum at one rank, and that rank's vector everywhere.
fn rooted(comm: &Communicator, step: usize, sum: &[f32]) {
    let (me, root) = (comm.rank(), mix(step as u64) as usize % comm.size());
    let at = comm.process_at_rank(root);
    let send: Vec<f32> = (0..sum.len()).map(|i| give(me, i)).collect();
    let near = |a: &f32, b: &f32| (a - b).abs() < 0.01;
    dawdle(comm, step as u64 + 100);
    let mut recv = vec![-1f32; sum.len()];
    match me == root {
        true => at.reduce_into_root(&send, &mut recv, Op::Sum).unwrap(),
        false => at.reduce_into(&send, Op::Sum).unwrap(),
    }
    assert!(me != root || recv.iter().zip(sum).all(|(a, b)| near(a, b)), "reduce of {} to {root}", sum.len());
    let mut in_place = send.clone();
    at.reduce_in_place(&mut in_place, Op::Sum).unwrap();
    assert_eq!(in_place, if me == root { recv } else { send }, "reduce in place of {} to {root}", sum.len());
    dawdle(comm, step as u64 + 150);
    at.broadcast_into(&mut in_place).unwrap();
    assert!(in_place.iter().zip(sum).all(|(a, b)| near(a, b)), "broadcast of {} from {root}", sum.len());
}

#[test]
fn each_endpoint_has_a_part_and_the_bits_are_those_of_one() {
    for (ranks, nodes, wanted, expected) in
        [(4, "2", 2, "2 1"), (6, "3", 3, "3 1"), (8, "4", 9, "4 2"), (6, "3,1,2", 2, "1 1"), (6, "4,2", 2, "2 1")]
    {
        let run = |endpoints: usize| {
            let job = Job::new("sums", ranks).var("EARLYBIRD_RANKS_PER_NODE", nodes);
            job.var("EARLYBIRD_ENDPOINTS", endpoints).var("EARLYBIRD_ARENA_MAX", BUDGET).run()
        };
        let (one, several) = (run(1), run(wanted));
        for rank in 0..ranks {
            let [counts, half, bits, left] = &several[rank][..] else { panic!("{several:?}") };
            assert_eq!(*counts, format!("{expected} endpoints"), "{nodes}");
            assert_eq!(*bits, one[rank][2], "{nodes}, rank {rank}");
            assert!(several.iter().all(|other| other[1] != *half || other[2] == *bits), "{nodes}: {several:?}");
            // They send through rings of their own.
            let [left, by_one]: [u64; 2] = [left, &one[rank][3]].map(|bytes| bytes.parse().unwrap());
            assert_eq!(left < by_one, !expected.starts_with('1'), "{nodes}, rank {rank}: {left} and {by_one}");
        }
    }
}

/// Six ranks on two nodes; one of them stops after eight calls.
fn victims(who: usize) -> Job {
    let job = Job::new("victim", 6).arg(who).arg(8).arg(400_000);
    job.var("EARLYBIRD_RANKS_PER_NODE", "3").var("EARLYBIRD_ENDPOINTS", 2)
}

#[test]
fn a_death_anywhere_in_a_call_is_one_error() {
    for (round, who) in [0, 1, 2, 4, 1, 5, 3, 4].into_iter().enumerate() {
        let after = Duration::from_micros(mix(round as u64) % 20_000);
        told_of_a_death(victims(who).arg("running"), who, after);
    }
}

#[test]
fn a_late_rank_is_named_under_a_deadline() {
    for who in 0..6 {
        all_tell_of_a_late_rank(victims(who), who, 9);
    }
}

/// A call alike, then one in which one node, or an endpoint that leads nothing, sums another length.
fn differ(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let ours: Vec<usize> = player.args()[0].split(',').map(|rank| rank.parse().unwrap()).collect();
    comm.all_reduce_in_place(&mut vec![1u32; 300_000], Op::Sum).unwrap();
    let count = if ours.contains(&comm.rank()) { 600_000 } else { 300_000 };
    tell(player, comm.all_reduce_in_place(&mut vec![1u32; count], Op::Sum));
    tell(player, comm.barrier());
    meet("told", &comm);
}

#[test]
fn different_lengths_are_one_error() {
    for ours in ["2,3", "0,1", "1", "3"] {
        let job = Job::new("differ", 4).arg(ours).var("EARLYBIRD_RANKS_PER_NODE", "2").var("EARLYBIRD_ENDPOINTS", 2);
        crate::common::all_tell_of_different_calls(job, "failed EB_MISMATCH ranks ");
    }
}

/// Joins with a setting of this rank's own: `NAME=VALUE`, or costs for a message of 8 bytes.
fn set(player: &Player) {
    let me = std::env::var("EARLYBIRD_RANK").unwrap().parse::<usize>().unwrap();
    let mut config = Config::from_env().unwrap();
    match player.args()[me].split_once('=') {
        Some((name, value)) => config = Config::from_env_and([(format!("EARLYBIRD_{name}"), value.into())]).unwrap(),
        None => {
            let first = player.args()[me].parse().unwrap();
            let costs = Costs::new(&[(8, first), (1 << 20, 1.0)], 0.0, 0.0).unwrap();
            config.tuning = costs.to_string().parse().unwrap();
        }
    }
    let joined = Communicator::builder().config(config).connect();
    match joined {
        Ok(comm) => player.say(format!("{} endpoints", comm.endpoints())),
        Err(error) => player.say(error),
    }
}

#[test]
fn all_ranks_must_want_the_same() {
    let of = |settings: [&str; 4]| {
        let job = Job::new("set", 4).var("EARLYBIRD_RANKS_PER_NODE", "2");
        let said = settings.into_iter().fold(job, Job::arg).run();
        assert!(said.iter().all(|of_rank| *of_rank == said[0]), "{said:?}");
        said[0][0].clone()
    };
    let [auto, one, two] = ["ENDPOINTS=auto", "ENDPOINTS=1", "ENDPOINTS=2"];
    assert_eq!(of([two; 4]), "2 endpoints");
    assert!(of([two, two, one, two]).contains("EARLYBIRD_ENDPOINTS is 2 on rank 0 and 1 on rank 2; set it alike"));
    assert!(of([auto, auto, auto, one]).contains("is auto on rank 0 and 1 on rank 3"));
    let [ring, direct] = ["EXCHANGE=ring", "EXCHANGE=direct"];
    assert!(of([ring; 4]).ends_with("endpoints"));
    assert!(
        of([ring, direct, ring, ring]).contains("EARLYBIRD_EXCHANGE is plan:ring on rank 0 and plan:direct on rank 1")
    );
    assert!(of(["1e-5"; 4]).ends_with("endpoints"));
    assert!(of(["1e-5", "1e-5", "2e-5", "2e-5"]).contains("EARLYBIRD_TUNE on rank 0 are not those of rank 2"));
}
