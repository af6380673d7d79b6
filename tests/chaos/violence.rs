//! The acts of a victim on itself: it ends, loses its descriptors, forks, lives with low limits.
#![allow(unsafe_code)]

use crate::draw::Scenario;
use crate::kinds::Act;
use crate::said::{now, say};
use rustix::process::{Resource, Rlimit, Signal, getpid, getrlimit, kill_process, setrlimit};
use std::os::fd::IntoRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

/// The pages of the user's file that takes the numbers of closed descriptors.
static USERS: [u8; 1 << 16] = [0x5a; 1 << 16];

fn users_file() -> PathBuf {
    std::env::var_os("CHAOS_OVER").map(PathBuf::from).unwrap().with_extension("user")
}

/// Begins a thread that acts at the moment that was drawn, whatever the rank does then.
pub fn prepare(scenario: &Scenario) {
    let (act, moment) = (scenario.kind.act, Duration::from_micros(scenario.moment_us));
    let does: fn() = match act {
        Act::Exit => || std::process::exit(0),
        Act::Exec => || {
            let error = std::process::Command::new("sleep").arg("30").exec();
            say(&format!("wrong exec: {error}"));
        },
        Act::CloseRange => close_range,
        Act::Reopen => reopen,
        Act::Fork => || {
            fork();
        },
        Act::ForkThenKill => || {
            fork();
            let _ = kill_process(getpid(), Signal::KILL);
        },
        _ => return,
    };
    // The ranks may end once the act is said. Said before, one that only touches descriptors could come in the middle of the end.
    let is_survived = matches!(act, Act::CloseRange | Act::Reopen);
    std::thread::spawn(move || {
        std::thread::sleep(moment);
        let at = now();
        if is_survived {
            does();
        }
        say(&format!("act {at}"));
        if !is_survived {
            does();
        }
    });
}

fn close_range() {
    std::fs::write(users_file(), USERS).unwrap();
    // SAFETY: descriptors that others own are closed, which is the violence: nothing of this process's memory is touched, and
    // what uses such a number later gets an error or the user's file, which is looked at in the end.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
    for _ in 0..64 {
        let file = std::fs::OpenOptions::new().read(true).write(true).open(users_file());
        let _ = file.map(IntoRawFd::into_raw_fd);
    }
}

/// Says so if the user's file is not as it was written.
pub fn check_users_file() {
    let found = std::fs::read(users_file()).unwrap_or_default();
    if !found.is_empty() && found != USERS {
        let changed = found.iter().filter(|byte| **byte != USERS[0]).count();
        say(&format!("wrong user's file: {} bytes, {changed} of them changed", found.len()));
    }
}

fn reopen() {
    let names: Vec<_> = std::fs::read_dir("/proc/self/fd").unwrap().flatten().map(|entry| entry.path()).collect();
    names.iter().for_each(|name| drop(std::fs::File::open(name)));
}

/// Makes a child that lives on, until the driver ends its process group.
fn fork() -> i32 {
    // SAFETY: the child makes only calls that are allowed between fork and exec.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::sleep(30);
            libc::_exit(0);
        }
        child
    }
}

/// Returns whether this process is a child that was made here, between two calls, to drop what it has inherited.
pub fn is_forked_here(scenario: &Scenario, index: u64) -> bool {
    if scenario.kind.act != Act::ForkThenDrop || index != scenario.dose % scenario.calls {
        return false;
    }
    say(&format!("act {}", now()));
    // SAFETY: the only other thread is the harness's, which sleeps and holds no lock; the child drops handles and ends.
    unsafe { libc::fork() == 0 }
}

pub fn end_child() -> ! {
    // SAFETY: ends the child, nothing else.
    unsafe { libc::_exit(0) }
}

/// Lowers a limit of this process before it joins.
pub fn limit(scenario: &Scenario) {
    let dose = scenario.dose >> 8;
    let (resource, most) = match scenario.kind.act {
        Act::Descriptors => (Resource::Nofile, 4 + dose % 16),
        Act::AddressSpace => (Resource::As, (mapped_pages() << 12) + ((16 << 20) << (dose % 9))),
        Act::FileSize => (Resource::Fsize, (64 << 10) << (dose % 14)),
        Act::Processes => (Resource::Nproc, 1),
        _ => return,
    };
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: Some(most), maximum }).unwrap();
    // In half of the runs the others have met by then; in the others a victim may be the first.
    std::thread::sleep(Duration::from_millis(600 * (dose >> 32 & 1)));
}

fn mapped_pages() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').next().and_then(|pages| pages.parse().ok()).unwrap()
}
