//! The files of one run: a directory that goes when the run ends.

use std::fs;
use std::io;
use std::path::PathBuf;

/// The directory.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it, named after this process.
    ///
    /// # Errors
    /// What the file system refuses.
    pub fn new() -> io::Result<Scratch> {
        let scratch = Scratch(std::env::temp_dir().join(format!("earlybird-network-{}", std::process::id())));
        fs::create_dir(&scratch.0)?;
        Ok(scratch)
    }

    /// What a launcher runs in place of rsh.
    pub fn agent(&self) -> PathBuf {
        self.0.join("agent")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
