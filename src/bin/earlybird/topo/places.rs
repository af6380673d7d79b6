//! The places of ranks on a machine: those of a running job, or those that a launcher would bind.

use super::machine::Machine;
use crate::numbers::ranges;
use crate::proc_files::{parent, pids, variable};
use earlybird::Error;
use earlybird::launch::Bind;
use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// A rank and the processors that it may run on.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    pub rank: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    pub cpus: Vec<usize>,
    /// Packages that have these processors.
    pub packages: Vec<usize>,
    pub numa_domains: Vec<usize>,
}

impl Place {
    fn new(machine: &Machine, rank: usize, pid: Option<u32>, cpus: Vec<usize>) -> Place {
        let meets = |of: &[usize]| of.iter().any(|cpu| cpus.binary_search(cpu).is_ok());
        let packages =
            machine.packages.iter().filter(|package| meets(&package.cpus)).map(|package| package.id).collect();
        let domains =
            machine.numa_domains.iter().filter(|domain| meets(&domain.cpus)).map(|domain| domain.id).collect();
        Place { rank, pid, packages, numa_domains: domains, cpus }
    }
}

/// Places of the ranks that `earlybird run --bind` starts where `allowed` are the processors that it may use.
pub fn planned(machine: &Machine, ranks: usize, bind: Bind, allowed: &[usize]) -> Vec<Place> {
    let cpus = |rank| bind.cpu(rank, allowed).map_or_else(|| allowed.to_vec(), |cpu| vec![cpu]);
    (0..ranks).map(|rank| Place::new(machine, rank, None, cpus(rank))).collect()
}

/// Variables by which launchers tell a process its rank.
const RANKS: [&str; 4] = ["EARLYBIRD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"];

/// Places of the ranks that were started by process `launcher` or by processes that it has started.
///
/// # Errors
/// [`Error::Usage`] if there are none that may be looked at; [`Error::System`] for a rank whose processors cannot be read.
pub fn running(machine: &Machine, launcher: u32) -> Result<Vec<Place>, Error> {
    let parents: HashMap<u32, u32> = pids().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let distance = |pid: u32| {
        let line = std::iter::successors(Some(pid), |pid| parents.get(pid).copied().filter(|parent| *parent > 0));
        line.take(parents.len() + 1).position(|of| of == launcher)
    };
    // A rank's own children have its variables too: the process next to the launcher is the rank.
    let mut found: BTreeMap<usize, (usize, u32)> = BTreeMap::new();
    for pid in parents.keys().copied().filter(|pid| *pid != launcher) {
        let (Some(distance), Some(rank)) = (distance(pid), rank_of(pid)) else { continue };
        let nearest = found.entry(rank).or_insert((distance, pid));
        *nearest = (*nearest).min((distance, pid));
    }
    if found.is_empty() {
        return Err(Error::usage(format!(
            "process {launcher} has started no rank that may be looked at; give the process id of a launcher (earlybird run, mpirun)"
        )));
    }
    let place = |(rank, (_, pid)): (usize, (usize, u32))| {
        let set = sched_getaffinity(i32::try_from(pid).ok().and_then(Pid::from_raw));
        let set = set.map_err(|error| Error::system(format!("reading the processors of process {pid}"), error))?;
        let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect();
        Ok(Place::new(machine, rank, Some(pid), cpus))
    };
    found.into_iter().map(place).collect()
}

fn rank_of(pid: u32) -> Option<usize> {
    RANKS.iter().find_map(|name| variable(pid, name)?.parse().ok())
}

/// Warnings about these places: processors and cores that several ranks share.
pub fn warnings(machine: &Machine, places: &[Place]) -> Vec<String> {
    let mut warnings = Vec::new();
    for core in &machine.cores {
        let inside = |place: &&Place| place.cpus.iter().all(|cpu| core.cpus.contains(cpu));
        let ranks: Vec<usize> = places.iter().filter(inside).map(|place| place.rank).collect();
        if ranks.len() > 1 {
            let threads = if core.cpus.len() > 1 { ", hardware threads of one core" } else { "" };
            warnings.push(format!("ranks {} share processor(s) {}{threads}", ranges(&ranks), ranges(&core.cpus)));
        }
    }
    let usable = machine.cpus().into_iter().filter(|cpu| places.iter().any(|place| place.cpus.contains(cpu))).count();
    if warnings.is_empty() && places.len() > usable {
        warnings.push(format!("{} ranks share {usable} processor(s)", places.len()));
    }
    warnings
}
