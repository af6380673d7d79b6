//! The rows of the result.

use super::stats::{Bounds, Caveat};
use serde::Serialize;

/// One line of the result. Field names and their order are the CSV's header.
#[derive(Debug, Clone, Serialize)]
pub struct Row {
    pub op: &'static str,
    pub ranks: usize,
    pub bytes: u64,
    pub dtype: &'static str,
    pub pattern: &'static str,
    pub algorithm: String,
    pub iterations: usize,
    pub tail_us_median: f64,
    pub tail_us_p99: f64,
    pub latency_us_median: f64,
    pub call_us_mean: f64,
    pub cpu_us_mean: f64,
    pub wrong: u64,
    pub nodes: usize,
    /// The multiple of the balanced time; `None` where the delay was given instead.
    pub mif: Option<f64>,
    pub delay_us: f64,
    pub order: &'static str,
    pub buffers: &'static str,
    pub chosen: String,
    /// Processor time of the computation in every call, which tail, latency and processor time contain.
    pub compute_us: f64,
    /// Per cent by which blocks are longer and shorter than `bytes`.
    pub skew: u8,
    /// The median of the time by which algorithms are compared, with its 95 % confidence interval, not rounded: the tail, but where ranks that
    /// outnumber the CPUs are to come at once, the latency. There the last rank comes when those before it leave it a CPU, and what they have
    /// done by then is not in the tail.
    #[serde(skip)]
    pub compared_us: Bounds,
    /// The tail over that of static-leader in the same round of calls, if that was measured.
    #[serde(skip)]
    pub versus_baseline: Option<Bounds>,
    /// Reasons to distrust the tails.
    #[serde(skip)]
    pub caveats: Vec<Caveat>,
}

impl Row {
    /// The values for readers, each with the name of its column.
    pub fn cells(&self) -> [(&'static str, String); 12] {
        let us = |us: f64| format!("{us:.2}");
        [
            ("bytes", self.bytes.to_string()),
            ("pattern", self.pattern.to_string()),
            ("delay us", format!("{:.1}", self.delay_us)),
            ("algorithm", self.algorithm.clone()),
            ("chosen", self.chosen.clone()),
            ("calls", self.iterations.to_string()),
            ("tail us", us(self.tail_us_median)),
            ("p99", us(self.tail_us_p99)),
            ("latency us", us(self.latency_us_median)),
            ("call us", us(self.call_us_mean)),
            ("cpu us", us(self.cpu_us_mean)),
            ("wrong", self.wrong.to_string()),
        ]
    }

    /// True for rows of the same size, pattern and delay, which can be compared.
    pub fn is_comparable_to(&self, other: &Row) -> bool {
        (self.bytes, self.pattern, self.mif) == (other.bytes, other.pattern, other.mif)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn row(bytes: u64, algorithm: &'static str, tail_us_median: f64) -> Row {
        Row {
            op: "allreduce",
            ranks: 2,
            bytes,
            dtype: "f32",
            pattern: "random",
            algorithm: algorithm.into(),
            iterations: 10,
            tail_us_median,
            tail_us_p99: 9.0,
            latency_us_median: 3.0,
            call_us_mean: 2.0,
            cpu_us_mean: 1.0,
            wrong: 0,
            nodes: 1,
            mif: Some(10.0),
            delay_us: 5.0,
            order: "arrival",
            buffers: "private",
            chosen: algorithm.into(),
            compute_us: 0.0,
            skew: 0,
            compared_us: Bounds { low: tail_us_median * 0.99, median: tail_us_median, high: tail_us_median * 1.01 },
            versus_baseline: None,
            caveats: Vec::new(),
        }
    }
}
