//! Refusals of attach: strangers' directories, other builds, other sizes, ranks given twice, memory that is not there.
#![cfg(not(earlybird_loom))]

mod segment_support;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use earlybird_shm::Error;
use earlybird_shm::memory::{AttachOptions, CONTROL_BYTES, MAX_RANKS, Segment};
use segment_support::{REGION, Rank, Scratch, attach_all, options, serve_as_rank, team};

#[test]
fn rank_process() {
    serve_as_rank();
}

/// Two ranks, since one alone meets nobody, of which the other never comes.
fn wish(dir: &Path) -> AttachOptions {
    AttachOptions { timeout: Some(Duration::from_millis(1)), ..options(dir, &dir.to_string_lossy(), 0, 2) }
}

fn refusal(dir: &Path) -> String {
    match Segment::attach(&wish(dir)) {
        Err(Error::Usage { message }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn directories_that_others_could_use() {
    let scratch = Scratch::new();
    let dir = scratch.0.join("open");
    std::fs::create_dir(&dir).unwrap();
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o750)).unwrap();
    assert!(refusal(&dir).contains("mode 0750"));

    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(Segment::attach(&wish(&dir)).unwrap_err().code(), "EB_TIMEOUT");
    let link = scratch.0.join("link");
    symlink(&dir, &link).unwrap();
    assert!(refusal(&link).contains("symbolic link"));
    let dangling = scratch.0.join("dangling");
    symlink(scratch.0.join("nowhere"), &dangling).unwrap();
    assert!(refusal(&dangling).contains("symbolic link"));

    let file = scratch.0.join("file");
    std::fs::write(&file, "").unwrap();
    assert!(refusal(&file).contains("not a directory"));

    let foreign = if std::os::unix::fs::chown(&dir, Some(12345), None).is_ok() { dir } else { "/".into() };
    assert!(refusal(&foreign).contains("belongs to user"));

    let error = Segment::attach(&wish(&scratch.0.join("no/such"))).unwrap_err();
    assert_eq!(error.code(), "EB_SYSTEM");
    assert!(error.to_string().contains("no/such"), "{error}");
}

#[test]
fn numbers_that_cannot_be() {
    let scratch = Scratch::new();
    let dir = scratch.meet();
    for (rank, size) in [(0, 0), (0, MAX_RANKS + 1), (2, 2), (usize::MAX, 2)] {
        assert_eq!(Segment::attach(&options(&dir, "job", rank, size)).unwrap_err().code(), "EB_USAGE");
    }
    assert_eq!(
        Segment::attach(&AttachOptions { key: String::new(), ..options(&dir, "", 0, 1) }).unwrap_err().code(),
        "EB_USAGE"
    );
    for region_bytes in [0, usize::MAX, isize::MAX as usize] {
        let wish = AttachOptions { region_bytes, ..options(&dir, "job", 0, 1) };
        assert_eq!(Segment::attach(&wish).unwrap_err().code(), "EB_USAGE");
    }
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn an_address_space_that_is_too_small_is_said_and_leaves_nothing() {
    let scratch = Scratch::new();
    let wish = AttachOptions { region_bytes: 1 << 60, ..options(&scratch.meet(), "job", 0, 1) };
    let error = Segment::attach(&wish).unwrap_err();
    assert!(error.to_string().contains("EARLYBIRD_ARENA_MAX"), "{error}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn a_rank_given_twice_is_everybodys_error() {
    let scratch = Scratch::new();
    let dir = scratch.meet();
    let mut ranks = team(&dir, "job", 2);
    ranks[0].tell("attach");
    ranks[0].wait_claimed(0);
    let mut again = Rank::spawn(&dir, "job", 0, 2);
    let answer = again.ask("attach");
    let both = format!("EB_USAGE rank 0 is given twice, to processes {} and {};", ranks[0].pid(), again.pid());
    assert!(answer.starts_with(&both) && answer.contains("EARLYBIRD_JOB"), "{answer}");
    assert_eq!(ranks[0].answer(), answer);
    assert_eq!(scratch.files(), Vec::<String>::new());
    // the name is free again
    let mut others = team(&dir, "job", 2);
    attach_all(&mut others);
}

#[test]
fn two_ranks_in_one_process() {
    let scratch = Scratch::new();
    let dir = scratch.meet();
    let other_thread = {
        let options = options(&dir, "two in one", 0, 2);
        std::thread::spawn(move || Segment::attach(&options))
    };
    segment_support::wait_until("the first thread's attach", || !scratch.files().is_empty());
    let error = Segment::attach(&options(&dir, "two in one", 1, 2)).unwrap_err();
    assert!(error.to_string().contains("one process is one rank"), "{error}");
    assert_eq!(other_thread.join().unwrap().unwrap_err(), error);
}

/// Answers of ranks 0 and 1, of which the second was given `commands` before and comes second.
fn differ(size: usize, commands: &[&str]) -> [String; 2] {
    let scratch = Scratch::new();
    let mut ranks = [Rank::spawn(&scratch.meet(), "job", 0, 2), Rank::spawn(&scratch.meet(), "job", 1, size)];
    ranks[0].tell("attach");
    ranks[0].wait_claimed(0);
    commands.iter().for_each(|command| assert_eq!(ranks[1].ask(command), "ok"));
    let second = ranks[1].ask("attach");
    let answers = [ranks[0].answer(), second];
    assert_eq!(scratch.files(), Vec::<String>::new());
    answers
}

#[test]
fn what_is_not_alike_is_the_same_error_for_all_with_both_values() {
    let region = format!("arena {}", REGION * 2);
    for (size, command, says) in [
        (3, "rank-ready", "the number of ranks (EARLYBIRD_SIZE) is 2 on rank 0 and 3 on rank 1;"),
        (
            2,
            region.as_str(),
            "the bytes of a region is 1048576 on rank 0 and 2097152 on rank 1; all ranks must run the same build",
        ),
        (
            2,
            "set EARLYBIRD_RANKS_PER_NODE 2",
            "EARLYBIRD_RANKS_PER_NODE is not set on rank 0 and 2 on rank 1; set it alike",
        ),
    ] {
        let answers = differ(size, &[command]);
        assert_eq!(answers[0], answers[1]);
        assert!(answers[0].starts_with(&format!("EB_USAGE {says}")), "{answers:?}");
    }
}

#[test]
fn ranks_with_different_directories_find_out() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "directories", 2);
    for (rank, dir) in ranks.iter_mut().zip(["a", "b"].map(|name| scratch.0.join(name))) {
        assert_eq!(rank.ask(&format!("dir {}", dir.display())), "ok");
        assert_eq!(rank.ask(&format!("set EARLYBIRD_DIR {}", dir.display())), "ok");
        rank.tell("attach");
    }
    let answers = [ranks[0].answer(), ranks[1].answer()];
    assert_eq!(answers[0], answers[1]);
    assert!(answers[0].starts_with("EB_USAGE EARLYBIRD_DIR is ") && answers[0].contains("/b on rank 1"), "{answers:?}");
}

/// A rank that refuses tells the others, whoever comes first.
#[test]
fn a_refusal_reaches_everybody() {
    for refuser_first in [false, true] {
        let scratch = Scratch::new();
        let mut ranks = team(&scratch.meet(), "refusal", 3);
        if !refuser_first {
            ranks[0].tell("attach");
            ranks[0].wait_claimed(0);
        }
        ranks[1].tell("refuse EARLYBIRD_X is not known");
        ranks[2].tell("attach");
        if refuser_first {
            ranks[0].tell("attach");
        }
        for rank in [0, 2] {
            assert_eq!(ranks[rank].answer(), "EB_USAGE rank 1: EARLYBIRD_X is not known", "{refuser_first}");
        }
        assert_eq!(ranks[1].answer(), "rank 1: EARLYBIRD_X is not known");
        assert_eq!(scratch.files(), Vec::<String>::new());
    }
}

/// Whatever a process lacks of descriptors, all ranks end alike and soon, whoever comes first, and leave no name.
#[test]
fn too_few_descriptors_are_everybodys_error_and_no_hang() {
    let mut refused = 0;
    for (poor_first, poor, limit) in [true, false]
        .into_iter()
        .flat_map(|first| (0..2).flat_map(move |poor| (3..16).map(move |limit| (first, poor, limit))))
    {
        let scratch = Scratch::new();
        let mut ranks = team(&scratch.meet(), "poor", 3);
        assert_eq!(ranks[poor].ask(&format!("files-limit {limit}")), "ok");
        let others = (0..3).filter(|rank| *rank != poor);
        let order: Vec<usize> =
            if poor_first { std::iter::once(poor).chain(others).collect() } else { others.chain([poor]).collect() };
        for rank in order {
            assert_eq!(ranks[rank].ask("timeout-ms 3000"), "ok");
            ranks[rank].tell("attach");
            std::thread::sleep(Duration::from_millis(5));
        }
        let answers: Vec<String> = (0..3).map(|rank| ranks[rank].answer()).collect();
        let at = format!("rank {poor} with {limit} descriptors, first: {poor_first}: {answers:?}");
        assert!(answers.iter().all(|answer| *answer == answers[0]), "{at}");
        assert!(answers[0] == "ok" || answers[0].contains("ulimit -n"), "{at}");
        assert_eq!(scratch.files(), Vec::<String>::new(), "{at}");
        refused += usize::from(answers[0] != "ok");
    }
    assert!(refused > 0, "every limit left room enough");
}

/// A group whose ranks 0 and 1 of three wait for the last one, and the file of its control segment.
fn waiting(scratch: &Scratch) -> (Vec<Rank>, std::fs::File) {
    let mut ranks = team(&scratch.meet(), "noise", 3);
    for (rank, process) in ranks.iter_mut().enumerate().take(2) {
        process.ask("timeout-ms 1000");
        process.tell("attach");
        process.wait_claimed(rank);
    }
    let descriptors = std::fs::read_dir(format!("/proc/{}/fd", ranks[0].pid())).unwrap();
    let control = descriptors.map(|entry| entry.unwrap().path()).find(|path| {
        std::fs::read_link(path).is_ok_and(|target| target.to_string_lossy().contains("earlybird-control"))
    });
    let control = std::fs::OpenOptions::new().write(true).read(true).open(control.expect("a control segment")).unwrap();
    assert_eq!(control.metadata().unwrap().len() as usize, CONTROL_BYTES);
    (ranks, control)
}

#[test]
fn noise_in_the_control_segment_is_an_error_and_nothing_worse() {
    let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
    let mut noise = || {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed
    };
    for round in 0..12 {
        let scratch = Scratch::new();
        let (mut ranks, control) = waiting(&scratch);
        // all of it, or all but the words that end the wait at once
        let from = if round % 3 == 0 { 0 } else { 128 };
        let bytes: Vec<u8> = (from..CONTROL_BYTES)
            .step_by(8)
            .flat_map(|_| (if round % 2 == 0 { noise() } else { noise() % 6 }).to_le_bytes())
            .collect();
        std::os::unix::fs::FileExt::write_all_at(&control, &bytes, from as u64).unwrap();
        ranks[2].ask("timeout-ms 1000");
        ranks[2].tell("attach");
        for rank in &mut ranks {
            let answer = rank.answer();
            assert!(answer == "ok" || answer.starts_with("EB_"), "round {round}: {answer:?}");
        }
    }
}

/// Anything under the name of a socket in the directory is replaced.
#[test]
fn leftovers_in_the_directory_are_replaced() {
    let scratch = Scratch::new();
    let mut probe = Rank::spawn(&scratch.meet(), "job", 0, 2);
    probe.tell("attach");
    probe.wait_claimed(0);
    let name = scratch.files().into_iter().find(|name| name.starts_with("meet-")).unwrap();
    drop(probe);
    assert_eq!(scratch.files(), vec![name.clone()], "the socket that nobody listens at");
    for text in ["", "earlybird 1 "] {
        attach_all(&mut team(&scratch.meet(), "job", 2));
        assert_eq!(scratch.files(), Vec::<String>::new());
        std::fs::write(scratch.meet().join(&name), text).unwrap();
    }
    attach_all(&mut team(&scratch.meet(), "job", 2));
    assert_eq!(scratch.files(), Vec::<String>::new());
}

/// A cleaner removes the directory while ranks wait: late ranks find the others all the same.
#[test]
fn a_directory_removed_during_attach_hangs_nobody() {
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "cleaned", 3);
    for (rank, process) in ranks.iter_mut().enumerate().take(2) {
        process.tell("attach");
        process.wait_claimed(rank);
    }
    std::fs::remove_dir_all(scratch.meet()).unwrap();
    ranks[2].tell("attach");
    for rank in &mut ranks {
        assert_eq!(rank.answer(), "ok");
    }
    assert_eq!(scratch.files(), Vec::<String>::new());
}

/// Ranks that share a directory and no network namespace meet there, also when it is removed meanwhile.
#[test]
fn network_namespaces_of_their_own() {
    let apart = || {
        let mut command = Command::new("unshare");
        command.arg("-n");
        command
    };
    if !apart().arg("true").output().is_ok_and(|run| run.status.success()) {
        println!("SKIPPED: this user cannot make network namespaces");
        return;
    }
    for cleaned in [false, true] {
        let scratch = Scratch::new();
        let dir = scratch.meet();
        let mut ranks: Vec<Rank> = (0..3)
            .map(|rank| {
                let mut command = apart();
                command.arg(std::env::current_exe().unwrap());
                Rank::spawn_by(command, &dir, "apart", rank, 3)
            })
            .collect();
        ranks[0].tell("attach");
        ranks[0].wait_claimed(0);
        if cleaned {
            let before = scratch.files();
            std::fs::remove_dir_all(&dir).unwrap();
            segment_support::wait_until("the restored name", || scratch.files() == before);
        }
        attach_all(&mut ranks[1..]);
        assert_eq!(ranks[0].answer(), "ok");
        assert_eq!(scratch.files(), Vec::<String>::new());
    }
}

/// Another user of the machine can see the address and gets nothing there.
#[test]
fn strangers_are_not_served() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: only root can play another user");
        return;
    }
    let scratch = Scratch::new();
    let names = || -> Vec<String> {
        let sockets = std::fs::read_to_string("/proc/net/unix").unwrap();
        let names = sockets.lines().filter_map(|line| line.split('@').nth(1));
        names.filter(|name| name.starts_with("earlybird-0-")).map(str::to_owned).collect()
    };
    let before = names();
    let mut ranks = team(&scratch.meet(), "strangers", 2);
    ranks[0].tell("attach");
    ranks[0].wait_claimed(0);
    // those of tests that run beside this one are closed to strangers too
    for name in names().into_iter().filter(|name| !before.contains(name)) {
        assert_eq!(segment_support::as_stranger(move || segment_support::said_at(&name)), "");
    }
    ranks[1].tell("attach");
    assert_eq!((ranks[0].answer(), ranks[1].answer()), ("ok".into(), "ok".into()));
}

/// A launcher's word about a rank that has ended before it came.
#[test]
fn an_end_before_joining_is_everybodys_error() {
    let dead = "EB_PEER_DIED rank 2 (on ";
    // it waits
    let scratch = Scratch::new();
    let key = options(&scratch.meet(), "announced", 2, 3).key;
    let announce = || earlybird_shm::memory::announce_end(Some(&scratch.meet()), &key, 2);
    let mut ranks = team(&scratch.meet(), "announced", 3);
    ranks[0].tell("attach");
    ranks[0].wait_claimed(0);
    let announced = Instant::now();
    announce();
    assert!(ranks[0].answer().starts_with(dead));
    assert!(announced.elapsed() < Duration::from_secs(1), "{:?}", announced.elapsed());
    // it comes later
    let answer = ranks[1].ask("attach-ms");
    let (ms, answer) = answer.split_once(" ms ").unwrap();
    assert!(answer.starts_with(dead) && ms.parse::<u64>().unwrap() < 1000, "{ms} {answer}");
    earlybird_shm::memory::forget_job(&key);
    assert_eq!(scratch.files(), Vec::<String>::new());
    // a rank that has joined before it ended is not what the launcher speaks of
    let mut ranks = team(&scratch.meet(), "announced", 3);
    for rank in [0, 2] {
        ranks[rank].tell("attach");
        ranks[rank].wait_claimed(rank);
    }
    announce();
    ranks[1].tell("attach");
    for rank in &mut ranks {
        assert_eq!(rank.answer(), "ok");
    }
    earlybird_shm::memory::forget_job(&key);
}

#[test]
fn different_keys_do_not_meet() {
    let scratch = Scratch::new();
    let dir = scratch.meet();
    let mut one = team(&dir, "one", 2);
    let mut two = team(&dir, "two", 2);
    for rank in 0..2 {
        one[rank].tell("attach");
        two[rank].tell("attach");
    }
    for process in one.iter_mut().chain(&mut two) {
        assert_eq!(process.answer(), "ok");
    }
    assert_eq!(one[0].ask("write 0 1"), "ok");
    assert_eq!(two[0].ask("write 0 2"), "ok");
    assert_eq!((one[1].ask("read 0"), two[1].ask("read 0")), ("1".into(), "2".into()));
    assert_eq!(scratch.files(), Vec::<String>::new());
}
