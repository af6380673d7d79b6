//! Memory that a job can have: sealed files, /dev/shm, control groups, limits of the process, huge pages.

use super::finding::{Finding, State};
use crate::numbers::size;
use earlybird::probe;
use rustix::fs::{StatVfs, stat, statfs, statvfs};
use rustix::process::{Resource, getrlimit};

const SECTION: &str = "memory";

/// The magic number of tmpfs (linux/magic.h).
const TMPFS: i64 = 0x0102_1994;

/// Less than this in /dev/shm is too little for the MPI libraries' own shared memory of a few ranks.
const SMALL_SHM_BYTES: u64 = 64 << 20;

/// All of the section, for jobs of up to `ranks` ranks.
pub fn findings(ranks: usize) -> Vec<Finding> {
    [sealed_files(ranks), dev_shm(), available(), group(), huge_pages(), address_space(ranks), file_size(ranks)].into()
}

fn sealed_files(ranks: usize) -> Finding {
    let bytes = probe::address_space_bytes(ranks);
    let effect = "what ranks share lies in one such file, which has no name and goes with the last rank";
    match probe::sealed_memory(bytes) {
        Ok(()) => Finding::ok(SECTION, "memfd with seals", "works", effect),
        Err(error) => Finding::ok(SECTION, "memfd with seals", error.to_string(), effect)
            .judged(State::Broken, "what the error says; without such a file no job of two ranks can start"),
    }
}

fn dev_shm() -> Finding {
    let name = "/dev/shm";
    let effect = "not used: its size bounds no job of earlybird; MPI libraries keep their own shared memory there";
    let (Ok(space), Ok(kind), Ok(meta)) = (statvfs(name), statfs(name), stat(name)) else {
        let change = "mount a tmpfs there if an MPI library asks for it";
        return Finding::ok(SECTION, name, "not there", effect).judged(State::Note, change);
    };
    let kind = if kind.f_type == TMPFS { "tmpfs".into() } else { format!("file system {:#x}", kind.f_type) };
    let StatVfs { f_blocks, f_bavail, f_frsize, .. } = space;
    let (whole, free, mode) = (f_blocks * f_frsize, f_bavail * f_frsize, meta.st_mode & 0o7777);
    let value = format!("{kind}, {}, {} free, mode {mode:04o}", size(whole), size(free));
    let advice = "for MPI programs of many ranks: docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm";
    Finding::ok(SECTION, name, value, effect)
        .noted_if(free < SMALL_SHM_BYTES, advice)
        .noted_if(mode & 0o002 == 0, "for MPI programs: chmod 1777 /dev/shm")
}

fn available() -> Finding {
    let effect = "what does not fit is an error on all ranks before anything is taken; swap is not used";
    match probe::node_available_bytes() {
        Some(bytes) => Finding::ok(SECTION, "memory of the node", format!("{} available", size(bytes)), effect),
        None => Finding::ok(SECTION, "memory of the node", "unknown: /proc/meminfo cannot be read", effect)
            .judged(State::Note, "mount /proc; until then a lack of memory is seen by the out-of-memory killer only"),
    }
}

fn group() -> Finding {
    let (name, effect) = ("memory control group", "asked before memory is taken, as the node's own");
    let Some(group) = probe::memory_group() else { return Finding::ok(SECTION, name, "no limit", effect) };
    let (limit, free) = (size(group.limit_bytes), size(group.free_bytes));
    let value = format!("{free} free of {limit} in {}", group.path.display());
    let advice = "raise the group's limit, or set EARLYBIRD_ARENA_MAX below what is free";
    Finding::ok(SECTION, name, value, effect).noted_if(group.free_bytes < SMALL_SHM_BYTES, advice)
}

fn huge_pages() -> Finding {
    let setting = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    let chosen = setting.ok().and_then(|text| Some(text.split_once('[')?.1.split_once(']')?.0.to_owned()));
    let value = chosen.unwrap_or_else(|| "not in this kernel".into());
    let effect = match value.as_str() {
        "always" | "force" => "shared payload is backed by huge pages",
        "within_size" => "shared payload is backed by huge pages where it fills one",
        _ => "shared payload lies in pages of the usual size; earlybird does not ask for huge ones",
    };
    Finding::ok(SECTION, "huge pages of shared memory", value, effect)
}

fn address_space(ranks: usize) -> Finding {
    let needed = probe::address_space_bytes(ranks) as u64;
    let effect = format!("a communicator of {ranks} ranks maps {} of addresses in each", size(needed));
    let limit = getrlimit(Resource::As).current;
    let value = limit.map_or("no limit".into(), size);
    Finding::ok(SECTION, "address space (ulimit -v)", value, effect).noted_if(
        limit.is_some_and(|limit| limit < 2 * needed),
        "ulimit -v unlimited, where joining fails with an error",
    )
}

fn file_size(ranks: usize) -> Finding {
    let (name, needed) = ("file size (ulimit -f)", probe::address_space_bytes(ranks) as u64);
    let Some(limit) = probe::file_limit() else {
        return Finding::ok(SECTION, name, "no limit", "the shared file may be as large as communicators need");
    };
    let state = if limit < needed { State::Broken } else { State::Note };
    let effect = "the shared file has that size at most, so fewer communicators may exist at a time";
    Finding::ok(SECTION, name, size(limit), effect).judged(state, "ulimit -f unlimited")
}
