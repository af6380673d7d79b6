//! The trace of a job, read for one communicator: its late ranks, and how long its calls took after the last had come.

use crate::errors::OrException;
use earlybird::trace::{self, Trace, TracedCall, quantile};
use pyo3::prelude::*;
use std::path::PathBuf;

/// A rank's number in the job, calls, those at which it was last, nanoseconds behind the first (median and 99 %), that it made
/// others wait, and that it waited itself.
type RankRow = (usize, i64, i64, i64, i64, i64, i64);

/// Returns a row for each rank of the communicator that is traced under this number in the files `path.RANK`, and the median
/// and the 99 % of its calls' tails in nanoseconds.
#[pyfunction]
pub fn read_lateness(py: Python<'_>, path: PathBuf, communicator: u64) -> PyResult<(Vec<RankRow>, [i64; 2])> {
    let lateness = py.detach(|| {
        let trace = Trace::read(&path)?;
        let clocks = trace::align(&trace);
        let offset = |file: usize, at| {
            clocks.iter().find(|clock| clock.files.contains(&file)).map_or(0, |clock| clock.offset(at))
        };
        let is_asked = |call: &TracedCall| call.parts[0].record.communicator == communicator && call.is_shared();
        let mut calls = trace::calls(&trace, offset);
        calls.retain(is_asked);
        let mut tails: Vec<i64> = calls.iter().filter_map(TracedCall::tail).collect();
        let ranks = trace::by_rank(&calls, trace.ranks.len());
        let rows = ranks.into_iter().zip(&trace.ranks).filter(|(rank, _)| rank.calls > 0);
        let rows = rows.map(|(mut rank, file)| {
            let [median, most] = ends(&mut rank.behind);
            (file.header.rank, rank.calls, rank.last, median, most, rank.caused, rank.waited)
        });
        Ok((rows.collect(), ends(&mut tails)))
    });
    lateness.or_exception(py)
}

/// The median and the value that 1 % of the values exceed; 0 where there are none.
fn ends(values: &mut [i64]) -> [i64; 2] {
    [0.5, 0.99].map(|part| quantile(values, part).unwrap_or(0))
}
