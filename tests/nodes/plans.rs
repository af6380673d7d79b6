//! Plans over the shared memory of a node: the transport conforms, results are right, and whatever goes wrong is one
//! named error on every rank.

use crate::common::flags::meet;
use crate::common::victims::tell;
use crate::common::{End, Job, Player, mix};
use earlybird::transport::{RingOptions, ShmTransport};
use earlybird::{Choice, CollectiveArgs, Communicator, Error, Op};
use earlybird_hier::exec::Transport;
use earlybird_hier::plan::Collective;
use earlybird_hier::schedule::ALGORITHMS;
use rustix::process::Signal;
use std::path::PathBuf;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("conform", conform),
        ("leave", leave),
        ("reduce", reduce),
        ("lanes", lanes),
        ("victim", victim),
        ("choices", choices),
        ("poor_in_files", poor_in_files),
        ("differ", differ),
        ("nodes", nodes),
        ("poor", poor),
    ]);
}

fn transport() -> ShmTransport {
    let var = |name| std::env::var(name).unwrap();
    let number = |name| var(name).parse::<usize>().unwrap();
    let (rank, size) = (number("EARLYBIRD_RANK"), number("EARLYBIRD_SIZE"));
    let dir = Some(PathBuf::from(var("EARLYBIRD_DIR")));
    ShmTransport::join(&RingOptions { rank, size, key: var("EARLYBIRD_JOB"), dir, ..RingOptions::default() }).unwrap()
}

fn conform(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut transport = transport();
    crate::conformance::all_to_all(&mut transport).unwrap();
    if comm.size() > 1 {
        crate::conformance::a_full_lane_refuses(&mut transport, || comm.barrier().unwrap()).unwrap();
    }
    crate::conformance::all_to_all(&mut transport).unwrap();
    player.say("done");
}

#[test]
fn shared_memory_conforms() {
    for ranks in [1, 2, 3, 5] {
        assert!(Job::new("conform", ranks).run().iter().all(|said| said == &["done"]));
    }
}

fn leave(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut transport = transport();
    crate::conformance::all_to_all(&mut transport).unwrap();
    // Rank 1 leaves when nobody sends or receives any more: who does would be told of it there.
    comm.barrier().unwrap();
    if transport.rank() != 1 {
        let from = if transport.rank() == 0 { 1 } else { 0 };
        let failure = crate::conformance::wait_for_failure(&mut transport, from);
        player.say(format!("{failure:?} {:?}", transport.error().map(Error::code)));
    }
}

#[test]
fn everybody_gets_the_same_failure_when_one_leaves() {
    for said in Job::new("leave", 4).run().into_iter().enumerate().filter(|(rank, _)| *rank != 1) {
        assert_eq!(said.1, ["PeerDied { rank: 1 } Some(\"EB_PEER_DIED\")"]);
    }
}

/// The names of all plans that reduce for everybody.
fn plans() -> impl Iterator<Item = String> {
    let names = ALGORITHMS
        .iter()
        .filter(|a| a.collectives.contains(&Collective::Allreduce))
        .map(|a| format!("plan:{}", a.name));
    names.filter(|name| name.parse::<Choice>().is_ok())
}

/// The same with parameters, which the environment takes as well as `set_algorithm`.
fn with_parameters(ranks: usize) -> impl Iterator<Item = String> {
    let words = [
        "butterfly:r=1".to_owned(),
        format!("cyclic-shift:radices={ranks}"),
        "chain:segments=5:ports=2".to_owned(),
        "direct:protocol=bandwidth".to_owned(),
        "smp-butterfly:ranks-per-node=2".to_owned(),
    ];
    words.into_iter().map(|word| format!("plan:{word}"))
}

const COUNTS: [usize; 9] = [0, 1, 2, 3, 5, 37, 1000, 5000, 300_000];

/// Sums that are exact, and sums that round, whose bits the test compares.
fn reduce(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (me, size) = (comm.rank(), comm.size());
    for name in player.args() {
        comm.set_algorithm(name.parse::<Choice>().unwrap()).unwrap();
        let mut bits = 0;
        for (call, count) in COUNTS.into_iter().chain(COUNTS).enumerate() {
            let exact = |rank: usize, i: usize| (rank + i % 1000 + call) as i64;
            let send: Vec<i64> = (0..count).map(|i| exact(me, i)).collect();
            let mut recv = vec![0; count];
            comm.all_reduce_into(&send, &mut recv, Op::Sum).unwrap();
            let wrong = recv.iter().enumerate().find(|(i, v)| **v != (0..size).map(|r| exact(r, *i)).sum::<i64>());
            assert_eq!(wrong, None, "{name}, {count}");
            let rounds = |i: usize| (mix((i * 64 + me) as u64) % 1000) as f32 / 7.0;
            let mut buf: Vec<f32> = (0..count).map(rounds).collect();
            match comm.all_reduce_in_place(&mut buf, Op::Sum) {
                Ok(()) => bits = buf.iter().fold(bits, |bits, v| mix(bits ^ u64::from(v.to_bits()))),
                // Without identical bits a plan is not for sums that round, on any rank.
                Err(error) => assert_eq!(error.code(), "EB_UNSUPPORTED", "{name}: {error}"),
            }
            assert_eq!(comm.last_call().unwrap().algorithm.to_string(), *name);
        }
        player.say(format!("{name} {bits:x}"));
    }
}

#[test]
fn every_plan_reduces_and_all_ranks_get_the_same_bits() {
    for ranks in [2, 3, 5, 8] {
        let names: Vec<String> = plans().chain(with_parameters(ranks)).collect();
        let said = names.iter().fold(Job::new("reduce", ranks), Job::arg).run();
        assert!(plans().count() > 15 && said[0].len() == names.len());
        assert!(said.iter().all(|of_rank| *of_rank == said[0]), "{said:?}");
    }
}

/// Plans, the node's own algorithms and barriers by turns.
fn lanes(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    for call in 0..200u64 {
        let choice = ["plan:ring", "auto", "plan:butterfly", "chain", "plan:rsg", "flat"][(mix(call) % 6) as usize];
        comm.set_algorithm(choice.parse::<Choice>().unwrap()).unwrap();
        if call % 7 == 0 {
            comm.barrier().unwrap();
        }
        if mix(call * 16 + comm.rank() as u64).is_multiple_of(5) {
            // A mistake of one rank is its own: the others do not take it for another call.
            comm.set_algorithm(earlybird::Algorithm::Chain).unwrap();
            assert_eq!(comm.all_reduce_into(&[1u64], &mut [], Op::Sum).unwrap_err().code(), "EB_USAGE");
            std::thread::sleep(Duration::from_millis(5));
            comm.set_algorithm(choice.parse::<Choice>().unwrap()).unwrap();
            assert_eq!(comm.all_reduce_into(&[1u64], &mut [], Op::Sum).unwrap_err().code(), "EB_USAGE");
        }
        let mut buf = vec![comm.rank() as u64 + call; (mix(call + 1000) % 3000) as usize];
        comm.all_reduce_in_place(&mut buf, Op::Sum).unwrap();
        let sum: u64 = (0..comm.size() as u64).map(|rank| rank + call).sum();
        assert!(buf.iter().all(|v| *v == sum), "call {call}");
        assert_eq!(comm.last_call().unwrap().algorithm.to_string().starts_with("plan:"), choice.starts_with("plan:"));
    }
    player.say("done");
}

#[test]
fn plans_and_algorithms_of_the_node_take_turns() {
    for ranks in [1, 2, 3, 5] {
        assert!(Job::new("lanes", ranks).run().iter().all(|said| said == &["done"]));
    }
}

/// Calls until the group fails; rank 1 stops taking part after some calls.
fn victim(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut buf = vec![1f64; player.arg(0)];
    for call in 0u64.. {
        if comm.rank() == 1 && call == 20 {
            player.say("here");
            std::thread::sleep(Duration::from_secs(3600));
        }
        buf.fill(1.0);
        if !tell(player, comm.all_reduce_in_place(&mut buf, Op::Sum)) {
            tell(player, comm.barrier());
            tell(player, comm.set_algorithm(earlybird::Algorithm::Chain).and_then(|()| comm.barrier()));
            return;
        }
    }
}

fn codes(end: &End) -> Vec<&str> {
    end.said.iter().filter_map(|line| line.strip_prefix("failed ")?.split(' ').next()).collect()
}

#[test]
fn a_dead_rank_is_named_by_everybody() {
    for name in ["plan:ring", "plan:binomial", "plan:direct"] {
        for count in [1, 5000, 500_000] {
            let mut job = Job::new("victim", 4).arg(count).var("EARLYBIRD_ALGORITHM", name).start();
            job.wait_for(1, "here");
            job.signal(1, Signal::KILL);
            for end in job.join().iter().filter(|end| end.rank != 1) {
                assert_eq!(codes(end), ["EB_PEER_DIED"; 3], "{name}, {count}: {end}");
                assert!(end.said[0].contains("rank 1 (pid "), "{end}");
            }
        }
    }
}

#[test]
fn a_late_rank_is_an_error_only_under_a_deadline() {
    let job = Job::new("victim", 3).arg(100).var("EARLYBIRD_ALGORITHM", "plan:ring").var("EARLYBIRD_TIMEOUT", "0.5");
    let mut job = job.start();
    job.wait_for(1, "here");
    job.wait_ended(&[0, 2]);
    job.signal(1, Signal::KILL);
    for end in job.join().iter().filter(|end| end.rank != 1) {
        assert!(codes(end).first() == Some(&"EB_TIMEOUT"), "{end}");
    }
}

/// Some calls alike, then one of this rank's own.
fn differ(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let first: usize = player.arg(0);
    for _ in 0..first {
        comm.all_reduce_in_place(&mut [1u32; 50], Op::Sum).unwrap();
    }
    let text = &player.args()[if comm.rank() == 1 { 2 } else { 1 }];
    let (choice, call) = text.split_once(' ').unwrap();
    comm.set_algorithm(choice.parse::<Choice>().unwrap()).unwrap();
    let result = match call {
        "barrier" => comm.barrier(),
        "max" => comm.all_reduce_in_place(&mut [1u32; 50], Op::Max),
        "i32" => comm.all_reduce_in_place(&mut [1i32; 50], Op::Sum),
        count => comm.all_reduce_in_place(&mut vec![1u32; count.parse().unwrap()], Op::Sum),
    };
    tell(player, result);
    tell(player, comm.barrier());
    // Leaving at once must not become the others' error.
    meet("told", &comm);
}

#[test]
fn different_calls_are_found_out() {
    let pairs = [
        ("plan:ring 50", "plan:ring 51"),
        ("plan:ring 50", "plan:butterfly 50"),
        ("plan:butterfly:r=0 50", "plan:butterfly:r=1 50"),
        ("plan:ring 50", "plan:ring max"),
        ("plan:ring 50", "plan:ring i32"),
        ("plan:ring 50", "plan:ring barrier"),
        ("plan:ring 50", "flat 50"),
        ("plan:ring 50", "chain 50"),
        ("chain 50", "plan:ring 50"),
        ("plan:binomial 50", "auto barrier"),
    ];
    for (most, one) in pairs {
        // Also where the first plan of all is met by another call.
        for calls in [0, 3] {
            let job = Job::new("differ", 3).arg(calls).arg(most).arg(one).var("EARLYBIRD_ALGORITHM", "plan:ring");
            let ends = job.start().join();
            for end in &ends {
                assert_eq!(codes(end), ["EB_MISMATCH"; 2], "{most} against {one} after {calls}: {end}");
                assert_eq!(end.said[0], ends[0].said[0], "{most} against {one} after {calls}");
            }
            // The names of the users' calls, not of the library's operations.
            let told = &ends[0].said[0];
            let with_a_plan = most.starts_with("plan:") && one.starts_with("plan:");
            let expected = match (most.split_once(' ').unwrap().0, one.split_once(' ').unwrap().0) {
                (most, one) if with_a_plan && calls > 0 && most != one => vec![most, one],
                (_, one) if with_a_plan => vec![one],
                (most, "auto") => vec!["call by a plan", "barrier", &most[..0]],
                ("chain", _) | (_, "chain") => vec!["call by a plan", "algorithm chain"],
                _ => vec!["call by a plan", "algorithm flat"],
            };
            assert!(expected.iter().all(|words| told.contains(words)), "{expected:?}: {told}");
            assert!(!told.contains("static-leader-early"), "{told}");
        }
    }
}

/// A rank, or all of a node, chose another plan or algorithm than the others: by a call, or by its environment.
fn choices(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (word, started): (String, bool) = (player.arg(0), player.arg(1));
    if player.args()[2..].contains(&comm.rank().to_string()) {
        comm.set_algorithm(word.parse::<Choice>().unwrap()).unwrap();
    }
    let mut buf = [1u32; 50];
    let sum =
        || comm.start(CollectiveArgs::all_reduce(vec![1u32; 50], Op::Sum)).and_then(|request| request.wait().map(drop));
    let result = if started { sum() } else { comm.all_reduce_in_place(&mut buf, Op::Sum) };
    assert_eq!(result, comm.barrier(), "one error, for ever");
    tell(player, result);
    // Leaving at once must not become the others' error.
    meet("told", &comm);
}

#[test]
fn what_any_rank_of_several_nodes_has_chosen_is_compared() {
    let job = |word: &str, started: bool| {
        Job::new("choices", 5).arg(word).arg(started).var("EARLYBIRD_RANKS_PER_NODE", "3,2")
    };
    let check = |job: Job, what: &str, words: &[&str]| {
        let ends = job.start().join();
        let told = &ends[0].said;
        assert!(ends.iter().all(|end| end.said == *told), "{what}: {ends:#?}");
        assert!(told.len() == 1 && told[0].starts_with("failed EB_MISMATCH"), "{what}: {ends:#?}");
        assert!(words.iter().all(|word| told[0].contains(word)), "{what}: {told:?}");
    };
    for (who, word) in [
        (&[1][..], "plan:ring"),
        (&[4], "plan:direct:protocol=latency"),
        (&[0], "plan:ring"),
        (&[3], "plan:ring"),
        (&[3, 4], "plan:ring"),
        (&[3, 4], "chain"),
    ] {
        let of = |started| who.iter().fold(job(word, started), Job::arg);
        let (ours, theirs) = (format!("algorithm {word}"), "algorithm auto");
        check(of(false), &format!("{word} on {who:?}"), &[&ours, theirs]);
        check(of(true), &format!("{word} on {who:?}, started"), &[]);
        let by_environment =
            who.iter().fold(job(word, false), |job, rank| job.var_of(*rank, "EARLYBIRD_ALGORITHM", word));
        check(by_environment, &format!("EARLYBIRD_ALGORITHM={word} on {who:?}"), &[&ours, theirs]);
    }
    let everybody = (0..5).fold(job("plan:ring", false), |job, rank: usize| job.arg(rank));
    let ends = everybody.start().join();
    assert!(ends.iter().all(|end| end.said.is_empty() && end.status.success()), "{ends:#?}");
}

/// One rank can open no file when ranks meet for a new group: everybody gets its error.
fn poor_in_files(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let set = |current| {
        let limit = rustix::process::Rlimit { current, ..limit };
        rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    };
    if comm.rank() == 1 {
        set(Some(0));
    }
    let result = match comm.nodes() {
        1 => comm.set_algorithm("plan:ring".parse::<Choice>().unwrap()).and_then(|()| comm.barrier()),
        _ => comm.duplicate().map(drop),
    };
    set(limit.current);
    tell(player, result);
    tell(player, comm.set_algorithm(Choice::default()).and_then(|()| comm.barrier()));
    meet("told", &comm);
}

#[test]
fn a_rank_that_cannot_meet_the_others_is_everybodys_error() {
    for nodes in ["1", "3", "2,1"] {
        let ends = Job::new("poor_in_files", 3).var("EARLYBIRD_RANKS_PER_NODE", nodes).start().join();
        let told = &ends[0].said;
        assert!(ends.iter().all(|end| end.said == *told && end.status.success()), "{nodes}: {ends:#?}");
        assert!(told[0].contains("rank 1") && told[0].contains("open"), "{nodes}: {told:?}");
        // Over several nodes the communicator goes on.
        assert_eq!(told.len(), if nodes == "3" { 2 } else { 1 }, "{nodes}: {told:?}");
    }
}

#[test]
fn rings_are_paid_from_the_budget_of_the_node() {
    // Rank 0's cap counts: it does for the node's own memory and not for rings besides.
    let run = |bytes: &str| Job::new("poor", 3).var("EARLYBIRD_ARENA_MAX", bytes).start().join();
    for end in run("1Mi") {
        assert_eq!(codes(&end), ["EB_NO_SPACE"; 2], "{end}");
    }
    for end in run("64Mi") {
        assert!(codes(&end).is_empty(), "{end}");
    }
}

fn poor(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    tell(player, comm.barrier());
    comm.set_algorithm("plan:ring".parse::<Choice>().unwrap()).unwrap();
    tell(player, comm.all_reduce_in_place(&mut [1u32; 50], Op::Sum));
    tell(player, comm.barrier());
    // Leaving at once must not become the others' error.
    meet("told", &comm);
}

/// Nodes of one rank each: everything goes by plans.
fn nodes(player: &Player) {
    let comm = match Communicator::from_env() {
        Ok(comm) => comm,
        Err(error) => return player.say(format!("{} {error}", error.code())),
    };
    let mut ran = Vec::new();
    for count in [1, 3000, 100_000] {
        let mut buf = vec![comm.rank() as f32; count];
        comm.all_reduce_in_place(&mut buf, Op::Sum).unwrap();
        assert!(buf.iter().all(|v| *v == (0..comm.size()).sum::<usize>() as f32));
        ran.push(comm.last_call().unwrap().algorithm.to_string());
    }
    comm.barrier().unwrap();
    ran.push(comm.last_call().unwrap().algorithm.to_string());
    player.say(format!("{} nodes: {}", comm.nodes(), ran.join(" ")));
}

#[test]
fn nodes_of_one_rank_reduce_by_plans() {
    let run = |ranks, each: &str, exchange: &str| {
        let (name, value) = exchange.split_once(' ').unwrap_or(("EXCHANGE", exchange));
        let job = Job::new("nodes", ranks).var("EARLYBIRD_RANKS_PER_NODE", each);
        let job = job.var(&format!("EARLYBIRD_{name}"), value);
        let said = job.run();
        assert!(said.iter().all(|of_rank| *of_rank == said[0]), "{said:?}");
        said[0].concat()
    };
    let auto = "6 nodes: plan:elimination-3-2 plan:elimination-3-2 plan:halving-doubling plan:dissemination";
    assert_eq!(run(6, "1", "auto"), auto);
    assert_eq!(run(3, "1,1,1", "ring"), "3 nodes: plan:ring plan:ring plan:ring plan:dissemination");
    let chosen = "2 nodes: plan:butterfly:r=1 plan:butterfly:r=1 plan:butterfly:r=1 plan:dissemination";
    assert_eq!(run(4, "2", "butterfly:r=1"), chosen);
    assert_eq!(run(4, "2", "ALGORITHM plan:butterfly:r=1"), chosen, "chosen for the calls, between the leaders");
    let by_size = run(3, "3", "ALLREDUCE plan:ring:1Ki-64Ki,chain:65537-");
    assert!(by_size.starts_with("1 nodes: flat plan:ring chain "), "{by_size}");
    let path = std::env::temp_dir().join(format!("earlybird-tuned-{}", std::process::id()));
    let lines =
        ["ranks.3.allreduce = \"plan:ring:1Ki-64Ki,chain:65537-\" # measured", "ranks.4.allreduce = \"leader:0-\""];
    std::fs::write(&path, lines.join("\n")).unwrap();
    let tuned = format!("TUNE {}", path.display());
    let said = [run(3, "3", &tuned), run(4, "2", &tuned)];
    std::fs::remove_file(&path).unwrap();
    assert!(said[0].starts_with("1 nodes: flat plan:ring chain "), "{said:?}");
    assert!(said[1].starts_with("2 nodes: plan:elimination-3-2 "), "it is for one node: {said:?}");
    assert!(run(4, "3,2", "auto").starts_with("EB_USAGE"));
}
