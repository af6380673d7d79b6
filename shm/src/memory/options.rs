//! The options with which a process joins a group.

use std::path::PathBuf;
use std::time::Duration;

/// The options with which a process joins a group.
#[derive(Debug, Clone, Default)]
pub struct AttachOptions {
    /// This process's number on the node, from 0.
    pub rank: usize,
    /// Number of ranks on the node, 1 to [`super::MAX_RANKS`].
    pub size: usize,
    /// Names the group: equal on its ranks, different for any other group of this user on this node.
    pub key: String,
    /// Directory where ranks that share no network namespace meet (`EARLYBIRD_DIR`): mode 0700, created if absent.
    pub dir: Option<PathBuf>,
    /// Bytes of address range of each region, rounded up to whole pages; equal on all ranks. Takes no memory until
    /// reserved. The arena holds [`super::MAX_REGIONS`] of them.
    pub region_bytes: usize,
    /// Settings that must be equal on all ranks; those of rank 0 count for all.
    pub policy: [u64; 32],
    /// Timeout of the wait for the others; `None` waits for ever (a death ends the wait in any case).
    pub timeout: Option<Duration>,
    /// Names and values of settings that must be equal on all ranks; the first that differs is the error of all ranks.
    pub settings: Vec<(String, String)>,
}

/// A function that names a rank that will not join, known from another group of the same ranks.
pub type Absent<'a> = &'a dyn Fn() -> Option<usize>;
