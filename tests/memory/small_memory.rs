//! Little memory: in a small /dev/shm everything works, in a control group with a limit and at the end of a budget what does
//! not fit is `NoSpace` on all ranks before anything is used, the group goes on, and nobody is killed.

use crate::common::{Job, Player};
use earlybird::{Algorithm, CollectiveArgs, Communicator, Error, Op};
use std::path::{Path, PathBuf};
use std::process::Command;

#[test]
#[ignore = "a rank of the jobs that the other tests start"]
fn rank() {
    crate::common::play(&[("everything", everything), ("limited", limited), ("broadcasts", broadcasts)]);
}

/// Every kind of call, so that every kind of memory is used.
fn everything(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    let (rank, ranks) = (comm.rank(), comm.size());
    for count in [1, 1000, 100_000, 600_000] {
        for algorithm in earlybird::Collective::AllReduce.traits().algorithms {
            comm.set_algorithm(*algorithm).unwrap();
            let mut sums = vec![1u64; count];
            comm.all_reduce_in_place(&mut sums, Op::Sum).unwrap();
            assert!(sums.iter().all(|sum| *sum == ranks as u64));
        }
        comm.set_algorithm(Algorithm::Auto).unwrap();
        let mut all = vec![0u32; count * ranks];
        comm.all_gather_into(&vec![rank as u32; count], &mut all).unwrap();
        assert!(all.iter().enumerate().all(|(i, x)| *x as usize == i / count));
        let shared = comm.all_reduce_shared(&vec![2u64; count], Op::Sum).unwrap();
        assert!(shared.iter().all(|sum| *sum == 2 * ranks as u64));
        let started = comm.start(CollectiveArgs::all_reduce(vec![3u64; count], Op::Sum)).unwrap();
        assert!(started.wait().unwrap().iter().all(|sum| *sum == 3 * ranks as u64));
    }
    let half = comm.split(Some(rank as u32 % 2), 0).unwrap().unwrap();
    let twin = half.duplicate().unwrap();
    let mut buffer = twin.alloc::<f32>(300_000).unwrap();
    buffer.fill(0.5);
    twin.all_reduce_shared_in_place(&mut buffer, Op::Sum).unwrap();
    assert!(buffer.iter().all(|sum| *sum == 0.5 * twin.size() as f32));
    // The other half has what it needs before rank 0 takes the rest.
    comm.barrier().unwrap();
    player.say(exhaust(&comm));
    // What was given back serves again.
    drop((buffer, twin, half));
    drop(comm.duplicate().unwrap());
    comm.barrier().unwrap();
}

/// Takes buffers and communicators until there are no more: what the last refusals said, the same on all ranks.
fn exhaust(comm: &Communicator) -> String {
    let mut buffers = Vec::new();
    let said = |error: Error| match error {
        Error::NoSpace { needed, free, hint } => {
            assert!(free < needed && !hint.is_empty(), "{needed} {free} {hint}");
            hint
        }
        other => panic!("{other:?}"),
    };
    // One rank takes nearly all that is there, then all ask for more communicators.
    if comm.rank() == 0 {
        for bytes in [32 << 20, 1 << 20, 64 << 10, 4 << 10] {
            loop {
                match comm.alloc::<u8>(bytes) {
                    Ok(mut buffer) => {
                        buffer.fill(1);
                        buffers.push(buffer);
                    }
                    Err(error) => {
                        said(error);
                        break;
                    }
                }
                assert!(buffers.len() < 3000, "no end");
            }
        }
    }
    comm.barrier().unwrap();
    // What a control group has left grows while its processes run: pages of files that nobody has read for a while are free.
    let mut more = Vec::new();
    let mut until_refused = |make: &dyn Fn() -> Result<Communicator, Error>| loop {
        match make() {
            Ok(made) => more.push(made),
            Err(error) => break said(error),
        }
        assert!(more.len() < 1000, "no end");
    };
    let part = || Ok(comm.split(Some(0), 0)?.expect("a part for every color"));
    let refused = [until_refused(&part), until_refused(&|| comm.duplicate())];
    // The group goes on, with what it has.
    let mut sum = [1u64];
    comm.all_reduce_in_place(&mut sum, Op::Sum).unwrap();
    assert_eq!(sum, [comm.size() as u64]);
    comm.barrier().unwrap();
    drop((buffers, more));
    comm.barrier().unwrap();
    refused.join(" | ")
}

/// The same test in a mount namespace with a /dev/shm of `size`; `None` if this user may not have one.
fn with_shm_of(size: &str, test: &str) -> Option<std::process::Output> {
    let mount = format!("mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$0\" \"$@\"");
    let how = ["-m", "-rm"].into_iter().find(|how| {
        let tried = Command::new("unshare").args([how, "sh", "-c", &mount, "true"]).output();
        tried.is_ok_and(|output| output.status.success())
    })?;
    let mut command = Command::new("unshare");
    command.args([how, "sh", "-c", &mount]).arg(std::env::current_exe().unwrap());
    Some(command.args(["--exact", test, "--ignored", "--nocapture", "--test-threads=1"]).output().unwrap())
}

#[test]
#[ignore = "run by the test below in a mount namespace of its own"]
fn inside_a_small_shm() {
    for ranks in [2, 5] {
        let job =
            Job::new("everything", ranks).var("EARLYBIRD_DIR", "/dev/shm/meet").var("EARLYBIRD_ARENA_MAX", 48 << 20);
        let said = job.run();
        assert!(said.iter().all(|lines| *lines == said[0] && lines[0].contains("EARLYBIRD_ARENA_MAX")), "{said:?}");
    }
    let left: Vec<_> = std::fs::read_dir("/dev/shm").unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["meet"], "a named meeting directory stays, and nothing else");
}

#[test]
fn small_shared_memory_file_systems_are_enough() {
    for size in ["64m", "1m"] {
        let Some(output) = with_shm_of(size, "small_memory::inside_a_small_shm") else {
            println!("SKIPPED: this user cannot mount a tmpfs of its own, so a small /dev/shm was not tested");
            return;
        };
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{size}: {text}");
    }
}

/// A control group with a memory limit, gone with its owner.
struct Group(PathBuf);

impl Group {
    fn with(bytes: u64) -> Option<Group> {
        let own = std::process::id();
        let (path, limit) = match Path::new("/sys/fs/cgroup/memory/memory.limit_in_bytes").exists() {
            true => (format!("/sys/fs/cgroup/memory/eb-small-{own}"), "memory.limit_in_bytes"),
            false => (format!("/sys/fs/cgroup/eb-small-{own}"), "memory.max"),
        };
        let group = std::fs::create_dir(&path).is_ok().then(|| Group(path.into()))?;
        std::fs::write(group.0.join(limit), bytes.to_string()).is_ok().then_some(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let began = std::time::Instant::now();
        while std::fs::remove_dir(&self.0).is_err() && began.elapsed().as_secs() < 10 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

/// The budget has room, the control group has not.
fn limited(player: &Player) {
    std::fs::write(player.arg::<String>(0), std::process::id().to_string()).unwrap();
    let comm = Communicator::from_env().unwrap();
    let mut sums = vec![1u64; 200_000];
    comm.all_reduce_in_place(&mut sums, Op::Sum).unwrap();
    player.say(exhaust(&comm));
    let part = comm.split(Some(0), 0).unwrap().unwrap();
    part.all_reduce_in_place(&mut sums, Op::Sum).unwrap();
    assert!(sums.iter().all(|sum| *sum == (comm.size() * comm.size()) as u64));
}

#[test]
fn a_control_group_without_room_is_an_error_and_not_the_end() {
    let Some(group) = Group::with(160 << 20) else {
        println!("SKIPPED: this user cannot make a control group with a memory limit");
        return;
    };
    let job = Job::new("limited", 3).arg(group.0.join("cgroup.procs").display()).var("EARLYBIRD_ARENA_MAX", 2u64 << 30);
    let said = job.run();
    assert!(said.iter().all(|lines| *lines == said[0]), "{said:?}");
}

/// What a broadcast reserves is the root's deposit.
fn broadcasts(player: &Player) {
    let comm = Communicator::from_env().unwrap();
    comm.set_algorithm(Algorithm::Flat).unwrap();
    comm.barrier().unwrap();
    let before = comm.shared_memory_bytes();
    comm.barrier().unwrap();
    for _ in 0..4 {
        comm.process_at_rank(1).broadcast_into(&mut vec![7u8; 512 << 10]).unwrap();
    }
    comm.barrier().unwrap();
    let taken = comm.shared_memory_bytes() - before;
    comm.barrier().unwrap();
    let mut all = vec![0u8; comm.size() * (256 << 10)];
    comm.all_gather_into(&vec![comm.rank() as u8; 256 << 10], &mut all).unwrap();
    assert!(all.iter().enumerate().all(|(i, x)| usize::from(*x) == i / (256 << 10)));
    player.say(taken);
}

#[test]
fn a_broadcast_takes_memory_for_its_root_only() {
    // Two areas with one deposit each.
    assert!(Job::new("broadcasts", 5).run().iter().all(|said| *said == [(1 << 20).to_string()]));
}
