//! Starts the ranks of a job on this node and stays with them until the last one is gone.
//!
//! `run`, `bench`, `demo` and the tests share this launcher, so that binding, signals, deadlines and cleaning up behave
//! the same everywhere. Ranks are started through a small wrapper (module `exec`) that ties their life to the
//! launcher's; the launcher itself waits in one poll over process descriptors (module `supervise`), so it never
//! signals a process id that the system may have given to another process. What ranks have started ends with a launcher that is
//! killed by a process beside it (module `watchdog`).

pub mod exec;
mod job;
mod prefix;
mod rendezvous;
mod supervise;
pub mod watchdog;
mod wrapper;

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

pub use job::{Bind, Job, allowed_cpus};
pub use wrapper::Wrapper;

/// Ranks that one node can hold.
pub use earlybird_shm::MAX_RANKS;

/// Exit code of a job that ran out of time, as that of timeout(1): scripts can tell it from a failing rank.
pub const EXIT_TIMED_OUT: u8 = 124;

/// The end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Every rank exited with 0.
    Success,
    /// The first rank that failed, and how.
    Failed {
        /// The rank.
        rank: usize,
        /// The exit code or signal of the rank.
        status: ExitStatus,
    },
    /// [`Job::timeout`] expired.
    TimedOut,
    /// The launcher was told to stop by this signal, and passed it on.
    Interrupted {
        /// Number of the signal.
        signal: i32,
    },
}

impl Outcome {
    /// Exit code for a shell: that of the failing rank, 128 + signal for a signal, [`EXIT_TIMED_OUT`].
    pub fn exit_code(&self) -> u8 {
        match *self {
            Outcome::Success => 0,
            Outcome::Failed { status, .. } => match (status.code(), status.signal()) {
                (Some(code), _) => code as u8,
                (None, Some(signal)) => 128 + signal as u8,
                (None, None) => 1,
            },
            Outcome::TimedOut => EXIT_TIMED_OUT,
            Outcome::Interrupted { signal } => 128 + signal as u8,
        }
    }
}

/// Writes one line to standard error in one piece, so that lines of several processes do not mix.
pub fn say(line: std::fmt::Arguments<'_>) {
    // Without standard error the message has no reader.
    let _ = std::io::Write::write_all(&mut std::io::stderr(), format!("{line}\n").as_bytes());
}
