//! The command line program seen from outside. One test program for all commands: they share what looks for leftovers.

mod bench;
mod demo;
mod doctor;
mod explain;
mod mistakes;
mod plan;
mod run;
mod simulate;
mod topo;
mod trace;
mod tune;

use rustix::process::{Pid, test_kill_process};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// How long a test waits for something that must happen before it fails. Far above what is needed: never a measurement.
const PATIENCE: Duration = Duration::from_secs(30);

fn earlybird(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_earlybird"));
    command.args(args).stdin(Stdio::null());
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A directory of its own for each test, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("earlybird-cli-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("create a scratch directory");
        Scratch(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The process id that a rank has written, once it has written the whole line.
fn pid_in(file: &Path) -> Option<Pid> {
    let line = std::fs::read_to_string(file).ok()?;
    Pid::from_raw(line.strip_suffix('\n')?.parse().ok()?)
}

/// Gone, or a zombie that its new parent has not collected yet.
fn is_gone(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
    test_kill_process(pid).is_err() || stat.is_ok_and(|stat| stat.contains(") Z "))
}

/// Processes whose parent is `parent`.
fn children_of(parent: Pid) -> Vec<Pid> {
    let child = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        // The name in parentheses may contain anything; the parent is the second word after it.
        let ppid: i32 = stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()?;
        if ppid == parent.as_raw_nonzero().get() { Pid::from_raw(pid) } else { None }
    };
    std::fs::read_dir("/proc").expect("proc").flatten().filter_map(child).collect()
}

/// Those of them that are ranks of a job.
fn ranks_of(launcher: Pid) -> Vec<Pid> {
    let is_rank = |pid: &Pid| {
        let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable.starts_with(b"EARLYBIRD_RANK="))
    };
    children_of(launcher).into_iter().filter(is_rank).collect()
}
