//! The errors of joining, worded the same on all ranks, and descriptions of missing ranks.

use std::sync::atomic::Ordering::Relaxed;

use rustix::io::Errno;

use super::control::Identity;
use super::control::{Control, FREE};
use super::process;
use crate::Error;

/// A description of a missing rank, as far as the process `own` can see it.
pub(super) fn describe(control: &Control, rank: usize, own: Identity) -> String {
    let pid = control.entries[rank].pid.load(Relaxed);
    if control.state(rank) == FREE {
        return format!("rank {rank}, not started or elsewhere");
    }
    let visible = control.entries[rank].pid_namespace.load(Relaxed) == own.pid_namespace;
    let stat = if visible { process::stat(&pid.to_string()) } else { None };
    let state = match stat {
        Some(('T', _)) => "stopped",
        Some(('t', _)) => "held by a debugger",
        Some(('D', _)) => "waiting for disk",
        _ => "alive",
    };
    format!("rank {rank}, pid {pid}, {state}")
}

/// Replaces the description in a timeout, so that it is the same on all ranks.
pub(super) fn of_attach(error: Error) -> Error {
    match error {
        Error::Timeout { missing, after, .. } => Error::Timeout { missing, after, during: "attach".into() },
        other => other,
    }
}

/// The error of a broken connection at this rank's own end. Trying again would not help: the others saw it close, and fail.
pub(super) fn connection_lost(error: Errno) -> Error {
    Error::system("joining over a socket that something else in this process has closed", error)
}

pub(super) fn died(rank: usize, pid: u32) -> Error {
    Error::PeerDied { rank, pid, host: process::host_name(), during: "attach".into() }
}
