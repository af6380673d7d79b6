//! Limits of the machine that a segment meets: memory that there is not, a tiny /dev/shm, control groups, sizes of files.
#![cfg(not(earlybird_loom))]

mod segment_support;

use earlybird_shm::memory::{CONTROL_BYTES, POOL_BYTES};
use segment_support::{REGION, Rank, Scratch, serve_as_rank, team};
use std::path::Path;
use std::process::Command;

#[test]
fn rank_process() {
    serve_as_rank();
}

#[test]
fn more_memory_than_there_is() {
    let scratch = Scratch::new();
    let mut rank = Rank::spawn(&scratch.meet(), "job", 0, 1);
    rank.ask(&format!("arena {}", 1_u64 << 44));
    assert_eq!(rank.ask("attach"), "ok");
    let answer = rank.ask(&format!("reserve 0 {}", 1_u64 << 44));
    assert!(answer.starts_with("EB_NO_SPACE 17592186044416 bytes"), "{answer}");
    assert!(answer.contains("EARLYBIRD_ARENA_MAX"), "{answer}");
    assert_eq!(rank.ask("reserve 0 100000"), "ok");
    assert_eq!(rank.ask("reserve 5 17592186044417").split(' ').next(), Some("EB_USAGE"));
}

/// A command that runs what follows with a /dev/shm of its own, of `size`, if this user may do that at all.
fn private_shm(size: &str) -> Option<Command> {
    let mount = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$0\" \"$@\"");
    ["-m", "-rm"].into_iter().find_map(|how| {
        let start = || {
            let mut command = Command::new("unshare");
            command.args([how, "sh", "-c", &mount]);
            command
        };
        start().arg("true").output().ok()?.status.success().then(start)
    })
}

#[test]
fn joining_needs_nothing_of_dev_shm() {
    let Some(mut command) = private_shm("4k") else {
        println!("SKIPPED: this user cannot mount a tmpfs of its own, so a full /dev/shm was not tested");
        return;
    };
    command.arg(std::env::current_exe().unwrap());
    let mut first = Rank::spawn_by(command, Path::new("unused"), "no-shm", 0, 2);
    let mut second = Rank::spawn(Path::new("unused"), "no-shm", 1, 2);
    assert_eq!((first.ask("no-dir"), second.ask("no-dir")), ("ok".into(), "ok".into()));
    first.tell("attach");
    assert_eq!((second.ask("attach"), first.answer()), ("ok".into(), "ok".into()));
    assert_eq!(first.ask("write 0 5"), "ok");
    assert_eq!((second.ask("read 0"), first.ask("list /dev/shm")), ("5".into(), "[]".into()));
}

/// A control group with a memory limit: the wish is refused by us, and the process lives to tell.
#[test]
fn a_memory_limit_of_the_control_group_is_respected() {
    let own = std::process::id();
    let (group, limit) = match Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() {
        true => (format!("/sys/fs/cgroup/memory/ebtest-{own}"), "memory.limit_in_bytes"),
        false => (format!("/sys/fs/cgroup/ebtest-{own}"), "memory.max"),
    };
    let group = Path::new(&group);
    let ready = std::fs::create_dir(group).is_ok() && std::fs::write(group.join(limit), "268435456").is_ok();
    if !ready {
        let _ = std::fs::remove_dir(group);
        println!("SKIPPED: this user cannot make a control group with a memory limit");
        return;
    }
    let scratch = Scratch::new();
    let mut rank = Rank::spawn(&scratch.meet(), "job", 0, 1);
    let moved = std::fs::write(group.join("cgroup.procs"), rank.pid().to_string());
    let answers =
        [format!("arena {}", 1 << 30), "attach".into(), format!("reserve 0 {}", 512 << 20), "reserve 0 1048576".into()]
            .map(|command| rank.ask(&command));
    drop(rank);
    segment_support::wait_until("the end of the group", || std::fs::remove_dir(group).is_ok());
    moved.unwrap();
    assert_eq!([&answers[0], &answers[1], &answers[3]], ["ok"; 3]);
    let free: u64 = answers[2].split(' ').nth(9).and_then(|word| word.parse().ok()).unwrap_or(0);
    assert!(answers[2].starts_with("EB_NO_SPACE 536870912 bytes") && (1..=268435456).contains(&free), "{}", answers[2]);
}

#[test]
fn a_file_size_limit_is_an_error_and_not_a_signal() {
    for (limit, needed) in [(4096, CONTROL_BYTES), (CONTROL_BYTES, POOL_BYTES + REGION)] {
        let scratch = Scratch::new();
        let mut rank = Rank::spawn(&scratch.meet(), "job", 0, 1);
        assert_eq!(rank.ask(&format!("file-limit {limit}")), "ok");
        let answer = rank.ask("attach");
        assert!(answer.starts_with(&format!("EB_NO_SPACE {needed} bytes")), "{answer}");
        assert!(answer.contains("ulimit -f"), "{answer}");
        assert_eq!(scratch.files(), Vec::<String>::new());
    }
    // room for some regions is enough to begin with; who is free of the limit takes the arena as it is
    let scratch = Scratch::new();
    let mut ranks = team(&scratch.meet(), "job", 2);
    assert_eq!(ranks[0].ask(&format!("file-limit {}", POOL_BYTES + 3 * REGION)), "ok");
    ranks[0].tell("attach");
    ranks[0].wait_claimed(0);
    assert_eq!(ranks[1].ask("attach"), "ok");
    assert_eq!(ranks[0].answer(), "ok");
}
