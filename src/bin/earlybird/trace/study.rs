//! The calls of a trace on one time line, and the quantities that the sections of the report share.

use earlybird::Error;
use earlybird::trace::{self, ClockFit, RankTrace, Trace, TracedCall, TracedPart};
use std::path::{Path, PathBuf};

/// A trace and its calls.
pub struct Study {
    path: PathBuf,
    pub trace: Trace,
    clocks: Vec<ClockFit>,
    pub calls: Vec<TracedCall>,
    /// The node of each file's rank: a node has the ranks of one host and one virtual node.
    pub nodes: Vec<usize>,
}

impl Study {
    /// Reads the files of a job.
    ///
    /// # Errors
    /// The errors of [`Trace::read`].
    pub fn read(path: &Path) -> Result<Study, Error> {
        let trace = Trace::read(path)?;
        let clocks = trace::align(&trace);
        let clock_of = |file: usize| clocks.iter().find(|clock| clock.files.contains(&file));
        let of_file: Vec<_> = (0..trace.ranks.len()).map(clock_of).collect();
        let calls = trace::calls(&trace, |file, at| of_file[file].map_or(0, |clock| clock.offset(at)));
        let mut known = Vec::new();
        let nodes = trace.ranks.iter().map(|rank| {
            let node = (rank.header.clock, rank.header.virtual_node);
            known.iter().position(|other| *other == node).unwrap_or_else(|| {
                known.push(node);
                known.len() - 1
            })
        });
        let nodes = nodes.collect();
        Ok(Study { path: path.to_path_buf(), calls, nodes, clocks, trace })
    }

    /// The calls that ended after this moment, or have not ended.
    pub fn since(mut self, moment: i64) -> Study {
        let goes_on = |part: &TracedPart| part.exit.is_none_or(|exit| exit > moment);
        self.calls.retain(|call| call.parts.iter().any(goes_on));
        self
    }

    /// The rank of a file.
    pub fn rank(&self, file: usize) -> usize {
        self.trace.ranks[file].header.rank
    }

    /// The name of the algorithm that carried out a rank's part.
    pub fn algorithm(&self, part: &TracedPart) -> &str {
        self.trace.ranks[part.file].algorithm(&part.record)
    }

    /// The calls at which all of at least two ranks have arrived.
    pub fn shared_calls(&self) -> impl Iterator<Item = &TracedCall> {
        self.calls.iter().filter(|call| call.is_shared())
    }

    /// The first moment of the trace.
    pub fn begin(&self) -> i64 {
        self.calls.first().map_or(0, |call| call.ends().0.arrival)
    }

    /// Nanoseconds from the first arrival to the last thing that is known.
    pub fn length(&self) -> i64 {
        let parts = self.calls.iter().flat_map(|call| &call.parts);
        parts.map(|part| part.exit.unwrap_or(part.arrival)).max().map_or(0, |end| end - self.begin())
    }

    /// The file as it was read, and what is not in it.
    pub fn heading(&self) -> String {
        let sum = |of: fn(&RankTrace) -> u64| self.trace.ranks.iter().map(of).sum::<u64>();
        let (recorded, dropped) = (sum(|rank| rank.records.len() as u64), sum(|rank| rank.dropped));
        let nodes = self.nodes.iter().max().map_or(0, |last| last + 1);
        let mut lines = vec![format!(
            "{}: {} rank(s) on {nodes} node(s), {} s, {recorded} records of {} call(s)",
            self.path.display(),
            self.trace.size,
            seconds(self.length()),
            self.calls.len(),
        )];
        let present: Vec<usize> = self.trace.ranks.iter().map(|rank| rank.header.rank).collect();
        let missing: Vec<String> =
            (0..self.trace.size).filter(|rank| !present.contains(rank)).map(|rank| rank.to_string()).collect();
        if !missing.is_empty() {
            lines.push(format!("No file of rank(s) {}.", missing.join(", ")));
        }
        if dropped > 0 {
            let room = self.trace.ranks.iter().map(|rank| rank.header.capacity).min().unwrap_or(0);
            lines.push(format!(
                "{dropped} older records were dropped: files hold the last {room} of a rank; EARLYBIRD_TRACE_SIZE makes them larger."
            ));
        }
        let torn = sum(|rank| rank.torn as u64);
        if torn > 0 {
            lines.push(format!("{torn} record(s) were being written when their process was killed, and are left out."));
        }
        let partial = self.calls.iter().filter(|call| !call.is_whole).count();
        if partial > 0 {
            lines
                .push(format!("{partial} call(s) are not on record for all of their ranks: they count as calls only."));
        }
        if let Some(error) = self.trace.ranks.iter().map(|rank| rank.clock_error_ns).max().filter(|error| *error > 0) {
            lines.push(format!("Times are the processor's counter, as the monotonic clock to within {error} ns."));
        }
        for clock in &self.clocks[1..] {
            let host = &self.trace.ranks[clock.files[0]].header;
            let error = match clock.error {
                Some(error) => {
                    format!("to within {} us, by the calls in {} stretch(es) of time", us(error), clock.offsets.len())
                }
                None => "by the hosts' times of day, with an unknown error: no call of both is on record".into(),
            };
            lines.push(format!("The clock of {} (rank {}) is aligned with rank 0's {error}.", host.host, host.rank));
        }
        lines.join("\n")
    }
}

/// The class of a message size: earlybird's own limits, the papers give none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum SizeClass {
    Small,
    Medium,
    Large,
}

impl SizeClass {
    pub const ALL: [SizeClass; 3] = [SizeClass::Small, SizeClass::Medium, SizeClass::Large];

    pub fn of(bytes: u64) -> Self {
        match bytes {
            0..0x4000 => SizeClass::Small,
            0x4000..0x8_0000 => SizeClass::Medium,
            _ => SizeClass::Large,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            SizeClass::Small => "< 16 KiB",
            SizeClass::Medium => "< 512 KiB",
            SizeClass::Large => ">= 512 KiB",
        }
    }
}

pub fn us(ns: i64) -> String {
    format!("{:.1}", ns as f64 / 1e3)
}

pub fn ms(ns: i64) -> String {
    format!("{:.2}", ns as f64 / 1e6)
}

pub fn seconds(ns: i64) -> String {
    format!("{:.3}", ns as f64 / 1e9)
}

pub fn percent(part: i64, whole: i64) -> String {
    if whole == 0 { "-".into() } else { format!("{:.1}", 100.0 * part as f64 / whole as f64) }
}

/// The arithmetic mean; 0 of nothing.
pub fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (count, sum) = values.into_iter().fold((0, 0.0), |(count, sum), value| (count + 1, sum + value));
    if count == 0 { 0.0 } else { sum / f64::from(count) }
}
