//! The rule by which processes share a node, for who places the ranks of a [`Layout`](super::Layout).

use crate::Error;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Names the node of this process, the same in all processes that can share memory with it: those of one kernel that can meet, in one
/// network namespace or, with `dir` ([`Config::dir`](crate::Config)), in a directory of one file system.
///
/// # Errors
/// [`Error::System`] where the kernel does not tell its boot, or the place of meeting cannot be looked at.
pub fn node_name(dir: Option<&Path>) -> Result<String, Error> {
    let boot = read("/proc/sys/kernel/random/boot_id", |path| fs::read_to_string(path))?;
    let place = match dir.and_then(|dir| dir.ancestors().find(|part| part.exists())) {
        Some(directory) => read(directory, |path| fs::metadata(path))?.dev(),
        None => read("/proc/self/ns/net", |path| fs::metadata(path))?.ino(),
    };
    Ok(format!("{}/{place}", boot.trim()))
}

fn read<T>(path: impl AsRef<Path>, read: impl Fn(&Path) -> std::io::Result<T>) -> Result<T, Error> {
    let path = path.as_ref();
    read(path).map_err(|error| Error::system(format!("reading {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_known_by_its_kernel_and_the_place_of_meeting() {
        let at = |dir: &str| node_name(Some(Path::new(dir))).unwrap();
        assert_eq!(at("/dev/shm"), at("/dev/shm/not/there/yet"));
        assert_ne!(at("/dev/shm"), at("/proc"));
        assert_ne!(at("/dev/shm"), node_name(None).unwrap());
        assert_eq!(node_name(None).unwrap(), node_name(None).unwrap());
    }
}
