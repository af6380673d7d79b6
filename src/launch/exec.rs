//! The wrapper that becomes a rank: ties its life to the launcher's, binds it, then executes the program.
//!
//! A process can ask the kernel to be killed with its parent only for itself, and between fork and exec no safe code
//! can run; so the launcher starts its own binary with the hidden command `__exec`, which does both and is replaced.

use super::{say, watchdog};
use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use rustix::thread::{CpuSet, sched_setaffinity};
use std::ffi::{OsStr, OsString};
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The hidden command: `earlybird __exec LAUNCHER_PID CPU|- WATCHDOG|- PROGRAM ARGS…`.
pub const COMMAND: &str = "__exec";

/// Becomes the program; returns only if that failed, with the exit code that a shell gives: 127 for a program that was
/// not found, 126 for one that cannot be executed.
pub fn become_rank(mut args: impl Iterator<Item = OsString>) -> u8 {
    let number = |arg: Option<OsString>| arg.and_then(|text| text.into_string().ok());
    let launcher = number(args.next()).and_then(|text| text.parse().ok()).and_then(Pid::from_raw);
    let cpu = number(args.next());
    let (Some(launcher), Some(cpu), Some(pipe), Some(program)) = (launcher, cpu, args.next(), args.next()) else {
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
    if pipe != "-" {
        watchdog::add_own_group(&pipe);
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
    let advice = advice(&program, error.kind());
    say(format_args!("earlybird: cannot execute {}: {error}{advice}", program.display()));
    if error.kind() == ErrorKind::NotFound { 127 } else { 126 }
}

/// What to do about a program that cannot be executed, to be appended to the system's error.
fn advice(program: &OsStr, error: ErrorKind) -> String {
    let path = Path::new(program);
    let is_path = program.as_encoded_bytes().contains(&b'/');
    match error {
        ErrorKind::NotFound if !is_path && path.is_file() => {
            format!("; it is not in PATH, write ./{} for the file in this directory", path.display())
        }
        ErrorKind::NotFound if !is_path => "; it is not in PATH".into(),
        ErrorKind::NotFound if path.is_file() => "; the interpreter that it names is not there".into(),
        ErrorKind::PermissionDenied if path.is_dir() => "; it is a directory, name a program".into(),
        ErrorKind::PermissionDenied if path.is_file() => {
            "; make it executable with chmod +x, or name its interpreter before it, such as python3".into()
        }
        _ => String::new(),
    }
}
