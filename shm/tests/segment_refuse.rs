//! What attach must refuse: strangers' directories, other builds, other sizes, ranks given twice, memory that is not there.
#![cfg(not(earlybird_loom))]

mod segment_support;

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use earlybird_shm::Error;
use earlybird_shm::segment::{CONTROL_BYTES, MAX_RANKS, POOL_BYTES, Segment};
use rustix::process::Signal;
use segment_support::{REGION, Rank, Scratch, attach_all, options, serve_as_rank, team};

#[test]
fn rank_process() {
    serve_as_rank();
}

fn refusal(dir: &Path) -> String {
    match Segment::attach(&options(dir, "job", 0, 1)) {
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
    assert!(Segment::attach(&options(&dir, "job", 0, 1)).is_ok());
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

    let error = Segment::attach(&options(&scratch.0.join("no/such"), "job", 0, 1)).unwrap_err();
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
    assert_eq!(Segment::attach(&options(&dir, "", 0, 1)).unwrap_err().code(), "EB_USAGE");
    for region_bytes in [0, usize::MAX, isize::MAX as usize] {
        let wish = earlybird_shm::segment::AttachOptions { region_bytes, ..options(&dir, "job", 0, 1) };
        assert_eq!(Segment::attach(&wish).unwrap_err().code(), "EB_USAGE");
    }
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn an_address_space_that_is_too_small_is_said_and_leaves_nothing() {
    let scratch = Scratch::new();
    let wish = earlybird_shm::segment::AttachOptions { region_bytes: 1 << 60, ..options(&scratch.meet(), "job", 0, 1) };
    let error = Segment::attach(&wish).unwrap_err();
    assert!(error.to_string().contains("EARLYBIRD_ARENA_MAX"), "{error}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

#[test]
fn a_rank_given_twice() {
    let scratch = Scratch::new();
    let dir = scratch.meet();
    let mut ranks = team(&dir, "job", 2);
    ranks[0].tell("attach");
    ranks[0].wait_claimed(0);
    let answer = Rank::spawn(&dir, "job", 0, 2).ask("attach");
    assert!(answer.starts_with("EB_USAGE rank 0 of this group is already taken by process"), "{answer}");
    assert!(answer.contains(&ranks[0].pid().to_string()), "{answer}");
    // the group does not suffer
    ranks[1].tell("attach");
    assert_eq!((ranks[0].answer(), ranks[1].answer()), ("ok".into(), "ok".into()));
}

#[test]
fn two_ranks_in_one_process() {
    let scratch = Scratch::new();
    let dir = scratch.meet();
    let other_thread = {
        let options = options(&dir, "job", 0, 2);
        std::thread::spawn(move || Segment::attach(&options))
    };
    segment_support::wait_until("the first thread's attach", || !scratch.files().is_empty());
    let error = Segment::attach(&options(&dir, "job", 1, 2)).unwrap_err();
    assert!(error.to_string().contains("one process is one rank"), "{error}");
    // and the first thread's rank has not lost its place by it
    let mut second = Rank::spawn(&dir, "job", 1, 2);
    assert_eq!(second.ask("attach"), "ok");
    let (segment, _region) = other_thread.join().unwrap().unwrap();
    assert!(segment.is_alive(0) && segment.is_alive(1));
    assert_eq!(second.ask("alive 0"), "true");
}

#[test]
fn other_sizes_and_regions() {
    let scratch = Scratch::new();
    let dir = scratch.meet();
    let mut first = Rank::spawn(&dir, "job", 0, 2);
    first.tell("attach");
    first.wait_claimed(0);
    let answer = Rank::spawn(&dir, "job", 1, 3).ask("attach");
    assert!(answer.starts_with("EB_USAGE") && answer.contains("of 3 ranks") && answer.contains("of 2;"), "{answer}");
    let mut second = Rank::spawn(&dir, "job", 1, 2);
    second.ask(&format!("arena {}", REGION * 2));
    let answer = second.ask("attach");
    assert!(answer.starts_with("EB_USAGE") && answer.contains("the same build"), "{answer}");
    // a member that cannot join ends the others' wait
    let answer = first.answer();
    assert!(answer.starts_with(&format!("EB_PEER_DIED rank 1 (pid {}", second.pid())), "{answer}");
    assert_eq!(scratch.files(), Vec::<String>::new());
}

/// A control segment of a living but stopped rank 0 of 2, to be spoiled.
struct Spoiled {
    // killed before the directory is swept
    _first: Rank,
    scratch: Scratch,
    original: Vec<u8>,
}

impl Spoiled {
    fn new() -> Spoiled {
        let scratch = Scratch::new();
        let mut first = Rank::spawn(&scratch.meet(), "job", 0, 2);
        first.tell("attach");
        first.wait_claimed(0);
        segment_support::wait_until("the end of the creation", || {
            std::fs::read(scratch.control_path()).is_ok_and(|bytes| bytes.starts_with(b"earlybrd"))
        });
        first.signal(Signal::STOP);
        let pid = first.pid();
        segment_support::wait_until("the stop", || {
            std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ")
        });
        let original = std::fs::read(scratch.control_path()).unwrap();
        assert_eq!(original.len(), CONTROL_BYTES);
        Spoiled { _first: first, scratch, original }
    }

    /// What a second rank answers when the segment holds `bytes`.
    fn attach_to(&self, bytes: &[u8]) -> String {
        // written in place: the stopped rank has it mapped
        let file = std::fs::OpenOptions::new().write(true).open(self.scratch.control_path()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, bytes, 0).unwrap();
        let mut second = Rank::spawn(&self.scratch.meet(), "job", 1, 2);
        second.ask("timeout-ms 300");
        second.ask("attach")
    }
}

#[test]
fn other_builds_and_foreign_segments() {
    let spoiled = Spoiled::new();
    for word in 0..3 {
        let mut bytes = spoiled.original.clone();
        bytes[word * 8] ^= 1;
        let answer = spoiled.attach_to(&bytes);
        assert!(answer.starts_with("EB_USAGE") && answer.contains("the same build"), "{answer}");
    }
    let file = std::fs::OpenOptions::new().write(true).open(spoiled.scratch.control_path()).unwrap();
    file.set_len(4096).unwrap();
    let answer = spoiled.attach_to(&spoiled.original[..4096]);
    assert!(answer.starts_with("EB_USAGE") && answer.contains("4096 bytes"), "{answer}");
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
        let spoiled = Spoiled::new();
        let mut bytes = spoiled.original.clone();
        // what is checked first stays, so that the noise gets further
        for at in (40..CONTROL_BYTES).step_by(8) {
            let word = if round % 2 == 0 { noise() } else { noise() % 6 };
            bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        if round > 3 {
            // rank 1 free, rank 0 claimed: as far as the arena and the wait
            for (rank, state) in [(0, 1_u64), (1, 0)] {
                let at = 384 + 256 * rank + 24;
                bytes[at..at + 8].copy_from_slice(&state.to_le_bytes());
            }
        }
        let answer = spoiled.attach_to(&bytes);
        assert!(answer.starts_with("EB_"), "round {round}: {answer:?}");
    }
}

#[test]
fn leftovers_that_are_no_notes() {
    let scratch = Scratch::new();
    let mut probe = Rank::spawn(&scratch.meet(), "job", 0, 2);
    probe.tell("attach");
    probe.wait_claimed(0);
    let name = scratch.files().into_iter().find(|name| name.starts_with("meet-")).unwrap();
    let control = scratch.control_path();
    drop(probe);
    let _ = std::fs::remove_file(control);
    for text in [
        "",
        "earlybird 1 ",
        "earlybird 9 00000000000000000000000000000000 open\n",
        "\u{1f426}",
        "x".repeat(5000).as_str(),
    ] {
        std::fs::write(scratch.meet().join(&name), text).unwrap();
        attach_all(&mut team(&scratch.meet(), "job", 2));
        assert!(!scratch.files().contains(&name));
    }
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
fn a_full_dev_shm_is_an_error_and_not_a_crash() {
    let Some(mut command) = private_shm("64k") else {
        println!("SKIPPED: this user cannot mount a tmpfs of its own, so a full /dev/shm was not tested");
        return;
    };
    command.arg(std::env::current_exe().unwrap());
    let mut rank = Rank::spawn_by(command, Path::new("unused"), "job", 0, 1);
    rank.ask("default-dir");
    let answer = rank.ask("attach");
    assert!(answer.starts_with(&format!("EB_NO_SPACE {CONTROL_BYTES} bytes")), "{answer}");
    assert!(answer.contains("--shm-size"), "{answer}");
    assert_eq!(rank.ask("list /dev/shm"), "[]");
}

#[test]
fn the_default_directory_comes_and_goes() {
    let Some(mut command) = private_shm("4m") else {
        println!("SKIPPED: this user cannot mount a tmpfs of its own, so the default directory was not tested");
        return;
    };
    command.arg(std::env::current_exe().unwrap());
    let mut rank = Rank::spawn_by(command, Path::new("unused"), "job", 0, 1);
    rank.ask("default-dir");
    assert_eq!(rank.ask("list /dev/shm"), "[]");
    assert_eq!(rank.ask("attach"), "ok");
    assert_eq!(rank.ask("list /dev/shm"), "[]");
    assert_eq!(rank.ask("write 0 5"), "ok");
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
