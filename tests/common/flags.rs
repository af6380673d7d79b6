//! Flags beside the directory of a job: files by which ranks, and the test that started them (`Job::raise`), tell each other how far
//! they are without the library under test.

use std::path::PathBuf;
use std::time::Duration;

fn flag(name: &str) -> PathBuf {
    PathBuf::from(std::env::var("EARLYBIRD_DIR").unwrap()).with_extension(name)
}

/// Raises a flag, as a rank.
pub fn raise(name: &str) {
    std::fs::write(flag(name), "").unwrap();
}

/// Waits in a rank until a flag is raised.
pub fn wait_for(name: &str) {
    while !flag(name).exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
}
