//! The messages of a rank to the driver: lines on its standard output, which outlives its other descriptors.

use earlybird::Error;
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;

/// Nanoseconds of the clock that all processes share.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Tells the driver something in one write. What cannot be written, because of a limit, is not said.
pub fn say(line: &str) {
    let _ = rustix::io::write(std::io::stdout(), format!("@{line}\n").as_bytes());
}

/// Tells the driver of a library's error: when, its code, the process that it blames, its words.
pub fn say_error(error: &Error, at: u64) {
    let pid = if let Error::PeerDied { pid, .. } = error { *pid } else { 0 };
    say(&format!("error {at} {} {pid} {}", error.code(), error.to_string().replace('\n', " ")));
}

/// An error as a rank told of it.
#[derive(Debug, Clone)]
pub struct Told {
    pub at: u64,
    pub code: String,
    /// The process that it blames, or 0.
    pub pid: u32,
    pub text: String,
}

/// All that one rank has said so far.
pub struct Said {
    file: File,
    unread: Vec<u8>,
    /// When it began to join.
    pub joining: Option<u64>,
    pub joined: bool,
    /// When it did violence to itself.
    pub acted: Option<u64>,
    pub error: Option<Told>,
    pub wrong: Vec<String>,
    pub leaks: Vec<String>,
    pub done: bool,
    /// Completed and checked calls by form.
    pub calls: BTreeMap<String, u64>,
    /// The call under way.
    pub doing: Option<String>,
}

impl Said {
    pub fn of(file: File) -> Said {
        let (unread, wrong, leaks) = (Vec::new(), Vec::new(), Vec::new());
        let (joining, joined, done, acted, error, doing) = (None, false, false, None, None, None);
        Said { file, unread, joining, joined, acted, error, wrong, leaks, done, calls: BTreeMap::new(), doing }
    }

    /// Takes in what has been said since the last time.
    pub fn listen(&mut self) {
        let _ = self.file.read_to_end(&mut self.unread);
        let Some(end) = self.unread.iter().rposition(|byte| *byte == b'\n') else { return };
        let lines: Vec<u8> = self.unread.drain(..=end).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            let Some((_, line)) = line.split_once('@') else { continue };
            let (key, rest) = line.split_once(' ').unwrap_or((line, ""));
            self.take(key, rest);
        }
    }

    fn take(&mut self, key: &str, rest: &str) {
        let finished = if matches!(key, "call" | "done") { self.doing.take() } else { None };
        if let Some(form) = finished {
            *self.calls.entry(form).or_default() += 1;
        }
        match key {
            "joining" => self.joining = rest.parse().ok(),
            "joined" => self.joined = true,
            "act" => self.acted = rest.parse().ok(),
            "call" => self.doing = Some(rest.to_owned()),
            "done" => self.done = true,
            "wrong" => self.wrong.push(rest.to_owned()),
            "leak" => self.leaks.push(rest.to_owned()),
            "error" => {
                let mut words = rest.splitn(4, ' ');
                let mut word = || words.next().unwrap_or_default().to_owned();
                let (at, code, pid, text) = (word(), word(), word(), word());
                self.error = Some(Told { at: at.parse().unwrap_or(0), code, pid: pid.parse().unwrap_or(0), text });
            }
            _ => {}
        }
    }
}
