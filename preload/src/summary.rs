//! Counts of intercepted and forwarded calls, for the summary that `EARLYBIRD_INTERPOSE=profile` prints.

use crate::functions::MpiFunction;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use strum::{IntoStaticStr, VariantArray};

/// The reason why a call is forwarded. All ranks of the call find the same one, from arguments that MPI requires to be equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
pub enum ForwardReason {
    #[strum(serialize = "before MPI_Init or after MPI_Finalize")]
    NotRunning,
    #[strum(serialize = "EARLYBIRD_INTERPOSE=off")]
    Off,
    #[strum(serialize = "a communicator of one rank")]
    OneRank,
    #[strum(serialize = "an intercommunicator")]
    Intercommunicator,
    #[strum(serialize = "no two ranks share a node")]
    OnePerNode,
    #[strum(serialize = "setting up the communicator failed")]
    SetUpFailed,
    #[strum(serialize = "a first call of a communicator")]
    FirstCalls,
    #[strum(serialize = "a user-defined operator on elements that are too large")]
    UserOp,
    #[strum(serialize = "an unsupported pair of type and operator")]
    TypeAndOp,
    #[strum(serialize = "a non-blocking or persistent call of a kind that MPI alone makes")]
    NonBlocking,
    #[strum(serialize = "an invalid argument, which MPI reports")]
    Argument,
    #[strum(serialize = "MPI is faster by measurement, or chosen by a setting")]
    Faster,
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
    forwarded: [[CallCounter; ForwardReason::VARIANTS.len()]; MpiFunction::ALL.len()],
}

impl Counters {
    const fn none() -> Counters {
        Counters {
            intercepted: [const { CallCounter::none() }; MpiFunction::ALL.len()],
            forwarded: [const { [const { CallCounter::none() }; ForwardReason::VARIANTS.len()] };
                MpiFunction::ALL.len()],
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
            for &reason in ForwardReason::VARIANTS {
                let (calls, bytes) = self.forwarded[call as usize][reason as usize].read();
                if calls > 0 {
                    let (comma, text) = (if forwarded > 0 { "," } else { "" }, <&str>::from(reason));
                    let _ = write!(line, "{comma} {calls} ({bytes} B) {text}");
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
static SET_UPS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
static COUNTING: AtomicBool = AtomicBool::new(false);

/// Switches counting on or off.
pub fn set_counting(is_on: bool) {
    COUNTING.store(is_on, Relaxed);
}

#[inline]
pub fn is_counting() -> bool {
    COUNTING.load(Relaxed)
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

/// The way in which a communicator was set up.
#[derive(Debug, Clone, Copy)]
pub enum SetUp {
    /// Its ranks joined a new group.
    Joined,
    /// It was formed of ranks of another one.
    Formed,
    /// It took over what a freed one had.
    TakenOver,
}

/// Counts a communicator that was set up.
pub fn count_set_up(how: SetUp) {
    SET_UPS[how as usize].fetch_add(1, Relaxed);
}

/// The summary: a headline, then one line per function that was called, and one for the communicators.
pub fn text() -> String {
    let [joined, formed, taken_over] = SET_UPS.each_ref().map(|counter| counter.load(Relaxed));
    let text = COUNTERS.text();
    format!("{text}earlybird: {:<29} joined: {joined}; formed: {formed}; taken over: {taken_over}\n", "communicators")
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
