//! The watchdog: a process that kills what the ranks have started when the launcher is killed.
//!
//! The kernel kills a rank with its launcher (module `exec`), but not the processes that the rank has started. So the process groups of
//! the ranks are written to a pipe that one watchdog reads for the whole job: by each rank, before it starts anything, and by the
//! launcher, since a rank may be unable to. The pipe ends with the launcher, however that ends, and the watchdog kills the groups that
//! were not removed. A watchdog that is killed itself is replaced.

use super::{Wrapper, rendezvous, say};
use crate::Error;
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Signal, getpgrp, kill_process_group, pidfd_open, test_kill_process_group};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::{BufRead, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

/// The hidden command: `earlybird __watch`, with a line `+GROUP` or `-GROUP` on standard input for every group.
pub const COMMAND: &str = "__watch";

/// Most time to wait for the end of killed processes, before their rendezvous names are removed.
const DEATH_TIMEOUT: Duration = Duration::from_secs(5);

/// Kills the groups that are left when standard input ends.
pub fn watch() {
    // A name of its own, so that a kill by the launcher's name spares this process; a refusal does no harm.
    let _ = rustix::thread::set_name(c"eb-watchdog");
    let mut groups = HashSet::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        let Some((sign, Ok(group))) = line.split_at_checked(1).map(|(sign, group)| (sign, group.parse())) else {
            continue;
        };
        match (sign, Pid::from_raw(group)) {
            ("+", Some(group)) => drop(groups.insert(group)),
            ("-", Some(group)) => drop(groups.remove(&group)),
            _ => {}
        }
    }
    // An error means that no process is left in it.
    groups.retain(|group| kill_process_group(*group, Signal::KILL).is_ok());
    let since = Instant::now();
    while groups.iter().any(|group| test_kill_process_group(*group).is_ok()) && since.elapsed() < DEATH_TIMEOUT {
        std::thread::sleep(Duration::from_millis(5));
    }
    rendezvous::sweep();
}

/// Adds the group of this process by the launcher's pipe at `path`, which this process does not keep. Never waits for a reader.
pub(super) fn add_own_group(path: &OsStr) {
    // The launcher adds it too, a moment later: a failure only leaves that moment open.
    if let Ok(pipe) = rustix::fs::open(path, OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC, Mode::empty()) {
        let _ = rustix::io::write(pipe, line('+', getpgrp()).as_bytes());
    }
}

fn line(sign: char, group: Pid) -> String {
    format!("{sign}{}\n", group.as_raw_nonzero())
}

/// The launcher's end of a watchdog.
pub(super) struct Watchdog {
    wrapper: Wrapper,
    running: Option<Running>,
}

struct Running {
    process: Child,
    pipe: ChildStdin,
    /// Readable once the watchdog has ended.
    pidfd: OwnedFd,
}

impl Watchdog {
    /// Starts the watchdog, before the first rank.
    pub(super) fn start(wrapper: &Wrapper) -> Result<Watchdog, Error> {
        Ok(Watchdog { wrapper: wrapper.clone(), running: Some(Running::start(wrapper)?) })
    }

    /// Adds a group that is to end with the launcher.
    pub(super) fn add(&mut self, group: Pid) {
        self.write('+', group);
    }

    /// Removes a group that has ended: its number may soon be reused.
    pub(super) fn remove(&mut self, group: Pid) {
        self.write('-', group);
    }

    fn write(&mut self, sign: char, group: Pid) {
        if let Some(Running { pipe, .. }) = &mut self.running {
            // A watchdog that has ended is replaced when its end is seen.
            let _ = pipe.write_all(line(sign, group).as_bytes());
        }
    }

    /// The pipe as other processes find it, for [`add_own_group`].
    pub(super) fn path(&self) -> Option<String> {
        let Running { pipe, .. } = self.running.as_ref()?;
        Some(format!("/proc/{}/fd/{}", std::process::id(), pipe.as_raw_fd()))
    }

    /// Becomes readable when the watchdog has ended.
    pub(super) fn pidfd(&self) -> Option<&OwnedFd> {
        self.running.as_ref().map(|running| &running.pidfd)
    }

    /// Replaces a watchdog that was killed, for these groups.
    pub(super) fn keep(&mut self, groups: impl Iterator<Item = Pid>) {
        let Some(status) = self.running.as_mut().and_then(|running| running.process.try_wait().ok().flatten()) else {
            return;
        };
        self.running = match status.signal() {
            Some(_) => Running::start(&self.wrapper).ok(),
            None => None,
        };
        match self.running {
            Some(_) => groups.for_each(|group| self.add(group)),
            None => say(format_args!(
                "earlybird: the watchdog has ended ({status}); what ranks have started may outlive a launcher that is killed"
            )),
        }
    }
}

impl Running {
    fn start(wrapper: &Wrapper) -> Result<Running, Error> {
        let failed = |error| Error::system(format!("start a watchdog through {wrapper}"), error);
        let mut command = wrapper.command(COMMAND);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        // Out of reach of the terminal's ctrl-C.
        let mut process = command.process_group(0).spawn().map_err(failed)?;
        let pidfd = pidfd_open(Pid::from_child(&process), PidfdFlags::empty());
        match (pidfd, process.stdin.take()) {
            (Ok(pidfd), Some(pipe)) => Ok(Running { process, pipe, pidfd }),
            (pidfd, _) => {
                let _ = process.kill();
                let _ = process.wait();
                Err(failed(pidfd.err().unwrap_or(rustix::io::Errno::BADF).into()))
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The ranks have ended before: it has nothing left to do.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
