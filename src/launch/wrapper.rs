//! The program that has the launcher's hidden commands, by which a process becomes a rank or the watchdog.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

/// The `earlybird` binary, or another program with arguments that has the same hidden commands.
#[derive(Debug, Clone)]
pub struct Wrapper {
    program: PathBuf,
    args: Vec<OsString>,
}

impl Wrapper {
    /// The program `program`, whose hidden commands follow these arguments.
    pub fn new(program: PathBuf, args: Vec<OsString>) -> Self {
        Wrapper { program, args }
    }

    /// Returns the command line up to and with `hidden`.
    pub(super) fn command(&self, hidden: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.args).arg(hidden);
        command
    }
}

impl fmt::Display for Wrapper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program.display().fmt(f)
    }
}
