//! What was taken over and what was not, and why: counted and printed when `EARLYBIRD_INTERPOSE=profile`.

use crate::others;
use rustix::fs::{FileType, fstat};
use rustix::io::ioctl_fionread;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long nobody may read what was said.
const PATIENCE: Duration = Duration::from_secs(1);

/// The functions that are taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    Allreduce,
    Reduce,
    Bcast,
    Barrier,
    Allgather,
    ReduceScatterBlock,
}

impl Call {
    pub const ALL: [Call; 6] =
        [Call::Allreduce, Call::Reduce, Call::Bcast, Call::Barrier, Call::Allgather, Call::ReduceScatterBlock];

    pub const fn name(self) -> &'static str {
        match self {
            Call::Allreduce => "MPI_Allreduce",
            Call::Reduce => "MPI_Reduce",
            Call::Bcast => "MPI_Bcast",
            Call::Barrier => "MPI_Barrier",
            Call::Allgather => "MPI_Allgather",
            Call::ReduceScatterBlock => "MPI_Reduce_scatter_block",
        }
    }
}

/// Why a call goes to MPI. Equal on all ranks of the call, as everything that leads to one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    NotRunning,
    Off,
    OneRank,
    Intercommunicator,
    OnePerNode,
    SetUpFailed,
    TooMany,
    UserOperator,
    TypeAndOperator,
    Argument,
    Faster,
}

impl Why {
    const ALL: [Why; 11] = [
        Why::NotRunning,
        Why::Off,
        Why::OneRank,
        Why::Intercommunicator,
        Why::OnePerNode,
        Why::SetUpFailed,
        Why::TooMany,
        Why::UserOperator,
        Why::TypeAndOperator,
        Why::Argument,
        Why::Faster,
    ];

    const fn text(self) -> &'static str {
        match self {
            Why::NotRunning => "before MPI_Init or after MPI_Finalize",
            Why::Off => "EARLYBIRD_INTERPOSE=off",
            Why::OneRank => "a communicator of one rank",
            Why::Intercommunicator => "an intercommunicator",
            Why::OnePerNode => "no two ranks share a node",
            Why::SetUpFailed => "setting up the communicator failed",
            Why::TooMany => "too many communicators",
            Why::UserOperator => "an operator of the user on elements that are too large",
            Why::TypeAndOperator => "a type and operator that are not carried",
            Why::Argument => "an argument for MPI to refuse",
            Why::Faster => "left to MPI by measurement or setting",
        }
    }
}

/// Calls and their bytes.
pub struct Count {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl Count {
    pub const fn none() -> Count {
        Count { calls: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    pub fn add(&self, bytes: usize) {
        self.calls.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn read(&self) -> (u64, u64) {
        (self.calls.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// Counts of every call: those taken over, then those that went to MPI by reason.
struct Counts {
    taken: [Count; Call::ALL.len()],
    passed: [[Count; Why::ALL.len()]; Call::ALL.len()],
}

impl Counts {
    const fn none() -> Counts {
        Counts {
            taken: [const { Count::none() }; Call::ALL.len()],
            passed: [const { [const { Count::none() }; Why::ALL.len()] }; Call::ALL.len()],
        }
    }

    /// One line per function that was called, after a headline.
    fn text(&self) -> String {
        let mut text = String::from("earlybird: calls of rank 0 (bytes of what a rank gives, per block)\n");
        for call in Call::ALL {
            let (calls, bytes) = self.taken[call as usize].read();
            let mut line = format!("earlybird: {:<29} taken over: {calls} ({bytes} B); to MPI:", call.name());
            let mut passed = 0;
            for why in Why::ALL {
                let (calls, bytes) = self.passed[call as usize][why as usize].read();
                if calls > 0 {
                    let _ = write!(line, "{} {calls} ({bytes} B) {}", if passed > 0 { "," } else { "" }, why.text());
                    passed += calls;
                }
            }
            if passed == 0 {
                line.push_str(" 0");
            }
            if calls + passed > 0 {
                text += &line;
                text.push('\n');
            }
        }
        text
    }
}

static COUNTS: Counts = Counts::none();
static COUNTING: AtomicU8 = AtomicU8::new(NOT_KNOWN);
const NOT_KNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Counts from here on, or does not.
pub fn count(is_asked: bool) {
    COUNTING.store(if is_asked { YES } else { NO }, Relaxed);
}

#[inline]
pub fn is_counting() -> bool {
    COUNTING.load(Relaxed) == YES
}

/// Whether the settings were read, which say whether calls are counted.
#[inline]
pub fn is_decided() -> bool {
    COUNTING.load(Relaxed) != NOT_KNOWN
}

/// A call of so many bytes was taken over.
#[inline]
pub fn taken(call: Call, bytes: usize) {
    if is_counting() {
        COUNTS.taken[call as usize].add(bytes);
    }
}

/// A call goes to MPI; `bytes` is asked only when that is counted.
#[inline]
pub fn passed(call: Call, why: Why, bytes: impl FnOnce() -> usize) {
    if is_counting() {
        COUNTS.passed[call as usize][why as usize].add(bytes());
    }
}

/// Prints it on standard error.
pub fn print() {
    let text = COUNTS.text() + &others::text();
    say(&text[..text.len() - 1]);
}

/// Prints lines on standard error in one piece: other ranks may print meanwhile.
pub fn say(text: &str) {
    let line = format!("{text}\n");
    // Where nobody can read it nothing is lost.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

/// The same where the job may end next. Returns when whoever reads standard error, if that is a pipe, has read it: a launcher
/// that learns of an abort may end without reading more (MPICH's in one run of ten).
#[cold]
pub fn say_and_be_heard(text: &str) {
    say(text);
    let stderr = std::io::stderr();
    let is_pipe = fstat(&stderr).is_ok_and(|file| FileType::from_raw_mode(file.st_mode).is_fifo());
    let begun = Instant::now();
    while is_pipe && begun.elapsed() < PATIENCE && ioctl_fionread(&stderr).is_ok_and(|unread| unread > 0) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_tells_calls_bytes_and_reasons() {
        let counts = Counts::none();
        counts.taken[Call::Bcast as usize].add(100);
        counts.taken[Call::Bcast as usize].add(28);
        counts.passed[Call::Allreduce as usize][Why::UserOperator as usize].add(8);
        counts.passed[Call::Allreduce as usize][Why::OneRank as usize].add(4);
        let text = counts.text();
        let lines: Vec<_> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "earlybird: MPI_Allreduce taken over: 0 (0 B); to MPI: 1 (4 B) a communicator of one rank, \
                 1 (8 B) an operator of the user on elements that are too large",
                "earlybird: MPI_Bcast taken over: 2 (128 B); to MPI: 0",
            ]
        );
    }
}
