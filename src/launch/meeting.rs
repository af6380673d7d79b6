//! What the launcher does where its ranks meet: it tells those that still wait of one that has ended, and removes what a job
//! that ended while it met has left.

use crate::RanksPerNode;
use crate::{hierarchy, identity};
use std::path::{Path, PathBuf};

/// Where the ranks of a job meet.
pub(super) struct Meeting {
    dir: Option<PathBuf>,
    key: String,
}

impl Meeting {
    /// Of the job of this name. The ranks have the environment of the launcher, and `nodes` in place of what that says.
    pub(super) fn new(job: &str, ranks: usize, nodes: Option<&RanksPerNode>) -> Meeting {
        let given = || std::env::var("EARLYBIRD_RANKS_PER_NODE").ok()?.parse().ok();
        let sizes = nodes.cloned().or_else(given).and_then(|nodes| nodes.sizes(ranks).ok());
        let key = identity::key_of_job(job);
        let key = match sizes.is_some_and(|sizes| sizes.len() > 1) {
            // There all ranks meet first, those of a node watch each other from then on.
            true => hierarchy::meeting_key(&key),
            false => key,
        };
        Meeting { dir: directory(), key }
    }

    /// The process of `rank` has ended: nobody need wait for it.
    pub(super) fn announce_end(&self, rank: usize) {
        announce_end(self.dir.as_deref(), &self.key, rank);
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

/// In place of `earlybird_shm::announce_end`.
fn announce_end(_dir: Option<&Path>, _key: &str, _rank: usize) {}
