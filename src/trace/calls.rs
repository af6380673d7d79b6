//! Calls of a job: the records of all ranks of a communicator under one number, on one time line.

use super::read::Trace;
use super::record::{CallOutcome, Record};
use crate::Collective;
use std::collections::BTreeMap;

/// A rank's part in a call. Times are nanoseconds by the clock of the first rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TracedPart {
    /// The place of the rank's file in [`Trace::ranks`].
    pub file: usize,
    pub arrival: i64,
    /// The entry of the wait for a non-blocking call, otherwise the arrival.
    pub waiting: i64,
    /// `None` if the rank has not seen the end.
    pub exit: Option<i64>,
    pub record: Record,
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracedCall {
    pub collective: Collective,
    /// Bytes of the largest block of any rank.
    pub bytes: u64,
    /// The parts of the ranks, in the order of their files.
    pub parts: Vec<TracedPart>,
    /// All ranks of the communicator have arrived, in the same collective.
    pub is_whole: bool,
}

impl TracedCall {
    /// The parts by arrival, the first one and the last one.
    pub fn ends(&self) -> (&TracedPart, &TracedPart) {
        let first = self.parts.iter().min_by_key(|part| part.arrival);
        let last = self.parts.iter().max_by_key(|part| part.arrival);
        (first.expect("a call has a part"), last.expect("a call has a part"))
    }

    /// Time from the last arrival to the last exit, if every rank has come back.
    pub fn tail(&self) -> Option<i64> {
        let exits: Option<Vec<i64>> = self.parts.iter().map(|part| part.exit).collect();
        Some(exits?.into_iter().max()? - self.ends().1.arrival)
    }

    /// Returns whether no rank can leave before all have arrived: a call that fails may end at any time.
    pub fn synchronizes(&self) -> bool {
        let has_failed = self.parts.iter().any(|part| part.record.outcome == CallOutcome::Failed);
        match self.collective {
            Collective::Barrier => !has_failed,
            Collective::AllReduce => !has_failed && self.bytes > 0,
            _ => false,
        }
    }
}

/// The calls in the order of their first arrivals; `offsets` are added to the times of each file. Calls that were refused
/// before any other rank saw them are left out.
pub fn calls(trace: &Trace, offset: impl Fn(usize, u64) -> i64) -> Vec<TracedCall> {
    let mut calls: BTreeMap<(u64, u64), Vec<TracedPart>> = BTreeMap::new();
    for (file, rank) in trace.ranks.iter().enumerate() {
        for record in rank.records.iter().filter(|record| record.outcome != CallOutcome::Refused) {
            let time = |ns: u64| (ns as i64).saturating_add(offset(file, ns));
            let exit = (record.exit != 0).then(|| time(record.exit));
            let (arrival, waiting) = (time(record.arrival), time(record.waiting));
            let part = TracedPart { file, arrival, waiting, exit, record: *record };
            calls.entry((record.communicator, record.number)).or_default().push(part);
        }
    }
    let mut calls: Vec<TracedCall> = calls.into_values().map(call).collect();
    calls.sort_by_key(|call| call.ends().0.arrival);
    calls
}

fn call(parts: Vec<TracedPart>) -> TracedCall {
    let first = parts[0].record;
    let is_whole = parts.len() == first.size as usize
        && parts.iter().all(|part| (part.record.collective, part.record.size) == (first.collective, first.size));
    let bytes = parts.iter().map(|part| part.record.bytes).max().unwrap_or(0);
    TracedCall { collective: first.collective, bytes, parts, is_whole }
}
