//! The launcher's part in the rendezvous: it announces ranks that have ended to those that wait there, and removes the files of jobs
//! that were killed.

use crate::Identity;
use std::path::PathBuf;

/// The first rendezvous of a job's ranks, on one node or on several virtual ones.
pub(super) struct LauncherRendezvous {
    dir: Option<PathBuf>,
    key: String,
}

impl LauncherRendezvous {
    /// The rendezvous of the job whose ranks have this value of `EARLYBIRD_LAUNCHER`, and otherwise the environment of the launcher.
    pub(super) fn new(launcher: &str) -> LauncherRendezvous {
        LauncherRendezvous { dir: directory(), key: Identity::launched_key(launcher) }
    }

    /// Announces to waiting ranks that the process of `rank` has ended.
    pub(super) fn announce_end(&self, rank: usize) {
        earlybird_shm::announce_end(self.dir.as_deref(), &self.key, rank);
    }
}

impl Drop for LauncherRendezvous {
    fn drop(&mut self) {
        earlybird_shm::forget_job(&self.key);
    }
}

/// Removes what ranks that have ended left where they met, when they were killed there.
pub(super) fn sweep() {
    // Ranks that could not use the directory have said why.
    let _ = earlybird_shm::sweep(directory().as_deref());
}

/// The directory that was set, which is the ranks' too.
fn directory() -> Option<PathBuf> {
    std::env::var_os("EARLYBIRD_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from)
}
