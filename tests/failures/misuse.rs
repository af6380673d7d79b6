//! What users do wrong, and what others do to them: everybody gets one clear error, and nobody hangs.

use crate::common::flags::{meet, raise, wait_for};
use crate::common::{End, Job, Player, Running};
use earlybird::{Algorithm, Communicator, Config, DType, Element, Error, FoldOrder, Op};
use rustix::process::Signal;
use std::time::Duration;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[
        ("scripts", scripts),
        ("unequal", unequal_buffers),
        ("threads", two_threads),
        ("deadline", deadline),
        ("leaver", leaver),
        ("join", join),
        ("absent", absent),
        ("odd", odd),
        ("long", long_timeout),
        #[cfg(feature = "fault")]
        ("panicker", panicker),
    ]);
}

fn tell(player: &Player, key: &str, result: Result<(), Error>) -> bool {
    match result {
        Ok(()) => player.say(format!("{key} ok")),
        Err(error) => {
            player.say(format!("{key} {} {error}", error.code()));
            return false;
        }
    }
    true
}

/// A file that one rank makes and another waits for.
/// One call of a script: `barrier:order:algorithm`, or `type:count:op:order:algorithm`.
fn call(comm: &Communicator, text: &str) -> Result<(), Error> {
    let parts: Vec<&str> = text.split(':').collect();
    let [what @ .., order, algorithm] = &parts[..] else { panic!("{text:?}") };
    comm.set_algorithm(algorithm.parse::<earlybird::Choice>().unwrap())?;
    comm.set_order(if *order == "rank" { FoldOrder::Rank } else { FoldOrder::Arrival })?;
    let [dtype, count, op] = what else {
        assert_eq!(what, ["barrier"]);
        return comm.barrier();
    };
    let op = Op::ALL.into_iter().find(|o| o.name() == *op).unwrap();
    let count = count.parse().unwrap();
    match DType::ALL.into_iter().find(|d| d.name() == *dtype).unwrap() {
        DType::I32 => reduce(comm, vec![1i32; count], op),
        DType::U64 => reduce(comm, vec![1u64; count], op),
        DType::F32 => reduce(comm, vec![1f32; count], op),
        DType::F64 => reduce(comm, vec![1f64; count], op),
        other => panic!("{other:?} is not used here"),
    }
}

fn reduce<T: Element>(comm: &Communicator, mut buf: Vec<T>, op: Op) -> Result<(), Error> {
    comm.all_reduce_in_place(&mut buf, op)
}

/// Calls that all ranks make alike, then those of this rank's script, until one fails; then one more.
fn scripts(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let late: usize = player.arg(0);
    for algorithm in Algorithm::ALL {
        call(&comm, &format!("f32:300:sum:arrival:{algorithm}")).unwrap();
    }
    if comm.rank() == late {
        std::thread::sleep(Duration::from_millis(10));
    }
    for text in player.args()[1 + comm.rank()].split(' ') {
        if !tell(player, "call", call(&comm, text)) {
            tell(player, "again", comm.barrier());
            // Leaving at once must not become the others' error.
            return;
        }
    }
    player.say("no error");
}

fn describe(text: &str) -> String {
    let parts: Vec<&str> = text.split(':').collect();
    match parts[..] {
        [dtype, count, op, order, algorithm] => {
            format!("allreduce of {count} x {dtype}, {op}, {order} order, algorithm {algorithm}")
        }
        [barrier, order, algorithm] => format!("{barrier}, {order} order, algorithm {algorithm}"),
        _ => panic!("{text:?}"),
    }
}

/// What most ranks call and what one of them calls instead.
const DIFFERENT: &[(&str, &str)] = &[
    ("f32:2:sum:arrival:auto", "f32:3:sum:arrival:auto"),
    ("f32:100:sum:arrival:auto", "f32:101:sum:arrival:auto"),
    ("f32:50000:sum:arrival:auto", "f32:50001:sum:arrival:auto"),
    ("f32:500:sum:arrival:leader", "f32:501:sum:arrival:leader"),
    ("f32:500:sum:arrival:static-leader", "f32:501:sum:arrival:static-leader"),
    ("f32:0:sum:arrival:auto", "f32:1:sum:arrival:auto"),
    ("f32:4:sum:arrival:auto", "i32:4:sum:arrival:auto"),
    ("f32:50000:sum:arrival:auto", "i32:50000:sum:arrival:auto"),
    ("f32:100:sum:arrival:auto", "f64:50:sum:arrival:auto"),
    ("f32:4:sum:arrival:auto", "f32:4:max:arrival:auto"),
    ("f32:50000:min:arrival:auto", "f32:50000:max:arrival:auto"),
    ("f32:4:sum:arrival:auto", "f32:4:sum:rank:auto"),
    ("f32:50000:sum:arrival:auto", "f32:50000:sum:rank:auto"),
    ("f32:500:sum:arrival:leader", "f32:500:sum:arrival:chain"),
    ("f32:500:sum:arrival:leader", "f32:500:sum:arrival:auto"),
    ("f32:500:sum:arrival:static-leader", "f32:500:sum:arrival:static-leader-early"),
    ("f32:500:sum:arrival:flat", "f32:500:sum:arrival:chain"),
    // 400 bytes go through the lane without tickets, 64 KiB through the one with.
    ("f32:100:sum:arrival:auto", "f32:16384:sum:arrival:auto"),
    ("f32:16384:sum:arrival:auto", "f32:100:sum:arrival:auto"),
    ("f32:2:sum:arrival:auto", "f32:16384:sum:arrival:auto"),
    ("barrier:arrival:auto", "f32:4:sum:arrival:auto"),
    ("barrier:arrival:auto", "u64:0:sum:arrival:auto"),
    ("f32:50000:sum:arrival:chain", "barrier:arrival:chain"),
    ("barrier:arrival:leader", "barrier:arrival:chain"),
    ("barrier:arrival:leader", "barrier:rank:leader"),
    // Near counts differ in the sixteen bits that words of several writers carry.
    ("f64:375:sum:arrival:auto", "f64:421:sum:arrival:auto"),
    ("f64:1033:sum:arrival:auto", "f64:2044:sum:arrival:auto"),
];

/// Every rank gets the same sentence with both calls.
fn check_mismatch(ends: &[End], one: &str, other: &str) {
    let all = || ends.iter().map(End::to_string).collect::<String>();
    let sentence = ends[0]
        .said
        .iter()
        .find(|line| line.contains("EB_MISMATCH"))
        .unwrap_or_else(|| panic!("{one} against {other}:\n{}", all()));
    for text in [one, other] {
        let known = sentence.contains(&format!(": {} against", describe(text)))
            || sentence.contains(&format!("against {};", describe(text)));
        assert!(known, "{:?} is not in {sentence:?}", describe(text));
    }
    for end in ends {
        assert!(end.said.contains(sentence), "{}", all());
        assert!(end.said.contains(&sentence.replace("call ", "again ")), "{}", all());
        assert!(end.status.success(), "{}", all());
    }
}

#[test]
fn different_calls_are_a_mismatch_with_both_descriptions_for_everybody() {
    let mut jobs = 0;
    for (i, (most, odd)) in DIFFERENT.iter().enumerate() {
        for who in 0..3 {
            // The odd one comes last, or another one does.
            let late = if (i + who) % 2 == 0 { who } else { (who + 1) % 3 };
            let job = (0..3).fold(Job::new("scripts", 3).arg(late), |j, r| j.arg(if r == who { odd } else { most }));
            check_mismatch(&job.start().join(), most, odd);
            jobs += 1;
        }
        let job = Job::new("scripts", 2).arg(i % 2).arg(most).arg(odd);
        check_mismatch(&job.start().join(), most, odd);
        jobs += 1;
    }
    println!("{jobs} jobs with one different call");
}

#[test]
fn a_rank_two_calls_ahead_is_a_mismatch() {
    let (a, b, c) = ("f32:7:sum:arrival:auto", "f32:500:sum:arrival:auto", "f32:20000:max:arrival:auto");
    for late in 0..3 {
        let job = Job::new("scripts", 3).arg(late).arg(format!("{a} {c}"));
        let ends = job.arg(format!("{a} {b} {b} {c}")).arg(format!("{a} {b} {b} {c}")).start().join();
        check_mismatch(&ends, b, c);
    }
}

/// Calls that no word with sixteen bits of the signature tells apart.
#[cfg(feature = "fault")]
fn alike_in_sixteen_bits(algorithm: Algorithm) -> (String, String) {
    use earlybird_shm::{Collective, Signature};
    let hash = |op: Op, count: usize| {
        let call = Signature::new(Collective::AllReduce, DType::F64, op, FoldOrder::Arrival, algorithm, count);
        call.in_lane(algorithm == Algorithm::Flat).hash() as u16
    };
    let sum = hash(Op::Sum, 5000);
    let count = (2000..1_000_000).find(|count| hash(Op::Max, *count) == sum).expect("sixteen bits repeat");
    (format!("f64:5000:sum:arrival:{algorithm}"), format!("f64:{count}:max:arrival:{algorithm}"))
}

/// Their ranks meet the difference in what they call next, at the latest.
#[cfg(feature = "fault")]
#[test]
fn calls_alike_in_sixteen_bits_are_a_mismatch_in_the_next_operation() {
    for algorithm in [Algorithm::Chain, Algorithm::Leader, Algorithm::Slices] {
        let (one, other) = alike_in_sixteen_bits(algorithm);
        let next = "barrier:arrival:auto f32:9:sum:arrival:auto";
        for late in 0..2 {
            let job = Job::new("scripts", 2).arg(late).arg(format!("{one} {next}")).arg(format!("{other} {next}"));
            let ends = job.start().join();
            let last = |end: &End| end.said.iter().position(|line| line.starts_with("call EB_MISMATCH ranks"));
            assert!(ends.iter().all(|end| last(end).is_some_and(|calls| calls < 2)), "{one} {other}: {ends:#?}");
        }
    }
}

fn unequal_buffers(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (send, mut recv) = ([1f32; 5], [0f32; 4]);
    tell(player, "unequal", comm.all_reduce_into(&send, &mut recv, Op::Sum));
    // Nothing was begun: the group goes on.
    let mut recv = [0f32; 5];
    tell(player, "equal", comm.all_reduce_into(&send, &mut recv, Op::Sum));
    assert_eq!(recv, [comm.size() as f32; 5]);
}

#[test]
fn buffers_of_different_lengths_are_refused_and_harm_nothing() {
    for said in Job::new("unequal", 2).run() {
        assert!(said[0].starts_with("unequal EB_USAGE") && said[0].contains('5') && said[0].contains('4'), "{said:?}");
        assert_eq!(said[1], "equal ok");
    }
}

fn two_threads(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let once = || {
        let mut buf = [1.0f64; 100];
        let result = comm.all_reduce_in_place(&mut buf, Op::Sum);
        if result.is_err() {
            raise("refused");
        }
        result
    };
    if comm.rank() == 0 {
        let both = std::thread::scope(|scope| [scope.spawn(once), scope.spawn(once)].map(|t| t.join().unwrap()));
        for result in both {
            tell(player, "thread", result);
        }
    } else {
        // Until then one thread of rank 0 is inside its call, so the other one must be refused.
        wait_for("refused");
        once().unwrap();
    }
    comm.barrier().unwrap();
}

#[test]
fn a_second_thread_is_refused_and_the_first_one_completes() {
    for algorithm in Algorithm::ALL {
        let mut said = Job::new("threads", 2).var("EARLYBIRD_ALGORITHM", algorithm).run().swap_remove(0);
        said.sort();
        assert_eq!(said.len(), 2);
        assert!(said[0].starts_with("thread EB_USAGE another thread"), "{said:?}");
        assert_eq!(said[1], "thread ok");
    }
}

/// The last rank comes when the test lets it: by a signal, a flag, or when the others have given up.
fn deadline(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let mut buf = vec![1.0f64; player.arg(0)];
    comm.barrier().unwrap();
    player.say("joined");
    if comm.rank() + 1 == comm.size() {
        match player.arg::<String>(1).as_str() {
            "stop" => rustix::process::kill_process(rustix::process::getpid(), Signal::STOP).unwrap(),
            "flag" => wait_for("go"),
            "given-up" => (0..comm.size() - 1).for_each(|rank| wait_for(&format!("failed-{rank}"))),
            other => assert_eq!(other, "at-once"),
        }
    }
    if !tell(player, "call", comm.all_reduce_in_place(&mut buf, Op::Sum)) {
        meet("failed", &comm);
    } else {
        assert!(buf.iter().all(|v| *v == comm.size() as f64));
        // Leaving while others still copy is no error; this only keeps the test about one call.
        comm.barrier().unwrap();
    }
}

#[test]
fn a_deadline_names_the_missing_rank_on_all_ranks() {
    for algorithm in Algorithm::ALL {
        let job = Job::new("deadline", 3).arg(50).arg("given-up").var("EARLYBIRD_ALGORITHM", algorithm);
        for said in job.var("EARLYBIRD_TIMEOUT", "0.4").run() {
            assert!(said[1].contains("EB_TIMEOUT after 400ms rank(s) [2] had not arrived"), "{algorithm}: {said:?}");
        }
    }
}

const DEADLINE_S: u64 = 2;

fn completes(job: Running) {
    for end in job.join() {
        assert!(end.status.success() && end.said.last().is_some_and(|l| l == "call ok"), "{end}");
    }
}

fn under_deadline(how: &str, algorithm: &str) -> Running {
    let job = Job::new("deadline", 3).arg(5000).arg(how).var("EARLYBIRD_ALGORITHM", algorithm);
    let mut running = job.var("EARLYBIRD_TIMEOUT", DEADLINE_S).start();
    (0..3).for_each(|rank| running.wait_for(rank, "joined"));
    running
}

fn outlast_the_deadline() {
    std::thread::sleep(Duration::from_secs(DEADLINE_S * 2));
}

#[test]
fn a_deadline_does_not_run_while_the_missing_rank_is_stopped() {
    let mut job = under_deadline("stop", "auto");
    job.wait_stopped(2);
    outlast_the_deadline();
    job.signal(2, Signal::CONT);
    completes(job);
}

#[test]
fn a_deadline_does_not_run_while_the_waiting_ranks_are_stopped() {
    let mut job = under_deadline("flag", "chain");
    for rank in [0, 1] {
        job.signal(rank, Signal::STOP);
        job.wait_stopped(rank);
    }
    outlast_the_deadline();
    for rank in [0, 1] {
        job.signal(rank, Signal::CONT);
    }
    // Long enough that the waiting ranks look at the clock, well before the deadline.
    std::thread::sleep(Duration::from_millis(500));
    job.raise("go");
    completes(job);
}

#[cfg(feature = "fault")]
#[test]
fn a_deadline_does_not_run_while_a_rank_is_stopped_inside_the_operation() {
    for (algorithm, step) in [("chain", "claimed"), ("flat", "entered"), ("static-leader", "arrived")] {
        let job = Job::new("deadline", 3).arg(5000).arg("at-once").var("EARLYBIRD_ALGORITHM", algorithm);
        // The barrier has passed every step before.
        let job = job.var("EARLYBIRD_FAULT", format!("1:{step}:2:stop")).var("EARLYBIRD_TIMEOUT", DEADLINE_S);
        let mut running = job.start();
        running.wait_stopped(1);
        outlast_the_deadline();
        running.signal(1, Signal::CONT);
        completes(running);
    }
}

/// Rank 1 leaves its job in the middle, in the way it is told.
fn leaver(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    if comm.rank() == 1 {
        match player.arg::<String>(0).as_str() {
            "return" => return,
            "panic" => panic!("a panic in one rank, on purpose"),
            other => panic!("{other:?}"),
        }
    }
    tell(player, "call", comm.all_reduce_in_place(&mut vec![1.0f32; player.arg(1)], Op::Sum));
}

#[test]
fn a_rank_that_returns_or_panics_is_named_to_the_others() {
    for how in ["return", "panic"] {
        for algorithm in Algorithm::ALL {
            for count in [2, 5000] {
                let job = Job::new("leaver", 3).arg(how).arg(count).var("EARLYBIRD_ALGORITHM", algorithm);
                let ends = job.start().join();
                let sentence = format!("EB_PEER_DIED rank 1 (pid {} on ", ends[1].pid);
                for rank in [0, 2] {
                    let heard = ends[rank].heard("call").unwrap_or_else(|| panic!("{}", ends[rank]));
                    assert!(heard.starts_with(&sentence), "{how} {algorithm}: {heard}");
                }
                assert_eq!(ends[1].status.success(), how == "return");
            }
        }
    }
}

/// Rank 1 panics inside its second call and lives on; the others must not wait for it.
#[cfg(feature = "fault")]
fn panicker(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.barrier().unwrap();
    let mut buf = vec![1.0f64; player.arg(0)];
    let mut call = || comm.all_reduce_in_place(&mut buf, Op::Sum);
    if comm.rank() == 1 {
        let call = std::panic::AssertUnwindSafe(call);
        assert!(std::panic::catch_unwind(call).is_err(), "the fault did not strike");
        (0..3).filter(|rank| *rank != 1).for_each(|rank| wait_for(&format!("failed-{rank}")));
    } else if call().is_ok() {
        // Rank 1's contribution may have been enough for this rank.
        assert!(call().is_err());
    }
    raise(&format!("failed-{}", comm.rank()));
    assert!(!tell(player, "again", comm.barrier()));
    assert!(!tell(player, "again", comm.barrier()));
    (0..3).for_each(|rank| wait_for(&format!("failed-{rank}")));
}

#[cfg(feature = "fault")]
#[test]
fn a_panic_inside_a_call_fails_the_group_while_the_rank_lives() {
    for (algorithm, count, step, nth) in [
        ("flat", 2, "entered", 2),
        ("flat", 500, "deposited", 1),
        ("chain", 5000, "claimed", 2),
        ("leader", 500, "arrived", 2),
        ("slices", 5000, "deposited", 2),
    ] {
        let job = Job::new("panicker", 3).arg(count).var("EARLYBIRD_ALGORITHM", algorithm);
        let ends = job.var("EARLYBIRD_FAULT", format!("1:{step}:{nth}:panic")).start().join();
        for end in &ends {
            let expected = "again EB_POISONED the group was poisoned: rank 1 panicked in allreduce 2 ";
            assert!(end.status.success() && end.said.len() == 2, "{algorithm}: {end}");
            let one = end.said.iter().all(|line| line.starts_with(expected) && *line == ends[0].said[0]);
            assert!(one, "{algorithm}: {ends:#?}");
        }
    }
}

fn join(player: &Player) {
    tell(player, "join", Communicator::from_env().map(drop));
}

#[test]
fn settings_that_cannot_be_are_refused_by_every_rank() {
    for (name, value, text) in [
        ("EARLYBIRD_ALGORITM", "chain", "EARLYBIRD_ALGORITM is not known"),
        ("EARLYBIRD_ALGORITHM", "fast", "EARLYBIRD_ALGORITHM: algorithm \"fast\" is not known"),
        ("EARLYBIRD_ARENA_MAX", "100", "EARLYBIRD_ARENA_MAX) is too small for 3 ranks"),
    ] {
        for said in Job::new("join", 3).var(name, value).run() {
            assert!(said[0].starts_with("join EB_USAGE") && said[0].contains(text), "{said:?}");
        }
    }
}

/// One rank, the second argument, has a setting of its own: the first argument, `NAME=value`.
fn odd(player: &Player) {
    let (setting, who): (String, String) = (player.arg(0), player.arg(1));
    let (name, value) = setting.split_once('=').unwrap();
    let is_odd = std::env::var("EARLYBIRD_RANK").unwrap() == who;
    let more = is_odd.then(|| (name.to_owned(), value.to_owned()));
    let joined = Communicator::builder().try_config(Config::from_env_and(more)).connect();
    tell(player, "join", joined.map(drop));
}

#[test]
fn what_one_rank_has_set_otherwise_is_the_same_error_for_all() {
    for who in [0, 1, 2] {
        for (setting, texts) in [
            ("EARLYBIRD_RANKS_PER_NODE=2,1", ["EARLYBIRD_RANKS_PER_NODE is ", "2,1 on rank "]),
            ("EARLYBIRD_DIR=/dev/shm/eb-elsewhere", ["EARLYBIRD_DIR is ", "/dev/shm/eb-elsewhere on rank "]),
            ("EARLYBIRD_ALGORITM=chain", [": environment variable EARLYBIRD_ALGORITM is not known", "rank "]),
            ("EARLYBIRD_WAIT=busy", [": EARLYBIRD_WAIT: ", "rank "]),
            ("EARLYBIRD_RANKS_PER_NODE=7,1", ["7,1", "rank "]),
        ] {
            let said = Job::new("odd", 3).arg(setting).arg(who).watchdog(Duration::from_secs(20)).run();
            assert!(said.iter().all(|lines| *lines == said[0]), "{setting}: {said:#?}");
            let text = &said[0][0];
            assert!(text.starts_with("join EB_USAGE") && texts.iter().all(|part| text.contains(part)), "{text}");
            assert!(text.contains(&format!("rank {who}")), "{text}");
        }
    }
    let _ = std::fs::remove_dir("/dev/shm/eb-elsewhere");
}

/// A rank that others wait for, with a deadline of centuries.
fn long_timeout(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    if comm.rank() == 1 {
        std::thread::sleep(Duration::from_secs(1));
    }
    tell(player, "call", comm.all_reduce_in_place(&mut vec![1.0f32; 5000], Op::Sum));
    tell(player, "call", comm.barrier());
}

#[test]
fn a_deadline_of_centuries_is_not_cut() {
    // the first one is 290 ms more than 64 bits of nanoseconds
    for seconds in ["18446744074", "9999999999999999999"] {
        for nodes in ["3", "2,1"] {
            let job = Job::new("long", 3).var("EARLYBIRD_TIMEOUT", seconds).var("EARLYBIRD_RANKS_PER_NODE", nodes);
            for said in job.run() {
                assert_eq!(said, ["call ok", "call ok"], "{seconds} s, {nodes}");
            }
        }
    }
}

fn absent(player: &Player) {
    if player.arg::<usize>(0) == std::env::var("EARLYBIRD_RANK").unwrap().parse::<usize>().unwrap() {
        (0..3).filter(|rank| *rank != player.arg::<i32>(0)).for_each(|rank| wait_for(&format!("failed-{rank}")));
    } else {
        let rank = std::env::var("EARLYBIRD_RANK").unwrap();
        tell(player, "join", Communicator::from_env().map(drop));
        raise(&format!("failed-{rank}"));
    }
}

#[test]
fn a_deadline_names_a_rank_that_never_joins() {
    for absent in [0, 2] {
        let job = Job::new("absent", 3).arg(absent).var("EARLYBIRD_TIMEOUT", "0.5");
        for (rank, said) in job.run().into_iter().enumerate().filter(|(rank, _)| *rank != absent) {
            let named = format!("join EB_TIMEOUT after 500ms rank(s) [{absent}] had not arrived");
            assert!(said[0].starts_with(&named), "rank {rank}: {said:?}");
        }
    }
}
