//! The processors of a machine and what they share, as data, whoever read it.

use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// A machine.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Machine {
    pub packages: Vec<Package>,
    pub numa_domains: Vec<Domain>,
    /// Data and unified caches, the largest first.
    pub caches: Vec<Cache>,
    pub cores: Vec<Core>,
}

/// A socket.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Package {
    pub id: usize,
    pub cpus: Vec<usize>,
}

/// Memory that is as near to these processors as any.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Domain {
    pub id: usize,
    pub memory_bytes: u64,
    pub cpus: Vec<usize>,
}

/// A cache, and the processors that share it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cache {
    pub level: usize,
    pub bytes: u64,
    pub cpus: Vec<usize>,
}

/// A core: more than one processor where it has several hardware threads.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Core {
    pub cpus: Vec<usize>,
}

/// The parts of a machine as a reader finds them: in any order, and once for each processor or once only.
#[derive(Debug, Default)]
pub struct Parts {
    pub packages: BTreeSet<Package>,
    pub numa_domains: BTreeSet<Domain>,
    pub caches: BTreeSet<Cache>,
    pub cores: BTreeSet<Core>,
}

impl Machine {
    /// The machine of these parts, in the order in which they are shown.
    pub fn of(parts: Parts) -> Machine {
        let mut caches = Vec::from_iter(parts.caches);
        caches.sort_by_key(|cache| (Reverse(cache.level), cache.cpus.clone()));
        Machine {
            packages: Vec::from_iter(parts.packages),
            // A domain of memory alone has no processors, and no rank is near to it.
            numa_domains: parts.numa_domains.into_iter().filter(|domain| !domain.cpus.is_empty()).collect(),
            caches,
            cores: Vec::from_iter(parts.cores),
        }
    }

    /// Processors that are switched on.
    pub fn cpus(&self) -> Vec<usize> {
        let mut cpus: Vec<usize> = self.cores.iter().flat_map(|core| core.cpus.iter().copied()).collect();
        cpus.sort_unstable();
        cpus
    }

    /// The largest caches that processors share.
    pub fn last_level(&self) -> impl Iterator<Item = &Cache> {
        let level = self.caches.first().map(|cache| cache.level);
        self.caches.iter().filter(move |cache| Some(cache.level) == level)
    }
}
