//! The one error type of the library: every variant names what happened and what the caller can do.
//!
//! It lives in the lowest crate because ranks must agree on it word for word: the first poison value of a
//! group is decoded to the same variant everywhere.

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::time::Duration;
use std::{fmt, io, ops};

/// Error of a collective call or of joining a group.
///
/// Every variant has a stable code ([`Error::code`]) for scripts and for the C interface. `Debug` prints what `Display`
/// prints, so `main` can return the error:
///
/// ```no_run
/// # use earlybird_shm as earlybird;
/// fn main() -> Result<(), earlybird::Error> {
///     Err(earlybird::Error::usage("there is nothing to do")) // prints: Error: there is nothing to do
/// }
/// ```
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A rank of the group died, executed another program, or left the group while others still needed it.
    #[error(
        "rank {rank} ({}) died during {during}; the group cannot continue: restart the job, or shrink it to the survivors",
        process(*pid, host)
    )]
    PeerDied {
        /// The rank that is gone.
        rank: usize,
        /// Its process id, as it announced it; 0 if it died before that.
        pid: u32,
        /// The node it ran on.
        host: String,
        /// The operation in which it was missed, for example `allreduce 17`.
        during: String,
    },
    /// A deadline that was set (`EARLYBIRD_TIMEOUT`) expired while living ranks were still missing.
    #[error(
        "after {after:?} rank(s) {missing:?} had not arrived at {during}; raise or remove EARLYBIRD_TIMEOUT, or see what delays them"
    )]
    Timeout {
        /// The ranks that had not arrived, ascending; only the first of them where another rank reported it.
        missing: Vec<usize>,
        /// The deadline that was in force.
        after: Duration,
        /// The operation that was waiting.
        during: String,
    },
    /// Two ranks made different calls where the same one was expected.
    #[error(
        "ranks {rank_a} and {rank_b} made different calls: {call_a} against {call_b}; all ranks must make the same calls in the same order"
    )]
    Mismatch {
        /// One of the ranks.
        rank_a: usize,
        /// The call that `rank_a` made.
        call_a: String,
        /// A rank that made another call.
        rank_b: usize,
        /// The call that `rank_b` made.
        call_b: String,
    },
    /// The group failed before for a reason that another rank reported.
    #[error("the group was poisoned: {cause}")]
    Poisoned {
        /// Reason given by the reporting rank.
        cause: String,
    },
    /// A user's operator panicked while it folded; the group cannot continue.
    #[error("the operator of rank {rank} panicked in {during}: {message}; the group cannot continue")]
    OperatorPanicked {
        /// The rank in which it panicked first.
        rank: usize,
        /// The operation, for example `allreduce 17`.
        during: String,
        /// The beginning of the panic's message: what fits into the words that ranks share, 56 bytes.
        message: String,
    },
    /// Memory that the call needs could not be reserved. Nothing was written.
    #[error("{needed} bytes of shared memory are needed and {free} are free; {hint}")]
    NoSpace {
        /// Bytes that the call needs.
        needed: u64,
        /// Bytes that were free.
        free: u64,
        /// Advice: settings to change, memory to free.
        hint: String,
    },
    /// The handle was inherited through `fork`; the child is not a member of the group.
    #[error(
        "this communicator was inherited through fork; only the process that joined may use it, join again in the child"
    )]
    Forked,
    /// The requested feature is not available here.
    #[error("{what} is not supported; {hint}")]
    Unsupported {
        /// The requested feature.
        what: String,
        /// Advice: the alternative.
        hint: String,
    },
    /// The caller gave something that cannot be used.
    #[error("{message}")]
    Usage {
        /// The value given, the value expected, and advice.
        message: String,
    },
    /// The operating system refused something.
    #[error("{context}{}: {reason}", advice(*errno))]
    #[non_exhaustive]
    System {
        /// The attempted operation, with the path or object.
        context: String,
        /// The system's own words.
        reason: String,
        /// The system's number for it, where it gave one.
        errno: Option<i32>,
        /// The system's error of that number, which [`source`](std::error::Error::source) returns as an [`io::Error`].
        source: Option<SystemSource>,
    },
}

/// Advice for a system error. It stands early in the message, of which other ranks may get the beginning only.
fn advice(errno: Option<i32>) -> &'static str {
    if errno == Some(Errno::MFILE.raw_os_error()) { " (raise ulimit -n)" } else { "" }
}

/// A description of a process; `pid` is 0 if it died before it had sent its number.
fn process(pid: u32, host: &str) -> String {
    if pid == 0 { format!("on {host}") } else { format!("pid {pid} on {host}") }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An [`io::Error`] that can be cloned and compared, by its errno.
// Not an error type itself, so that the source of an `Error` is the `io::Error` that this dereferences to.
#[derive(Debug, Serialize, Deserialize)]
#[serde(from = "i32", into = "i32")]
pub struct SystemSource {
    errno: i32,
    error: io::Error,
}

impl From<i32> for SystemSource {
    fn from(errno: i32) -> Self {
        SystemSource { errno, error: io::Error::from_raw_os_error(errno) }
    }
}

impl From<SystemSource> for i32 {
    fn from(source: SystemSource) -> i32 {
        source.errno
    }
}

impl ops::Deref for SystemSource {
    type Target = io::Error;

    fn deref(&self) -> &io::Error {
        &self.error
    }
}

impl Clone for SystemSource {
    fn clone(&self) -> Self {
        SystemSource::from(self.errno)
    }
}

impl PartialEq for SystemSource {
    fn eq(&self, other: &Self) -> bool {
        self.errno == other.errno
    }
}

impl Eq for SystemSource {}

impl Error {
    /// Stable code of the variant, for scripts and foreign callers.
    pub fn code(&self) -> &'static str {
        match self {
            Error::PeerDied { .. } => "EB_PEER_DIED",
            Error::Timeout { .. } => "EB_TIMEOUT",
            Error::Mismatch { .. } => "EB_MISMATCH",
            Error::Poisoned { .. } => "EB_POISONED",
            Error::OperatorPanicked { .. } => "EB_OPERATOR_PANICKED",
            Error::NoSpace { .. } => "EB_NO_SPACE",
            Error::Forked => "EB_FORKED",
            Error::Unsupported { .. } => "EB_UNSUPPORTED",
            Error::Usage { .. } => "EB_USAGE",
            Error::System { .. } => "EB_SYSTEM",
        }
    }

    /// A [`Error::Usage`] from a sentence.
    pub fn usage(message: impl Into<String>) -> Self {
        Error::Usage { message: message.into() }
    }

    /// The [`Error::Mismatch`] of a collective of this name in which one rank does not send the count that another one expects.
    pub fn counts_differ(collective: &str, [from, to]: [usize; 2], sends: usize, expects: usize) -> Self {
        Error::Mismatch {
            rank_a: from,
            call_a: format!("{collective} that gives {sends} elements to rank {to}"),
            rank_b: to,
            call_b: format!("{collective} that expects {expects} elements of rank {from}"),
        }
    }

    /// A [`Error::System`] from what was attempted and the system's answer, with the number of that where it has one.
    pub fn system(context: impl Into<String>, reason: impl ToString + 'static) -> Self {
        let answer: &dyn Any = &reason;
        let errno = match (answer.downcast_ref::<Errno>(), answer.downcast_ref::<io::Error>()) {
            (Some(errno), _) => Some(errno.raw_os_error()),
            (_, Some(error)) => error.raw_os_error(),
            _ => None,
        };
        Error::numbered(context.into(), reason.to_string(), errno)
    }

    /// Adds the rank to the error's text, for the other ranks.
    #[doc(hidden)]
    pub fn of_rank(self, rank: usize) -> Self {
        let named = |text: String| if text.starts_with("rank ") { text } else { format!("rank {rank}: {text}") };
        match self {
            Error::Usage { message } => Error::Usage { message: named(message) },
            Error::Unsupported { what, hint } => Error::Unsupported { what: named(what), hint },
            Error::System { context, reason, errno, .. } => Error::numbered(named(context), reason, errno),
            Error::NoSpace { needed, free, hint } => Error::NoSpace { needed, free, hint: named(hint) },
            other => other,
        }
    }

    /// An [`Error::System`] with this number.
    pub(crate) fn numbered(context: String, reason: String, errno: Option<i32>) -> Self {
        Error::System { context, reason, errno, source: errno.map(SystemSource::from) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn a_refusal_keeps_the_number_that_the_system_gave() {
        let errno = |error| match error {
            Error::System { errno, .. } => errno,
            other => panic!("{other}"),
        };
        assert_eq!(errno(Error::system("mapping", Errno::NOMEM)), Some(12));
        assert_eq!(errno(Error::system("opening", std::io::Error::from_raw_os_error(2))), Some(2));
        assert_eq!(errno(Error::system("reading", "three bytes only")), None);
    }

    #[test]
    fn the_source_of_a_refusal_is_the_error_of_the_system() {
        let error = Error::system("opening", Errno::NOENT).clone();
        let source = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        assert_eq!(source.map(io::Error::kind), Some(io::ErrorKind::NotFound));
        assert!(Error::system("reading", "three bytes only").source().is_none());
        assert_ne!(error, Error::numbered("opening".into(), Errno::NOENT.to_string(), Some(1)));
    }

    #[test]
    fn the_rank_stands_before_the_text() {
        let full = Error::NoSpace { needed: 7, free: 3, hint: "free some".into() };
        assert_eq!(full.of_rank(2), Error::NoSpace { needed: 7, free: 3, hint: "rank 2: free some".into() });
        assert_eq!(
            Error::system("opening", Errno::NOENT).of_rank(0).of_rank(1).to_string(),
            "rank 0: opening: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn debug_prints_what_display_prints() {
        for error in [Error::Forked, Error::usage("two\nlines"), Error::system("opening", Errno::NOENT)] {
            assert_eq!(format!("{error:?}"), error.to_string());
            assert_eq!(format!("{:?}", Err::<(), _>(error.clone())), format!("Err({error})"));
        }
    }
}
