//! Lines on standard error, whole and, before the job ends, read by the launcher.

use rustix::fs::{FileType, fstat};
use rustix::io::ioctl_fionread;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Longest wait for the launcher to read standard error.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Prints lines in one write, because other ranks may print at the same time.
pub fn print(text: &str) {
    let line = format!("{text}\n");
    // A closed standard error is ignored: the line would have no reader.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// Prints a line before the job ends. If standard error is a pipe, waits until its reader has emptied it: a launcher that learns of
/// an abort may exit without reading the rest (MPICH's did in one run of ten).
#[cold]
pub fn print_and_drain(text: &str) {
    print(text);
    let stderr = std::io::stderr();
    let is_pipe = fstat(&stderr).is_ok_and(|file| FileType::from_raw_mode(file.st_mode).is_fifo());
    let started = Instant::now();
    while is_pipe && started.elapsed() < DRAIN_TIMEOUT && ioctl_fionread(&stderr).is_ok_and(|unread| unread > 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
}
