//! A machine as the kernel describes it in a tree of files: `/sys`, or a copy of another machine's.

use super::machine::{Cache, Core, Domain, Machine, Package, Parts};
use earlybird::Error;
use std::path::{Path, PathBuf};

/// Reads the machine that a tree describes.
///
/// # Errors
/// [`Error::System`] that names the file where one is missing or not understood.
pub fn read(sysfs: &Path) -> Result<Machine, Error> {
    let system = sysfs.join("devices/system");
    let mut parts = Parts::default();
    for cpu in list(&system.join("cpu/online"))? {
        let of_cpu = system.join(format!("cpu/cpu{cpu}"));
        let topology = of_cpu.join("topology");
        let id = number(&topology.join("physical_package_id"))?;
        parts.packages.insert(Package { id, cpus: list(&topology.join("core_siblings_list"))? });
        parts.cores.insert(Core { cpus: list(&topology.join("thread_siblings_list"))? });
        for cache in numbered(&of_cpu.join("cache"), "index")? {
            if text(&cache.join("type"))? != "Instruction" {
                let (level, cpus) = (number(&cache.join("level"))?, list(&cache.join("shared_cpu_list"))?);
                parts.caches.insert(Cache { level, bytes: size(&cache.join("size"))?, cpus });
            }
        }
    }
    for path in numbered(&system.join("node"), "node")? {
        parts.numa_domains.insert(domain(&path)?);
    }
    Ok(Machine::of(parts))
}

fn domain(path: &Path) -> Result<Domain, Error> {
    let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix("node")?.parse().ok());
    let about = text(&path.join("meminfo"))?;
    // "Node 0 MemTotal:       49303320 kB"
    let total = about.lines().find_map(|line| line.split_once("MemTotal:")?.1.trim().strip_suffix("kB"));
    let kib: u64 = total.and_then(|kib| kib.trim().parse().ok()).unwrap_or(0);
    Ok(Domain { id: name.unwrap_or(0), memory_bytes: kib << 10, cpus: list(&path.join("cpulist"))? })
}

fn text(path: &Path) -> Result<String, Error> {
    let text = std::fs::read_to_string(path).map_err(|e| Error::system(format!("reading {}", path.display()), e))?;
    Ok(text.trim().to_owned())
}

fn not_understood(path: &Path, text: &str) -> Error {
    Error::system(format!("reading {}", path.display()), format!("{text:?} is not understood"))
}

fn number(path: &Path) -> Result<usize, Error> {
    let text = text(path)?;
    text.parse().map_err(|_| not_understood(path, &text))
}

/// `32768K`, as the kernel writes sizes of caches.
fn size(path: &Path) -> Result<u64, Error> {
    let text = text(path)?;
    let (digits, shift) = match text.strip_suffix('M') {
        Some(digits) => (digits, 20),
        None => (text.strip_suffix('K').unwrap_or(&text), if text.ends_with('K') { 10 } else { 0 }),
    };
    digits.parse::<u64>().map(|bytes| bytes << shift).map_err(|_| not_understood(path, &text))
}

/// `0-3,8`, as the kernel writes sets of processors.
fn list(path: &Path) -> Result<Vec<usize>, Error> {
    let text = text(path)?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < 1 << 16).then_some(first..=last)
    };
    let ranges: Option<Vec<_>> = text.split(',').filter(|part| !part.is_empty()).map(range).collect();
    ranges.map(|ranges| ranges.into_iter().flatten().collect()).ok_or_else(|| not_understood(path, &text))
}

/// The entries of a directory whose names are a word and a number; none where there is no such directory.
fn numbered(directory: &Path, word: &str) -> Result<Vec<PathBuf>, Error> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Ok(Vec::new()) };
    let is_numbered = |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()?.strip_prefix(word));
        name.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    Ok(entries.flatten().map(|entry| entry.path()).filter(is_numbered).collect())
}
