//! The process that started the ranks, found in `/proc`: it identifies a job to which the launcher gives no name.

use crate::Error;
use std::fmt;
use std::fs;

/// A process, named so that no other one of this boot has the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Process {
    pub pid: u32,
    /// Clock ticks from boot to its start: tells it from a later process with the same id.
    pub start_ticks: u64,
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.pid, self.start_ticks)
    }
}

/// The nearest ancestor that was not itself given the variable `marker`; this process for an empty marker.
///
/// A launcher gives the marker to what it starts and does not have it itself, so scripts and debuggers between it
/// and this process are passed over. An ancestor whose environment may not be read belongs to the system and is
/// taken for the launcher.
pub(crate) fn starter(marker: &str) -> Result<Process, Error> {
    let (mut pid, (mut parent, mut start_ticks)) = (std::process::id(), stat(std::process::id())?);
    if marker.is_empty() {
        return Ok(Process { pid, start_ticks });
    }
    // The parent of the first process of a pid namespace is 0 and has no entry.
    while parent != 0 {
        pid = parent;
        (parent, start_ticks) = stat(pid)?;
        let given = fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| has(&environ, marker));
        if !given {
            break;
        }
    }
    Ok(Process { pid, start_ticks })
}

fn has(environ: &[u8], name: &str) -> bool {
    environ.split(|byte| *byte == 0).any(|var| var.strip_prefix(name.as_bytes()).is_some_and(|v| v.starts_with(b"=")))
}

/// Parent and start time, in clock ticks since boot, of a process.
fn stat(pid: u32) -> Result<(u32, u64), Error> {
    let path = format!("/proc/{pid}/stat");
    let text = fs::read(&path).map_err(|error| Error::system(format!("reading {path}"), error))?;
    parse_stat(&String::from_utf8_lossy(&text)).ok_or_else(|| Error::system(format!("reading {path}"), "malformed"))
}

/// Fields 4 and 22. The name, field 2, is in parentheses and may hold blanks and parentheses itself.
fn parse_stat(text: &str) -> Option<(u32, u64)> {
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    Some((fields.nth(1)?.parse().ok()?, fields.nth(17)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_parentheses_does_not_shift_the_fields() {
        let rest = "S 77 5 5 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 987654 1000 10";
        for name in ["(sh)", "(a) b)", "(S 1 2 3)"] {
            assert_eq!(parse_stat(&format!("12 {name} {rest}")), Some((77, 987654)));
        }
        for malformed in ["", "12", "12 (sh)", "12 (sh) S 77 5", "12 (sh) S x 5 5 0 -1 4 1 0 0 0 1 2 0 0 20 0 1 0 9"] {
            assert_eq!(parse_stat(malformed), None, "{malformed}");
        }
    }

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environ = b"A_PMI_RANK=1\0PMI_RANKS=2\0PMI_RANK=3\0";
        assert!(has(environ, "PMI_RANK"));
        assert!(!has(&environ[..24], "PMI_RANK") && !has(b"", "PMI_RANK"));
    }

    #[test]
    fn this_process_and_its_parent_are_found() {
        let own = starter("").unwrap();
        assert_eq!(own.pid, std::process::id());
        let parent = starter("EARLYBIRD_TEST_NAME_THAT_NOBODY_SETS").unwrap();
        assert_eq!(parent.pid, std::os::unix::process::parent_id());
        assert!(parent.start_ticks <= own.start_ticks);
    }

    #[test]
    fn wrappers_that_were_given_the_marker_are_passed_over() {
        // The shells inherit a variable that cargo sets for tests; the process that lacks it is further up.
        let Ok(marker) = std::env::var("CARGO_MANIFEST_DIR").map(|_| "CARGO_MANIFEST_DIR") else { return };
        let found = starter(marker).unwrap();
        let environ = fs::read(format!("/proc/{}/environ", found.pid)).unwrap_or_default();
        assert!(!has(&environ, marker));
    }
}
