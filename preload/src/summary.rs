//! Counts of intercepted and forwarded calls, for the summary that `EARLYBIRD_INTERPOSE=profile` prints.

use crate::functions::MpiFunction;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// The reason why a call is forwarded. All ranks of the call find the same one, from arguments that MPI requires to be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ForwardReason {
    NotRunning,
    Off,
    OneRank,
    Intercommunicator,
    OnePerNode,
    SetUpFailed,
    TooMany,
    UserOp,
    TypeAndOp,
    Argument,
    Faster,
}

impl ForwardReason {
    const ALL: [ForwardReason; 11] = [
        ForwardReason::NotRunning,
        ForwardReason::Off,
        ForwardReason::OneRank,
        ForwardReason::Intercommunicator,
        ForwardReason::OnePerNode,
        ForwardReason::SetUpFailed,
        ForwardReason::TooMany,
        ForwardReason::UserOp,
        ForwardReason::TypeAndOp,
        ForwardReason::Argument,
        ForwardReason::Faster,
    ];

    const fn text(self) -> &'static str {
        match self {
            ForwardReason::NotRunning => "before MPI_Init or after MPI_Finalize",
            ForwardReason::Off => "EARLYBIRD_INTERPOSE=off",
            ForwardReason::OneRank => "a communicator of one rank",
            ForwardReason::Intercommunicator => "an intercommunicator",
            ForwardReason::OnePerNode => "no two ranks share a node",
            ForwardReason::SetUpFailed => "setting up the communicator failed",
            ForwardReason::TooMany => "too many communicators",
            ForwardReason::UserOp => "a user-defined operator on elements that are too large",
            ForwardReason::TypeAndOp => "an unsupported pair of type and operator",
            ForwardReason::Argument => "an invalid argument, which MPI reports",
            ForwardReason::Faster => "MPI is faster by measurement, or chosen by a setting",
        }
    }
}

/// The number of some calls, and of their bytes.
pub struct CallCounter {
    calls: AtomicU64,
    bytes: AtomicU64,
}

impl CallCounter {
    pub const fn none() -> CallCounter {
        CallCounter { calls: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    pub fn add(&self, bytes: usize) {
        self.calls.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub fn read(&self) -> (u64, u64) {
        (self.calls.load(Relaxed), self.bytes.load(Relaxed))
    }
}

/// The counters of every function: intercepted calls, and forwarded ones by reason.
struct Counters {
    intercepted: [CallCounter; MpiFunction::ALL.len()],
    forwarded: [[CallCounter; ForwardReason::ALL.len()]; MpiFunction::ALL.len()],
}

impl Counters {
    const fn none() -> Counters {
        Counters {
            intercepted: [const { CallCounter::none() }; MpiFunction::ALL.len()],
            forwarded: [const { [const { CallCounter::none() }; ForwardReason::ALL.len()] }; MpiFunction::ALL.len()],
        }
    }

    /// One line per function that was called, after a headline.
    fn text(&self) -> String {
        let mut text = String::from("earlybird: calls of rank 0 (bytes that a rank sends, per block)\n");
        for call in MpiFunction::ALL {
            let (calls, bytes) = self.intercepted[call as usize].read();
            let mut line =
                format!("earlybird: {:<29} intercepted: {calls} ({bytes} B); forwarded to MPI:", call.name());
            let mut forwarded = 0;
            for reason in ForwardReason::ALL {
                let (calls, bytes) = self.forwarded[call as usize][reason as usize].read();
                if calls > 0 {
                    let _ =
                        write!(line, "{} {calls} ({bytes} B) {}", if forwarded > 0 { "," } else { "" }, reason.text());
                    forwarded += calls;
                }
            }
            if forwarded == 0 {
                line.push_str(" 0");
            }
            if calls + forwarded > 0 {
                text += &line;
                text.push('\n');
            }
        }
        text
    }
}

static COUNTERS: Counters = Counters::none();
static COUNTING: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const NO: u8 = 1;
const YES: u8 = 2;

/// Switches counting on or off.
pub fn set_counting(is_on: bool) {
    COUNTING.store(if is_on { YES } else { NO }, Relaxed);
}

#[inline]
pub fn is_counting() -> bool {
    COUNTING.load(Relaxed) == YES
}

/// Returns whether the settings, which switch counting on or off, have been read.
#[inline]
pub fn is_counting_known() -> bool {
    COUNTING.load(Relaxed) != UNKNOWN
}

/// Counts an intercepted call of `bytes` bytes.
#[inline]
pub fn count_intercepted(call: MpiFunction, bytes: usize) {
    if is_counting() {
        COUNTERS.intercepted[call as usize].add(bytes);
    }
}

/// Counts a forwarded call; `bytes` is called only while calls are counted.
#[inline]
pub fn count_forwarded(call: MpiFunction, reason: ForwardReason, bytes: impl FnOnce() -> usize) {
    if is_counting() {
        COUNTERS.forwarded[call as usize][reason as usize].add(bytes());
    }
}

/// The summary: a headline, then one line per function that was called.
pub fn text() -> String {
    COUNTERS.text()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_lists_calls_bytes_and_reasons() {
        let counts = Counters::none();
        counts.intercepted[MpiFunction::Bcast as usize].add(100);
        counts.intercepted[MpiFunction::Bcast as usize].add(28);
        counts.forwarded[MpiFunction::Allreduce as usize][ForwardReason::UserOp as usize].add(8);
        counts.forwarded[MpiFunction::Allreduce as usize][ForwardReason::OneRank as usize].add(4);
        let text = counts.text();
        let lines: Vec<_> =
            text.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(
            lines,
            [
                "earlybird: MPI_Allreduce intercepted: 0 (0 B); forwarded to MPI: 1 (4 B) a communicator of one rank, \
                 1 (8 B) a user-defined operator on elements that are too large",
                "earlybird: MPI_Bcast intercepted: 2 (128 B); forwarded to MPI: 0",
            ]
        );
    }
}
