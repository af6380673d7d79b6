//! Access to the files of other processes in `/proc`, as far as this user may read them.

/// The ids of all processes.
pub fn pids() -> impl Iterator<Item = u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// A file of a process as text, other bytes replaced.
pub fn text(pid: u32, file: &str) -> Option<String> {
    let bytes = std::fs::read(format!("/proc/{pid}/{file}")).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// The process that started this one, or that took it over.
pub fn parent(pid: u32) -> Option<u32> {
    // The name in parentheses may contain anything; the parent is the second word after it.
    text(pid, "stat")?.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

/// The value that a variable had when the process began.
pub fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = text(pid, "environ")?;
    let value = environment.split('\0').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_among_them() {
        let own = std::process::id();
        assert!(pids().any(|pid| pid == own));
        assert_eq!(parent(own), Some(std::os::unix::process::parent_id()));
        assert_eq!(variable(own, "PATH"), std::env::var("PATH").ok());
        assert_eq!((parent(u32::MAX), variable(own, "NOT_SET_ANYWHERE")), (None, None));
    }
}
