//! Memory and CPUs that this process may really use: the node's own figures and the control groups'.
//!
//! Shared memory is charged when it is reserved, and a group at its limit is answered by the out-of-memory killer and
//! not by an error. So the request is compared with the free memory before the kernel is asked.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes that can still be taken without swapping or exceeding a control group's limit. `root` is `/` but in tests.
pub(crate) fn memory_available_bytes(root: &Path) -> Option<u64> {
    let node = meminfo(root, "MemAvailable:");
    let v2 = group_directories(root, "", &["sys/fs/cgroup", "sys/fs/cgroup/unified"]);
    let v1 = group_directories(root, "memory", &["sys/fs/cgroup/memory"]);
    let groups = v2
        .iter()
        .filter_map(|group| free_in(group, "memory.max", "memory.current", "inactive_file "))
        .chain(v1.iter().filter_map(|group| {
            free_in(group, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file ")
        }))
        .min();
    [node, groups].into_iter().flatten().min()
}

/// CPUs' worth of time that the control groups grant, rounded up; `None` without a quota.
pub(crate) fn cpu_quota(root: &Path) -> Option<usize> {
    let v2 = group_directories(root, "", &["sys/fs/cgroup", "sys/fs/cgroup/unified"]);
    let v1 = group_directories(root, "cpu", &["sys/fs/cgroup/cpu", "sys/fs/cgroup/cpu,cpuacct"]);
    let quota_v2 = v2.iter().filter_map(|group| {
        let text = fs::read_to_string(group.join("cpu.max")).ok()?;
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
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn meminfo(root: &Path, field: &str) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Free bytes of one group. Its unused page cache counts as free: the kernel drops it before it kills.
fn free_in(group: &Path, limit: &str, usage: &str, cache: &str) -> Option<u64> {
    let limit = number(&group.join(limit))?;
    let usage = number(&group.join(usage))?;
    let cache = fs::read_to_string(group.join("memory.stat"))
        .ok()
        .and_then(|text| text.lines().find_map(|line| line.strip_prefix(cache)?.trim().parse::<u64>().ok()))
        .unwrap_or(0);
    Some(limit.saturating_sub(usage.saturating_sub(cache)))
}

/// The directories of this process's group and of its ancestors for one controller (version 2: the empty name). In a
/// container only the upper ones may be visible; those that are not there are skipped by the readers.
fn group_directories(root: &Path, controller: &str, mounts: &[&str]) -> Vec<PathBuf> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
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
                ("sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "50000\n"),
                ("sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n"),
            ],
        );
        assert_eq!(memory_available_bytes(&f.0), Some(1000));
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
