//! The trace of a job: every collective call of every rank, in one file per rank that can be read whatever became of the rank.
//!
//! `recorder` writes while the job runs, a `record` per call with the times of `record_clock`, `outside` those of another library; `read` makes records of files and
//! refuses damaged ones, `clocks` puts ranks of several hosts on one time line, `calls` joins the records of all ranks into calls,
//! `lateness` sums up who was late. `checksum` is what damage shows by, and `docs/trace.md` has the format.

mod calls;
mod checksum;
mod clocks;
mod format;
mod lateness;
mod outside;
mod read;
mod record;
mod record_clock;
mod recorder;

pub use calls::{TracedCall, TracedPart, calls};
pub use clocks::{ClockFit, align};
pub use format::{Header, TracedProcess};
pub use lateness::{RankLateness, by_rank, quantile};
pub use outside::{OutsideCall, OutsideCalls};
pub use read::{RankTrace, Trace, parse};
pub use record::{CallOutcome, Record};
pub use recorder::DEFAULT_BYTES;
pub(crate) use recorder::{CallTrace, NewRecord, Recorder};
