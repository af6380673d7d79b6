//! Processors, namespaces and limits of processes, and the processes that hold memory of earlybird.

use super::finding::{Finding, State};
use crate::numbers::ranges;
use crate::proc_files::{parent, pids, text, variable};
use earlybird::launch::allowed_cpus;
use earlybird::probe;
use itertools::Itertools;
use rustix::process::{Resource, getrlimit};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

const SECTION: &str = "processes";

/// The user and pid namespaces that the kernel starts with (linux/proc_ns.h).
const FIRST_NAMESPACES: [(&str, u64); 2] = [("user", 0xEFFF_FFFD), ("pid", 0xEFFF_FFFC)];

/// Fewer descriptors than this may not be enough for a rank that uses MPI too.
const FEW_DESCRIPTORS: u64 = 256;

/// All of the section.
pub fn findings() -> Vec<Finding> {
    let mut found = vec![processors()];
    found.extend(FIRST_NAMESPACES.map(|(kind, first)| namespace(kind, first)));
    found.extend([
        limit("open files (ulimit -n)", Resource::Nofile, "a rank needs about ten, its launcher three for each rank"),
        limit("processes (ulimit -u)", Resource::Nproc, "a rank has a thread or two besides those of the program"),
        holders(),
    ]);
    found
}

fn processors() -> Finding {
    let (name, quota) = ("processors", probe::cpu_quota());
    let cpus = match allowed_cpus() {
        Ok(cpus) => cpus,
        Err(error) => {
            return Finding::ok(SECTION, name, error.to_string(), "ranks take the machine's number of processors");
        }
    };
    let usable = quota.map_or(cpus.len(), |quota| quota.min(cpus.len()));
    let quota = quota.map_or("no quota".into(), |quota| format!("a control group's quota of {quota}"));
    let value = format!("{} allowed ({}), {quota}", cpus.len(), ranges(&cpus));
    let effect = format!("up to {usable} ranks spin while they wait; more give the processor away instead");
    Finding::ok(SECTION, name, value, effect)
}

fn namespace(kind: &'static str, first: u64) -> Finding {
    let inode = std::fs::metadata(format!("/proc/self/ns/{kind}")).map(|meta| meta.ino());
    let value = match inode {
        Ok(inode) if inode == first => "the machine's".to_owned(),
        Ok(inode) => format!("{kind}:[{inode}], of a container"),
        Err(error) => format!("unknown: {error}"),
    };
    let effect = match kind {
        "pid" => "ranks of one job may be in several; the state of a late rank is told only inside one",
        _ => "ranks of one job must be of one user",
    };
    Finding::ok(SECTION, &format!("{kind} namespace"), value, effect)
}

fn limit(name: &str, resource: Resource, effect: &str) -> Finding {
    let [soft, hard] = [getrlimit(resource).current, getrlimit(resource).maximum];
    let text = |limit: Option<u64>| limit.map_or("no limit".into(), |limit| limit.to_string());
    let value = if soft == hard { text(soft) } else { format!("{}, can be raised to {}", text(soft), text(hard)) };
    let few = soft.is_some_and(|soft| soft < FEW_DESCRIPTORS);
    Finding::ok(SECTION, name, value, effect).noted_if(few, "raise it where a job fails with an error that names it")
}

/// The rule by which one process may look into another.
pub fn ptrace_scope() -> String {
    let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    match scope.as_deref().map(str::trim) {
        Ok("0") => "ptrace scope 0: any process of this user".into(),
        Ok("1") => "ptrace scope 1: ancestors only".into(),
        Ok("2") => "ptrace scope 2: administrators only".into(),
        Ok("3") => "ptrace scope 3: nobody".into(),
        Ok(other) => format!("ptrace scope {other}"),
        Err(_) => "no ptrace scope in this kernel".into(),
    }
}

fn holders() -> Finding {
    let described = |pid: u32| {
        let command = text(pid, "comm").unwrap_or_default();
        let user = std::fs::metadata(format!("/proc/{pid}")).map_or("?".into(), |meta| meta.uid().to_string());
        let is_orphan = parent(pid) == Some(1);
        let orphan = if is_orphan { ", a child of process 1" } else { "" };
        (format!("{pid} {} of user {user}{orphan}", command.trim()), is_orphan)
    };
    let maps_arena = |pid: &u32| text(*pid, "maps").is_some_and(|maps| maps.contains(probe::ARENA_NAME));
    let found = pids().filter(maps_arena).sorted().map(described).collect_vec();
    let value = match found.is_empty() {
        true => "none that may be looked at".into(),
        false => found.iter().map(|(text, _)| text).join("; "),
    };
    let orphans = found.iter().any(|(_, orphan)| *orphan);
    Finding::ok(SECTION, "ranks that run now", value, "each holds its job's shared memory until it ends")
        .noted_if(orphans, "a rank that a launcher left behind has become a child of process 1: end it (kill), and its memory goes with it")
}

/// Findings about process `pid`: whether the interposer is in it, and whether it takes part in a job.
pub fn of_process(pid: u32) -> Vec<Finding> {
    let section = "process";
    let Some(maps) = text(pid, "maps") else {
        let effect = "nothing can be told of it";
        return vec![
            Finding::ok(section, &pid.to_string(), "does not exist, or may not be looked at", effect)
                .judged(State::Broken, "give the id of a living process of your own"),
        ];
    };
    let library = maps.lines().find_map(|line| line.find('/').map(|at| &line[at..]).filter(|it| is_interposer(it)));
    let shares = maps.contains(probe::ARENA_NAME);
    let interposer = match library {
        None => Finding::ok(section, "interposer", "not loaded", "its MPI calls go to its MPI").noted_if(
            variable(pid, "LD_PRELOAD").is_some_and(|value| value.contains(super::mpi::INTERPOSER)),
            "LD_PRELOAD names it in vain: look for the loader's message on standard error",
        ),
        Some(path) => match variable(pid, "EARLYBIRD_INTERPOSE").as_deref().unwrap_or("on") {
            "off" => {
                Finding::ok(section, "interposer", format!("loaded from {path}, off"), "every call goes to its MPI")
                    .judged(State::Note, "unset EARLYBIRD_INTERPOSE")
            }
            mode => Finding::ok(
                section,
                "interposer",
                format!("loaded from {path}, {mode}"),
                match shares {
                    true => "it carries out collectives of this process",
                    false => "it has joined no other rank: before MPI_Init, in a job of one rank, or refused",
                },
            ),
        },
    };
    let value = if shares { "takes part in a job" } else { "takes part in no job of two ranks or more" };
    let job = Finding::ok(section, &pid.to_string(), value, "shown by the shared memory that it has mapped");
    vec![job, interposer]
}

fn is_interposer(path: &str) -> bool {
    Path::new(path).file_name().is_some_and(|name| name == super::mpi::INTERPOSER)
}
