//! The wrapper that becomes a rank: ties its life to the launcher's, binds it, then executes the program.
//!
//! A process can ask the kernel to be killed with its parent only for itself, and between fork and exec no safe code
//! can run; so the launcher starts its own binary with the hidden command `__exec`, which does both and is replaced.

use super::say;
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The hidden command: `earlybird __exec LAUNCHER_PID CPU|- PROGRAM ARGS…`.
pub const COMMAND: &str = "__exec";

/// Becomes the program; returns only if that failed, with the exit code that a shell gives: 127 for a program that was
/// not found, 126 for one that cannot be executed.
pub fn become_rank(mut args: impl Iterator<Item = OsString>) -> u8 {
    let number = |arg: Option<OsString>| arg.and_then(|text| text.into_string().ok());
    let launcher = number(args.next()).and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
    let cpu = number(args.next());
    let (Some(launcher), Some(cpu), Some(program)) = (launcher, cpu, args.next()) else {
        say(format_args!("earlybird {COMMAND}: internal command, started by the launcher only; use `earlybird run`"));
        return 2;
    };
    if let Err(error) = set_parent_process_death_signal(Some(Signal::KILL)) {
        say(format_args!("earlybird: cannot tie the rank to its launcher: {error}"));
        return 126;
    }
    // A launcher that died before the line above sent no signal; by then another process is the parent.
    if getppid() != Some(launcher) {
        return 126;
    }
    if let Ok(cpu) = cpu.parse::<usize>() {
        let mut set = CpuSet::new();
        if cpu < CpuSet::MAX_CPU {
            set.set(cpu);
        }
        if let Err(error) = sched_setaffinity(None, &set) {
            say(format_args!("earlybird: cannot bind to processor {cpu}: {error}; use --bind none"));
            return 126;
        }
    }
    let error = Command::new(&program).args(args).exec();
    say(format_args!("earlybird: cannot execute {}: {error}", program.display()));
    if error.kind() == std::io::ErrorKind::NotFound { 127 } else { 126 }
}
