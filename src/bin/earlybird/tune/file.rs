//! The file that `earlybird tune` writes.

use crate::output::print;
use earlybird::Error;

const HEADER: &str = "# earlybird tune, for EARLYBIRD_TUNE. What is not listed is left to auto.\n";

/// Writes the whole file.
pub fn write(path: &str, lines: &str) -> Result<(), Error> {
    let text = format!("{HEADER}{lines}");
    std::fs::write(path, text).map_err(|error| Error::usage(format!("--output {path}: {error}")))
}

/// Prints the file.
pub fn show(path: &str) -> Result<(), Error> {
    let written = std::fs::read_to_string(path);
    print(&written.map_err(|error| Error::system("read the file", format!("{path}: {error}")))?)
}
