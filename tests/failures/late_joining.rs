//! A rank that loses its sockets, or comes late, while a group forms inside a job: all are told why, and nobody waits for ever.

use crate::common::flags::wait_for;
use crate::common::{End, Job, Player};
use earlybird::{Choice, Communicator, Error, Op};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("member", member)]);
}

/// Longer than those that failed to meet wait to tell others why.
const LATE: Duration = Duration::from_millis(2500);

/// Makes a call that forms a group, the kind of which is the argument; says what it returned, and what the next call does.
fn member(player: &Player) {
    let kind: String = player.arg(0);
    let comm = Communicator::from_env();
    let result = comm.as_ref().map_err(Error::clone).and_then(|comm| match kind.as_str() {
        "plan" => by_a_plan(comm),
        "split" => comm.split(Some((comm.rank() == 2).into()), 0).map(drop),
        "duplicate" => comm.duplicate().map(drop),
        "messages" => comm.point_to_point().map(drop),
        other => panic!("{other}"),
    });
    // of a rank that was told to open no more files
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    let say = |when: &str, result: Result<(), Error>| {
        player.say(result.map_or_else(|error| format!("{when} {} {error}", error.code()), |()| format!("{when} ok")));
    };
    say("first", result);
    if let Ok(comm) = &comm {
        say("then", if kind == "plan" { by_a_plan(comm) } else { comm.barrier() });
        wait_for("leave");
    }
}

fn by_a_plan(comm: &Communicator) -> Result<(), Error> {
    comm.set_algorithm("plan:ring".parse::<Choice>().unwrap())?;
    comm.all_reduce_in_place(&mut [1u32; 50], Op::Sum)
}

/// A job of `ranks` ranks on nodes of so many, in which `held` is stopped by one of the `faults`, and goes on when somebody
/// waits for it, or so much later.
fn held(kind: &str, nodes: &str, faults: &str, held: usize, late: Option<Duration>) -> Vec<End> {
    let ranks = nodes.split(',').map(|ranks| ranks.parse::<usize>().unwrap()).sum();
    let job = Job::new("member", ranks).arg(kind).var("EARLYBIRD_RANKS_PER_NODE", nodes);
    let mut job = job.var("EARLYBIRD_FAULT", faults).start();
    job.wait_stopped(held);
    match late {
        Some(late) => std::thread::sleep(late),
        None => job.wait_meeting(),
    }
    job.signal(held, Signal::CONT);
    (0..ranks).for_each(|rank| job.wait_for(rank, "first"));
    job.raise("leave");
    job.join()
}

/// The one error of all ranks, the first time and again.
fn told(ends: &[End]) -> [Option<&str>; 2] {
    assert!(ends.iter().all(|end| end.said == ends[0].said), "{ends:#?}");
    ["first", "then"].map(|when| ends[0].heard(when))
}

const CLOSED: &str = "joining over a socket that something else in this proces";
const NO_MORE: &str = "making a socket (raise ulimit -n): Too many open";

/// What the ranks of a node join beside its calls: a plan, and messages of two ranks.
const BESIDE: [&str; 2] = ["plan", "messages"];

#[test]
fn a_rank_whose_socket_is_closed_while_it_joins_fails_the_call_for_all() {
    for kind in BESIDE {
        let ends = held(kind, "3", "1:left:1:stop,1:asked:2:close", 1, None);
        let [first, then] = told(&ends);
        assert!(first.is_some_and(|error| error.starts_with("EB_") && error.contains(CLOSED)), "{kind}: {first:?}");
        assert_eq!(first, then);
    }
}

#[test]
fn a_rank_that_comes_late_to_a_call_gets_the_error_that_stands() {
    for kind in BESIDE {
        let ends = held(kind, "3", "1:left:1:stop,0:left:1:files", 1, Some(LATE));
        let [first, then] = told(&ends);
        assert!(first.is_some_and(|error| error.starts_with("EB_") && error.contains(NO_MORE)), "{kind}: {first:?}");
        assert_eq!(first, then);
    }
}

/// A rank is killed on its way into the meeting: its process is named, which the meeting never knew.
#[test]
fn a_rank_that_dies_on_its_way_to_the_others_is_named() {
    for (kind, nodes) in BESIDE.into_iter().map(|kind| (kind, "3")).chain([("messages", "2,1"), ("duplicate", "2,1")]) {
        let fault = if nodes == "3" { "1:left:1:kill" } else { "1:joining:3:kill" };
        let job = Job::new("member", 3).arg(kind).var("EARLYBIRD_RANKS_PER_NODE", nodes);
        let mut job = job.var("EARLYBIRD_FAULT", fault).start();
        [0, 2].into_iter().for_each(|rank| job.wait_for(rank, "first"));
        job.raise("leave");
        let ends = job.join();
        let named = format!("EB_PEER_DIED rank 1 (pid {} ", ends[1].pid);
        for end in [&ends[0], &ends[2]] {
            assert!(end.heard("first").is_some_and(|error| error.starts_with(&named)), "{kind} {nodes}: {end}");
        }
    }
}

/// On several nodes: in the joining of the node's ranks (the second), and of the ranks of a new group (the third).
#[test]
fn a_rank_of_several_nodes_that_comes_late_or_is_closed_is_told_like_the_others() {
    let cases = [
        // the other node is one rank, which meets nobody: the meeting that is waited for is that of rank 1
        ("3,1", "1:joining:2:stop,1:asked:2:close"),
        ("3,2", "1:joining:2:stop,0:joining:2:files"),
        ("3,2", "4:joining:2:stop,3:joining:2:files"),
        ("3,2", "1:joining:3:stop,1:asked:3:close"),
        ("3,2", "1:joining:3:stop,0:joining:3:files"),
        ("3,2", "4:joining:3:stop,0:joining:3:files"),
    ];
    let all = ["split", "duplicate", "messages"].into_iter().flat_map(|kind| cases.map(|case| (kind, case)));
    // What a rank calls once it has joined does not matter to its joining.
    for (kind, (nodes, faults)) in all.filter(|(kind, (_, faults))| *kind == "split" || faults.contains(":3:")) {
        let (late, says) = if faults.ends_with("files") { (Some(LATE), NO_MORE) } else { (None, CLOSED) };
        let ends = held(kind, nodes, faults, faults[..1].parse().unwrap(), late);
        let [first, then] = told(&ends);
        // who lost a connection takes its rank for dead; it is the job's error if that is told first
        let is_told =
            |error: &str| error.contains(says) || (late.is_none() && error.starts_with("EB_PEER_DIED rank 1 "));
        assert!(first.is_some_and(is_told), "{kind} {faults}: {first:?}");
        // nobody has joined the job, or all go on in it
        let goes_on = faults.contains(":3:").then_some("ok");
        assert_eq!(then, goes_on, "{kind} {faults}");
    }
}
