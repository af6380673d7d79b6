//! Facts about a process from /proc and the scheduler: its identity, its state, the CPUs it may use.

use std::os::linux::fs::MetadataExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::control::Identity;
use super::descriptor::{Descriptor, read_names, read_text};

impl Identity {
    /// The identity of the calling process. Without /proc only the pid is known.
    pub fn own() -> Identity {
        let pid = std::process::id();
        let pid_namespace = std::fs::metadata("/proc/self/ns/pid").map_or(0, |meta| meta.st_ino());
        let start_ticks = stat("self").map_or(0, |(_, start)| start);
        Identity { pid, pid_namespace, start_ticks }
    }
}

/// Returns whether a thread of the process, of this pid namespace, exists; `None` where this cannot be told.
pub(crate) fn runs(process: &Identity) -> Option<bool> {
    let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
    match pidfd_open(pid, PidfdFlags::empty()) {
        Err(Errno::SRCH) => Some(false),
        Ok(descriptor) => {
            let descriptor = Descriptor::from(descriptor);
            // the number may have gone to another process by now
            let same = stat(&process.pid.to_string()).is_none_or(|(_, start)| start == process.start_ticks);
            let mut watched = [PollFd::new(&descriptor, PollFlags::IN)];
            // readable when the last thread is gone, reaped or not
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut watched, Some(&now)).ok().map(|ended| same && ended == 0)
        }
        // no descriptors left, or a kernel before 5.3
        Err(_) => stat(&process.pid.to_string()).map(|(_, start)| start == process.start_ticks),
    }
}

/// Returns whether it is known that no thread of the process exists any more.
pub(crate) fn has_ended(process: &Identity) -> bool {
    runs(process) == Some(false)
}

/// Returns whether a thread of process `pid` maps the file of this inode whose name contains `name`; `None` without permission
/// to look. A process that executes another program has unmapped it.
pub(crate) fn maps(pid: u32, name: &str, inode: u64) -> Option<bool> {
    let inode = inode.to_string();
    let shows = |line: &str| line.contains(name) && line.split_ascii_whitespace().nth(4) == Some(&inode);
    let tasks = format!("/proc/{pid}/task");
    for task in read_names(&tasks).ok()? {
        match read_text(Path::new(&tasks).join(task).join("maps")) {
            Ok(maps) if maps.lines().any(shows) => return Some(true),
            Ok(_) => {}
            // a thread that has ended meanwhile
            Err(error) if matches!(Errno::from_io_error(&error), Some(Errno::NOENT | Errno::SRCH)) => {}
            Err(_) => return None,
        }
    }
    Some(false)
}

/// State letter and start time of a process, `process` being a pid or `self`.
pub(crate) fn stat(process: &str) -> Option<(char, u64)> {
    parse_stat(&read_text(format!("/proc/{process}/stat")).ok()?)
}

fn parse_stat(line: &str) -> Option<(char, u64)> {
    // the program name is in parentheses and may itself hold blanks and parentheses
    let mut fields = line[line.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    // the state is field 3, the start time field 22
    let start = fields.nth(18)?.parse().ok()?;
    Some((state, start))
}

/// CPUs the calling thread may run on, as 1024 bits.
pub fn affinity() -> [u64; 16] {
    let mut mask = [0; 16];
    match rustix::thread::sched_getaffinity(None) {
        Ok(set) => (0..1024).filter(|&cpu| set.is_set(cpu)).for_each(|cpu| mask[cpu / 64] |= 1 << (cpu % 64)),
        // more CPUs than the mask holds: the number is right, which ones they are is not known
        Err(_) => {
            let count = std::thread::available_parallelism().map_or(1, |n| n.get()).min(1024);
            (0..count).for_each(|cpu| mask[cpu / 64] |= 1 << (cpu % 64));
        }
    }
    mask
}

/// Name of this node.
pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_name_with_parentheses_does_not_shift_the_fields() {
        let line = "42 (a ) b) T 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20 21";
        assert_eq!(parse_stat(line), Some(('T', 777)));
        assert_eq!(parse_stat("42 (cut) R 1 2"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn the_calling_process_is_known() {
        // the letter is that of the first thread, which may be waiting for this one
        assert!(matches!(stat("self"), Some(('R' | 'S', _))));
        assert_eq!(stat("0"), None);
        assert_eq!(Identity::own(), Identity::own());
        assert!(affinity().iter().any(|word| *word != 0));
    }
}
