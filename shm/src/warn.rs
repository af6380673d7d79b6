//! Warnings to the user: one line on standard error, in one piece, never a panic.

use std::fmt::Arguments;
use std::io::Write;

/// Writes `earlybird: <line>` to standard error in one write. A closed standard error is no failure: nobody is left to read.
pub fn warn(line: Arguments<'_>) {
    let _ = std::io::stderr().write_all(format!("earlybird: {line}\n").as_bytes());
}
