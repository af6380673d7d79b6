//! One time line for ranks of several hosts, from nothing but the trace: no rank leaves a barrier or an allreduce before every
//! rank has arrived, so each such call bounds the difference between two hosts' clocks from both sides.
//!
//! A rank of host B that leaves after the last arrival on host A says that B's clock is at most so far behind, and the other way
//! round. The tightest bounds of all calls leave an interval; its middle is taken, and half its width is the error. It is as
//! narrow as the fastest calls, once each host has been last. Where clocks drift, so that no one difference fits all calls, time
//! is halved until one fits each part.

use super::calls::{TracedCall, calls};
use super::read::Trace;
use std::collections::BTreeMap;

/// The clock of one host against that of the first rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockFit {
    /// Places of the files with this clock.
    pub files: Vec<usize>,
    /// Offsets that are added to the readings of this clock, each with the last reading for which it holds.
    pub offsets: Vec<(u64, i64)>,
    /// The largest error of the offsets in nanoseconds; `None` where no call bounds them and the hosts' times of day were taken.
    pub error: Option<i64>,
}

impl ClockFit {
    /// The offset at a reading of this clock.
    pub fn offset(&self, at: u64) -> i64 {
        let fit = self.offsets.iter().find(|(end, _)| at <= *end).or(self.offsets.last());
        fit.map_or(0, |(_, offset)| *offset)
    }
}

/// The clocks of all files, that of the first rank first, whose offset is 0.
pub fn align(trace: &Trace) -> Vec<ClockFit> {
    let mut clocks: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
    for (file, rank) in trace.ranks.iter().enumerate() {
        clocks.entry(rank.header.clock).or_default().push(file);
    }
    let mut clocks: Vec<Vec<usize>> = clocks.into_values().collect();
    clocks.sort_by_key(|files| files[0]);
    let raw = if clocks.len() > 1 { calls(trace, |_, _| 0) } else { Vec::new() };
    let fit = |(at, files): (usize, &Vec<usize>)| match at {
        0 => ClockFit { files: files.clone(), offsets: vec![(u64::MAX, 0)], error: Some(0) },
        _ => fitted(trace, &raw, &clocks[0], files),
    };
    clocks.iter().enumerate().map(fit).collect()
}

/// A call's bounds of the offset, and its time in the clock that the offset is for.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    at: u64,
    least: i64,
    most: i64,
}

fn fitted(trace: &Trace, calls: &[TracedCall], reference: &[usize], files: &[usize]) -> ClockFit {
    let mut bounds: Vec<Bounds> = calls.iter().filter_map(|call| bounds_of(call, reference, files)).collect();
    bounds.sort_by_key(|bounds| bounds.at);
    if bounds.is_empty() {
        let time = |file: usize| {
            let header = &trace.ranks[file].header;
            header.realtime_ns as i64 - header.monotonic_ns as i64
        };
        let offset = time(files[0]) - time(reference[0]);
        return ClockFit { files: files.to_vec(), offsets: vec![(u64::MAX, offset)], error: None };
    }
    let mut fit = ClockFit { files: files.to_vec(), offsets: Vec::new(), error: Some(0) };
    halve(&bounds, &mut fit);
    fit
}

fn bounds_of(call: &TracedCall, reference: &[usize], files: &[usize]) -> Option<Bounds> {
    if !call.is_whole || !call.synchronizes() {
        return None;
    }
    let of = |files: &[usize]| {
        let parts = || call.parts.iter().filter(|part| files.contains(&part.file));
        let exit = parts().filter_map(|part| part.exit).min()?;
        Some((parts().map(|part| part.arrival).max()?, exit))
    };
    let ((arrival, exit), (their_arrival, their_exit)) = (of(reference)?, of(files)?);
    Some(Bounds { at: their_exit as u64, least: arrival - their_exit, most: exit - their_arrival })
}

/// Fits one offset to these calls, or one to each half of them where none fits all.
fn halve(bounds: &[Bounds], fit: &mut ClockFit) {
    let least = bounds.iter().map(|bounds| bounds.least).max().expect("there are calls");
    let most = bounds.iter().map(|bounds| bounds.most).min().expect("there are calls");
    if least > most && bounds.len() > 1 {
        let (before, after) = bounds.split_at(bounds.len() / 2);
        halve(before, fit);
        halve(after, fit);
        return;
    }
    let end = bounds.last().expect("there are calls").at;
    fit.offsets.push((end, least.midpoint(most)));
    fit.error = fit.error.max(Some((most - least).unsigned_abs().div_ceil(2) as i64));
}

#[cfg(test)]
mod tests {
    use super::super::format::Header;
    use super::super::read::RankTrace;
    use super::super::record::tests::record;
    use super::super::record::{CallOutcome, Record};
    use super::*;
    use crate::pattern::mix;

    /// Two hosts of one rank each: the clock of the second is `offset(time)` behind, and calls take 2 to 12 us.
    fn trace(calls: u64, offset: impl Fn(u64) -> i64) -> Trace {
        let rank = |rank: usize| {
            let (clock, monotonic_ns, host) = (rank as u64 + 3, 50, String::new());
            let realtime_ns = monotonic_ns + if rank == 0 { 0 } else { 400 };
            let (capacity, process, virtual_node) = (1024, 1, 0);
            let header = Header {
                capacity,
                rank,
                size: 2,
                job: 1,
                clock,
                monotonic_ns,
                realtime_ns,
                virtual_node,
                process,
                host,
            };
            let own = |time: u64| if rank == 0 { time } else { (time as i64 - offset(time)) as u64 };
            let records = (1..=calls).map(|number| {
                let arrivals = [0, 1].map(|rank| 10_000_000 + number * 1_000_000 + mix(number * 2 + rank) % 100_000);
                let exit = arrivals.into_iter().max().unwrap() + 2_000 + mix(number) % 10_000;
                Record { arrival: own(arrivals[rank]), exit: own(exit), ..record(number) }
            });
            RankTrace {
                header,
                algorithms: Vec::new(),
                records: records.collect(),
                dropped: 0,
                torn: 0,
                clock_error_ns: 0,
            }
        };
        Trace { size: 2, ranks: vec![rank(0), rank(1)] }
    }

    #[test]
    fn the_difference_between_two_clocks_is_found_within_the_stated_error() {
        for behind in [0, 7_000_000, -9_000_000] {
            let fits = align(&trace(500, |_| behind));
            let (error, offset) = (fits[1].error.unwrap(), fits[1].offset(20_000_000));
            assert!((offset - behind).abs() <= error && error < 4_000, "{behind}: {offset} +- {error}");
            assert_eq!((fits[0].offset(1), fits[0].error, fits.len()), (0, Some(0), 2));
        }
    }

    #[test]
    fn drifting_clocks_are_fitted_in_parts() {
        // 200 ppm: 100 us over the trace, where calls bound the difference to some microseconds.
        let drift = |time: u64| (time / 5000) as i64;
        let fits = align(&trace(500, drift));
        assert!(fits[1].offsets.len() > 4, "{fits:?}");
        for time in [20_000_000, 250_000_000, 500_000_000] {
            let (found, is) = (fits[1].offset(time - drift(time) as u64), drift(time));
            assert!((found - is).abs() < 20_000, "{time}: {found} for {is}");
        }
    }

    #[test]
    fn a_call_that_has_failed_tells_nothing_of_clocks() {
        let whole = trace(500, |_| 7_000_000);
        let mut failed = whole.clone();
        for rank in &mut failed.ranks {
            // As if the first rank had left long before the second came.
            let record = &mut rank.records[250];
            (record.outcome, record.exit) = (CallOutcome::Failed, record.arrival - 90_000);
        }
        assert_eq!(align(&failed)[1].offset(20_000_000), align(&whole)[1].offset(20_000_000));
    }

    #[test]
    fn without_a_call_the_hosts_times_of_day_are_taken_without_an_error() {
        let fits = align(&trace(0, |_| 0));
        assert_eq!((fits[1].offset(9), fits[1].error), (400, None));
    }
}
