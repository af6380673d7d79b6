//! Started calls go on while their rank waits for something else: in another communicator, of several nodes or of one, in
//! whatever way, or outside the library where it calls `progress`.

use crate::common::flags::{is_raised, raise, wait_for};
use crate::common::{Job, Player, mix};
use earlybird::{BufferOwner, CollectiveArgs, Communicator, Error, Identity, Op, Request, UserOp};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("crossed", crossed),
        ("outside", outside),
        ("elsewhere", elsewhere),
        ("beside", beside),
        ("differ", differ),
        ("patient", patient),
    ]);
}

/// How a rank waits that others wait for.
const WAITS: [&str; 12] = [
    "allreduce",
    "segments",
    "barrier",
    "operator",
    "request",
    "persistent",
    "split",
    "drop",
    "node",
    "plan",
    "node-request",
    "join",
];

const KINDS: usize = 5;

/// Waits in `comm`, or for ranks that are yet to come, as `how` says. All ranks call it.
fn wait_in(comm: &Communicator, how: &str, round: usize) -> Result<(), Error> {
    let sum = |buf: &[u64]| assert!(buf.iter().all(|sum| *sum == comm.size() as u64));
    match how {
        "allreduce" | "plan" => {
            let mut buf = [1u64; 300];
            comm.all_reduce_in_place(&mut buf, Op::Sum)?;
            sum(&buf);
        }
        "segments" => {
            let mut buf = vec![1u64; 200_000];
            comm.all_reduce_in_place(&mut buf, Op::Sum)?;
            sum(&buf);
        }
        "barrier" | "node" => comm.barrier()?,
        "operator" => {
            let op = UserOp::commutative(|a: &[u64; 2], b: &[u64; 2]| [a[0] + b[0], a[1] + b[1]]);
            let mut buf = [[1; 2]; 100];
            comm.all_reduce_in_place(&mut buf, &op)?;
            sum(buf.as_flattened());
        }
        "request" | "node-request" => sum(&comm.start(CollectiveArgs::all_reduce(vec![1; 30_000], Op::Sum))?.wait()?),
        "persistent" => {
            let mut call = comm.init(CollectiveArgs::all_reduce(vec![1u64; 1000], Op::Sum))?;
            call.run()?;
            sum(call.buffers_mut()?);
        }
        "split" => drop(comm.split(Some(0), -(comm.rank() as i64))?),
        "join" => {
            let mut identity = Identity::detect()?;
            identity.key += &format!("-{round}");
            Communicator::builder().identity(identity).connect()?.barrier()?;
        }
        other => panic!("{other:?}"),
    }
    Ok(())
}

type End<'c> = Box<dyn FnOnce() -> Result<(), Error> + 'c>;

/// Starts a call; its end.
fn start(comm: &Communicator, kind: usize, count: usize) -> Result<End<'_>, Error> {
    let (me, size) = (comm.rank() as u64, comm.size());
    let total = (0..size as u64).sum::<u64>();
    fn end<'c, B: BufferOwner>(request: Request<'c, B>, is_right: impl Fn(B) -> bool + 'c) -> End<'c> {
        Box::new(move || request.wait().map(|got| assert!(is_right(got))))
    }
    Ok(match kind {
        0 => {
            end(comm.start(CollectiveArgs::all_reduce(vec![me; count], Op::Sum))?, move |got| got == vec![total; count])
        }
        1 => {
            let request = comm.start(CollectiveArgs::all_gather((vec![me; count], vec![0; count * size])))?;
            end(request, move |(_, got)| got.iter().enumerate().all(|(i, v)| *v == (i / count) as u64))
        }
        2 => end(comm.start(CollectiveArgs::broadcast(size - 1, vec![me; count]))?, move |got| {
            got == vec![size as u64 - 1; count]
        }),
        3 => {
            let request = comm.start(CollectiveArgs::all_to_all((vec![me; count * size], vec![0; count * size])))?;
            end(request, move |(_, got)| got.iter().enumerate().all(|(i, v)| *v == (i / count) as u64))
        }
        _ => {
            let mut call = comm.init(CollectiveArgs::all_reduce(vec![me; count], Op::Sum))?;
            call.start()?;
            Box::new(move || call.wait().map(|()| assert_eq!(*call.buffers_mut().unwrap(), vec![total; count])))
        }
    })
}

/// A leader of each node in turn waits in one communicator for ranks that wait for what it has started in another one.
fn cross(how: &str) -> Result<(), Error> {
    let world = Communicator::from_env()?;
    let me = world.rank();
    let other = match how {
        "node" | "node-request" | "plan" => world.split(Some((me / 2) as u32), 0)?.expect("a color was given"),
        _ => world.duplicate()?,
    };
    if how == "plan" {
        other.set_algorithm("plan:ring".parse::<earlybird::Choice>()?)?;
    }
    for round in 0..2 * KINDS {
        let started = start(&world, round % KINDS, [1, 3000, 40_000][round % 3])?;
        let first = me == round % 2 * 2;
        let also = if how == "drop" { Some(world_of(&other, round)) } else { None };
        let wait = || match also {
            // Dropping it completes what was started there.
            Some(also) if first => also?.start(CollectiveArgs::barrier()).map(drop),
            Some(also) => also?.start(CollectiveArgs::barrier())?.wait(),
            None => wait_in(&other, how, round),
        };
        if first {
            wait()?;
            started()?;
        } else {
            started()?;
            wait()?;
        }
    }
    Ok(())
}

/// A communicator to start something in.
fn world_of(comm: &Communicator, round: usize) -> Result<Communicator, Error> {
    Ok(comm.split(Some(round as u32), 0)?.expect("a color was given"))
}

fn crossed(player: &Player) {
    #[cfg(feature = "fault")]
    if player.arg::<String>(1) == "still" {
        earlybird_shm::engine::stand_still();
    }
    let outcome = cross(&player.arg::<String>(0));
    player.say(outcome.map_or_else(|error| error.code(), |()| "right"));
}

#[test]
fn started_calls_go_on_while_their_leader_waits_elsewhere() {
    for how in WAITS {
        let job = Job::new("crossed", 4).arg(how).arg("driven").var("EARLYBIRD_RANKS_PER_NODE", 2);
        assert!(job.run().iter().all(|said| *said == ["right"]), "{how}");
    }
}

#[test]
fn large_started_calls_of_one_node_go_on_while_a_rank_waits_elsewhere() {
    let least = earlybird_shm::layout::Windows::least_budget_bytes(3);
    for how in ["barrier", "request", "join"] {
        let job = Job::new("crossed", 3).arg(how).arg("driven").var("EARLYBIRD_ARENA_MAX", 4 * least);
        assert!(job.run().iter().all(|said| *said == ["right"]), "{how}");
    }
}

/// The twin of the two above.
#[cfg(feature = "fault")]
#[test]
fn without_an_engine_they_do_not() {
    for how in WAITS.into_iter().filter(|how| *how != "join") {
        let job = Job::new("crossed", 4).arg(how).arg("still").var("EARLYBIRD_RANKS_PER_NODE", 2);
        let said = job.var("EARLYBIRD_TIMEOUT", 1).run();
        assert!(said.iter().any(|said| *said == ["EB_TIMEOUT"]), "{how}: {said:?}");
    }
    let least = earlybird_shm::layout::Windows::least_budget_bytes(3);
    let job = Job::new("crossed", 3).arg("barrier").arg("still").var("EARLYBIRD_ARENA_MAX", 4 * least);
    let said = job.var("EARLYBIRD_TIMEOUT", 1).run();
    assert!(said.iter().any(|said| *said == ["EB_TIMEOUT"]), "{said:?}");
}

/// Rank 0 waits outside the library for a rank that waits for what rank 0 has started. It starts first: the start of the
/// last rank can be all that a call needs.
fn outside(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    assert!(!earlybird::progress(), "nothing is started");
    if comm.rank() != 0 {
        wait_for("started");
    }
    let started = comm.start(CollectiveArgs::all_reduce(vec![1u64; 5000], Op::Sum)).unwrap();
    if comm.rank() == 0 {
        raise("started");
        let mut left = true;
        while !is_raised("done") {
            if player.arg::<String>(0) == "drives" {
                left = earlybird::progress();
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        player.say(format!("left {left}"));
    }
    let outcome = started.wait().map(|got| assert_eq!(got, vec![comm.size() as u64; 5000]));
    if comm.rank() == 1 {
        raise("done");
    }
    player.say(outcome.map_or_else(|error| error.code(), |()| "right"));
}

#[test]
fn who_waits_outside_drives_what_it_has_started() {
    let job = |how: &str| Job::new("outside", 4).arg(how).var("EARLYBIRD_RANKS_PER_NODE", 2);
    let said = job("drives").run();
    assert!(said[1..].iter().all(|said| *said == ["right"]), "{said:?}");
    assert!(said[0][0].starts_with("left ") && said[0][1] == "right", "{said:?}");
    let said = job("idles").var("EARLYBIRD_TIMEOUT", 1).run();
    assert_eq!(said[1], ["EB_TIMEOUT"], "{said:?}");
}

/// One thread has started and waits for another one, which waits in another communicator.
fn elsewhere(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let other = comm.duplicate().unwrap();
    for round in 0..KINDS {
        let started = start(&comm, round, 2000).unwrap();
        if comm.rank() == 0 {
            std::thread::scope(|scope| scope.spawn(|| other.barrier().unwrap()).join().unwrap());
            started().unwrap();
        } else {
            started().unwrap();
            other.barrier().unwrap();
        }
    }
    player.say("right");
}

#[test]
fn another_thread_that_waits_will_do() {
    let said = Job::new("elsewhere", 4).var("EARLYBIRD_RANKS_PER_NODE", 2).run();
    assert!(said.iter().all(|said| *said == ["right"]), "{said:?}");
}

/// Threads in communicators of their own while another one drives: none of them meets it inside its call.
fn beside(player: &Player) {
    let world = Communicator::from_env().unwrap();
    let of_two: Vec<Communicator> = (0..2).map(|_| world.duplicate().unwrap()).collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Relaxed) {
                earlybird::progress();
            }
        });
        let users: Vec<_> = of_two
            .iter()
            .enumerate()
            .map(|(number, comm)| {
                scope.spawn(move || {
                    for round in 0..30 {
                        let step = mix((number * 1000 + round) as u64) as usize;
                        let started = start(comm, step % KINDS, 1 + step % 5000).unwrap();
                        let part = (round % 6 == 0).then(|| world_of(comm, round).unwrap());
                        if let Some(part) = part {
                            drop(part.start(CollectiveArgs::barrier()).unwrap());
                        }
                        if step.is_multiple_of(3) {
                            wait_in(comm, "allreduce", round).unwrap();
                        }
                        comm.set_progress(None).unwrap();
                        started().unwrap();
                        assert!(comm.last_call().is_some());
                    }
                })
            })
            .collect();
        let ends: Vec<_> = users.into_iter().map(|user| user.join()).collect();
        done.store(true, Relaxed);
        ends.into_iter().for_each(|end| end.unwrap());
    });
    player.say("right");
}

#[test]
fn who_drives_is_no_second_thread_in_a_call() {
    for nodes in ["2", "4"] {
        let said = Job::new("beside", 4).var("EARLYBIRD_RANKS_PER_NODE", nodes).run();
        assert!(said.iter().all(|said| *said == ["right"]), "{said:?}");
    }
}

/// Started calls that differ are found while all wait elsewhere, where nothing is wrong.
fn differ(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let other = comm.duplicate().unwrap();
    let started = comm.start(CollectiveArgs::all_reduce(vec![1u64; if comm.rank() == 3 { 9 } else { 10 }], Op::Sum));
    for _ in 0..5 {
        if other.rank() == 1 {
            std::thread::sleep(Duration::from_millis(20));
        }
        other.barrier().unwrap();
    }
    let error = started.and_then(Request::wait).unwrap_err();
    other.barrier().unwrap();
    player.say(error.code());
}

#[test]
fn what_goes_wrong_is_told_by_the_call_it_belongs_to() {
    let said = Job::new("differ", 4).var("EARLYBIRD_RANKS_PER_NODE", 2).run();
    assert!(said.iter().all(|said| *said == ["EB_MISMATCH"]), "{said:?}");
}

/// The last rank starts after longer than the deadline, in which nobody waits for what was started.
fn patient(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let other = comm.duplicate().unwrap();
    let late = comm.rank() + 1 == comm.size();
    let early = (!late).then(|| start(&comm, 0, 3000).unwrap());
    for _ in 0..5 {
        if late {
            std::thread::sleep(Duration::from_millis(700));
        }
        other.barrier().unwrap();
    }
    early.unwrap_or_else(|| start(&comm, 0, 3000).unwrap())().unwrap();
    player.say("right");
}

#[test]
fn deadlines_do_not_run_while_nobody_waits() {
    for nodes in ["2", "4"] {
        let said = Job::new("patient", 4).var("EARLYBIRD_RANKS_PER_NODE", nodes).var("EARLYBIRD_TIMEOUT", 2).run();
        assert!(said.iter().all(|said| *said == ["right"]), "{said:?}");
    }
}
