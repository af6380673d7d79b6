//! The commands by which a parent leads a rank's process, one a line: joining, memory, locks, forks and ends of all kinds.
#![allow(unsafe_code)]

use super::{REGION, ROLE, options};
use earlybird_shm::memory::{AttachOptions, BudgetLimits, Claim, Grant, Origin, Region, Segment, table};
use rustix::process::Pid;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// A rank's segment and the region that all ranks share.
type Joined = (Arc<Segment>, Region);

/// Runs a rank's commands if this process was started as a rank: the body of every test binary's `rank_process`.
pub fn serve_as_rank() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let mut words = role.splitn(4, ' ');
    let mut word = || words.next().unwrap();
    let (key, rank, size) = (word(), word().parse().unwrap(), word().parse().unwrap());
    let mut options = options(Path::new(word()), key, rank, size);
    let mut segment: Option<Joined> = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        println!("> {}", obey(&words, &mut options, &mut segment));
        if words[0] == "exit" {
            // the harness of this child must not print a verdict over a segment that is still attached
            std::process::exit(0);
        }
    }
}

fn obey(words: &[&str], options: &mut AttachOptions, segment: &mut Option<Joined>) -> String {
    let number = |at: usize| words[at].parse::<usize>().unwrap();
    let outcome = |result: Result<(), earlybird_shm::Error>| match result {
        Ok(()) => "ok".to_owned(),
        Err(error) => format!("{} {error}", error.code()),
    };
    match words[0] {
        "attach" => outcome(Segment::attach(options).map(|joined| *segment = Some(joined))),
        "arena" => {
            options.region_bytes = number(1);
            "ok".into()
        }
        "no-dir" => {
            options.dir = None;
            "ok".into()
        }
        "dir" => {
            options.dir = Some(words[1].into());
            "ok".into()
        }
        "set" => {
            options.settings.push((words[1].into(), words[2].into()));
            "ok".into()
        }
        "refuse" => {
            let why = earlybird_shm::Error::usage(words[1..].join(" "));
            let AttachOptions { dir, key, rank, size, .. } = options;
            earlybird_shm::memory::refuse(dir.as_deref(), key, *rank, *size, why).to_string()
        }
        "files-limit" => {
            let what = rustix::process::Resource::Nofile;
            let maximum = rustix::process::getrlimit(what).maximum;
            let limit = rustix::process::Rlimit { current: Some(number(1) as u64), maximum };
            rustix::process::setrlimit(what, limit).map_or_else(|e| e.to_string(), |()| "ok".into())
        }
        "attach-ms" => {
            let began = std::time::Instant::now();
            let result = Segment::attach(options).map(|joined| *segment = Some(joined));
            format!("{} ms {}", began.elapsed().as_millis(), outcome(result))
        }
        "timeout-ms" => {
            options.timeout = Some(Duration::from_millis(number(1) as u64));
            "ok".into()
        }
        "pin" => {
            let mut cpus = rustix::thread::CpuSet::new();
            cpus.set(number(1));
            rustix::thread::sched_setaffinity(None, &cpus).map_or_else(|e| e.to_string(), |()| "ok".into())
        }
        "file-limit" => {
            let limit = rustix::process::Rlimit { current: Some(number(1) as u64), maximum: None };
            let what = rustix::process::Resource::Fsize;
            rustix::process::setrlimit(what, limit).map_or_else(|e| e.to_string(), |()| "ok".into())
        }
        "fork-beside" => {
            std::thread::spawn(|| {
                std::thread::sleep(Duration::from_millis(300));
                fork_and_stay()
            });
            "ok".into()
        }
        "list" => {
            let mut names: Vec<String> =
                std::fs::read_dir(words[1]).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            format!("{names:?}")
        }
        "rank-ready" => "ok".into(),
        "thread-limit" => {
            let most = Some(number(1) as u64);
            let limit = rustix::process::Rlimit { current: most, maximum: most };
            rustix::process::setrlimit(rustix::process::Resource::Nproc, limit)
                .map_or_else(|e| e.to_string(), |()| "ok".into())
        }
        "open-and-close-all" => {
            let names = std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap().path());
            names.collect::<Vec<_>>().into_iter().for_each(|path| drop(std::fs::File::open(path)));
            "ok".into()
        }
        "close-all" => {
            // SAFETY: nobody uses these descriptors any more but the library, which is the point.
            unsafe { libc::close_range(3, u32::MAX, 0) };
            "ok".into()
        }
        // SAFETY: ends the process as a crash would.
        "end-at-once" => unsafe { libc::_exit(0) },
        "exit" | "drop" => {
            *segment = None;
            "ok".into()
        }
        "exec" => {
            println!("> ok");
            let error = std::os::unix::process::CommandExt::exec(Command::new("sleep").arg("60").stdout(Stdio::null()));
            format!("exec failed: {error}")
        }
        other => {
            let (segment, region) = segment.as_ref().expect("attached");
            match other {
                "write" => {
                    region.word(number(1)).store(number(2) as u64, Ordering::Release);
                    "ok".into()
                }
                "read" => region.word(number(1)).load(Ordering::Acquire).to_string(),
                "policy" => format!("{:?}", &segment.policy()[..2]),
                "alive" => segment.is_alive(number(1)).to_string(),
                "ended" => segment.has_ended(number(1)).to_string(),
                "left" => segment.has_left(number(1)).to_string(),
                "state" => format!("{:?}", segment.state(number(1))),
                "peer" => segment.peer(number(1)).pid.to_string(),
                "cpus" => segment.allowed_cpus().to_string(),
                "reserve" => outcome(region.reserve(number(1)..number(2))),
                "taken" => segment.taken_bytes().to_string(),
                "budget" => {
                    segment.set_budget(BudgetLimits { total: number(1) as u64, base: number(2) as u64 });
                    "ok".into()
                }
                "allocate" => allocate(segment, number(1) as u64, &words[2..]),
                "let-go" => {
                    segment.release(number(1), number(2) as u64);
                    "ok".into()
                }
                "release_all_of" => {
                    segment.release_all_of(ORIGIN);
                    "ok".into()
                }
                "write-region" | "read-region" => match segment.region(number(1), REGION) {
                    Ok(region) if other == "read-region" => region.word(number(2)).load(Ordering::Relaxed).to_string(),
                    Ok(region) => {
                        region.word(number(2)).store(number(3) as u64, Ordering::Relaxed);
                        "ok".into()
                    }
                    Err(error) => error.code().into(),
                },
                "lock-pool" => lock_pool(number(1)),
                "let-go-beside-a-wait" => let_go_beside_a_wait(segment, number(1), number(2) as u64, number(3)),
                "fork" => fork(segment),
                "fork-stay" => fork_and_stay(),
                "alive-ns" => {
                    let started = std::time::Instant::now();
                    let alive = (0..10_000).filter(|_| segment.is_alive(number(1))).count();
                    format!("{alive} {}", started.elapsed().as_nanos() / 10_000)
                }
                _ => format!("unknown command {other}"),
            }
        }
    }
}

/// Origin of all allocations of these tests.
const ORIGIN: Origin = Origin { parent: Grant::BASE, serial: 7 };

/// `least` bytes or more for each group, given as `0,1,5`; waits for the lock up to 300 ms.
fn allocate(segment: &Segment, least: u64, groups: &[&str]) -> String {
    let claim = |group: &&str| Claim {
        members: group.split(',').map(|rank| rank.parse().unwrap()).collect(),
        lines: 8192,
        least,
        most: REGION as u64,
    };
    let claims: Vec<Claim> = groups.iter().map(claim).collect();
    match segment.allocate(&claims, ORIGIN, Some(Duration::from_millis(300)), || true) {
        Ok(grants) => {
            let grants = grants.expect("healthy");
            let words: Vec<String> = grants.iter().map(|g| format!("{}:{}:{}", g.slot, g.id, g.bytes)).collect();
            words.join(" ")
        }
        Err(error) => format!("{} {error}", error.code()),
    }
}

/// The number of the arena's descriptor.
fn arena() -> i32 {
    let entries = std::fs::read_dir("/proc/self/fd").unwrap();
    let found = entries.filter_map(|entry| {
        let path = entry.ok()?.path();
        let target = std::fs::read_link(&path).ok()?;
        target.to_str()?.contains("earlybird-arena").then(|| path.file_name()?.to_str()?.parse::<i32>().ok())?
    });
    found.last().expect("an arena")
}

/// Makes the lock's word on the table of regions that of `rank`, as a rank leaves it that is stopped while it allocates.
fn lock_pool(rank: usize) -> String {
    // SAFETY: the arena's descriptor is open while the segment lives.
    let arena = unsafe { std::os::fd::BorrowedFd::borrow_raw(arena()) };
    let word = table::taken(0, rank).to_ne_bytes();
    rustix::io::pwrite(arena, &word, table::LOCK as u64 * 8).map_or_else(|e| e.to_string(), |_| "ok".into())
}

/// Lets go of a loan `rounds` times while another thread waits for the lock without a deadline: the longest time, in ms.
fn let_go_beside_a_wait(segment: &Arc<Segment>, slot: usize, id: u64, rounds: usize) -> String {
    let (began, begins) = mpsc::channel();
    let waiting = segment.clone();
    std::thread::spawn(move || {
        let claim = Claim { members: vec![waiting.rank()], lines: 4096, least: 4096, most: 4096 };
        began.send(()).unwrap();
        let _ = waiting.allocate(&[claim], ORIGIN, None, || true);
    });
    begins.recv().unwrap();
    let longest = (0..rounds).map(|_| {
        let started = std::time::Instant::now();
        segment.release(slot, id);
        started.elapsed().as_millis()
    });
    longest.max().unwrap().to_string()
}

/// Leaves a child that lives, with all inherited descriptors, until the test closes the command pipe.
fn fork_and_stay() -> String {
    // SAFETY: the child makes system calls only, and exits without returning.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let mut byte = [0u8; 1];
        // SAFETY: one byte into a buffer of one byte; then the child ends without destructors.
        unsafe {
            libc::read(0, byte.as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
    }
    pid.to_string()
}

/// Reports what parent and child see after a fork: is it a child, and does the parent's rank live for the child.
fn fork(segment: &Segment) -> String {
    // SAFETY: the child makes system calls and returns from none of its frames: it allocates nothing and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let seen = i32::from(segment.is_forked_child());
        // SAFETY: ends the child without running destructors or exit handlers.
        unsafe { libc::_exit(seen) };
    }
    let pid = Pid::from_raw(pid).expect("fork");
    let status = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap().1;
    format!("parent {} child {}", segment.is_forked_child(), status.exit_status() == Some(1))
}
