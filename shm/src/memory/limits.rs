//! Limits on memory and CPUs of this process: the node's and those of its control groups.
//!
//! Shared memory is charged when it is reserved, and the kernel answers a group at its limit with the out-of-memory killer, not
//! with an error. So a request is compared with the free memory before the kernel is asked.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::descriptor::read_text;

/// Time for which a reading of the free memory covers small requests: it takes some hundred system calls.
const READING_LASTS: Duration = Duration::from_secs(1);
/// One of this many parts of the free memory is covered by a reading. 32 processes, each with its own reading, take no more than
/// the 32nd of the free memory that requests leave free.
const COVERED_PART: u64 = 1024;

/// The time of the last reading of the free memory, and the bytes that it still covers.
static LAST_READING: Mutex<Option<(Instant, u64)>> = Mutex::new(None);

/// Returns whether the last reading of the free memory covers `bytes` more.
pub(crate) fn is_covered(bytes: u64) -> bool {
    let mut last = LAST_READING.lock().unwrap_or_else(PoisonError::into_inner);
    let left = last.as_mut().filter(|(read, left)| read.elapsed() < READING_LASTS && *left >= bytes);
    left.map(|(_, left)| *left -= bytes).is_some()
}

/// Reads the free memory of this machine, see [`memory_available_bytes`].
pub(crate) fn read_memory_available() -> Option<u64> {
    let free = memory_available_bytes(Path::new("/"));
    let reading = free.map(|free| (Instant::now(), free / COVERED_PART));
    *LAST_READING.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    free
}

/// Bytes that can still be taken without swapping or exceeding a control group's limit. `root` is `/` except in tests.
pub(crate) fn memory_available_bytes(root: &Path) -> Option<u64> {
    [node_available_bytes(root), tightest_group(root).map(|group| group.free_bytes)].into_iter().flatten().min()
}

/// Bytes that the node can still give without swapping.
pub(crate) fn node_available_bytes(root: &Path) -> Option<u64> {
    meminfo(root, "MemAvailable:")
}

/// A control group with a memory limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryGroup {
    /// Its directory.
    pub path: PathBuf,
    /// Its limit.
    pub limit_bytes: u64,
    /// Bytes that its processes can still take.
    pub free_bytes: u64,
}

/// The control group of this process, or ancestor of it, with the least free memory; `None` without a limit.
pub(crate) fn tightest_group(root: &Path) -> Option<MemoryGroup> {
    let v2 = group_directories(root, "", &["sys/fs/cgroup", "sys/fs/cgroup/unified"]).into_iter();
    let v1 = group_directories(root, "memory", &["sys/fs/cgroup/memory"]).into_iter();
    v2.filter_map(|group| free_in(group, "memory.max", "memory.current", "inactive_file "))
        .chain(v1.filter_map(|group| {
            free_in(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
        }))
        .min_by_key(|group| group.free_bytes)
}

/// CPUs' worth of time that the control groups grant, rounded up; `None` without a quota.
pub(crate) fn cpu_quota(root: &Path) -> Option<usize> {
    let v2 = group_directories(root, "", &["sys/fs/cgroup", "sys/fs/cgroup/unified"]);
    let v1 = group_directories(root, "cpu", &["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"]);
    let quota_v2 = v2.iter().filter_map(|group| {
        let text = read_text(group.join("cpu.max")).ok()?;
        let (quota, period) = text.trim().split_once(' ')?;
        cpus(quota.parse().ok()?, period.parse().ok()?)
    });
    let quota_v1 = v1
        .iter()
        .filter_map(|group| cpus(number(&group.join("cpu.cfs_quota_us"))?, number(&group.join("cpu.cfs_period_us"))?));
    quota_v2.chain(quota_v1).min()
}

fn cpus(quota_us: u64, period_us: u64) -> Option<usize> {
    (period_us > 0).then(|| (quota_us.div_ceil(period_us) as usize).max(1))
}

/// A file with one number; `None` for `max` and -1, which mean no limit.
fn number(path: &Path) -> Option<u64> {
    read_text(path).ok()?.trim().parse().ok()
}

fn meminfo(root: &Path, field: &str) -> Option<u64> {
    let text = read_text(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The least value that means "no limit": version 1 writes the largest number of pages.
const UNLIMITED_BYTES: u64 = 1 << 62;

/// The memory of one group, if it has a limit. Its unused page cache counts as free: the kernel drops it before it kills.
fn free_in(path: PathBuf, limit: &str, usage: &str, cache: &str) -> Option<MemoryGroup> {
    let limit_bytes = number(&path.join(limit)).filter(|limit| *limit < UNLIMITED_BYTES)?;
    let usage = number(&path.join(usage))?;
    let cache = read_text(path.join("memory.stat"))
        .ok()
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse::<u64>().ok()))
        .unwrap_or(0);
    Some(MemoryGroup { path, limit_bytes, free_bytes: limit_bytes.saturating_sub(usage.saturating_sub(cache)) })
}

/// The directories of this process's group and of its ancestors for one controller (version 2: the empty name). In a
/// container only the upper ones may be visible; those that are not there are skipped by the readers.
fn group_directories(root: &Path, controller: &str, mounts: &[&str]) -> Vec<PathBuf> {
    let groups = read_text(root.join("proc/self/cgroup")).unwrap_or_default();
    let own = groups.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let controllers = fields.next()?;
        let path = fields.next()?;
        controllers.split(',').any(|name| name == controller).then(|| path.trim_start_matches('/').to_owned())
    });
    let Some(own) = own else { return Vec::new() };
    let own = Path::new(&own);
    // a path that climbs out of the mount comes from outside our namespace: only the mount itself is ours to read
    let climbs = own.components().any(|part| !matches!(part, std::path::Component::Normal(_)));
    let levels: Vec<&Path> = if climbs { vec![Path::new("")] } else { own.ancestors().collect() };
    mounts.iter().flat_map(|mount| levels.iter().map(move |level| root.join(mount).join(level))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    struct Fixture(PathBuf);

    impl Fixture {
        fn new(name: &str, files: &[(&str, &str)]) -> Fixture {
            let root = std::env::temp_dir().join(format!("earlybird-limits-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Fixture(root)
        }
    }

    impl Drop for Fixture {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MEMINFO: &str = "MemTotal:  100 kB\nMemAvailable:    64 kB\n";

    #[test]
    fn version_2_limits_of_an_ancestor_count() {
        let f = Fixture::new(
            "v2",
            &[
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", "0::/job/step\n"),
                ("sys/fs/cgroup/job/memory.max", "40000\n"),
                ("sys/fs/cgroup/job/memory.current", "30000\n"),
                ("sys/fs/cgroup/job/memory.stat", "anon 1\ninactive_file 5000\n"),
                ("sys/fs/cgroup/job/cpu.max", "250000 100000\n"),
                ("sys/fs/cgroup/job/step/memory.max", "max\n"),
                ("sys/fs/cgroup/job/step/memory.current", "30000\n"),
                ("sys/fs/cgroup/job/step/cpu.max", "max 100000\n"),
            ],
        );
        assert_eq!(memory_available_bytes(&f.0), Some(15000));
        assert_eq!(cpu_quota(&f.0), Some(3));
    }

    #[test]
    fn version_1_limits_count() {
        let f = Fixture::new(
            "v1",
            &[
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", "4:memory:/a\n1:cpu,cpuacct:/a\n0::/\n"),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "20000\n"),
                ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "19000\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "19000\n"),
                ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n"),
                ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(memory_available_bytes(&f.0), Some(1000));
        let path = f.0.join("sys/fs/cgroup/memory/a");
        assert_eq!(tightest_group(&f.0), Some(MemoryGroup { path, limit_bytes: 20000, free_bytes: 1000 }));
        assert_eq!(cpu_quota(&f.0), Some(1));
    }

    #[test]
    fn without_groups_the_node_counts() {
        let f = Fixture::new(
            "none",
            &[
                ("proc/meminfo", MEMINFO),
                ("proc/self/cgroup", "1:cpu:/../x\n0::/\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
                ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(memory_available_bytes(&f.0), Some(65536));
        assert_eq!(cpu_quota(&f.0), None);
        assert_eq!(memory_available_bytes(&f.0.join("nothing-here")), None);
    }
}
